// A vision-language model's answer at two budgets, each beside the visual tokens that it saw. One question at a time.
import { getJson, postPacked } from "./api.js";
import { make, trouble } from "./dom.js";

const WAIT = 1000; // milliseconds between looks at a model that is loading
const FIRST = [64, null]; // budgets; null: all

export function mountModel(app, root) {
  const said = make("p", { className: "note", role: "status" });
  const busy = make("progress", { "aria-label": "The model works", hidden: true });
  const wrong = make("div");
  const press = () => (working ? working.abort() : askModel());
  const button = make("button", { type: "button", className: "main", onclick: press }, "Ask the model");
  const columns = FIRST.map((budget, i) => makeColumn(app, budget, i));
  const head = make("header", {}, make("h2", {}, "Model"), button);
  const answers = make("div", { className: "answers" }, ...columns.map((column) => column.element));
  root.append(head, said, busy, wrong, answers);
  let working = null; // AbortController of the question that is asked
  let state = "none";

  app.on("session", () => { if (app.session.model) waitForModel(); });
  app.on("image", () => {
    working?.abort();
    columns.forEach((column) => column.clear());
    if (state === "ready") wrong.replaceChildren();
    show();
  });
  app.on("state", show);

  async function waitForModel() {
    try {
      const model = await getJson("/api/model");
      state = model.state;
      if (state === "failed") wrong.replaceChildren(trouble(model.error));
      if (state === "loading") setTimeout(waitForModel, WAIT);
    } catch (problem) {
      wrong.replaceChildren(trouble(problem));
    }
    show();
  }

  function show() {
    root.hidden = !app.session?.model || !app.image || !app.asking;
    const text = question();
    button.disabled = state !== "ready" || (!working && !text);
    button.textContent = working ? "Stop" : "Ask the model";
    busy.hidden = !(working || state === "loading");
    said.textContent = state === "loading" ? `${app.session.model} is loading.` : state !== "ready" ? ""
      : text ? `${app.session.model} answers “${text}” with the visual tokens that the question keeps.`
        : "Type a question first.";
    columns.forEach((column) => { column.element.hidden = state !== "ready"; });
  }

  const question = () => app.state.questions[app.state.active]?.trim() ?? "";

  async function askModel() {
    const image = app.image.id, query = question(), { earlier } = app.state;
    const body = { ...app.context, image, query };
    working = new AbortController();
    wrong.replaceChildren();
    show();
    try {
      for (const column of columns) {
        column.wait();
        const { answered } = column, known = earlier.filter((text) => answered.has(text));
        const rounds = known.map((text) => [text, answered.get(text)]);
        const message = await postPacked("/api/answers", { ...body, budget: column.budget(), rounds }, working.signal);
        if (app.image?.id !== image) return;
        column.show(query, message);
      }
    } catch (problem) {
      if (problem.name !== "AbortError") wrong.replaceChildren(trouble(problem));
    } finally {
      working = null;
      columns.forEach((column) => column.rest());
      show();
    }
  }
}

// A budget, the picture of what the model saw, its answer, and what that took. A press on the picture shows it large.
function makeColumn(app, first, i) {
  const name = `model-budget-${i}`;
  const all = make("input", { type: "checkbox", id: `${name}-all`, checked: first === null });
  const number = make("input", {
    type: "number", id: name, min: 1, step: 1, value: first ?? 64, "aria-label": `Visual tokens of answer ${i + 1}`,
  });
  const choose = () => { number.disabled = all.checked; };
  all.addEventListener("change", choose);
  choose();
  const canvas = make("canvas"), mask = make("canvas");
  const turn = () => lay(app.overlay === mask ? null : mask);
  const large = make("button", { type: "button", className: "seen", hidden: true, onclick: turn }, canvas);
  const text = make("p", { className: "said", role: "status" }), facts = make("ul", { className: "note" });
  const budget = make("div", { className: "budget" }, number, make("label", { className: "check" }, all, "all"));
  const element = make("div", {}, budget, large, text, facts);
  const answered = new Map(); // question -> answer of this budget, for the rounds of a dialogue

  function lay(overlay) {
    app.overlay = overlay;
    app.tell("overlay");
  }
  const press = () => large.setAttribute("aria-pressed", app.overlay === mask);
  app.on("overlay", press);
  app.on("state", (before) => { if (app.overlay === mask && before.questions !== app.state.questions) lay(null); });

  return {
    element, answered,
    budget: () => (all.checked ? null : Math.max(1, Math.round(+number.value) || 1)),
    wait() { element.setAttribute("aria-busy", "true"); },
    rest() { element.removeAttribute("aria-busy"); },
    clear() {
      answered.clear();
      if (app.overlay === mask) lay(null);
      large.hidden = true;
      text.textContent = "";
      facts.replaceChildren();
    },
    show(query, { header, arrays }) {
      this.rest();
      answered.set(query, header.text);
      const grids = header.grids.map((grid, number) => ({ ...grid, kept: arrays[`kept:${number}`] }));
      drawMask(mask, app.image, grids);
      drawSeen(canvas, app.image, mask);
      large.hidden = false;
      const [kept, there] = header.tokens, saw = `What the model saw, ${kept} of ${there} visual tokens`;
      large.setAttribute("aria-label", `${saw}: show it on the image`);
      press();
      text.textContent = header.text || "(no words)";
      facts.replaceChildren(...describe(header).map((line) => make("li", {}, line)));
      if (app.overlay === mask) lay(mask);
    },
  };
}

// What an answer took, in lines.
export function describe({ tokens: [kept, there], prompt, whole_prompt: whole, seconds, searched, grids }) {
  const { generate, ...before } = seconds, chosen = Object.values(before).reduce((sum, each) => sum + each, 0);
  return [
    `${kept} of ${there} visual tokens${grids.length > 1 ? `, on ${grids.length} grids` : ""}`,
    kept === there ? `prompt: ${whole} tokens` : `prompt: ${prompt} tokens, not ${whole}`,
    `${inWords(chosen)} to choose, ${inWords(generate)} to answer`,
    ...(searched ? [] : ["The question names nothing to look for: what stands out was kept, and what differs."]),
  ];
}

const inWords = (seconds) => (seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`);

// Dark where no token was kept on any of the grids, and darkest where none covers the image.
function drawMask(canvas, { height, width }, grids) {
  const scale = Math.min(1, 1024 / Math.max(height, width)), at = (pixels) => Math.round(pixels * scale);
  Object.assign(canvas, { width: at(width), height: at(height) });
  const context = canvas.getContext("2d");
  const clear = (y0, x0, y1, x1) => context.clearRect(at(x0), at(y0), at(x1) - at(x0), at(y1) - at(y0));
  context.fillStyle = "rgb(12 12 18 / 0.88)";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "rgb(12 12 18 / 0.7)";
  for (const { box } of grids) clear(...box);
  context.globalCompositeOperation = "destination-over";
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (const { h, w, box: [y0, x0, y1, x1], kept } of grids) {
    const down = (y1 - y0) / h, right = (x1 - x0) / w;
    for (const cell of kept) {
      const y = y0 + Math.floor(cell / w) * down, x = x0 + (cell % w) * right;
      clear(y, x, y + down, x + right);
    }
  }
}

function drawSeen(canvas, { height, width, bitmap }, mask) {
  const scale = Math.min(1, 480 / width);
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  const context = canvas.getContext("2d");
  for (const layer of [bitmap, mask]) context.drawImage(layer, 0, 0, canvas.width, canvas.height);
}
