// How many visual tokens, and which: budget, policy, floor, grid.
import { inNumber, make } from "./dom.js";
import { POLICIES } from "./state.js";

const KEPT = ["kept", "both"]; // views in which kept cells are seen
const inPercent = new Intl.NumberFormat("en", { style: "percent", maximumSignificantDigits: 2 }).format;

export function mountTokens(app, root) {
  const said = make("span", { className: "note number", id: "tokens-kept" });
  const slider = make("input", { type: "range", min: 1, id: "tokens-budget", "aria-describedby": said.id });
  const number = make("input", { type: "number", min: 1, step: 1, "aria-label": "Budget as a number" });
  const auto = make("input", { type: "checkbox", id: "tokens-auto" });
  const policies = Object.entries(POLICIES).map(([value, text]) => new Option(text, value));
  const policy = make("select", { id: "tokens-policy" }, ...policies);
  const floor = make("input", { type: "range", min: 0, max: 1, step: 0.05, id: "tokens-floor" });
  const floorSaid = make("output", { htmlFor: floor.id });
  const grid = make("select", { id: "tokens-grid" });
  const note = make("p", { className: "note" });
  const wrong = make("p", { className: "note wrong", id: "tokens-wrong", role: "alert" });
  number.setAttribute("aria-describedby", wrong.id);
  const row = (text, control, ...rest) =>
    make("div", { className: "row" }, make("label", { htmlFor: control.id }, text), control, ...rest);
  const check = make("label", { className: "check" }, auto, "auto: as the map asks for");
  root.append(
    make("header", {}, make("h2", {}, "Visual tokens"), said),
    row("Budget", slider, number), wrong,
    make("div", { className: "row" }, make("span"), check),
    row("Policy", policy), row("Even spread", floor, floorSaid), row("Grid", grid), note,
  );

  // What changes the kept cells shows them.
  const keep = (patch) => app.set(KEPT.includes(app.state.view) ? patch : { ...patch, view: "kept" });
  slider.addEventListener("input", () => keep({ budget: +slider.value }));
  // What is no budget stays in the field, and is said; the budget is then what it was before somebody typed.
  let before = "auto";
  number.addEventListener("focus", () => { before = app.state.budget; });
  number.addEventListener("input", () => {
    const { valid, badInput } = number.validity, came = badInput ? "no number" : number.value;
    if (valid && number.value) keep({ budget: +number.value });
    else if (app.state.budget !== before) keep({ budget: before });
    refuse(valid ? "" : came);
  });
  number.addEventListener("change", (event) => { before = app.state.budget; show(event); });
  number.addEventListener("keydown", (event) => { if (event.key === "Escape") number.blur(); });
  auto.addEventListener("change", () => keep({ budget: auto.checked ? "auto" : app.budget() }));
  policy.addEventListener("change", () => keep({ policy: policy.value }));
  floor.addEventListener("input", () => keep({ floor: +floor.value }));
  grid.addEventListener("change", () => app.set({ grid: grid.value }));

  app.on("image", () => {
    const grids = Object.values(app.image.grids);
    grid.replaceChildren(...grids.map(({ name, label }) => new Option(label, name)));
    root.hidden = false;
  });
  for (const kind of ["state", "image", "answer"]) app.on(kind, show);
  app.on("state", () => refuse(""));
  root.hidden = true;
  refuse("");

  // came: what is no budget, or "". What is left of it when the field is left stays said until something changes.
  function refuse(came) {
    number.setAttribute("aria-invalid", String(Boolean(came)));
    const shown = /^\d+$/.test(came) ? inNumber(came) : came;
    wrong.textContent = came && `${shown} came; 1 to ${inNumber(number.max)} expected.`;
    wrong.hidden = !came;
  }

  function show(event) {
    if (!app.image) return;
    const { state } = app, { h, w } = app.grid, count = h * w, answer = app.shown(), budget = app.budget();
    const known = answer || state.budget !== "auto";
    slider.max = number.max = count;
    slider.value = known ? budget : 1;
    slider.setAttribute("aria-valuetext", `${budget} of ${count}`);
    if (document.activeElement !== number || event?.type === "change") {
      number.value = known ? budget : "";
      number.setAttribute("aria-invalid", "false");
    }
    const asked = state.questions.some((text) => text.trim());
    for (const control of [slider, number, auto, policy, floor]) control.disabled = !asked;
    auto.checked = state.budget === "auto";
    policy.value = state.policy;
    floor.value = state.floor;
    floorSaid.value = inPercent(state.floor);
    grid.value = state.grid;
    said.textContent = !state.questions[state.active]?.trim() ? "no question yet" : !answer ? "nothing kept"
      : `${inNumber(budget)} of ${inNumber(count)} · ${inPercent(budget / count)}`;
    const more = state.budget > count
      && `${inNumber(state.budget)} are asked for; this grid has ${inNumber(count)}: all are kept.`;
    note.textContent = [more || "", explain(app.allocation(), state)].join(" ").trim();
    note.hidden = !note.textContent;
  }
}

// Why some of the cells are not where the map is highest.
function explain(allocation, { floor }) {
  const spread = allocation?.even ? allocation.kept.reduce((sum, i) => sum + allocation.even[i], 0) : 0;
  if (!spread) return "";
  const why = spread === allocation.kept.length && floor < 1 ? "the map is the same everywhere" : "the even spread";
  return `${inNumber(spread)} of them lie evenly over the image: ${why}.`;
}
