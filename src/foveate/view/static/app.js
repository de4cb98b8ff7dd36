// What the panels share: the state, the image, the answers. Panels read, call `set`, and listen; they do not know one
// another.
//
//   app.state                       the state (state.js); app.set({budget: 64}) replaces a part of it
//   app.session                     what the server said of itself: kind, name, colours, ...
//   app.image                       {id, name, height, width, words (null: nobody read it), bitmap,
//                                   grids: {name: {h, w, label, valid}}}, or null
//   app.context                     what every question is sent with beside image and query: {gaze, earlier, ...};
//                                   app.setContext({gaze}) replaces a part and asks again
//   app.answers                     key of a question (text and context) -> {header, maps: {grid: Float32Array}, worth,
//                                   asked (as maps; of an image), kept (of a clip)}
//   app.answer(i)                   that of question i for the image that is shown, or undefined
//   app.shown(i)                    the same; while it is on its way, the answer before it: so that a picture does not
//                                   flicker
//   app.allocation(i)               {kept, even, kinds} of what is shown on the grid chosen (allocate.js), or undefined
//   app.kept(i)                     Int32Array of the kept cells, ascending, or undefined
//   app.pictures()                  what is seen, for export: [{canvas, questions: [i, ...], minus}, ...], canvases of
//                                   the image's full size without zoom, several side by side; minus: the question
//                                   that is taken off, or null; and app.colourBar(): {canvas, low, high} or null. The
//                                   stage gives these functions
//   app.hovered, app.hover(cell)    the cell under the pointer, a flat index on the grid chosen, or null ("hover");
//   app.walked                      whether it was moved to by keys
//   app.point                       [y, x] of the pointer on the image, shares from 0 to 1, or null
//   app.drawing                     whether a drag over the image draws a box and does not move it
//   app.pointed                     the same also beside the image, where the pointer was last on its canvas
//   app.marks                       functions (context, unit) that draw over the image and not into its export;
//                                   the context counts in pixels of the image, unit: such pixels in one of the screen
//   app.overlay                     a canvas with the plane that is laid over the image, or null ("overlay"; planes.js)
//   app.ignored                     sentences: what of the address was left out, and why ("ignored")
//   app.overview                    whether the list of a folder or store has the page, and no image is seen
//   app.on("state" | "image" | "answer" | "problem" | "ignored" | "hover" | "overlay" | "write", listener)
//                                   "write", i: somebody is about to type question i
import { Address } from "./address.js";
import { allocate } from "./allocate.js";
import { getBitmap, getJson, getPacked, postPacked, Problem, upload } from "./api.js";
import { inNumber } from "./dom.js";
import { movedTo } from "./pointer.js";
import { fromHash, isQuestion, leftOut, LONGEST } from "./state.js";

const ANSWERS = 100; // kept: some 20 KB each
const LASTING = new Set([400, 404, 413, 422]); // what these refuse is not asked again; a server that is away or busy is

export class App {
  constructor() {
    this.state = fromHash(location.hash);
    this.ignored = leftOut(location.hash);
    this.unfitted = true; // the state is of an address, and was not yet compared with its image
    this.address = new Address((state, ignored) => {
      this.unfitted = true;
      const next = { ...state, image: state.image ?? this.fallback() };
      const fitted = this.image && this.image.id === next.image ? this.fitted(this.image.grids, next) : {};
      this.become(Object.freeze({ ...next, ...fitted }));
      this.leave(ignored);
    });
    this.listeners = new Map();
    this.image = null;
    this.answers = new Map();
    this.context = {};
    this.pictures = () => [];
    this.colourBar = () => null;
    this.asking = true; // false: another panel (the clip) supplies images and answers
    this.busy = new Set(); // questions whose request is on its way
    this.before = new Map(); // question i -> its last answer
    this.allocated = new WeakMap(); // answer -> the allocation that was made last, and what of
    this.hovered = null;
    this.walked = false;
    this.point = null;
    this.pointed = null;
    this.marks = [];
    this.drawing = false;
    this.overlay = null;
    this.away = false; // the server
    for (const [kind, away] of [["away", true], ["back", false]]) {
      addEventListener(kind, () => { this.away = away; this.tell("answer"); });
    }
  }

