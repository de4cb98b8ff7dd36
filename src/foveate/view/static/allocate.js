// `foveate.allocate`, cell by cell as Python has it: the same numbers in float32, in the same order.
// Pure functions; nothing of the page. relevance/allocation.py, policies.py have the reasons and the sources.
const round = Math.fround;
const ABSENT_FLOOR = 0.5;

// map, saliency: Float32Array [h * w]; valid: Uint8Array or undefined; -> ascending indices of exactly `budget` cells.
export function allocate({ map, saliency, valid, trust, h, w }, budget, { floor = 0 } = {}) {
  const key = steer(map, saliency, trust);
  let low = Infinity, high = -Infinity;
  for (const value of key) { if (value < low) low = value; if (value > high) high = value; }
  const share = low === high ? 1 : Math.max(floor, (1 - trust) * ABSENT_FLOOR);
  const spread = Math.floor(budget * share + 1e-9);
  if (valid) for (let i = 0; i < key.length; i++) if (!valid[i]) key[i] = -Infinity;
  if (spread) {
    const order = evenOrder(h, w);
    const places = valid ? [...order.filter((i) => valid[i]), ...order.filter((i) => !valid[i])] : order;
    for (let i = 0; i < spread; i++) key[places[i]] = Infinity;
  }
  return topCells(key, budget);
}

function steer(map, saliency, trust) {
  if (trust >= 1) return map.slice();
  let peak = -Infinity;
  for (const value of map) if (value > peak) peak = value;
  const divisor = round(Math.max(peak, 1e-9)), share = round(trust), rest = round(1 - trust);
  return map.map((value, i) => round(round(round(share * value) / divisor) + round(rest * saliency[i])));
}

// The `budget` highest, ascending; of equal ones the lower indices.
export function topCells(scores, budget) {
  const sorted = Float32Array.from(scores).sort();
  const threshold = sorted[sorted.length - budget];
  let equal = budget;
  for (const value of scores) if (value > threshold) equal--;
  const kept = new Int32Array(budget);
  let n = 0;
  for (let i = 0; i < scores.length; i++) {
    if (scores[i] > threshold || (scores[i] === threshold && equal-- > 0)) kept[n++] = i;
  }
  return kept;
}

const orders = new Map();

export function evenOrder(h, w) {
  const name = `${h}x${w}`;
  if (!orders.has(name)) orders.set(name, makeEvenOrder(h, w));
  return orders.get(name);
}

function makeEvenOrder(h, w) {
  const bits = (n) => (n > 1 ? 32 - Math.clz32(n - 1) : 0);
  const bitsY = bits(h), bitsX = bits(w), sizeY = 2 ** bitsY, sizeX = 2 ** bitsX, points = [];
  for (let y = 0; y < sizeY; y++) for (let x = 0; x < sizeX; x++) {
    let key = 0;
    for (let bit = 0; bit < bitsY; bit++) key += ((y >> bit) & 1) * 2 ** (2 * (bitsY - 1 - bit));
    for (let bit = 0; bit < bitsX; bit++) key += ((x >> bit) & 1) * 2 ** (2 * (bitsX - 1 - bit) + 1);
    const row = Math.floor(((y / sizeY + 1 / 3) % 1) * h), column = Math.floor(((x / sizeX + 1 / 3) % 1) * w);
    points.push([key, row * w + column]);
  }
  points.sort((a, b) => a[0] - b[0]);
  return Int32Array.from(new Set(points.map((point) => point[1])));
}
