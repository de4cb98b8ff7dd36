// Why a cell has its score: what `Allocation.why` says of kept cells, for any cell. Pure functions.

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
