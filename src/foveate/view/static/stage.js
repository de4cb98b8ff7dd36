// The image with what the questions find in it: one picture, or one for each question. Each is a canvas that is painted
// at most once a frame; all show the same part of the image.
import { make } from "./dom.js";
import { makeCanvas } from "./layers.js";
import { keptByKind, mountLegend } from "./legend.js";
import { paintPicture } from "./picture.js";
import { drawMarks, watchCells } from "./pointer.js";
import { plain, scaleOf } from "./scales.js";
import { VIEWS } from "./state.js";
import { briefly } from "./why.js";
import { placed, scaledTo, watchZoom, WHOLE } from "./zoom.js";

const PAPER = [252, 252, 250]; // of an export: the same data make the same picture, whatever the page looks like
const PICTURE = { tabIndex: 0, role: "application", "aria-roledescription": "picture with cells" }; // it takes keys
const WHITE = "rgb(255 255 255)", LARGEST = 4e6; // pixels of a canvas on the screen
const CLOSE = 420; // an export's lines are its long side / CLOSE, as foveate.viz draws

export function mountStage(app, root) {
  const views = makeViews(app), pictures = make("div", { className: "pictures" });
  const legend = make("div", { className: "legend" });
  const zoom = { view: WHOLE }, scales = new Map(), panels = [];
  const write = (view) => { zoom.view = view; repaint(); };
  const drags = (view) => app.drawing && view.scale === zoom.view.scale; // a box is drawn, and nothing moved
  const zoomer = makeZoomer(() => zoom.view, (view) => { if (!drags(view)) write(view); });
  const readout = make("p", { className: "readout" }); // of the cell under the pointer
  const foot = make("div", { className: "foot", hidden: true }, legend, readout, zoomer.element);
  root.append(views.element, pictures, foot);
  const showLegend = mountLegend(app, legend);
  let asked = false;
  const repaint = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paint(); }); } };
  for (const kind of ["state", "session", "answer", "hover", "overlay"]) app.on(kind, repaint);
  let size = "";
  app.on("image", () => {
    const { width, height, id } = app.image;
    if (size !== (size = `${id} ${width} ${height}`)) zoom.view = WHOLE;
    repaint();
  });
  app.zoom = { by: (times) => write(scaledTo(zoom.view, zoom.view.scale * times)), whole: () => write(WHOLE) };
  new ResizeObserver(repaint).observe(pictures);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("themechange", repaint);
  app.pictures = () => scenes(PAPER).map(({ seen }) => {
    const { width, height } = app.image, canvas = makeCanvas(width, height);
    paintPicture(canvas, app.image, app.grid, seen, Math.max(1, Math.max(height, width) / CLOSE));
    const questions = seen.overlay || seen.view === "photo" ? [] : seen.layers.map((layer) => layer.question);
    return { canvas, questions, minus: seen.minus ? app.other() : null };
  });
  app.colourBar = () => showLegend.bar(scenes(PAPER));
  panelAt(0); // so that there is a canvas from the beginning

  // What is seen, on the page's paper or another: [{question, text, seen (picture.js)}].
  function scenes(paper = paperOf(document.body)) {
    const { state } = app, on = app.questionsOn();
    const common = {
      view: state.view, opacity: state.opacity, threshold: state.threshold, overlay: app.overlay ?? null, paper,
    };
    const scene = (question, layers, more = {}) =>
      ({ question, text: (state.questions[question] ?? "").trim(), seen: { ...common, layers, ...more } });
    const layersOf = (i, ownColour) => {
      const answer = app.shown(i), map = answer?.maps[state.grid];
      if (!map) return [];
      const colour = app.session.colours.questions[i % app.session.colours.questions.length];
      const own = `rgb(${colour.join(" ")})`;
      return [{
        question: i, map, kept: needsKept(state.view) ? app.kept(i) : undefined, found: answer.header.followed,
        level: answer.header.levels[state.grid],
        header: answer.header, sent: answer.sent?.[state.grid],
        scale: ownColour ? plainScale(colour) : scale(state.colours), line: ownColour ? own : WHITE, edge: own,
        areas: keptByKind(app, i)?.map(({ cells, colour: ink }) => [cells, ink]),
        boxes: state.boxes ? answer.header.boxes : undefined,
      }];
    };
    if (state.view === "difference") {
      const minus = app.shown(app.other())?.maps[state.grid], layers = layersOf(state.active, false);
      return [scene(state.active, minus ? layers : [], { minus })];
    }
    if (state.many === "beside" && on.length > 1) return on.map((i) => scene(i, layersOf(i, false)));
    if (state.many === "together" && on.length > 1) return [scene(state.active, on.flatMap((i) => layersOf(i, true)))];
    return [scene(state.active, layersOf(state.active, false))];
  }

  function scale(name) {
    if (!scales.has(name)) scales.set(name, scaleOf(name, app.session.colours.heat));
    return scales.get(name);
  }

  function plainScale(colour) {
    const name = colour.join(" ");
    if (!scales.has(name)) scales.set(name, plain(colour));
    return scales.get(name);
  }

  function paint() {
    views.show();
    foot.hidden = !app.image;
    if (!app.image || !app.session) return;
    const found = scenes(), { width, height } = app.image;
    while (panels.length < found.length) panelAt(panels.length);
    panels.forEach(({ figure }, i) => { figure.hidden = i >= found.length; });
    arrange(pictures, found.length, width / height);
    root.style.setProperty("--aspect", found.length > 1 ? 1 : width / height); // no room is left on a phone
    pictures.classList.toggle("several", app.state.many === "beside" && found.length > 1);
    found.forEach((each, i) => paintPanel(panels[i], each));
    zoomer.show(zoom.view.scale);
    showLegend(found);
    readout.textContent = app.hovered === null ? "" : briefly(app, app.hovered);
  }

  function paintPanel({ canvas, frame, caption }, { question, text, seen }) {
    const { width, height } = app.image, room = { width: frame.clientWidth, height: frame.clientHeight };
    if (!room.width || !room.height) return;
    const at = placed(zoom.view, app.image, room), sharp = at.fit * devicePixelRatio;
    zoom.view = at.view;
    for (const side of ["left", "top", "width", "height"]) canvas.style[side] = `${at[side]}px`;
    canvas.style.touchAction = at.view.scale > 1 ? "none" : "pan-y";
    canvas.style.cursor = at.view.scale > 1 ? "grab" : "crosshair";
    const more = 2 ** Math.ceil(Math.log2(at.view.scale));
    const ratio = Math.min(sharp * more, Math.max(sharp, 2), Math.sqrt(LARGEST / (width * height)));
    const size = { width: Math.max(1, Math.round(width * ratio)), height: Math.max(1, Math.round(height * ratio)) };
    if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
    const pixel = width / at.width; // pixels of the image in one of the screen
    paintPicture(canvas, app.image, app.grid, seen, 1.5 * pixel);
    drawMarks(app, canvas.getContext("2d"), pixel); // of no export
    const header = seen.layers[0]?.header, said = describe(app.image.name, seen);
    if (canvas.getAttribute("aria-label") !== said) canvas.setAttribute("aria-label", said);
    canvas.dataset.painted = app.answer(question) && !seen.overlay ? text : ""; // for tests: what is painted
    show(caption, header, question);
  }

  function show(caption, header, question) {
    const said = header ? `${question} ${header.query} ${header.confidence} ${header.detected}` : "";
    if (caption.dataset.said === said) return;
    caption.dataset.said = said;
    caption.replaceChildren();
    if (!header) return;
    const dot = make("i", { className: "dot" });
    dot.style.background = `rgb(${app.session.colours.questions[question].join(" ")})`;
    caption.append(dot, make("span", { className: "name" }, header.query), pill(header));
  }

  function panelAt(i) {
    const canvas = make("canvas", PICTURE), frame = make("div", { className: "frame" }, canvas);
    const caption = make("figcaption");
    panels[i] = { figure: make("figure", {}, caption, frame), frame, canvas, caption };
    pictures.append(panels[i].figure);
    watchCells(app, canvas);
    watchZoom(canvas, () => zoom.view, write);
  }
}

