// Why a cell has its score, and how it stands: its rank, whether it is kept. As `Allocation.why`, for any cell.
import { steer } from "./allocate.js";
import { inNumber } from "./dom.js";

// reasons: Map of name -> Float32Array [h * w]; even: [h * w], truthy where the even spread keeps a cell, or undefined;
// words: [{text, box, because}] that the question found; box: {y0, x0, y1, x1} of the cell in pixels.
// -> [[name, number], ...], the largest first, and last ["words", text] where one lies in the cell.
export function why({ reasons, even, words }, cell, box) {
  const found = Array.from(reasons, ([name, plane]) => [name, fourDigits(plane[cell])]);
  if (even) found.push(["floor", even[cell] ? 1 : 0]);
  found.sort((a, b) => b[1] - a[1]); // stable, as Python's
  const word = words.find((each) => overlaps(each.box, box));
  return word ? [...found, ["words", [word.text, word.because].filter(Boolean).join(", ")]] : found;
}

// A score in words, of the reasons that answer the question ("floor" and "words" are none), in their order.
// found: [[name, number], ...] as of `why`.
export function inWords(query, found, score) {
  const parts = found.filter(([name]) => name !== "floor" && name !== "words"), two = (value) => value.toFixed(2);
  const said = parts.map(([name, value]) => `${SAID[name]?.(query) ?? name} ${two(value)}`);
  return `${said.join(", ")}: the score is ${two(score)}.`.replace(/^./, (first) => first.toUpperCase());
}

const SAID = {
  participation: (query) => `this cell answers “${query}”`,
  segment: () => "its segment",
  place: () => "its place fits",
  reading: () => "what is written here",
  prior: () => "gaze or dialogue",
};

// Whether a box [y0, x0, y1, x1] and that of a cell have an area in common.
export const overlaps = ([y0, x0, y1, x1], cell) => y0 < cell.y1 && y1 > cell.y0 && x0 < cell.x1 && x1 > cell.x0;

// Python's round(value, 4): halves to the even digit. A number of 32 bits times 10,000 is exact.
function fourDigits(value) {
  const exact = value * 1e4, low = Math.floor(exact), rest = exact - low;
  return (low + (rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? 1 : 0)) / 1e4;
}

// How a cell stands for the active question.
// -> {score, rank, count, by, kept, verdict, place}, where cells are ranked `by` what it says; undefined without an
// answer. place: the cell's among the kept ones, in their order in the image, or -1.
export function standing(app, cell) {
  const answer = app.shown(), grid = app.grid, name = app.state.grid;
  if (!answer || cell >= grid.h * grid.w) return undefined;
  const rank = rankOf(keysOf(answer, grid, name), cell), allocation = app.allocation();
  const place = allocation?.kept.indexOf(cell) ?? -1, kept = place >= 0;
  const reason = allocation && reasonOf(app, allocation, cell, rank, kept), score = answer.maps[name][cell];
  const verdict = allocation ? `${kept ? "Kept" : "Left out"}${reason}.` : "Cells are still being compared.";
  return { score, rank, count: grid.h * grid.w, by: rankedBy(answer.header.trust ?? 1), kept, verdict, place };
}

// The same in a line.
export function briefly(app, cell) {
  const found = standing(app, cell), place = `row ${Math.floor(cell / app.grid.w)}, column ${cell % app.grid.w}`;
  if (!found) return place;
  return `${place}: ${found.score.toFixed(2)}, rank ${inNumber(found.rank)}, ${found.kept ? "kept" : "left out"}`;
}

// 1 for the highest of the keys; of equal ones the lower index comes first.
export function rankOf(keys, cell) {
  let rank = 1;
  for (let i = 0; i < keys.length; i++) if (keys[i] > keys[cell] || (keys[i] === keys[cell] && i < cell)) rank++;
  return rank;
}

const NOT_CERTAIN = ": as the thing was not found for certain, a part of the budget is spread evenly";

function reasonOf(app, allocation, cell, rank, kept) {
  const { valid } = app.grid;
  if (!app.asking) return kept ? " in this frame" : " of this frame";
  if (valid && !valid[cell]) return kept ? ": no opaque cell is left" : ": it is transparent";
  if (kept && allocation.even?.[cell]) return app.state.floor ? ": it belongs to the even spread" : NOT_CERTAIN;
  const spread = allocation.even?.reduce((sum, each) => sum + each, 0) ?? 0;
  const by = app.state.policy === "topk" ? "rank" : "the policy", rest = inNumber(app.budget() - spread);
  const even = spread ? `, ${inNumber(spread)} by the even spread` : "";
  return `: rank ${inNumber(rank)}; ${rest} cells are kept by ${by}${even}`;
}

const rankedBy = (trust) => {
  const score = Math.round(100 * trust);
  return trust >= 1 ? "by the score; of equal ones the first comes first"
    : `${score} % by the score, ${100 - score} % by what stands out, as the thing was not found for certain`;
};

const made = new WeakMap(); // answer -> Map of grid -> keys

// What allocation ranks cells by: the map, and saliency as far as the map cannot be trusted.
function keysOf(answer, grid, name) {
  if (!made.has(answer)) made.set(answer, new Map());
  const grids = made.get(answer);
  if (!grids.has(name)) {
    const keys = steer(answer.maps[name], grid.saliency, answer.header.trust ?? 1);
    grids.set(name, grid.valid ? keys.map((key, i) => (grid.valid[i] ? key : -Infinity)) : keys);
  }
  return grids.get(name);
}
