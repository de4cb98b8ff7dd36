// What the panels share: the state, the image, the answers. Panels read, call `set`, and listen; they do not know one another.
//
//   app.state                       the state (state.js); app.set({budget: 64}) replaces a part of it
//   app.session                     what the server said of itself: kind, name, colours, ...
//   app.image                       {id, name, height, width, grids: {name: {h, w, label, saliency, valid}}, bitmap}, or null
//   app.context                     what every question is sent with beside image and query: {gaze, earlier, ...};
//                                   app.setContext({gaze}) replaces a part and asks again
//   app.answers                     key of a question (text and context) -> {header, maps: {grid: Float32Array}, kept?}
//   app.answer(i)                   that of question i for the image that is shown, or undefined
//   app.kept(i)                     Int32Array of the cells kept for it on the grid chosen, or undefined
//   app.pictures()                  what is seen, for export: [{question: i, canvas}, ...], canvases of the image's full
//                                   size without zoom, several side by side; the stage gives this function
//   app.hovered, app.hover(cell)    the cell under the pointer, a flat index on the grid chosen, or null ("hover")
//   app.point                       [y, x] of the pointer on the image, shares from 0 to 1, or null
//   app.marks                       functions (context, unit) that draw over the image and not into its export;
//                                   the context counts in pixels of the image, unit: such pixels in one of the screen
//   app.overlay                     a canvas with the plane that is laid over the image, or null ("overlay"; planes.js)
//   app.on("state" | "image" | "answer" | "problem" | "hover" | "overlay", listener)
import { Address } from "./address.js";
import { allocate } from "./allocate.js";
import { getBitmap, getJson, getPacked, postPacked, upload } from "./api.js";
import { fromHash } from "./state.js";

export class App {
  constructor() {
    this.state = fromHash(location.hash);
    this.address = new Address((state) => this.become(Object.freeze({ ...state, image: state.image ?? this.state.image })));
    this.listeners = new Map();
    this.image = null;
    this.answers = new Map();
    this.context = {};
    this.pictures = () => [];
    this.asking = true; // false: another panel (the clip) supplies images and answers
    this.waiting = new Map(); // question i -> AbortController
    this.hovered = null;
    this.point = null;
    this.marks = [];
    this.overlay = null;
  }

  on(kind, listener) {
    if (!this.listeners.has(kind)) this.listeners.set(kind, []);
    this.listeners.get(kind).push(listener);
  }

  tell(kind, detail) {
    for (const listener of this.listeners.get(kind) ?? []) listener(detail);
  }

  hover(cell) {
    if (cell === this.hovered) return;
    this.hovered = cell;
    this.tell("hover");
  }

  set(patch) {
    const state = Object.freeze({ ...this.state, ...patch });
    this.address.follow(this.state, state);
    this.become(state);
  }

  become(state) {
    const before = this.state;
    this.state = state;
    this.tell("state", before);
    if (this.state.image !== before.image) this.show(this.state.image);
    if (this.state.questions !== before.questions) this.askAll();
  }

  async start() {
    try {
      this.session = await getJson("/api/session");
      this.tell("session");
      const first = this.state.image ?? this.session.first;
      if (first) await this.show(first);
    } catch (problem) {
      this.tell("problem", problem);
    }
  }

  async open(file) {
    try {
      this.tell("loading", file.name);
      this.set({ image: (await upload(file)).id, pin: null, list: 0 });
    } catch (problem) {
      this.tell("problem", problem);
    }
  }

  async show(id) {
    try {
      this.tell("loading", id);
      this.wanted = id;
      const [{ header, arrays }, bitmap] = await Promise.all([
        getPacked(`/api/images/${id}`), getBitmap(`/api/images/${id}/pixels`),
      ]);
      if (this.wanted !== id) return; // a newer one is on its way
      const grids = {};
      for (const grid of header.grids) {
        grids[grid.name] = { ...grid, saliency: arrays[`saliency:${grid.name}`], valid: arrays[`valid:${grid.name}`] };
      }
      this.image = { ...header, grids, bitmap };
      this.answers.clear();
      this.state = Object.freeze({ ...this.state, image: id, grid: Object.hasOwn(grids, this.state.grid) ? this.state.grid : "cells" });
      this.address.settle(this.state);
      this.tell("image");
      this.askAll();
    } catch (problem) {
      this.tell("problem", problem);
    }
  }

  setContext(patch) {
    this.context = { ...this.context, ...patch };
    this.askAll();
  }

  // An image and answers from a panel instead of the server's; answers: text -> {header, maps, kept}.
  supply(image, answers) {
    this.image = image;
    this.answers = new Map(Object.entries(answers).map(([text, answer]) => [this.key(text), answer]));
    this.tell("image");
    this.tell("answer");
  }

  key(text) {
    return JSON.stringify([text.trim(), this.context]);
  }

  askAll() {
    if (!this.asking) return;
    this.state.questions.forEach((text, i) => this.ask(text.trim(), i));
  }

  // The newest text of a question wins: an older request is dropped.
  async ask(text, i) {
    const key = this.key(text);
    if (!this.image || !text || this.answers.has(key)) return this.tell("answer", i);
    this.waiting.get(i)?.abort();
    const controller = new AbortController(), image = this.image.id;
    this.waiting.set(i, controller);
    try {
      const { header, arrays } = await postPacked("/api/score", { ...this.context, image, query: text }, controller.signal);
      if (this.image?.id !== image) return;
      const maps = {};
      for (const name of Object.keys(this.image.grids)) maps[name] = arrays[`map:${name}`];
      this.answers.set(key, { header, maps });
    } catch (problem) {
      if (problem.name === "AbortError") return;
      this.answers.set(key, { problem });
    }
    this.tell("answer", i);
  }

  answer(i = this.state.active) {
    const found = this.answers.get(this.key(this.state.questions[i] ?? ""));
    return found?.header ? found : undefined;
  }

  get grid() {
    return this.image?.grids[this.state.grid];
  }

  budget(i = this.state.active) {
    const answer = this.answer(i), { h, w } = this.grid;
    const number = this.state.budget === "auto" ? answer?.header.auto[this.state.grid] : this.state.budget;
    return Math.min(number ?? 1, h * w);
  }

  kept(i = this.state.active) {
    const answer = this.answer(i), grid = this.grid;
    if (!answer || !grid) return undefined;
    if (answer.kept?.[this.state.grid]) return answer.kept[this.state.grid];
    const map = answer.maps[this.state.grid];
    return allocate({ ...grid, map, trust: answer.header.trust }, this.budget(i), { floor: this.state.floor });
  }
}
