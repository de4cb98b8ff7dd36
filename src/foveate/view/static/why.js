// Why a cell has its score, and how it stands: its rank, whether it is kept. As `Allocation.why`, for any cell.
import { inNumber } from "./dom.js";

// reasons: Map of name -> Float32Array [h * w]; even: [h * w], truthy where the even spread keeps a cell, or undefined;
// asked: Float32Array [h * w], which part of its worth was asked for, or undefined; words: [{text, box, because}] that
// the question found; box: {y0, x0, y1, x1} of the cell in pixels.
// -> [[name, number], ...], the largest first, and last ["words", text] where one lies in the cell.
export function why({ reasons, even, asked, words }, cell, box) {
  const found = Array.from(reasons, ([name, plane]) => [name, fourDigits(plane[cell])]);
  if (even) found.push(["floor", even[cell] ? 1 : 0]);
  if (asked) found.push(["asked", fourDigits(asked[cell])]);
  found.sort((a, b) => b[1] - a[1]); // stable, as Python's
  const word = words.find((each) => overlaps(each.box, box));
  return word ? [...found, ["words", [word.text, word.because].filter(Boolean).join(", ")]] : found;
}

// A score in words, of the reasons that answer the question (those of OTHERS are none), in their order.
// found: [[name, number], ...] as of `why`.
export function inWords(query, found, score) {
  const parts = found.filter(([name]) => !OTHERS.includes(name)), two = (value) => value.toFixed(2);
  const said = parts.map(([name, value]) => `${SAID[name]?.(query) ?? name} ${two(value)}`);
  return `${said.join(", ")}: the score is ${two(score)}.`.replace(/^./, (first) => first.toUpperCase());
}

const OTHERS = ["floor", "asked", "words"];
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
  const rank = rankOf(keysOf(app, answer, grid, name), cell), allocation = app.allocation();
  const place = allocation?.kept.indexOf(cell) ?? -1, kept = place >= 0;
  const reason = allocation && reasonOf(app, allocation, cell, rank, place), score = answer.maps[name][cell];
  const verdict = allocation ? `${kept ? "Kept" : "Left out"}${reason}.` : "Cells are still being compared.";
  return { score, rank, count: grid.h * grid.w, by: byWorth(app, answer) ? BY_WORTH : BY_SCORE, kept, verdict, place };
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

const BY_SCORE = "by the score; of equal ones the first comes first";
const BY_WORTH = "by what is worth keeping: the score, context, and how unlike better cells it is";
const byWorth = (app, answer) => app.state.policy === "worth" && Boolean(answer.worth);
const RANKED = ["worth", "topk"];
export const KEPT_AS = { asked: "asked for", beside: "beside what is asked for", context: "context" };

function reasonOf(app, allocation, cell, rank, place) {
  const { valid } = app.grid, kept = place >= 0, kind = KEPT_AS[allocation.kinds?.[place]];
  if (!app.asking) return kept ? `${kind ? ` as ${kind}` : ""} in this frame` : " of this frame";
  if (valid && !valid[cell]) return kept ? ": no opaque cell is left" : ": it is transparent";
  if (kept && allocation.even?.[cell]) return ": it belongs to the even spread";
  const spread = allocation.even?.reduce((sum, each) => sum + each, 0) ?? 0;
  const by = RANKED.includes(app.state.policy) ? "rank" : "the policy", rest = inNumber(app.budget() - spread);
  const even = spread ? `, ${inNumber(spread)} by the even spread` : "";
  return `${kind ? ` as ${kind}` : ""}: rank ${inNumber(rank)}; ${rest} cells are kept by ${by}${even}`;
}

// What cells are ranked by.
function keysOf(app, answer, grid, name) {
  const keys = (byWorth(app, answer) ? answer.worth : answer.maps)[name];
  return grid.valid ? keys.map((key, i) => (grid.valid[i] ? key : -Infinity)) : keys;
}
