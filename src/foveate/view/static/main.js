// The page: panels over one App. Each has an element of its own in index.html, and knows no other.
import { App } from "./app.js";
import { mountAnswers } from "./answers.js";
import { mountCell } from "./cell.js";
import { mountClip } from "./clip.js";
import { mountDialogue } from "./dialogue.js";
import { mountExport } from "./export.js";
import { mountGallery } from "./gallery.js";
import { mountLook } from "./look.js";
import { mountPlanes } from "./planes.js";
import { mountQuestions } from "./questions.js";
import { mountStage } from "./stage.js";
import { mountTokens } from "./tokens.js";

const PANELS = {
  gallery: mountGallery, stage: mountStage, clip: mountClip, planes: mountPlanes, questions: mountQuestions, tokens: mountTokens,
  look: mountLook, cell: mountCell, dialogue: mountDialogue, answers: mountAnswers, actions: mountExport,
};

const app = new App();
for (const [id, mount] of Object.entries(PANELS)) mount(app, document.getElementById(id));
const status = document.getElementById("status");
app.on("problem", (problem) => {
  status.hidden = false;
  status.textContent = [problem.received, problem.fix].filter(Boolean).join(". ");
});
for (const kind of ["loading", "image"]) app.on(kind, () => { status.hidden = true; });

addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer.files[0]) app.open(event.dataTransfer.files[0]);
});
addEventListener("paste", (event) => { if (event.clipboardData.files[0]) app.open(event.clipboardData.files[0]); });
window.foveate = app; // for the console, and for tests
app.start();