  on(kind, listener) {
    if (!this.listeners.has(kind)) this.listeners.set(kind, []);
    this.listeners.get(kind).push(listener);
  }

  tell(kind, detail) {
    for (const listener of this.listeners.get(kind) ?? []) listener(detail);
  }

  hover(cell, walked = false) {
    if (cell === this.hovered) return;
    this.hovered = cell;
    this.walked = walked;
    this.tell("hover");
  }

  set(patch) {
    const leaves = this.state.image && "image" in patch && patch.image !== this.state.image;
    const own = leaves ? { gaze: "", earlier: Object.freeze([]) } : {}; // of the image before
    const state = Object.freeze({ ...this.state, ...own, ...this.movedPin(patch), ...patch });
    this.address.follow(this.state, state);
    this.become(state);
  }

  // A pinned cell stays where it is in the image when another grid is chosen, in the same step of the history.
  movedPin({ grid }) {
    const { pin } = this.state, to = this.image?.grids[grid];
    return to && pin !== null ? { pin: movedTo(this.grid, pin, to) } : {};
  }

  become(state) {
    const before = this.state, { grid } = state; // an address may name any
    const known = !this.image || Object.hasOwn(this.image.grids, grid);
    this.state = known ? state : Object.freeze({ ...state, grid: "cells" });
    if (state.image === null) this.wanted = null; // one that is still on its way comes too late
    if (state.questions.length !== before.questions.length) this.before.clear(); // their numbers are others now
    this.tell("state", before);
    if (this.state.image !== before.image && this.state.image !== null) this.show(this.state.image, grid);
    if (this.state.questions !== before.questions) this.askAll();
    this.needPoints();
  }

  async start() {
    try {
      this.session = await getJson("/api/session");
      const opens = !this.state.image && this.session.first && this.session.kind === "folder"; // at a page of a PDF
      if (opens) this.state = Object.freeze({ ...this.state, image: this.session.first, list: 0 });
      this.tell("session");
      this.leave([]);
      const first = this.state.image ?? this.session.first;
      if (first) await this.show(first);
    } catch (problem) {
      this.tell("problem", problem);
    }
  }

  async open(file) {
    try {
      this.tell("loading", file.name);
      const most = this.session.limits.upload; // a larger one would be cut off on its way, and nobody would say why
      if (file.size > most) {
        throw new Problem(`${file.name} has ${Math.ceil(file.size / 2 ** 20)} MB`, `at most ${most / 2 ** 20} MB`,
          "make it smaller; or foveate view and its path, as that takes up to 256 MB");
      }
      const { id } = await upload(file), same = id === this.state.image;
      this.set({ image: id, pin: null, list: 0 });
      if (same) await this.show(id);
    } catch (problem) {
      this.tell("problem", problem);
    }
  }

  async show(id, grid = this.state.grid) {
    try {
      this.tell("loading", id);
      this.wanted = id;
      const [{ header, arrays }, bitmap] = await Promise.all([
        getPacked(`/api/images/${id}`), getBitmap(`/api/images/${id}/pixels`),
      ]);
      if (this.wanted !== id) return; // a newer one is on its way
      const grids = {};
      for (const each of header.grids) {
        const { name } = each;
        grids[name] = { ...each, valid: arrays[`valid:${name}`] };
      }
      this.image = { ...header, grids, bitmap };
      this.answers.clear();
      this.before.clear();
      this.state = Object.freeze({ ...this.state, image: id, ...this.fitted(grids, { ...this.state, grid }) });
      this.address.settle(this.state);
      this.tell("image");
      this.leave([]);
      this.askAll();
      this.needPoints();
    } catch (problem) {
      if (this.wanted !== id) return;
      if (this.image && this.asking) { // that stays open, and this one can be tried again
        this.state = Object.freeze({ ...this.state, image: this.image.id });
        this.address.settle(this.state);
      }
      this.tell("problem", problem);
    }
  }