const paperOf = (element) => getComputedStyle(element).backgroundColor.match(/\d+/g).slice(0, 3).map(Number);
const needsKept = (view) => view === "kept" || view === "both";

// Whether a question names nothing of its own, and has the map of the dialogue.
export const byDialogue = ({ prior, weight }) => prior === "history" && weight === 1;

// What was looked for in the place of a question's words.
export const inPlaceOf = ({ looked_for: others = {} }) =>
  Object.entries(others).map(([word, other]) => `${other} in place of ${word}`);

// Rounding never lifts a confidence to the threshold: 0.497, which is not detected, is 0.49.
export const inDigits = ({ confidence, detected }) =>
  (!detected && confidence < 0.5 ? Math.min(confidence, 0.49) : confidence).toFixed(2);

// Confidence, and whether the thing was found.
export function pill(header) {
  const { detected } = header;
  if (byDialogue(header)) return make("span", { className: "pill" }, "goes by the dialogue");
  return make("span", { className: `pill ${detected ? "found" : "absent"}` },
    `${inDigits(header)} ${detected ? "detected" : "not detected"}`);
}

// "confidence 0.45, not detected, looked for car in place of police car"
export const verdict = (header) => [`confidence ${inDigits(header)}`,
  header.detected ? "detected" : "not detected", ...inPlaceOf(header).map((each) => `looked for ${each}`)].join(", ");

