// Frames of a clip, fetched ahead of where somebody looks: pictures by number, and what the stream says of each.
//
// The server works on frames only while it is asked for them, so a page that asks no more costs nothing. Of a long clip
// the frames around the one that is looked at are kept.
import { getBitmap, getJson, getPacked, postPacked } from "./api.js";

const PICTURES = 16; // kept: what the stage makes of each stays as long, too
const AHEAD = 12; // pictures fetched before they are needed
const AT_ONCE = 3;
const AT_A_TIME = 32; // frames of one answer
const SEGMENT = 240; // frames of one run, so that a frame shows the same whichever way somebody came to it
const ROWS = 1200; // frames whose maps are kept
const HEADERS = 20000; // frames of the strip
const PAUSE = 200; // milliseconds after the last change of a question

export class Frames {
  // clip: {id, frames, rate, height, width} of the session; changed: called when there is more to show.
  constructor(clip, changed) {
    Object.assign(this, { clip, changed, count: null, head: 0, seen: 0, failed: {} });
    this.pictures = new Map(); // number -> ImageBitmap
    this.fetching = new Set();
    this.rows = new Map(); // number -> {header, start, asked, maps: {text: array}, levels: {text: array}, ...}
    this.headers = new Map(); // number -> header
    this.asked = null; // {questions, budget, policy, floor}; null: nothing is asked
    this.key = "";
    this.loop = null; // AbortController of the requests for frames
    this.timer = null;
  }

  // How many frames there are, as far as it is known: counted at the end, promised by the file, or seen and one more.
  get total() {
    return this.count ?? Math.max(this.clip.frames || this.head + 2, this.seen);
  }

  // Why pictures or maps do not come, until they do.
  get problem() {
    return this.failed.pictures ?? this.failed.rows;
  }

  time(number) {
    return this.headers.get(number)?.time ?? number / (this.clip.rate || 24);
  }

  id(number) {
    return this.clip.id.slice(0, 16) + String(number).padStart(8, "0");
  }

  // Whether an image is one of the frames.
  holds(id) {
    return Boolean(id?.startsWith(this.clip.id.slice(0, 16)));
  }

  // Whether all that is asked about a frame is there.
  ready(number) {
    return this.pictures.has(number) && (!this.asked || this.fresh(number));
  }

  fresh(number) {
    return this.rows.get(number)?.asked === this.key;
  }

  // How many frames have their maps.
  get mapped() {
    let n = 0;
    for (const row of this.rows.values()) n += row.asked === this.key;
    return n;
  }

  // Somebody looks at a frame: it comes first, then those after it.
  look(number) {
    this.head = number;
    this.fetchPictures();
    if (this.asked && !this.loop && !this.timer) this.fetchRows();
  }

  async describe() {
    return getPacked(`/api/images/${this.id(0)}`);
  }

  fetchPictures() {
    const end = this.count ?? Infinity;
    for (let n = this.head; n < Math.min(end, this.head + AHEAD) && this.fetching.size < AT_ONCE; n++) {
      if (!this.pictures.has(n) && !this.fetching.has(n)) this.fetchPicture(n);
    }
  }

  async fetchPicture(number) {
    this.fetching.add(number);
    try {
      const bitmap = await getBitmap(`/api/clips/${this.clip.id}/pictures/${number}`);
      delete this.failed.pictures;
      this.pictures.set(number, bitmap);
      this.seen = Math.max(this.seen, number + 1);
      drop(this.pictures, PICTURES, this.head, AHEAD);
    } catch (problem) {
      if (problem.status === 404) this.count ??= await this.countFrames();
      if (this.count === null || problem.status !== 404) this.failed.pictures = problem;
    }
    this.fetching.delete(number);
    if (!this.failed.pictures) this.fetchPictures();
    this.changed();
  }

  // How many there are, once the server came to the end; else null.
  async countFrames() {
    return (await getJson(`/api/clips/${this.clip.id}`).catch(() => ({}))).count ?? null;
  }

  // What is asked from now on, and whether that is new. The old maps stay until new frames take their place: they are
  // the same for every budget.
  ask(asked) {
    const key = asked ? JSON.stringify(asked) : "";
    if (key === this.key) return false;
    const texts = (of) => JSON.stringify(of?.questions ?? []);
    if (texts(asked) !== texts(this.asked)) this.headers.clear();
    Object.assign(this, { asked, key });
    delete this.failed.rows;
    this.loop?.abort();
    this.loop = null;
    clearTimeout(this.timer);
    this.timer = asked && setTimeout(() => { this.timer = null; this.fetchRows(); }, PAUSE);
    return true;
  }

  async fetchRows() {
    const loop = (this.loop = new AbortController()), { asked, key } = this;
    try {
      for (let frame = this.missing(); frame !== undefined; frame = this.missing()) {
        const start = frame - (frame % SEGMENT);
        const { header, arrays } = await postPacked(
          `/api/clips/${this.clip.id}/frames`, { ...asked, start, frame, most: this.gap(frame) }, loop.signal,
        );
        if (header.count !== null) this.count = header.count;
        delete this.failed.rows;
        for (const row of header.frames) this.put(row, arrays, start, key);
        drop(this.rows, ROWS, this.head, ROWS / 2);
        this.changed();
      }
    } catch (problem) {
      if (problem.name === "AbortError") return;
      this.failed.rows = problem;
      this.changed();
    }
    if (this.loop === loop) this.loop = null;
  }

  // The first frame without answers: from the run that somebody looks at to the end, then those before it.
  missing() {
    const end = this.count ?? this.total;
    const low = Math.max(0, Math.min(this.head - SEGMENT, end - ROWS)), high = Math.min(end, low + ROWS);
    const first = this.head - (this.head % SEGMENT);
    for (let n = first; n < high; n++) if (!this.fresh(n)) return n;
    for (let n = low; n < first; n++) if (!this.fresh(n)) return n;
    return undefined;
  }

  // How many frames in a row have no answers, within a run.
  gap(frame) {
    let n = 1;
    while (n < AT_A_TIME && (frame + n) % SEGMENT && !this.fresh(frame + n)) n++;
    return n;
  }

  put(header, arrays, start, key) {
    const number = header.index, maps = {}, levels = {};
    header.answers.forEach(({ query }, i) => {
      maps[query] = arrays[`${number}:map:${i}`];
      levels[query] = arrays[`${number}:kept:${i}`];
    });
    const belief = arrays[`${number}:belief`];
    this.rows.set(number, { header, start, asked: key, maps, levels, belief });
    this.headers.set(number, header);
    this.seen = Math.max(this.seen, number + 1);
    drop(this.headers, HEADERS, this.head, HEADERS / 2);
  }
}

// Leave at most `most` entries: those go first that lie farthest from `head`, behind it before ahead of it.
function drop(map, most, head, ahead) {
  if (map.size <= most) return;
  const far = (n) => (n < head ? head - n + ahead : n - head);
  const numbers = [...map.keys()].sort((a, b) => far(b) - far(a));
  for (const number of numbers.slice(0, map.size - most)) map.delete(number);
}
