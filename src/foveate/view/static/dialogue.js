// Rounds of questions and the pointer as gaze: priors of the next question. The server holds no state of them: they are
// fields of the page's state, and every question is sent with them.
import { newest, postPacked } from "./api.js";
import { make, trouble } from "./dom.js";
import { fixations, follow, MOST, NOTHING, reachOf, read, spell } from "./gaze.js";
import { coloured, strokeTwice } from "./layers.js";
import { inDigits } from "./stage.js";
import { MOST_ROUNDS } from "./state.js";

const LOOK = 50; // milliseconds from one look at the pointer to the next
const TYPED = 200; // milliseconds without a key until it is asked what a question goes by
const BACK = { wholly: "goes back", partly: "goes back in part", not: "" };

export function mountDialogue(app, root) {
  const dialogue = mountRounds(app), gaze = mountGaze(app);
  root.append(dialogue.element, gaze.element);
  let timer = null, wanted = null; // what the newest request asks

  // What questions are sent with. Without rounds and gaze it is nothing, and an answer is that of its words.
  function tellContext() {
    const { earlier, gazeWeight } = app.state, looked = app.image ? read(app.state.gaze, app.image) : [];
    app.setContext({
      earlier: earlier.length ? earlier : undefined,
      gaze: looked.length ? looked : undefined, gaze_weight: looked.length ? gazeWeight : undefined,
    });
  }

  function describe() {
    clearTimeout(timer);
    const { earlier, questions } = app.state;
    wanted = null;
    if (!app.image || !app.asking || !(earlier.length || app.context.gaze)) return dialogue.show(null);
    wanted = { ...app.context, image: app.image.id, queries: questions.map((text) => text.trim()) };
    fetchPriors(wanted);
  }

  const fetchPriors = newest(async (body) => {
    if (body !== wanted) return;
    try {
      const message = await postPacked("/api/priors", body);
      if (body === wanted) dialogue.show(message);
    } catch (problem) {
      if (body === wanted) dialogue.fail(problem);
    }
  });

  app.on("state", (before) => {
    const { state } = app, changed = (...keys) => keys.some((key) => state[key] !== before[key]);
    if (changed("gaze", "earlier", "gazeWeight")) tellContext();
    if (changed("gaze", "earlier")) describe();
    else if (changed("questions")) {
      clearTimeout(timer);
      timer = setTimeout(describe, TYPED);
    }
    dialogue.now();
    gaze.show();
  });
  app.on("image", () => {
    root.hidden = !app.asking;
    if (root.hidden) return;
    gaze.start();
    tellContext();
    describe();
    dialogue.now();
    gaze.show();
  });
}

// Rounds: questions asked before, and what the dialogue is about.
function mountRounds(app) {
  const rounds = make("ol", { className: "rounds" });
  const now = make("p", { className: "note", role: "status" });
  const picture = make("canvas", { className: "about", role: "img", hidden: true });
  const next = make("button", { type: "button", onclick: nextRound }, "Next round");
  const forget = () => app.set({ earlier: Object.freeze([]) });
  const reset = make("button", { type: "button", className: "plain", onclick: forget }, "Start over");
  const element = make("details", { className: "fold" }, make("summary", {}, make("h2", {}, "Dialogue")),
    make("p", { className: "note" }, ROUNDS),
    rounds, picture, now, make("div", { className: "buttons" }, next, reset));
  let shown = null;

  function nextRound() {
    const { questions, active, earlier } = app.state, text = questions[active].trim();
    app.set({ earlier: Object.freeze([...earlier, text]), questions: Object.freeze(questions.with(active, "")) });
    app.tell("write", active);
  }

  function drop(i) {
    app.set({ earlier: Object.freeze(app.state.earlier.toSpliced(i, 1)) });
  }

  function list() {
    const { earlier } = app.state, told = shown?.header.rounds;
    element.open ||= earlier.length > 0;
    rounds.replaceChildren(...earlier.map((text, i) => {
      const found = told?.length === earlier.length ? told[i] : null;
      const back = found && i > 0 ? BACK[found.goes_back] : "";
      return make("li", {}, make("span", { className: "asked" }, text),
        ...(back ? [make("span", { className: "chip" }, back)] : []),
        ...(found && found.goes_back !== "wholly" ? [confidence(found)] : []),
        make("button", {
          type: "button", className: "plain icon", onclick: () => drop(i),
          "aria-label": `Remove round ${i + 1}: ${text}`,
        }, "×"));
    }));
  }

  function explain() {
    const { earlier, questions, active } = app.state;
    const found = shown?.header.questions[active], text = questions[active]?.trim();
    if (!earlier.length) return "";
    if (!text || !found) return "Now ask the next question.";
    if (found.goes_back === "not") {
      return `“${text}” names a thing of its own: the dialogue has no part in its map.`;
    }
    if (found.prior !== "history") {
      return `“${text}” goes back, but names a thing, too: your gaze comes before the dialogue.`;
    }
    const share = found.weight === 1 ? "names nothing of its own: its map is the dialogue's"
      : `goes back: ${Math.round(100 * found.weight)} % of its map is the dialogue's`;
    return `“${text}” ${share}.`;
  }

  return {
    element,
    now() {
      const { earlier, questions, active } = app.state;
      next.disabled = !questions[active]?.trim() || earlier.length >= MOST_ROUNDS;
      reset.hidden = !earlier.length;
      list();
      now.textContent = explain();
    },
    show(message) {
      shown = message;
      picture.hidden = !message || !app.state.earlier.length;
      if (!picture.hidden) {
        drawPlane(picture, app, message.arrays.history);
        picture.setAttribute("aria-label", `What the dialogue is about: ${app.state.earlier.join("; ")}`);
      }
      this.now();
    },
    fail(problem) {
      picture.hidden = true;
      rounds.replaceChildren(make("li", {}, trouble(problem)));
    },
  };
}

