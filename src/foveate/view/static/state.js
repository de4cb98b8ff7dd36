// What the page shows, as one immutable value that the address bar spells (#q=a+dog&k=64), and who listens to it.

export const INITIAL = Object.freeze({
  image: null, // id
  questions: Object.freeze([""]), // texts, as typed
  active: 0, // which of them the controls are about
  grid: "cells", // name of a grid
  budget: "auto", // or a number
  policy: "topk", // coverage, proportional
  floor: 0,
  view: "heat", // kept, both, photo, difference
  colours: "heat",
  opacity: 0.75,
  threshold: 0,
  plane: null, // name of a channel laid over the image
  level: 0, // its mip level
  pin: null, // flat index of a pinned cell on `grid`
});

const SHORT = { image: "image", questions: "q", active: "a", grid: "grid", budget: "k", policy: "policy", floor: "floor",
  view: "view", colours: "colours", opacity: "opacity", threshold: "threshold", plane: "plane", level: "level", pin: "pin" };
const NUMBERS = new Set(["active", "floor", "opacity", "threshold", "level", "pin"]);

export function toHash(state) {
  const out = new URLSearchParams();
  for (const [name, short] of Object.entries(SHORT)) {
    const value = state[name];
    if (name === "questions") value.forEach((text) => text.trim() && out.append(short, text));
    else if (value !== INITIAL[name]) out.set(short, value);
  }
  return out.toString();
}

// Unknown names and values that are none are left out: an address may come from anybody.
export function fromHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, "")), state = { ...INITIAL };
  for (const [name, short] of Object.entries(SHORT)) {
    if (!given.has(short)) continue;
    const text = given.get(short);
    if (name === "questions") state.questions = given.getAll(short).slice(0, 6);
    else if (name === "budget") state.budget = Number.isInteger(+text) && +text > 0 ? +text : "auto";
    else if (NUMBERS.has(name)) { if (Number.isFinite(+text)) state[name] = +text; }
    else state[name] = text;
  }
  state.active = Math.min(Math.max(0, state.active), state.questions.length - 1);
  return Object.freeze(state);
}