  // The part of the state that these grids do not have, as they have it. Of an address, what is left out is said.
  fitted(grids, { grid, budget, pin }) {
    const name = Object.hasOwn(grids, grid) ? grid : "cells", count = grids[name].h * grids[name].w;
    const wrong = [], patch = { grid: name };
    if (name !== grid) wrong.push(`grid=${grid}, expected ${Object.keys(grids).join(", ")}`);
    if (pin >= count) { patch.pin = null; wrong.push(`pin=${pin}, expected 0 to ${inNumber(count - 1)}`); }
    if (this.unfitted && budget > count) {
      patch.budget = "auto";
      wrong.push(`k=${budget}, expected 1 to ${inNumber(count)}`);
    }
    if (this.unfitted) this.ignored = [...this.ignored, ...wrong];
    this.unfitted = false;
    return patch;
  }

  // What was left out leaves the address, too.
  leave(more) {
    this.ignored = [...this.ignored, ...more];
    if (!this.ignored.length) return;
    this.address.settle(this.state);
    this.tell("ignored");
  }

  setContext(patch) {
    this.context = { ...this.context, ...patch };
    this.askAll();
  }

  // An image and answers from a panel instead of the server's; answers: text -> {header, maps, asked, allocated
  // (grid -> what `allocation` says, where it is not to be made here), sent}. moving: others
  // follow at once, so nobody but who paints needs to know of it.
  supply(image, answers, moving = false) {
    this.image = image;
    this.answers = new Map(Object.entries(answers).map(([text, answer]) => [this.key(text), answer]));
    if (!Object.hasOwn(image.grids, this.state.grid)) this.state = Object.freeze({ ...this.state, grid: "cells" });
    if (!moving) this.tell("image");
    this.tell("answer");
  }

  // The image of an address that names none: that of a clip is the clip itself.
  fallback() {
    return this.session?.kind === "clip" ? null : this.state.image;
  }

  key(text) {
    return JSON.stringify([text.trim(), this.context]);
  }

  askAll() {
    if (!this.asking) return;
    for (const [key, { problem }] of this.answers) {
      if (problem && !LASTING.has(problem.status)) this.answers.delete(key);
    }
    this.state.questions.forEach((_, i) => this.ask(i));
  }

  // Words mean something else from now on.
  askAgain() {
    this.answers.clear();
    this.tell("answer");
    this.state.questions.forEach((_, i) => this.ask(i));
  }

  // One request a question at a time; of what is typed meanwhile, the newest is asked next. So requests do not pile up,
  // the map moves while somebody types, and no older answer comes after a newer one.
  async ask(i) {
    if (this.busy.has(i)) return;
    this.busy.add(i);
    try {
      for (let next; (next = this.unanswered(i));) {
        const answer = await this.fetchAnswer(next.body);
        if (this.image.id !== next.body.image) continue; // of an image that was left
        this.remember(next.key, answer);
        this.before.set(i, answer.header && answer);
        this.tell("answer", i);
      }
    } finally {
      this.busy.delete(i);
    }
    this.before.set(i, this.answer(i));
    this.tell("answer", i);
  }

  unanswered(i) {
    const query = this.state.questions[i]?.trim(), key = this.key(query ?? "");
    if (!this.image || !isQuestion(query ?? "") || !this.asking || this.answers.has(key)) return undefined;
    return { key, body: { ...this.context, image: this.image.id, query } };
  }