const ROUNDS = "Ask in rounds. A question that goes back, like “and its wheels?” or “is it open?”, looks where "
  + "the earlier ones looked.";

function confidence(header) {
  const [className, title] = header.detected ? ["pill found", "found"] : ["pill absent", "not found"];
  return make("span", { className, title }, inDigits(header));
}

// The pointer as gaze: where it rests is a fixation.
function mountGaze(app) {
  const on = make("input", { type: "checkbox", id: "gaze-on", onchange: run });
  const weight = make("input", { type: "range", id: "gaze-weight", min: 0, max: 1, step: 0.05, value: 0.3,
    oninput: () => app.set({ gazeWeight: +weight.value }) });
  const share = make("output", { htmlFor: "gaze-weight" });
  const said = make("p", { className: "note", role: "status" });
  const forget = () => app.set({ gaze: "" });
  const clear = make("button", { type: "button", className: "plain", onclick: forget }, "Forget where I looked");
  const element = make("details", { className: "fold" }, make("summary", {}, make("h2", {}, "Gaze")),
    make("label", { className: "check" }, on, "My pointer is my gaze"),
    make("div", { className: "row" }, make("label", { htmlFor: "gaze-weight" }, "Weight"), weight, share),
    said, make("div", { className: "buttons" }, clear));
  let track = NOTHING, spelt = "", timer = null;

  app.marks.push((context, unit) => { if (app.image && app.asking) drawFixations(context, fixations(track), unit); });

  function run() {
    clearInterval(timer);
    timer = on.checked ? setInterval(look, LOOK) : null;
    if (!on.checked) look(null);
    show();
  }

  function look() {
    if (!app.image || !app.asking) return;
    const { height, width } = app.image, [y, x] = on.checked ? place() ?? [] : [];
    const at = y === undefined ? null : [y * height, x * width];
    track = follow(track, at, performance.now() / 1000, reachOf(app.image));
    const text = spell(coarse(fixations(track)));
    if (text !== spelt) app.set({ gaze: spelt = text });
  }

  // Of the pointer; of a cell that was walked to by keys, its middle.
  function place() {
    if (app.point || app.hovered === null) return app.point;
    const { h, w } = app.grid;
    return [(Math.floor(app.hovered / w) + 0.5) / h, ((app.hovered % w) + 0.5) / w];
  }

  function show() {
    if (app.state.gaze !== spelt && app.image) start(); // from the address, or forgotten
    const count = fixations(track).length;
    weight.value = app.state.gazeWeight;
    share.textContent = `${Math.round(100 * app.state.gazeWeight)} %`;
    clear.hidden = !count;
    element.open ||= count > 0;
    const told = count === MOST ? `The newest ${MOST} places` : count === 1 ? "1 place" : `${count} places`;
    said.textContent = count ? `${told} where you looked. They count in every question.`
      : on.checked ? "Rest the pointer on what you look at, or walk there with the arrow keys."
        : "Where you look counts in every question.";
  }

  function start() {
    spelt = app.state.gaze;
    track = { done: read(spelt, app.image), window: [] };
  }

  return { element, show, start };
}

// The last fixation grows; its seconds are told in halves, as every change is a question asked again.
const coarse = (list) => list.map(([y, x, s], i) =>
  [y, x, i === list.length - 1 ? Math.max(0.15, Math.floor(2 * s) / 2) : s]);

function drawFixations(context, list, unit) {
  const path = new Path2D();
  list.forEach(([y, x]) => path.lineTo(x, y));
  for (const [y, x, seconds] of list) {
    const radius = (5 + 7 * Math.sqrt(Math.min(seconds, 4))) * unit;
    path.moveTo(x + radius, y);
    path.arc(x, y, radius, 0, 7);
  }
  strokeTwice(context, path, "#ffffff", 1.25 * unit);
}

const VEIL = Uint8ClampedArray.from({ length: 256 }, (_, level) => Math.min(255, level + 64)); // opacities of a plane

// A plane over the image: colour where it is high, the photograph in grey where it is not.
function drawPlane(canvas, app, plane) {
  const { height, width, bitmap } = app.image, [h, w] = plane.shape, scale = Math.min(1, 680 / width);
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  const context = canvas.getContext("2d");
  context.filter = "grayscale(1)";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  context.filter = "none";
  const heat = coloured({ values: plane, h, w }, app.session.colours.heat, VEIL);
  context.drawImage(heat, 0, 0, canvas.width, canvas.height);
}
