// The page: panels over one App. Each has an element of its own in index.html, and knows no other.
import { App } from "./app.js";
import { getJson } from "./api.js";
import { mountCell } from "./cell.js";
import { mountClip } from "./clip.js";
import { mountDialogue } from "./dialogue.js";
import { mountExport } from "./export.js";
import { mountGallery } from "./gallery.js";
import { mountLook } from "./look.js";
import { mountModel } from "./model.js";
import { mountPage } from "./page.js";
import { mountPlanes } from "./planes.js";
import { mountQuestions } from "./questions.js";
import { mountStage } from "./stage.js";
import { mountTeach } from "./teach.js";
import { mountTokens } from "./tokens.js";
import { mountWelcome } from "./welcome.js";

const PANELS = {
  page: mountPage, gallery: mountGallery, stage: mountStage, welcome: mountWelcome, clip: mountClip,
  planes: mountPlanes, questions: mountQuestions, tokens: mountTokens, look: mountLook, cell: mountCell,
  teach: mountTeach,
  dialogue: mountDialogue, model: mountModel, actions: mountExport,
};

const app = new App();
app.examples = getJson("/api/examples").then(({ examples }) => examples, () => []); // without them nothing is missing
for (const [id, mount] of Object.entries(PANELS)) mount(app, document.getElementById(id));
window.foveate = app; // for the console, and for tests
app.start();