  async fetchAnswer(body) {
    try {
      const length = [...body.query].length;
      if (length > LONGEST) {
        throw new Problem(`${inNumber(length)} characters came`, `at most ${inNumber(LONGEST)}`,
          "ask for the thing that you look for in a few words", 422);
      }
      const { header, arrays } = await postPacked("/api/score", body);
      const grids = Object.keys(header.auto);
      const of = (kind) => Object.fromEntries(grids.map((name) => [name, arrays[`${kind}:${name}`]]));
      return { header, maps: of("map"), worth: of("worth"), asked: of("asked") };
    } catch (problem) {
      if (problem.status !== 404) return { problem };
      return { problem, session: await getJson("/api/session").catch(() => undefined) }; // perhaps another one by now
    }
  }

  // Of answers that nobody asks for any more, the oldest are forgotten.
  remember(key, answer) {
    this.answers.set(key, answer);
    const asked = new Set(this.state.questions.map((text) => this.key(text)));
    const old = [...this.answers.keys()].filter((each) => !asked.has(each));
    for (const each of old.slice(0, Math.max(0, this.answers.size - ANSWERS))) this.answers.delete(each);
  }

  answer(i = this.state.active) {
    const found = this.answers.get(this.key(this.state.questions[i] ?? ""));
    return found?.header ? found : undefined;
  }

  shown(i = this.state.active) {
    return this.answer(i) ?? (this.busy.has(i) && !this.away ? this.before.get(i) : undefined);
  }

  // Questions that are asked and switched on; and the one that a difference is taken from, or undefined.
  questionsOn() {
    const { questions, off } = this.state;
    return questions.map((_, i) => i).filter((i) => questions[i].trim() && !(off & (1 << i)));
  }

  other() {
    const { questions, active, other } = this.state, can = (i) => i !== active && Boolean(questions[i]?.trim());
    return can(other) ? other : questions.map((_, i) => i).find(can);
  }

  get overview() {
    return ["folder", "store"].includes(this.session?.kind) && (this.state.list === 1 || !this.state.image);
  }

  get grid() {
    return this.image?.grids[this.state.grid];
  }

  // Cells to keep: the number chosen, as far as there are so many, or what "auto" takes for the question.
  budget(i = this.state.active) {
    const { h, w } = this.grid;
    const number = this.state.budget === "auto" ? this.shown(i)?.header.auto?.[this.state.grid] : this.state.budget;
    return Math.min(number ?? 1, h * w);
  }

  // Made once, however many panels look.
  allocation(i = this.state.active) {
    const answer = this.shown(i), grid = this.grid, { floor, grid: name } = this.state;
    if (!answer || !grid) return undefined;
    if (answer.allocated?.[name]) return answer.allocated[name];
    if (this.state.policy === "coverage" && this.asking && !grid.points) return undefined; // on its way
    // A clip has no points and no worth: its cells come with the stream.
    const policy = this.asking || this.state.policy === "proportional" ? this.state.policy : "topk";
    const budget = this.budget(i), made = `${name} ${policy} ${floor} ${budget}`;
    if (this.allocated.get(answer)?.made !== made) {
      const scores = { ...grid, map: answer.maps[name], worth: answer.worth?.[name], asked: answer.asked?.[name] };
      this.allocated.set(answer, { made, allocation: allocate(scores, budget, { floor, policy }) });
    }
    return this.allocated.get(answer).allocation;
  }

  kept(i = this.state.active) {
    return this.allocation(i)?.kept;
  }

  // "coverage" compares cells by their embedding, which is fetched when it is first needed, once a grid.
  async needPoints() {
    const grid = this.grid, { policy, grid: name } = this.state;
    if (policy !== "coverage" || !this.asking || !grid || grid.points !== undefined) return;
    grid.points = null;
    try {
      grid.points = (await getPacked(`/api/images/${this.image.id}/points?grid=${name}`)).arrays.points;
      this.tell("answer");
    } catch (problem) {
      grid.points = undefined;
      this.tell("problem", problem);
    }
  }
}
