// `foveate.allocate`, cell by cell as Python has it: the same numbers in float32, in the same order.
// Pure functions; nothing of the page. allocation/allocation.py and policies.py have the reasons and the sources.
const float = Math.fround;
const ASKED_FOR = 0.5; // of a cell's worth
const ROUNDING = 1e-9;
const SHORT = 3;

const POLICIES = { worth: topCells, topk: topCells, coverage: cover, proportional: proportion };

// map: Float32Array [h * w]; worth, asked: the same, of allocation/worth.py, for "worth", which is the default choice;
// valid: Uint8Array [h * w], or undefined where all cells are; points: Float32Array [h * w, r], which "coverage" needs.
// budget: 1 to h * w. policy: a name of POLICIES.
// -> {kept, even, kinds}: Int32Array of exactly `budget` cells, ascending; Uint8Array [h * w], 1 where the even spread
//    keeps a cell, undefined where nothing is spread; and why each is kept, as `Allocation.kinds` ("given" without `asked`).
export function allocate(scores, budget, { floor = 0, policy = "worth" } = {}) {
  const { map, worth, asked, valid, points, h, w } = scores, key = (policy === "worth" ? worth : map).slice();
  let low = Infinity, high = -Infinity;
  for (const value of key) { if (value < low) low = value; if (value > high) high = value; }
  const spread = Math.floor(budget * (low === high ? 1 : floor) + ROUNDING);
  if (valid) for (let i = 0; i < key.length; i++) if (!valid[i]) key[i] = -Infinity;
  const even = spread ? firstPlaces(evenOrder(h, w), valid, spread) : undefined;
  if (even) for (let i = 0; i < key.length; i++) if (even[i]) key[i] = Infinity;
  const kept = POLICIES[policy](key, budget, { w, points });
  return { kept, even, kinds: asked ? kindsOf(kept, asked, even, h, w) : Array(budget).fill("given") };
}

// "given": of the even spread; "asked" for; "beside" a cell that is asked for; "context". even: as above, or undefined.
export function kindsOf(kept, asked, even, h, w) {
  const near = new Uint8Array(h * w), isAsked = (i) => !even?.[i] && asked[i] >= ASKED_FOR;
  for (const i of kept) if (isAsked(i)) {
    const y = Math.floor(i / w), x = i % w;
    for (let v = Math.max(0, y - 1); v <= Math.min(h - 1, y + 1); v++) {
      near.fill(1, v * w + Math.max(0, x - 1), v * w + Math.min(w - 1, x + 1) + 1);
    }
  }
  return Array.from(kept, (i) => (even?.[i] ? "given" : isAsked(i) ? "asked" : near[i] ? "beside" : "context"));
}

// 1 at the first `count` cells of an order, those that are not valid last: Uint8Array.
function firstPlaces(order, valid, count) {
  const places = new Uint8Array(order.length);
  for (const wanted of [true, false]) for (const i of order) {
    if (count && (!valid || Boolean(valid[i])) === wanted) { places[i] = 1; count--; }
  }
  return places;
}

// The `budget` highest, ascending; of equal ones the lower indices.
function topCells(scores, budget) {
  const threshold = nthHighest(Float32Array.from(scores), budget);
  let equal = budget;
  for (const value of scores) if (value > threshold) equal--;
  const kept = new Int32Array(budget);
  for (let i = 0, n = 0; n < budget; i++) {
    if (scores[i] > threshold || (scores[i] === threshold && equal-- > 0)) kept[n++] = i;
  }
  return kept;
}

// The n-th highest of some values, which it reorders (Hoare's FIND): a tenth of the time of sorting them.
function nthHighest(values, n) {
  const place = values.length - n;
  for (let left = 0, right = values.length - 1; left < right;) {
    const pivot = values[place];
    let i = left, j = right;
    while (i <= j) {
      while (values[i] < pivot) i++;
      while (values[j] > pivot) j--;
      if (i <= j) { const value = values[i]; values[i++] = values[j]; values[j--] = value; }
    }
    if (j < place) left = i;
    if (i > place) right = j;
  }
  return values[place];
}

// What a policy has to choose: `first` is kept anyway, and `rest` of `free`; undefined where there is no choice.
function choice(scores, budget) {
  const first = [], free = [];
  scores.forEach((value, i) => { if (value === Infinity) first.push(i); else if (value > -Infinity) free.push(i); });
  const rest = budget - first.length;
  return rest > 0 && rest < free.length ? { first, free, rest } : undefined;
}

