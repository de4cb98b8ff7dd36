// What can be taken away: PNG, SVG, JSON, Python, an address.
import { active, recordOf, toJson, toPython, toSvg } from "./record.js";
import { makeSheet } from "./sheet.js";
import { toHash } from "./state.js";

const POLICY = { topk: "top K", coverage: "coverage", proportional: "proportional" };

export function mountExport(app, root) {
  const open = button("Export", () => { app.address.write(); refresh(); dialog.showModal(); });
  open.disabled = true;
  root.append(open);

  const dialog = document.createElement("dialog");
  dialog.id = "export";
  dialog.setAttribute("aria-labelledby", "export-title");
  const title = Object.assign(document.createElement("h2"), { id: "export-title", textContent: "Take it with you" });
  const said = document.createElement("p");
  said.setAttribute("role", "status");

  const preview = document.createElement("canvas");
  preview.setAttribute("role", "img");
  preview.setAttribute("aria-label", "Preview of the picture");
  const legend = checkbox("with a legend", true, () => refresh());
  const photograph = checkbox("over the photograph", true);
  const code = document.createElement("pre");
  code.tabIndex = 0;
  code.setAttribute("aria-label", "Python");
  const link = Object.assign(document.createElement("input"), { readOnly: true, type: "text" });
  link.setAttribute("aria-label", "Address");
  link.addEventListener("focus", () => link.select());

  const asked = [ // what needs an answer
    button("Save SVG", saveSvg),
    button("Save JSON", () => save("json", new Blob([toJson(recordOf(app))], { type: "application/json" }))),
    button("Copy Python", () => copy(code.textContent, code)),
  ];
  const savePng = button("Save PNG", async () => save("png", await pngOf(sheet())));
  savePng.className = "main";
  dialog.append(
    box("header", title, said, button("Close", () => dialog.close())),
    part("Picture", "What you see, at the full size of the image.", [legend.label, button("Copy picture", copyPicture), savePng], preview),
    part("Kept cells", "Vectors for a figure, one rectangle a cell.", [photograph.label, asked[0]]),
    part("Data", "Maps, kept cells and settings of every question.", [asked[1]]),
    part("Python", "The lines that keep the same cells.", [asked[2]], code),
    part("Address", "Shows the same again, as long as this viewer runs.", [button("Copy address", () => copy(link.value, link))], link),
  );
  document.body.append(dialog);

  for (const kind of ["image", "answer"]) app.on(kind, () => { open.disabled = !app.image; if (dialog.open) refresh(); });

  function refresh() {
    const any = app.state.questions.some((_, i) => app.answer(i) && app.kept(i));
    for (const each of asked) each.disabled = !any;
    code.textContent = any ? toPython(recordOf(app)) : "Ask a question first.";
    link.value = `${location.origin}${location.pathname}#${toHash(app.state)}`; // a token is no part of it
    said.textContent = "";
    const whole = sheet(), share = Math.min(1, 640 / whole.width);
    Object.assign(preview, { width: Math.round(whole.width * share), height: Math.round(whole.height * share) });
    preview.getContext("2d").drawImage(whole, 0, 0, preview.width, preview.height);
  }

  function sheet() {
    const { view, grid, policy, floor } = app.state, { h, w } = app.grid;
    const pictures = app.pictures().map(({ question, canvas }) => {
      const answer = app.answer(question);
      if (!answer) return { canvas, title: app.image.name, lines: "" };
      const { query, confidence, detected } = answer.header;
      const tokens = `${app.budget(question)} of ${h * w} ${grid === "cells" ? "cells" : "tokens"}, ${POLICY[policy]}${floor ? `, ${Math.round(100 * floor)} % spread evenly` : ""}`;
      const found = `confidence ${confidence.toFixed(2)}, ${detected ? "detected" : "not detected"}`;
      return { canvas, title: query, lines: [found, view === "kept" || view === "both" ? tokens : ""].filter(Boolean).join(" · "), colour: colourOf(question) };
    });
    const heat = app.state.view === "heat" || app.state.view === "both" ? app.session.colours.heat : null;
    return makeSheet(pictures, { legend: legend.input.checked, heat });
  }

  function saveSvg() {
    const record = recordOf(app), colour = css(colourOf(active(record).number));
    save("svg", new Blob([toSvg(record, colour, photographOf())], { type: "image/svg+xml" }));
  }

  function photographOf() {
    const { bitmap, width, height } = app.image;
    if (!photograph.input.checked || !bitmap) return undefined;
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
    return canvas.toDataURL("image/jpeg", 0.92);
  }

  const colourOf = (number) => app.session.colours.questions[number % app.session.colours.questions.length];
  const css = (colour) => `#${colour.map((part) => part.toString(16).padStart(2, "0")).join("")}`;

  function save(kind, blob) {
    const address = URL.createObjectURL(blob), name = `${fileName(app.image.name, app.state.questions[app.state.active])}.${kind}`;
    const anchor = Object.assign(document.createElement("a"), { href: address, download: name });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    said.textContent = `Saved ${name}`;
  }

  async function copy(text, shown) {
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "Copied";
    } catch { // no clipboard: not a secure page, or not allowed
      getSelection().selectAllChildren(shown);
      shown.select?.();
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

const pngOf = (canvas) => new Promise((done) => canvas.toBlob(done, "image/png"));

// Letters and digits of the image's name and the question, so that every system takes it.
function fileName(...parts) {
  const words = parts.map((part) => (part ?? "").replace(/\.\w{1,5}$/, "").replace(/[^\p{L}\p{N}]+/gu, "_").replace(/^_|_$/g, "").slice(0, 40));
  return words.filter(Boolean).join("-") || "foveate";
}

function button(text, act) {
  const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
  made.addEventListener("click", act);
  return made;
}

function checkbox(text, checked, act = () => {}) {
  const label = document.createElement("label"), input = Object.assign(document.createElement("input"), { type: "checkbox", checked });
  input.addEventListener("change", act);
  label.append(input, ` ${text}`);
  return { label, input };
}

function box(kind, ...children) {
  const made = document.createElement(kind);
  made.append(...children);
  return made;
}

function part(title, about, controls, ...wide) {
  const name = Object.assign(document.createElement("h3"), { textContent: title });
  const note = Object.assign(document.createElement("p"), { textContent: about, className: "note" });
  return box("section", box("div", name, note), box("div", ...controls), ...wide);
}
