// A vision-language model's answer at two budgets, each beside the visual tokens that it saw. One question at a time.
import { getJson, postPacked } from "./api.js";
import { make, trouble } from "./dom.js";

const WAIT = 1000; // milliseconds between looks at a model that is loading
const FIRST = [64, null]; // budgets; null: all

export function mountAnswers(app, root) {
  const said = make("p", { className: "note", role: "status" });
  const busy = make("progress", { "aria-label": "The model works", hidden: true });
  const wrong = make("div");
  const button = make("button", { type: "button", className: "main", onclick: () => (working ? working.abort() : askModel()) }, "Ask the model");
  const columns = FIRST.map((budget, i) => makeColumn(app, budget, i));
  const head = make("header", {}, make("h2", {}, "Model"), button);
  root.append(head, said, busy, wrong, make("div", { className: "answers" }, ...columns.map((column) => column.element)));
  let working = null; // AbortController of the question that is asked
  let state = "none";

  app.on("session", () => { if (app.session.model) waitForModel(); });
  app.on("image", () => {
    working?.abort();
    columns.forEach((column) => column.clear());
    wrong.replaceChildren();
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
      : text ? `${app.session.model} answers “${text}” with the visual tokens that the question keeps.` : "Type a question first.";
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
        const rounds = earlier.filter((text) => column.answered.has(text)).map((text) => [text, column.answered.get(text)]);
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

// A budget, the picture of what the model saw, its answer, and what that took.
function makeColumn(app, first, i) {
  const name = `model-budget-${i}`;
  const all = make("input", { type: "checkbox", id: `${name}-all`, checked: first === null });
  const number = make("input", { type: "number", id: name, min: 1, step: 1, value: first ?? 64, "aria-label": `Visual tokens of answer ${i + 1}` });
  const choose = () => { number.disabled = all.checked; };
  all.addEventListener("change", choose);
  choose();
  const canvas = make("canvas", { role: "img", hidden: true });
  const text = make("p", { className: "said", role: "status" }), facts = make("p", { className: "note" });
  const element = make("div", {},
    make("div", { className: "budget" }, number, make("label", { className: "check" }, all, "all")), canvas, text, facts);
  const answered = new Map(); // question -> answer of this budget, for the rounds of a dialogue

  return {
    element, answered,
    budget: () => (all.checked ? null : Math.max(1, Math.round(+number.value) || 1)),
    wait() { element.setAttribute("aria-busy", "true"); },
    rest() { element.removeAttribute("aria-busy"); },
    clear() {
      answered.clear();
      canvas.hidden = true;
      text.textContent = facts.textContent = "";
    },
    show(query, { header, arrays }) {
      this.rest();
      answered.set(query, header.text);
      canvas.hidden = false;
      const kept = header.grids.map((grid, number) => ({ ...grid, kept: arrays[`kept:${number}`] }));
      drawSeen(canvas, app.image, kept);
      const [tokens, there] = header.tokens;
      canvas.setAttribute("aria-label", `What the model saw: ${tokens} of ${there} visual tokens`);
      text.textContent = header.text || "(no words)";
      facts.textContent = describe(header);
    },
  };
}

function describe({ tokens: [kept, there], prompt, whole_prompt: whole, seconds, searched, grids }) {
  const { generate, ...before } = seconds, chosen = Object.values(before).reduce((sum, each) => sum + each, 0);
  const lines = [`${kept} of ${there} visual tokens`, `prompt of ${prompt} of ${whole} tokens`,
    `chosen in ${inWords(chosen)}, answered in ${inWords(generate)}`];
  if (grids.length > 1) lines.push(`on ${grids.length} grids`);
  if (!searched) lines.push("the question names nothing to look for: saliency and an even spread chose them");
  return lines.join(" · ");
}

const inWords = (seconds) => (seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`);

// The image where a token was kept on any of the grids, and dark elsewhere; what no grid covers is darkest.
export function drawSeen(canvas, { height, width, bitmap }, grids) {
  const scale = Math.min(1, 480 / width);
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.drawImage(bitmap, 0, 0);
  const dark = (path, alpha) => { context.fillStyle = `rgb(12 12 18 / ${alpha})`; context.fill(path, "evenodd"); };
  const whole = new Path2D(), covered = new Path2D(), seen = new Path2D();
  whole.rect(0, 0, width, height);
  for (const { h, w, box: [y0, x0, y1, x1], kept } of grids) {
    covered.rect(x0, y0, x1 - x0, y1 - y0);
    for (const cell of kept) {
      const y = Math.floor(cell / w), x = cell % w;
      seen.rect(x0 + (x * (x1 - x0)) / w, y0 + (y * (y1 - y0)) / h, (x1 - x0) / w, (y1 - y0) / h);
    }
  }
  dark(whole, 0.82);
  context.save();
  context.clip(covered);
  context.globalAlpha = 0.12;
  context.drawImage(bitmap, 0, 0);
  context.restore();
  context.save();
  context.clip(seen);
  context.drawImage(bitmap, 0, 0);
  context.restore();
}