// High scores that differ from each other. Python compares every candidate with every kept cell. A gain can only fall,
// so here a candidate is compared only when it is the best by what is known of it: the same choice, much earlier.
function cover(scores, budget, { points }, diversity = 0.25) {
  const { first, free, rest } = choice(scores, budget) ?? {};
  if (!rest) return topCells(scores, budget);
  const best = topCells(Float32Array.from(free, (i) => scores[i]), Math.min(SHORT * rest, free.length));
  const short = Array.from(best, (i) => free[i]).sort((a, b) => scores[b] - scores[a]);
  let low = Infinity, high = -Infinity;
  for (const i of free) { if (scores[i] < low) low = scores[i]; if (scores[i] > high) high = scores[i]; }
  const weight = float(diversity), other = float(1 - diversity);
  const share = (i) => (high === low ? 1 : float((scores[i] - low) / (high - low)));
  const plain = Float32Array.from(short, (i) => float(share(i) * other));
  const near = new Float32Array(short.length).fill(1); // the smallest squared distance to a kept cell, at most 1
  const seen = new Int32Array(short.length); // how many kept cells it was compared with
  const gain = plain.map((value) => float(weight + value)); // at most
  const kept = first.slice(), length = points.length / scores.length;
  const heap = Int32Array.from(short, (_, i) => i); // the highest gain at 0, of equal ones the lower number
  let size = heap.length;
  while (kept.length < budget) {
    const top = heap[0];
    if (seen[top] === kept.length) {
      kept.push(short[top]);
      heap[0] = heap[--size];
    } else {
      while (seen[top] < kept.length) near[top] = nearer(near[top], points, short[top], kept[seen[top]++], length);
      gain[top] = float(float(float(Math.sqrt(near[top])) * weight) + plain[top]);
    }
    sink(heap, size, gain);
  }
  return Int32Array.from(kept).sort();
}

// The smaller of a squared distance and that of two points; a sum that has reached the first cannot be smaller any
// more.
function nearer(limit, points, a, b, length) {
  let sum = 0;
  for (let i = a * length, j = b * length, end = i + length; i < end; i++, j++) {
    const apart = float(points[i] - points[j]);
    sum = float(sum + float(apart * apart));
    if (sum >= limit) return limit;
  }
  return sum;
}

// Restores the order of a heap whose first entry is out of order.
function sink(heap, size, gain) {
  const before = (a, b) => gain[a] > gain[b] || (gain[a] === gain[b] && a < b);
  const moved = heap[0];
  let at = 0;
  for (let child = 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && before(heap[child + 1], heap[child])) child++;
    if (!before(heap[child], moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

// Every window of the image by its share of the relevance; no score is below 0.
function proportion(scores, budget, { w }, side = 8) {
  const { first, free, rest } = choice(scores, budget) ?? {};
  if (!rest) return topCells(scores, budget);
  const columns = Math.ceil(w / side), windows = [];
  for (const i of free) {
    const number = Math.floor(Math.floor(i / w) / side) * columns + Math.floor((i % w) / side);
    (windows[number] ??= []).push(i);
  }
  const cells = Array.from(windows, (window) => window ?? []);
  const mass = cells.map((window) => window.reduce((sum, i) => sum + scores[i], 0));
  const shares = apportion(mass, rest, cells.map((window) => window.length));
  const kept = cells.flatMap((window, number) => {
    if (!shares[number]) return [];
    return Array.from(topCells(window.map((i) => scores[i]), shares[number]), (i) => window[i]);
  });
  return Int32Array.from([...first, ...kept]).sort();
}

// Whole parts of a total, 0 to upper[i] each, in proportion to weights: floors, then the largest remainders.
function apportion(weights, total, upper) {
  const exact = exactShares(weights, total, upper);
  const parts = exact.map((share, i) => Math.min(Math.floor(share + ROUNDING), upper[i]));
  for (let left; (left = total - addUp(parts)) > 0;) {
    const rest = exact.map((share, i) => roundEven((share - parts[i]) * 1e9) / 1e9);
    const room = [...parts.keys()].filter((i) => parts[i] < upper[i]).sort((a, b) => rest[b] - rest[a]);
    for (const i of room.slice(0, left)) parts[i]++;
  }
  return parts;
}

function exactShares(weights, total, upper) {
  const share = weights.map(() => 0);
  for (let free = [...weights.keys()]; free.length;) {
    const open = new Set(free);
    const rest = total - addUp(share.filter((_, i) => !open.has(i)));
    const sum = addUp(free.map((i) => weights[i]));
    const raw = free.map((i) => (sum > 0 ? weights[i] / sum : 1 / free.length) * rest);
    free.forEach((i, n) => { share[i] = Math.min(Math.max(raw[n], 0), upper[i]); });
    const excess = addUp(free.map((i, n) => share[i] - raw[n]));
    if (Math.abs(excess) <= ROUNDING) break;
    free = free.filter((i, n) => (excess > 0 ? share[i] <= raw[n] : share[i] >= raw[n]));
  }
  return share;
}

const addUp = (values) => values.reduce((sum, value) => sum + value, 0);

function roundEven(value) {
  const below = Math.floor(value);
  return value - below === 0.5 ? 2 * Math.round(value / 2) : Math.round(value);
}

const orders = new Map();

// All cells in an order whose every beginning is spread evenly.
function evenOrder(h, w) {
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
