// What the page shows, as one immutable value that the address bar spells (#q=a+dog&k=64).
//
// A new field is one line of FIELDS: its short name in the address, its first value, and how a text from the address is
// read: undefined for what is none, and what is expected then. An address may come from anybody.
// Choices are tables: the name in the address, and what the page calls it.
export const VIEWS = Object.freeze({
  heat: "Heat", kept: "Kept", both: "Both", photo: "Photo", difference: "Difference",
});
export const POLICIES = Object.freeze({
  worth: "the question and context", topk: "the highest scores", coverage: "high scores that differ",
  proportional: "every region its share",
});
export const MANY = Object.freeze({ one: "One", together: "Together", beside: "Side by side" });
export const MOST_QUESTIONS = 6, MOST_ROUNDS = 20;
export const COLOURS = Object.freeze(["heat", "viridis", "cividis"]);
export const LONGEST = 1000; // characters of a question, as in Python
const SPELT = 10000; // characters of a text that an address has room for: a longer one is kept, as typed, and refused

const field = (short, first, kind, step = false) => ({ short, first, step, ...kind });
const like = (pattern, expected) => ({ read: (text) => (pattern.test(text) ? text : undefined), expected });
const choice = (all) => ({ read: (text) => (all.includes(text) ? text : undefined), expected: all.join(", ") });
const number = (low, high) => ({
  read: (text) => (text.trim() && +text >= low && +text <= high ? +text : undefined), expected: `${low} to ${high}`,
});
const whole = (low, high, expected = `${low} to ${high}`) => (
  { read: (text) => (/^\d{1,9}$/.test(text) && +text >= low && +text <= high ? +text : undefined), expected });
const texts = (most, longest) => ({ most, longest, expected: `at most ${most}` }); // each has a value of its own
const cut = (text, longest) => (text.length > longest ? [...text].slice(0, longest).join("") : text);
const spelt = (text) => cut(text, SPELT);
const id = like(/^[\w-]{1,80}$/, "an id that this viewer gave"); // it becomes a part of a path
const name = like(/^[\w .-]{1,80}$/, "a name that this viewer gave");
const label = like(/^.{1,80}$/su, "a name of at most 80 characters"); // a file may name its channels as it likes
const fixations = like(/^\d+(\.\d+)?(,\d+(\.\d+)?){2}(;\d+(\.\d+)?(,\d+(\.\d+)?){2}){0,199}$/, "y,x,seconds;...");

// step: a choice, a step of the history by itself; a run of changes to other fields (typing, a slider) is one step.
const STEP = true;
const FIELDS = {
  image: field("image", null, id, STEP),
  frame: field("frame", 0, whole(0, 99999999)), // of a clip
  list: field("list", 1, whole(0, 1), STEP), // of a folder or store: 1 shows all its images, 0 the one that is open
  find: field("find", "", { read: spelt }), // what is looked for in the list: names of a folder, things of a store
  like: field("like", null, id, STEP), // an image of a store: those like it are listed, not those that `find` finds
  where: field("where", "", { read: (text) => cut(text, LONGEST) }, STEP), // an SQL condition on the columns of a store
  questions: field("q", Object.freeze([""]), texts(MOST_QUESTIONS, SPELT)), // as typed
  active: field("a", 0, whole(0, MOST_QUESTIONS - 1)), // which of them the controls are about
  grid: field("grid", "cells", name, STEP), // name of a grid
  budget: field("k", "auto", whole(1, 1e9, "a whole number from 1")), // or a number
  policy: field("policy", "worth", choice(Object.keys(POLICIES)), STEP),
  floor: field("floor", 0, number(0, 1)),
  view: field("view", "heat", choice(Object.keys(VIEWS)), STEP),
  many: field("many", "one", choice(Object.keys(MANY)), STEP), // the active one, all in one picture, a picture each
  off: field("off", 0, whole(0, 2 ** MOST_QUESTIONS - 1)), // bits of the questions that are left out of the last two
  other: field("other", null, whole(0, MOST_QUESTIONS - 1)), // the question that the difference is taken from
  boxes: field("boxes", 0, whole(0, 1), STEP), // 1: boxes are drawn
  colours: field("colours", "heat", choice(COLOURS), STEP),
  opacity: field("opacity", 0.75, number(0, 1)),
  threshold: field("threshold", 0, number(0, 1)),
  plane: field("plane", null, label, STEP), // name of a channel laid over the image
  level: field("level", 0, whole(0, 16)), // its mip level
  pin: field("pin", null, whole(0, 1e9, "the number of a cell")), // flat index of a pinned cell on `grid`
  earlier: field("e", Object.freeze([]), texts(MOST_ROUNDS, LONGEST), STEP), // of a dialogue, the oldest first
  gaze: field("gaze", "", fixations), // "y,x,seconds;..." in pixels of the image (gaze.js)
  gazeWeight: field("gw", 0.3, number(0, 1)), // share of the gaze in a map
};

const FIRST = Object.entries(FIELDS).map(([key, { first }]) => [key, first]);
export const INITIAL = Object.freeze(Object.fromEntries(FIRST));

export function toHash(state) {
  const out = new URLSearchParams();
  for (const [key, { short, first, most }] of Object.entries(FIELDS)) {
    const value = state[key];
    if (most) { if (value.join("")) value.forEach((text) => out.append(short, spelt(text))); }
    else if (value !== first && value !== null) out.set(short, value);
  }
  return out.toString();
}

// Unknown names, and values that are none, are left out.
export function fromHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, "")), state = { ...INITIAL };
  for (const [key, { short, first, read, most, longest }] of Object.entries(FIELDS)) {
    if (!given.has(short)) continue;
    if (most) state[key] = Object.freeze(given.getAll(short).slice(0, most).map((text) => cut(text, longest)));
    else state[key] = read(given.get(short)) ?? first;
  }
  state.active = Math.min(state.active, state.questions.length - 1);
  return Object.freeze(state);
}

// What of an address is left out, and why; -> sentences.
export function leftOut(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, "")), known = Object.values(FIELDS);
  return [...new Set(given.keys())].flatMap((short) => {
    const { read, most, expected } = known.find((each) => each.short === short) ?? {}, all = given.getAll(short);
    if (most) return all.length > most ? [`${all.length} of ${short}=, expected ${expected}`] : [];
    const why = expected ? `expected ${expected}` : "no such name";
    return read?.(all[0]) === undefined ? [`${short}=${cut(all[0], 30)}, ${why}`] : [];
  });
}

// Whether a text can be a question: two letters or digits, or a letter of a script that has no small and large ones.
export const isQuestion = (text) => /[\p{L}\p{N}].*[\p{L}\p{N}]|\p{Lo}/su.test(text);

// Names of the fields in which two states differ, and whether one is a step of the history by itself.
export const changes = (before, after) => Object.keys(FIELDS).filter((key) => before[key] !== after[key]);
export const isStep = (key) => FIELDS[key].step;
