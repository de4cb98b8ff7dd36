// A clip: scrub, play, keyframes, confidence, cells that are new. It supplies the page's image and answers.
import { kindsOf } from "./allocate.js";
import { newest, postPacked } from "./api.js";
import { iconButton, inNumber, make, typing } from "./dom.js";
import { Frames } from "./frames.js";
import { inDigits } from "./stage.js";

const ALONE = 100; // answers of frames by themselves that are kept

export function mountClip(app, root) {
  app.on("session", () => { if (app.session.kind === "clip") startClip(app, root); });
}

function startClip(app, root) {
  const frames = new Frames(app.session.clip, () => arrived());
  const panel = buildPanel(root);
  let shown = null; // number of the frame on the page
  let wanted = app.state.frame; // number of the frame that should be there
  let about = null; // header of the first frame as an image: its encoder and grid
  let row = null; // what was known of it then
  const alone = new Map(); // number and question -> answer of a frame by itself, until the clip's is there
  let playing = false, settled = false;
  let clock = null; // {now, time}: when which time of the clip was shown
  let painted = ""; // what the strip shows
  const played = []; // moments of the last second at which a frame appeared

  const inClip = () => app.state.image === null;

  // The map moves while somebody types: that of the frame by itself, as the clip's takes longer.
  const askAlone = newest(async () => {
    const query = playing ? undefined : unanswered(shown);
    if (!query) return;
    const image = frames.id(shown), key = `${shown} ${query}`;
    try {
      const { header, arrays } = await postPacked("/api/score", { image, query });
      alone.set(key, { header, maps: { cells: arrays["map:cells"] }, asked: { cells: arrays["asked:cells"] } });
    } catch (problem) {
      alone.set(key, { problem });
    }
    if (alone.size > ALONE) alone.delete(alone.keys().next().value);
    if (inClip()) show(shown);
    askAlone(); // the next question
  });

  root.hidden = false;
  app.asking = !inClip();

  app.on("state", (before) => {
    app.asking = !inClip();
    panel.still(!inClip(), frames.holds(app.state.image));
    if (!inClip()) { pause(); return; }
    if (before.image !== null) shown = null; // back from a frame that was opened as an image
    if (before.frame !== app.state.frame && app.state.frame !== wanted) { seek(app.state.frame); settle(); }
    if (ask() && shown !== null) show(shown);
    arrived();
  });
  new ResizeObserver(() => paint(true)).observe(panel.canvas);
  addEventListener("themechange", () => paint(true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint(true));
  addEventListener("keydown", onKey);
  panel.play.addEventListener("click", () => (playing ? pause() : play()));
  panel.back.addEventListener("click", () => step(-1));
  panel.next.addEventListener("click", () => step(1));
  panel.slider.addEventListener("input", () => { pause(); seek(+panel.slider.value); });
  panel.slider.addEventListener("change", settle);
  panel.open.addEventListener("click", () => app.set({ image: frames.id(shown ?? wanted), pin: null }));
  panel.leave.addEventListener("click", () => app.set({ image: null, pin: null }));
  watchStrip(panel.canvas, (share) => { pause(); seek(Math.floor(share * frames.total)); }, () => {
    settle();
    panel.slider.focus({ preventScroll: true }); // arrows go on from there
  });
  panel.still(!inClip(), frames.holds(app.state.image));
  frames.describe().then(
    ({ header }) => { about = header; ask(); arrived(); }, (problem) => app.tell("problem", problem));
  frames.look(wanted);
  if (inClip()) app.tell("loading", app.session.name);

  // Whether anything new is asked of the clip.
  function ask() {
    if (!about) return false;
    const { h, w } = about.grids.find((grid) => grid.name === "cells");
    return frames.ask(asked(app.state, h * w));
  }

  function play() {
    if (wanted >= frames.total - 1) seek(0);
    playing = true;
    clock = null;
    if (shown !== null) { // no number that the next frame makes wrong
      app.supply({ ...app.image, name: app.session.name }, answersOf(shown));
    }
    panel.playing(true);
    requestAnimationFrame(tick);
  }

  function pause() {
    if (!playing) return;
    playing = false;
    panel.playing(false);
    settle();
  }

  function step(by) {
    pause();
    seek(wanted + by);
    settle();
  }

  function seek(number) {
    wanted = Math.max(0, Math.min(frames.total - 1, number));
    clock = null;
    settled = false;
    frames.look(wanted);
    arrived();
  }

  // The frame stays for a while: the address gets its number, and every panel hears of it.
  function settle() {
    settled = true;
    if (shown === wanted) announce();
  }

  function announce() {
    settled = false;
    app.set({ frame: wanted });
    show(wanted, false);
  }

  // Something came: show the frame that is wanted, as far as it is there.
  function arrived() {
    if (!inClip()) return;
    if (frames.count !== null && wanted >= frames.count) {
      const asked = app.state.frame, last = frames.count - 1;
      if (asked > last) app.leave([`frame=${asked}, expected 0 to ${inNumber(last)}`]); // of an address
      seek(last);
      settle();
    }
    const changed = shown !== wanted || row !== frames.rows.get(wanted);
    if (!playing && changed && frames.pictures.has(wanted)) {
      show(wanted, shown !== null);
      if (settled) announce();
    }
    if (frames.problem) pause();
    askAlone();
    paint();
  }

  // Frames appear at the times that the clip gives them. One that is not ready yet is waited for.
  function tick(now) {
    if (!playing || !inClip()) return;
    requestAnimationFrame(tick);
    if (!about || !frames.ready(wanted)) { clock = null; frames.look(wanted); return paint(); }
    if (shown !== wanted) { show(wanted); played.push(now); }
    clock ??= { now, time: frames.time(wanted) };
    const due = clock.time + (now - clock.now) / 1000, last = wanted;
    while (wanted + 1 < frames.total && frames.time(wanted + 1) <= due && frames.ready(wanted + 1)) wanted++;
    if (wanted === last && wanted + 1 < frames.total && frames.time(wanted + 1) <= due) {
      wanted++;
      clock = null;
    } else if (wanted !== last) { show(wanted); played.push(now); }
    if (wanted !== last) frames.look(wanted);
    while (played.length && now - played[0] > 1000) played.shift();
    if (wanted + 1 >= frames.total && shown === wanted) pause();
    paint();
  }

  function show(number, moving = true) {
    if (!about || !frames.pictures.has(number)) return;
    shown = number;
    row = frames.rows.get(number);
    app.supply(imageOf(number), answersOf(number), moving);
  }

  function imageOf(number) {
    const row = frames.rows.get(number), bitmap = frames.pictures.get(number);
    const cells = about.grids.find((grid) => grid.name === "cells");
    const [h, w] = row ? row.belief.shape : [cells.h, cells.w];
    const name = `${app.session.name}, frame ${number + 1}`;
    const { width, height } = bitmap, { longSide } = frames.clip, grids = { cells: { ...cells, h, w } };
    const clip = row && {
      name: app.session.name, longSide, start: row.start, frame: number,
      questions: row.header.answers.map(({ query }) => query),
    };
    return { ...about, id: frames.id(number), name, width, height, words: null, bitmap, clip, grids };
  }

  function unanswered(number) {
    const known = frames.rows.get(number)?.header.answers.map(({ query }) => query) ?? [];
    return texts(app.state).find((text) => number !== null && !known.includes(text) && !alone.has(`${number} ${text}`));
  }

  // Of each question; cells are kept as the stream kept them, once its frames are those of the budget chosen.
  function answersOf(number) {
    const row = frames.rows.get(number), answers = {};
    for (const text of texts(app.state)) {
      const header = row?.header.answers.find((answer) => answer.query === text);
      if (header) {
        const levels = row.levels[text], chosen = frames.fresh(number) ? keptOf(levels) : {};
        answers[text] = { header, maps: { cells: row.maps[text] }, asked: { cells: bitsOf(levels, ASKED) }, ...chosen };
      } else if (alone.has(`${number} ${text}`)) answers[text] = alone.get(`${number} ${text}`);
    }
    return answers;
  }

  function paint(anew = false) {
    const active = texts(app.state), { questions } = app.session.colours;
    const colours = active.map((text) => questions[app.state.questions.findIndex((each) => each.trim() === text)]);
    const key = JSON.stringify([active, frames.headers.size, frames.total, frames.key]);
    if (anew || key !== painted) paintStrip(panel.canvas, frames.headers, frames.total, active, colours);
    painted = key;
    panel.tell({ frames, wanted, shown, playing, active, colours, rate: played.length });
  }

  function onKey(event) {
    if (!inClip() || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const own = USED[event.key], strip = event.target === panel.slider;
    if (typing(event) || (own && !strip && event.target.closest?.(own))) return;
    const act = {
      " ": () => (playing ? pause() : play()), ",": () => step(-1), ".": () => step(1),
      Home: () => step(-Infinity), End: () => step(Infinity),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

const texts = (state) => [...new Set(state.questions.map((text) => text.trim()).filter(Boolean))];

function asked(state, cells) {
  const questions = texts(state), { policy, floor } = state;
  const budget = state.budget === "auto" ? "auto" : Math.min(state.budget, cells);
  return questions.length ? { questions, budget, policy, floor } : null;
}

// Bits of a cell, as in clips.py.
const SENT = 1, NEW = 2, ASKED = 4, EVEN = 8;
const bitsOf = (levels, bits) => Uint8Array.from(levels, (level) => (level & bits ? 1 : 0));
const cellsOf = (levels, bits) => Int32Array.from([...levels.keys()].filter((i) => levels[i] & bits));

// What the stream keeps, and which of it was sent before.
function keptOf(levels) {
  const [h, w] = levels.shape, kept = cellsOf(levels, SENT | NEW), spread = bitsOf(levels, EVEN);
  const even = spread.includes(1) ? spread : undefined;
  const kinds = kindsOf(kept, bitsOf(levels, ASKED), even, h, w);
  return { allocated: { cells: { kept, even, kinds } }, sent: { cells: cellsOf(levels, SENT) } };
}

const USED = { " ": "button, a, input, summary", Home: "input", End: "input" }; // what has keys of its own

function watchStrip(canvas, at, end) {
  const share = (event) => {
    const box = canvas.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); at(share(event)); });
  canvas.addEventListener("pointermove", (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) at(share(event));
  });
  canvas.addEventListener("pointerup", end);
}

const OWN = "One frame of the clip, encoded by itself: its map may differ from the clip's.";

function buildPanel(root) {
  const keyed = (label, path, key) => iconButton(label, path, { title: `${label} (${key})` });
  const back = keyed("One frame back", BACK, ","), next = keyed("One frame on", NEXT, ".");
  const play = keyed("Play", PLAY, "space");
  const slider = make("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Frame" });
  const canvas = make("canvas", { "aria-hidden": "true" }), head = make("div", { className: "head" });
  const place = make("output", { className: "place" }), rate = make("p", { className: "note rate" });
  const open = make("button", { type: "button" }, "Open this frame as an image");
  const leave = make("button", { type: "button", className: "main" }, "Back to the clip");
  const facts = make("p", { className: "facts" }), legend = make("ul", { className: "legend note" });
  const bar = make("div", { className: "bar" }, back, play, next, place, rate, open);
  const strip = make("div", { className: "strip" }, canvas, head, slider);
  const moving = make("div", { className: "moving" }, bar, strip, facts, legend);
  const about = make("p", { className: "note" }), still = make("div", { className: "bar" }, leave, about);
  root.append(moving, still);

  return {
    back, play, next, slider, canvas, open, leave,
    still(shown, own) {
      moving.hidden = shown;
      still.hidden = !shown;
      say(about, own ? OWN : "Another image is open.");
    },
    playing(on) {
      play.setAttribute("aria-label", on ? "Pause" : "Play");
      play.title = `${on ? "Pause" : "Play"} (space)`;
      play.querySelector("path").setAttribute("d", on ? PAUSE : PLAY);
    },
    tell({ frames, wanted, shown, playing, active, colours, rate: measured }) {
      const { total } = frames, header = shown === wanted ? frames.rows.get(wanted)?.header : undefined;
      const seconds = `${frames.time(wanted).toFixed(2)} s`;
      slider.max = Math.max(0, total - 1);
      slider.value = wanted;
      slider.setAttribute("aria-valuetext", `frame ${wanted + 1} of ${total}, ${seconds}`);
      const more = frames.count === null && !frames.clip.frames ? " or more" : "";
      say(place, `${wanted + 1} / ${total}${more}   ${seconds}`);
      head.style.setProperty("--at", total ? (wanted + 0.5) / total : 0);
      say(rate, describeRate(frames, wanted, playing, measured));
      const { problem } = frames, wrong = problem && [problem.received, problem.fix].filter(Boolean).join(". ");
      say(facts, wrong ?? (shown === wanted ? describeFrame(header, active) : onItsWay(wanted, shown)));
      facts.classList.toggle("trouble", Boolean(problem));
      showLegend(legend, active, colours, header);
      root.dataset.shown = shown ?? ""; // for tests: the frame on the page, and how many have maps
      root.dataset.mapped = frames.mapped;
    },
  };
}

const PLAY = "M6 3.5v13l10.5-6.5z", PAUSE = "M6.5 4v12M13.5 4v12";
const BACK = "M14 4.5v11L7 10zM5 4.5v11", NEXT = "M6 4.5v11L13 10zM15 4.5v11";

const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// How fast the clip plays, and how far its maps are.
function describeRate(frames, wanted, playing, measured) {
  const { total, mapped, clip } = frames, said = [], late = frames.asked && !frames.fresh(wanted);
  if (playing && !frames.ready(wanted)) said.push(late ? "waiting for maps" : "waiting for pictures");
  else if (playing) said.push(`${measured} frames a second`);
  if (late || (frames.asked && mapped < Math.min(total, 1200))) said.push(`maps of ${mapped} of ${total} frames`);
  else if (frames.asked) said.push("all maps are ready");
  if (!playing && clip.rate) said.push(`recorded at ${+clip.rate.toFixed(2)} a second`);
  return said.join(" · ");
}

const onItsWay = (wanted, shown) => `Frame ${inNumber(wanted + 1)} is being decoded, with those before it that were not yet. `
  + (shown === null ? "" : `The picture is still frame ${inNumber(shown + 1)}.`);

function describeFrame(header, active) {
  if (!active.length) return "Type a question: its map moves with the clip, and its confidence is drawn over time.";
  if (!header) return "The map of this frame by itself; the clip is being followed up to it.";
  const { reason, renewed } = header;
  const said = [reason ? `Keyframe: ${REASONS[reason] ?? reason}.` : "Features propagated along the motion."];
  if (renewed.length) said.push(`${renewed.length} ${renewed.length === 1 ? "part" : "parts"} encoded again.`);
  said.push(`Confidence in the features ${header.belief.toFixed(2)}.`);
  return said.join(" ");
}

const MARKS = [
  ["var(--belief)", "confidence in the features", ""],
  ["var(--key)", "keyframe", ""],
  ["var(--renewed)", "parts encoded again", ""],
];

function showLegend(list, active, colours, header) {
  const lines = active.map((text, i) => {
    const answer = header?.answers.find((each) => each.query === text);
    const counts = answer && `${answer.kept} cells kept, ${answer.new} newly sent`;
    return [`rgb(${colours[i]})`, text, answer ? `confidence ${inDigits(answer)}, ${counts}` : ""];
  });
  if (active.length) lines.push(...MARKS);
  const key = JSON.stringify(lines);
  if (list.dataset.lines === key) return;
  list.dataset.lines = key;
  list.replaceChildren(...lines.map(([colour, name, value]) => {
    const dot = make("i");
    dot.style.setProperty("background", colour);
    return make("li", {}, dot, make("span", {}, value ? `${name}: ${value}` : name));
  }));
}

// The clip as a strip over time: confidence of the features and of every question, keyframes, renewed parts.
// headers: Map number -> header; texts: questions; colours: [r, g, b] of each; -> paints the whole strip.
function paintStrip(canvas, headers, total, texts, colours) {
  const style = getComputedStyle(canvas), scale = devicePixelRatio || 1;
  const sides = [canvas.clientWidth, canvas.clientHeight];
  const [width, height] = sides.map((side) => Math.max(1, Math.round(side * scale)));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), ink = (name) => style.getPropertyValue(name);
  context.clearRect(0, 0, width, height);
  const column = width / total, wide = Math.max(1, Math.ceil(column)), top = 8 * scale, tall = height - top - 6 * scale;
  const x = (number) => Math.floor(number * column);
  const y = (share) => top + (1 - share) * tall;
  const sorted = [...headers.values()].sort((a, b) => a.index - b.index);
  context.fillStyle = ink("--belief");
  for (const { index, belief } of sorted) context.fillRect(x(index), y(belief), wide, belief * tall);
  context.fillStyle = ink("--middle");
  // From here on a thing counts as detected.
  for (let at = 0; at < width; at += 6 * scale) context.fillRect(at, Math.round(y(0.5)), 2 * scale, scale);
  texts.forEach((text, i) => {
    context.beginPath();
    let last = -2;
    for (const { index, answers } of sorted) {
      const found = answers.find((answer) => answer.query === text);
      if (!found) continue;
      const at = [(index + 0.5) * column, y(found.confidence)];
      if (last === index - 1) context.lineTo(...at);
      else { context.moveTo(x(index), at[1]); context.lineTo(...at); }
      last = index;
    }
    Object.assign(context, { lineJoin: "round", lineCap: "round", lineWidth: 4 * scale, strokeStyle: ink("--halo") });
    context.stroke();
    Object.assign(context, { lineWidth: 2 * scale, strokeStyle: `rgb(${colours[i]})` });
    context.stroke();
  });
  const mark = Math.max(2 * scale, Math.min(wide, 3 * scale));
  for (const { index, reason, renewed } of sorted) {
    context.fillStyle = ink("--key");
    if (reason) context.fillRect(x(index), 0, mark, 6 * scale);
    context.fillStyle = ink("--renewed");
    if (renewed.length) context.fillRect(x(index), height - 4 * scale, mark, 4 * scale);
  }
}

const REASONS = {
  first: "the first frame of the run",
  cut: "a cut",
  age: "the last one is long ago",
  stale: "too much of the picture was not seen before",
  residual: "the picture looks different from what was encoded",
};
