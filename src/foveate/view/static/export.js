// What can be taken away: PNG, SVG, JSON, Python, an address.
import { inNumber, make } from "./dom.js";
import { keptByKind } from "./legend.js";
import { active, recordOf, toJson, toPython, toSvg } from "./record.js";
import { makeFigure } from "./sheet.js";
import { verdict } from "./stage.js";
import { POLICIES, toHash } from "./state.js";

const PREVIEW = 1280, QUALITY = 0.92; // pixels of its width; of the photograph in an SVG
const LASTS = 60_000; // milliseconds that a saved file's address is there

export function mountExport(app, root) {
  const open = make("button", { type: "button", disabled: true, onclick: show }, "Export");
  const said = make("p", { role: "status" });
  const preview = make("canvas", { role: "img", "aria-label": "Preview of the picture" });
  const legend = make("input", { type: "checkbox", checked: true, onchange: refresh });
  const photograph = make("input", { type: "checkbox", checked: true });
  const which = make("span");
  const code = make("pre", { tabIndex: 0, "aria-label": "Python" });
  const select = () => address.select();
  const address = make("input", { type: "text", readOnly: true, "aria-label": "Address", onfocus: select });
  const copyCode = button("Copy Python", () => copy(code.textContent, code));
  const asked = [button("Save SVG", saveSvg), button("Save JSON", saveJson), copyCode]; // what needs an answer
  const title = make("h2", { id: "export-title" }, "Take it with you");
  const savePng = make("button", { type: "button", className: "main", onclick: saveSheet }, "Save PNG");
  const dialog = make("dialog", { id: "export", "aria-labelledby": "export-title" },
    make("header", {}, title, said, button("Close", () => dialog.close())),
    part("Picture", "What you see, at the full size of the image.",
      [make("label", { className: "check" }, legend, " with a legend"), button("Copy picture", copyPicture), savePng],
      preview),
    part("Kept cells", "Vectors for a figure, one rectangle a cell.",
      [make("label", { className: "check" }, photograph, " over the photograph"), asked[0]]),
    part("Data", "Maps, kept cells and settings of every question.", [asked[1]]),
    part("Python", ["The lines that keep the same cells", which, "."], [asked[2]], code),
    part("Address", "Shows the same again, as long as this viewer runs.",
      [button("Copy address", () => copy(address.value, address))], address));
  root.append(open);
  document.body.append(dialog);
  const allow = () => { open.disabled = !app.image || app.overview; };
  app.on("state", allow);
  for (const kind of ["image", "answer"]) {
    app.on(kind, () => { allow(); if (dialog.open) refresh(); });
  }

  function show() {
    app.address.write();
    said.textContent = "";
    refresh();
    dialog.showModal();
  }

  function refresh() {
    const record = recordOf(app), any = record.answers.length > 0;
    for (const each of asked) each.disabled = !any;
    which.textContent = record.answers.length > 1 ? ", of the active question" : "";
    code.textContent = any ? toPython(record) : "Ask a question first.";
    address.value = `${location.origin}${location.pathname}#${toHash(app.state)}`; // a token is no part of it
    const whole = sheet(), share = Math.min(1, PREVIEW / whole.width);
    Object.assign(preview, { width: Math.round(whole.width * share), height: Math.round(whole.height * share) });
    preview.getContext("2d").drawImage(whole, 0, 0, preview.width, preview.height);
  }

  function sheet() {
    const seen = app.pictures();
    const pictures = seen.map(({ canvas, questions, minus }) => ({ canvas, lines: linesOf(questions, minus) }));
    return makeFigure(pictures, app.colourBar(), legend.checked);
  }

  // What stands below a picture: one line a question, or two of a single one.
  function linesOf(questions, minus) {
    const { view, plane, grid, policy } = app.state, { h, w } = app.grid, [first] = questions;
    const text = (i) => app.state.questions[i].trim(), name = app.image.name;
    if (!questions.length) return [{ text: view === "photo" || !plane ? name : `${name}, ${plane}`, strong: true }];
    if (minus !== null) {
      return [{ text: `“${text(first)}” beside “${text(minus)}”: which looks more`, strong: true }];
    }
    const why = keptByKind(app, first)?.map(({ words }) => words).join(", ");
    const found = (i) => verdict(app.shown(i).header);
    if (questions.length > 1) return questions.map((i) => ({ text: `${text(i)}, ${found(i)}`, colour: colourOf(i) }));
    const kept = view === "kept" || view === "both" ? app.kept(first) : undefined;
    const all = `${inNumber(h * w)} ${grid === "cells" ? "cells" : "visual tokens"}`;
    const cells = kept && `${kept.length} of ${all}${why ? `: ${why}` : `, ${POLICIES[policy].replace("the ", "")}`}`;
    const line = [found(first), cells].filter(Boolean).join(" · ");
    return [{ text: text(first), colour: colourOf(first), strong: true }, { text: line }];
  }

  async function saveSheet() {
    const blob = await pngOf(sheet());
    if (blob) save("png", blob);
    else said.textContent = "This picture is too large for the browser: show fewer questions beside one another";
  }

  function saveSvg() {
    const record = recordOf(app), parts = colourOf(active(record).number);
    const colour = `#${parts.map((each) => each.toString(16).padStart(2, "0")).join("")}`;
    const drawn = toSvg(record, colour, photograph.checked ? dataOf(app.image) : undefined);
    save("svg", new Blob([drawn], { type: "image/svg+xml" }));
  }

  function saveJson() {
    save("json", new Blob([toJson(recordOf(app))], { type: "application/json" }));
  }

  function colourOf(number) {
    const { questions } = app.session.colours;
    return questions[number % questions.length];
  }

  function save(kind, blob) {
    const href = URL.createObjectURL(blob), question = app.state.questions[app.state.active];
    const download = `${fileName(app.image.name, question)}.${kind}`;
    make("a", { href, download }).click();
    setTimeout(() => URL.revokeObjectURL(href), LASTS);
    said.textContent = `Saved ${download}`;
  }

  async function copy(text, shown) {
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "Copied";
    } catch { // no clipboard: not a secure page, or not allowed
      if (shown.select) shown.select();
      else getSelection().selectAllChildren(shown);
      said.textContent = "Selected: copy it with Ctrl+C";
    }
  }

  async function copyPicture() {
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": pngOf(sheet()) })]);
      said.textContent = "Copied";
    } catch {
      said.textContent = "This browser does not let the page copy pictures: save the PNG";
    }
  }
}

// null where the browser has no room for it.
const pngOf = (canvas) => new Promise((done) => canvas.toBlob(done, "image/png"));

// The photograph as an address that holds it; none of an image whose pixels are gone.
function dataOf({ bitmap, width, height }) {
  if (!bitmap) return undefined;
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
  return canvas.toDataURL("image/jpeg", QUALITY);
}

// Letters and digits of the image's name and the question, so that every system takes it.
function fileName(...parts) {
  const plain = (part = "") => part.replace(/\.\w{1,5}$/, "").replace(/[^\p{L}\p{N}]+/gu, "_").slice(0, 40);
  const words = parts.map((part) => plain(part).replace(/^_|_$/g, ""));
  return words.filter(Boolean).join("-") || "foveate";
}

const button = (text, onclick) => make("button", { type: "button", onclick }, text);

const part = (title, note, controls, ...wide) => make("section", {},
  make("div", {}, make("h3", {}, title), make("p", { className: "note" }, ...[note].flat())),
  make("div", {}, ...controls), ...wide);
