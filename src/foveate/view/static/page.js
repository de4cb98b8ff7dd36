// What is of the whole page: the image's name, opening another, dark and light, keys, and what went wrong.
import { iconButton, make, trouble, typing } from "./dom.js";
import { VIEWS } from "./state.js";

const THEMES = { "": "as the system", light: "light", dark: "dark" };
const ICONS = {
  open: "M3 13.5v-9h5l1.5 2H17v7zM3 8.5h14",
  theme: "M10 3.5a6.5 6.5 0 1 0 0 13zM10 3.5a6.5 6.5 0 0 1 0 13",
  help: "M7.6 7.6a2.5 2.5 0 1 1 3.6 2.3c-.8.4-1.2.9-1.2 1.8M10 14.4v.1M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14",
};
const KEYS = [
  ["Questions", [["/", "type a question"], ["A", "another question"], ["Enter", "in a question: go on to the next"],
    ["Esc", "in a question: leave it"]]],
  ["View", [["I", "go to the picture"], ["1 … 5", "heat, kept, both, photo, difference"], ["B", "boxes"],
    ["+  −", "zoom"], ["0", "the whole image"], ["Shift ← ↑ ↓ →", "move the part that is seen"]]],
  ["Tokens", [["[  ]", "half, twice the budget"], ["Esc", "in the budget: leave it"]]],
  ["A cell (the picture has the focus)",
    [["← ↑ ↓ →", "the next cell"], ["Enter", "pin it"], ["Esc", "let go"]]],
  ["A clip", [["Space", "play, pause"], [",  .", "a frame back, on"],
    ["Home  End", "its first, its last frame"], ["← →", "with the strip in focus: a frame back, on"]]],
  ["A folder or a store", [["N  P", "the next image, the one before"], ["L", "all images"], ["S", "images like this one"],
    ["/", "with all images: search"]]],
  ["Page", [["O", "open an image"], ["T", "dark, light, as the system"], ["?", "this sheet"]]],
];

export function mountPage(app, root) {
  const file = make("input",
    { type: "file", accept: "image/*,.pdf", hidden: true,
      onchange: () => { if (file.files[0]) app.open(file.files[0]); file.value = ""; } });
  const choose = () => file.click();
  const plain = (label, path, onclick) => iconButton(label, path, { className: "plain icon", onclick });
  const theme = plain("Dark and light", ICONS.theme, turn);
  const help = plain("Keys (?)", ICONS.help, () => sheet.showModal()), sheet = makeKeys();
  root.append(file, plain("Open an image (O)", ICONS.open, choose), theme, help, sheet);
  app.choose = choose;
  wear(stored());

  const source = document.getElementById("source"), status = document.getElementById("status");
  let overview = false;
  for (const kind of ["session", "image"]) app.on(kind, entitle);
  app.on("state", () => { if (overview !== app.overview) entitle(); }); // a clip that plays has no title of its frame
  app.on("image", () => hide("problem"));
  app.on("problem", (problem) => { if (app.image) say("problem", trouble(problem), true); }); // else the stage shows it
  app.on("loading", () => hide("problem"));
  app.on("ignored", () => {
    const said = make("p", {}, `Left out of the address: ${app.ignored.join("; ")}`);
    say("ignored", said, true, () => { app.ignored = []; });
  });
  addEventListener("away", () => say("away", trouble({
    received: "The viewer does not answer",
    fix: `If it has ended, start it again at the same port: foveate view … --port ${location.port || 80}. `
      + "This page goes on by itself.",
  })));
  addEventListener("back", () => hide("away"));

  function entitle() {
    ({ overview } = app);
    const seen = overview ? app.session : app.image;
    if (!seen) return;
    const { name, width, height, words } = seen, read = words ? ` · ${words.length} words read` : "";
    source.textContent = overview ? name : `${name} · ${width} × ${height}${read}`;
    document.title = `${name} · foveate`;
  }

  // One line of each kind.
  function say(kind, said, closes = false, closed = () => {}) {
    hide(kind);
    const close = make("button",
      { type: "button", className: "plain", onclick: () => { hide(kind); closed(); } }, "Close");
    status.append(make("div", { className: `line ${kind}` }, said, ...(closes ? [close] : [])));
    status.hidden = false;
  }

  function hide(kind) {
    status.querySelector(`.${kind}`)?.remove();
    status.hidden = !status.children.length;
  }

  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    const run = keys[event.key.toLowerCase()];
    if (!run || run() === false) return;
    event.preventDefault();
  });
  const question = (i) => document.querySelectorAll("#questions input[type=search]")[i];
  const budget = (times) => () => {
    if (!app.answer()) return false;
    const { h, w } = app.grid;
    app.set({ budget: Math.min(h * w, Math.max(1, Math.round(app.budget() * times))) });
  };
  const keys = {
    "/": () => { question(app.state.active).focus(); question(app.state.active).select(); },
    a: () => document.querySelector("#questions .add:not([hidden])")?.click(),
    i: () => document.querySelector("#stage canvas")?.focus(),
    o: choose, t: turn, "?": () => sheet.showModal(),
    b: () => app.set({ boxes: 1 - app.state.boxes }),
    "+": () => app.zoom.by(1.5), "=": () => app.zoom.by(1.5), "-": () => app.zoom.by(1 / 1.5),
    0: () => app.zoom.whole(),
    "[": budget(0.5), "]": budget(2),
    ...Object.fromEntries(Object.keys(VIEWS).map((view, i) =>
      [i + 1, () => document.querySelector(`#stage input[value=${view}]:not(:disabled)`) && app.set({ view })])),
  };

  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    if (event.dataTransfer.files[0]) app.open(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => { if (event.clipboardData.files[0]) app.open(event.clipboardData.files[0]); });

  function turn() {
    const all = Object.keys(THEMES);
    wear(all[(all.indexOf(stored()) + 1) % all.length]);
  }

  function wear(name) {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    store(name);
    theme.title = `Colours of the page: ${THEMES[name]} (T)`;
    theme.setAttribute("aria-label", theme.title);
    dispatchEvent(new Event("themechange"));
  }
}

// Storage may be forbidden; then the theme is that of this page alone.
function stored() {
  const name = attempt(() => localStorage.getItem("theme")) ?? document.documentElement.dataset.theme ?? "";
  return name in THEMES ? name : "";
}

const store = (name) => attempt(() => localStorage.setItem("theme", name));

function attempt(run) {
  try { return run(); } catch { return undefined; }
}

function makeKeys() {
  const parts = KEYS.map(([title, keys]) => make("section", {}, make("h3", {}, title),
    make("dl", {}, ...keys.flatMap(([key, what]) =>
      [make("dt", {}, ...key.split("  ").map((each) => make("kbd", {}, each))), make("dd", {}, what)]))));
  const close = make("button", { type: "button", className: "main", onclick: () => sheet.close() }, "Close");
  const sheet = make("dialog", { id: "keys", "aria-labelledby": "keys-title" },
    make("h2", { id: "keys-title" }, "Keys"), make("div", { className: "parts" }, ...parts), close);
  sheet.addEventListener("click", (event) => { if (event.target === sheet) sheet.close(); }); // beside it
  return sheet;
}