function describe(name, { view, layers, overlay }) {
  if (overlay || view === "photo" || !layers.length) return name;
  const each = layers.map(({ header }) => `“${header.query}”, ${verdict(header)}`);
  const what = { heat: "where a question looks", kept: "the cells that are kept for",
    both: "where a question looks, and what is kept for", difference: "the difference to" }[view];
  return `${name}: ${what} ${each.join("; ")}`;
}

// As many columns as make the pictures largest.
function arrange(pictures, count, aspect) {
  const { clientWidth: width, clientHeight: height } = pictures;
  const side = (columns) => Math.min(width / columns, (height / Math.ceil(count / columns)) * aspect);
  let best = 1;
  for (let columns = 2; columns <= count; columns++) if (side(columns) > side(best)) best = columns;
  pictures.style.gridTemplateColumns = `repeat(${best}, minmax(0, 1fr))`;
}

function makeViews(app) {
  const inputs = Object.keys(VIEWS).map((view) =>
    make("input", { type: "radio", name: "view", value: view, onchange: () => app.set({ view }) }));
  const labels = inputs.map((input) => make("label", {}, input, make("span", {}, VIEWS[input.value])));
  const element = make("div", { className: "bar" },
    make("fieldset", { className: "choice" }, make("legend", {}, "View"), ...labels));
  return { element, show() {
    element.hidden = !app.image;
    const several = app.state.questions.filter((text) => text.trim()).length > 1;
    inputs.forEach((input) => {
      input.checked = input.value === app.state.view;
      input.disabled = input.value === "difference" && !several;
    });
    labels.at(-1).title = several ? "" : "Ask a second question first";
  } };
}

function makeZoomer(read, write) {
  const button = (text, name, run) =>
    make("button", { type: "button", className: "icon", title: name, "aria-label": name, onclick: run }, text);
  const whole = make("button",
    { type: "button", className: "number", title: "Show the whole image (0)", onclick: () => write(WHOLE) });
  const less = button("−", "Zoom out (-)", () => write(scaledTo(read(), read().scale / 1.5)));
  const element = make("div", { className: "zoom", role: "group", "aria-label": "Zoom" },
    less, whole, button("+", "Zoom in (+)", () => write(scaledTo(read(), read().scale * 1.5))));
  return { element, show(scale) {
    element.classList.toggle("whole", scale <= 1);
    whole.textContent = `${Math.round(100 * scale)} %`;
    whole.setAttribute("aria-label", `Zoom ${whole.textContent}: show the whole image`);
    less.disabled = scale <= 1;
  } };
}
