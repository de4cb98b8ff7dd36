// What the colours of the pictures mean: a bar painted as the pictures are, and words.
import { inNumber, make } from "./dom.js";
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

  // The bar of scenes, for export; null where there is none.
  show.bar = (found) => {
    if (!hasBar(found) || !wordsOf(app, found)) return null;
    const canvas = makeCanvas(256, HIGH);
    paintBar(canvas, found);
    return { canvas, ...endsOf(found) };
  };
  return show;

  // found: the scenes of stage.js.
  function show(found) {
    const { seen } = found[0], { state } = app, several = together(found), words = wordsOf(app, found);
    root.classList.toggle("empty", !words);
    scale.hidden = !words || !hasBar(found);
    const shows = !several && found.length === 1 && KEPT.includes(seen.view);
    const kinds = (shows && keptByKind(app, seen.layers[0]?.question)) || [];
    names.hidden = !several && !kinds.length;
    said.textContent = words;
    if (!words || seen.layers.length === 0) return;
    const named = several ? app.questionsOn().map((i) => [app.session.colours.questions[i], short(state.questions[i])])
      : kinds.map(({ colour, words }) => [colour, words]);
    const key = JSON.stringify([seen.view, state.colours, state.opacity, state.threshold, several,
      named, endsOf(found), seen.paper, anyFound(found), anyFound(found)]);
    if (key === shown) return;
    shown = key;
    const ends = endsOf(found);
    low.textContent = ends.low;
    high.textContent = ends.high;
    paintBar(bar, found);
    names.replaceChildren(...named.map(([colour, words]) => {
      const dot = make("i", { className: "dot" });
      dot.style.background = several ? `rgb(${colour.join(" ")})` : colour;
      return make("span", { className: "name" }, dot, words);
    }));
  }

  function endsOf([{ seen }]) {
    if (seen.view !== "difference") return { low: "0", high: "1" };
    const { questions, active } = app.state;
    return { low: `“${short(questions[app.other()])}”`, high: `“${short(questions[active])}”` };
  }

  function paintBar(canvas, found) {
    const { seen } = found[0], [layer] = seen.layers, view = seen.view === "difference" ? seen.view : "heat";
    paintPicture(canvas, { bitmap: backdrop, width: 256, height: HIGH }, { h: 1, w: 256 },
      { ...seen, overlay: null, view, minus: FALL,
        layers: [{ ...layer, map: RAMP, found: anyFound(found), line: null, kept: undefined, boxes: undefined }] }, 1);
  }
}

const KEPT = ["kept", "both"];
const WORDS = { asked: "asked for", beside: "beside them", context: "context", given: "spread evenly" };

// Kept cells of a question by why they are kept: [{cells, colour, words: "38 asked for"}, ...]; undefined where a policy
// or a stream chose them.
export function keptByKind(app, i) {
  const { kept, kinds } = app.allocation(i) ?? {};
  if (!kinds || app.state.policy !== "worth") return undefined;
  return Object.entries(app.session.colours.kinds).flatMap(([kind, colour]) => {
    const cells = kept.filter((_, n) => kinds[n] === kind), words = `${inNumber(cells.length)} ${WORDS[kind]}`;
    return cells.length ? [{ cells, words, colour: `rgb(${colour.join(" ")})` }] : [];
  });
}

const layersOf = (found) => found.flatMap(({ seen }) => seen.layers);
const together = (found) => found.length === 1 && found[0].seen.layers.length > 1;
const hasBar = (found) => found[0].seen.view !== "kept" && !together(found);
const anyFound = (found) => layersOf(found).some((layer) => layer.found);
const short = (text = "") => (text.trim().length > 24 ? `${text.trim().slice(0, 23)}…` : text.trim());

function wordsOf(app, found) {
  const { view, layers, overlay, minus } = found[0].seen, several = together(found);
  if (overlay || view === "photo" || !layers.length) return "";
  if (view === "difference") return minus ? "which question looks more" : "";
  const said = several ? "lines: half of the highest value" : "white line: half of the highest value";
  const pale = several ? !anyFound(found) : layersOf(found).some((layer) => !layer.found);
  const heat = [several ? "" : "relevance", anyFound(found) ? said : "", pale ? "faded: not detected" : ""]
    .filter(Boolean).join("; ");
  const kept = keptWords(app, layers, several || found.length > 1);
  return { heat, kept, both: `${heat}; ${kept}` }[view];
}

function keptWords(app, [{ kept, sent }], several) {
  const { h, w } = app.grid;
  if (!kept || several) return "in colour, outlined: cells that are kept";
  if (!sent) return `in colour, outlined: ${inNumber(kept.length)} of ${inNumber(h * w)} cells kept`;
  const fresh = inNumber(kept.length - sent.length);
  return `outlined: ${inNumber(kept.length)} cells kept; bright: ${fresh} of them newly sent`;
}
