// What the colours of the pictures mean: a bar painted as the pictures are, and words.
import { make } from "./dom.js";
import { makeCanvas } from "./layers.js";
import { paintPicture } from "./picture.js";

const RAMP = Float32Array.from({ length: 256 }, (_, i) => i / 255), FALL = RAMP.map((value) => 1 - value);
const GREY = 215, HIGH = 8;

export function mountLegend(app, root) {
  const bar = makeCanvas(256, HIGH), low = make("span", { className: "number" }),
    high = make("span", { className: "number" });
  const scale = make("span", { className: "scale" }, low, bar, high), said = make("span"),
    names = make("span", { className: "names" });
  bar.setAttribute("aria-hidden", "true");
  root.append(scale, names, said);
  const backdrop = makeCanvas(256, HIGH), context = backdrop.getContext("2d");
  context.fillStyle = `rgb(${GREY} ${GREY} ${GREY})`;
  context.fillRect(0, 0, 256, HIGH);
  let shown = "";

  // The bar as it is shown, for export; null where there is none.
  show.bar = () => (scale.hidden || root.classList.contains("empty") ? null
    : { canvas: bar, low: low.textContent, high: high.textContent });
  return show;

  // found: the scenes of stage.js.
  function show(found) {
    const { seen } = found[0], { view, layers } = seen, { state } = app,
      several = found.length === 1 && layers.length > 1;
    const words = wordsOf(app, seen, several);
    root.classList.toggle("empty", !words);
    scale.hidden = !words || several || view === "kept";
    names.hidden = !several;
    said.textContent = words;
    if (!words || layers.length === 0) return;
    const questions = several ? app.questionsOn() : [];
    const key = JSON.stringify([view, state.colours, state.opacity, state.threshold, several,
      questions.map((i) => state.questions[i]), app.other(), state.questions[state.active], seen.paper]);
    if (key === shown) return;
    shown = key;
    const difference = view === "difference";
    low.textContent = difference ? `“${short(state.questions[app.other()])}”` : "0";
    high.textContent = difference ? `“${short(state.questions[state.active])}”` : "1";
    paintPicture(bar, { bitmap: backdrop, width: 256, height: HIGH }, { h: 1, w: 256 },
      { ...seen, overlay: null, view: difference ? view : "heat", minus: FALL,
        layers: [{ ...layers[0], map: RAMP, found: true, kept: undefined, boxes: undefined }] }, 1);
    names.replaceChildren(...questions.map((i) => {
      const dot = make("i", { className: "dot" });
      dot.style.background = `rgb(${app.session.colours.questions[i].join(" ")})`;
      return make("span", { className: "name" }, dot, short(state.questions[i]));
    }));
  }
}

const count = (number) => number.toLocaleString("en");
const short = (text = "") => (text.trim().length > 24 ? `${text.trim().slice(0, 23)}…` : text.trim());

function wordsOf(app, { view, layers, overlay, minus }, several) {
  if (overlay || view === "photo" || !layers.length) return "";
  if (view === "difference") return minus ? "which question looks more" : "";
  const line = several ? "lines: detected, from 0.5" : "relevance; white line: detected, from 0.5";
  const kept = layers[0].kept, { h, w } = app.grid;
  const bright = kept && !several ? `bright: ${count(kept.length)} of ${count(h * w)} cells kept`
    : "bright: cells that are kept";
  const { sent } = layers[0];
  if (kept && sent && !several) {
    const fresh = count(kept.length - sent.length);
    return `bright: ${fresh} cells newly sent; darker: ${count(sent.length)} kept and sent before`;
  }
  return { heat: line, kept: bright, both: several ? `${line}; ${bright}` : `relevance; ${bright}` }[view];
}
