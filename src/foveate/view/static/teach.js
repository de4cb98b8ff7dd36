// Words that are taught: a box that is drawn over the picture gets a name, and can be asked for at once. By keys the box
// goes from the pinned cell to the one that the arrows lead to.
import { getBytes, getJson, postJson } from "./api.js";
import { make, trouble } from "./dom.js";
import { rectangle, strokeTwice } from "./layers.js";
import { boxOf } from "./pointer.js";
import { MOST_QUESTIONS } from "./state.js";

const LEAST = 8; // pixels of the screen: a shorter drag is a click

export function mountTeach(app, root) {
  const draw = make("button", { type: "button", onclick: () => begin(!drawing) }, "Draw a box");
  const name = make("input", { type: "text", autocomplete: "off", maxLength: 80, "aria-label": "Name of the word",
    placeholder: "“our logo”" });
  const send = make("button", { type: "submit", className: "main" }, "Teach");
  const form = make("form", { className: "buttons", onsubmit(event) { event.preventDefault(); teach(); } }, name, send);
  const note = make("p", { className: "note", role: "status" }), words = make("p", { className: "note" });
  const keep = make("button", { type: "button", onclick: save }, "Save words.fov");
  const buttons = make("div", { className: "buttons" }, draw, keep);
  root.append(make("details", { className: "fold" }, make("summary", {}, make("h2", {}, "Teach a word")),
    buttons, form, note, words));
  let drawing = false, from = null, drawn = null, known = [];

  app.marks.push((context, unit) => {
    const box = boxNow();
    if (!box || !(drawn || drawing)) return;
    const [y0, x0, y1, x1] = box;
    strokeTwice(context, rectangle(x0, y0, x1, y1), "#ffffff", 3 * unit, "miter");
  });
  const stage = document.getElementById("stage");
  stage.addEventListener("pointerdown", (event) => {
    if (!drawing || event.target.tagName !== "CANVAS" || !app.point) return;
    from = { at: app.point, x: event.clientX, y: event.clientY };
    drawn = null;
    event.target.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  stage.addEventListener("pointermove", (event) => {
    if (from && Math.hypot(event.clientX - from.x, event.clientY - from.y) >= LEAST) {
      const to = app.pointed.map((share) => Math.min(1, Math.max(0, share)));
      drawn = { image: app.image.id, box: spanned(from.at, to) };
      app.tell("hover");
    }
  });
  addEventListener("pointerup", () => {
    if (from && drawn) { begin(false); name.focus(); }
    from = null;
  });
  for (const kind of ["state", "image", "session", "hover"]) app.on(kind, show);
  change();

  function begin(on) {
    drawing = app.drawing = on;
    if (on) drawn = null;
    note.replaceChildren(on ? "Drag over the thing. By keys: pin a cell with Enter, go to the other corner by the arrows."
      : "");
    app.tell("hover");
  }

  function spanned([y, x], [v, u]) {
    const { height, width } = app.image;
    return [Math.min(y, v) * height, Math.min(x, u) * width, Math.max(y, v) * height, Math.max(x, u) * width];
  }

  // [y0, x0, y1, x1] in pixels of the image, or null.
  function boxNow() {
    if (!app.image) return null;
    if (drawn) return drawn.image === app.image.id ? drawn.box : null;
    if (app.state.pin === null || app.hovered === null || !app.walked) return null;
    const [a, b] = [app.state.pin, app.hovered].map((cell) => boxOf(app.grid, app.image, cell));
    return [Math.min(a.y0, b.y0), Math.min(a.x0, b.x0), Math.max(a.y1, b.y1), Math.max(a.x1, b.x1)];
  }

  async function teach() {
    const box = boxNow(), text = name.value.trim();
    if (!box || !text) { note.replaceChildren("Draw a box around the thing, and give it a name."); return; }
    send.disabled = true;
    const done = await change("/api/words", { image: app.image.id, word: text, box });
    send.disabled = false;
    if (!done) return;
    drawn = null;
    name.value = "";
    note.replaceChildren("Taught. A few boxes more, in other pictures, make it better.");
    const { questions, active } = app.state, free = questions.findIndex((each) => !each.trim());
    const next = free >= 0 ? free : questions.length < MOST_QUESTIONS ? questions.length : active;
    if (questions.includes(text)) app.set({ active: questions.indexOf(text) });
    else app.set({ questions: Object.freeze(questions.toSpliced(next, 1, text)), active: next });
  }

  // Ask the server for the words there are, after a change if there is one; -> whether it was made.
  async function change(path, body) {
    try {
      known = (await (path ? postJson(path, body) : getJson("/api/words"))).words;
      if (path) app.askAgain();
      if (path) note.replaceChildren();
      return true;
    } catch (problem) {
      note.replaceChildren(trouble(problem));
      return false;
    } finally {
      show();
    }
  }

  async function save() {
    const link = make("a", { href: URL.createObjectURL(await getBytes("/api/words.fov")), download: "words.fov" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function show() {
    root.hidden = !app.image || !app.asking || (app.session?.encoding?.encoder ?? "nano") !== "nano";
    draw.setAttribute("aria-pressed", String(drawing));
    keep.hidden = !known.length;
    words.replaceChildren(...known.flatMap((word) =>
      [make("button", { type: "button", className: "chip", title: `Forget “${word.name}”`,
        onclick: () => change("/api/words/forget", { word: word.name }) }, `${word.name} · ${word.boxes} ×`), " "]));
  }
}
