// Requests to the server. Every failure is a Problem with what came, what was expected, and what to do.

export class Problem extends Error {
  constructor(received, expected = "", fix = "", status = 0) {
    super(received);
    Object.assign(this, { received, expected, fix, status });
  }
}

const AGAIN = 2000; // milliseconds between two looks at a server that is away
let coming = null; // a promise while it is away

// While the server is away, requests wait for it. One that fails although it is there is an error.
async function reach(path, options) {
  for (const last of [false, true]) {
    try {
      return await fetch(path, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      if (!last) await (coming ??= comeBack());
      options?.signal?.throwIfAborted();
    }
  }
  throw new Problem("the server broke off an answer", "an answer", "try it again");
}

// Says on the window that the server is away ("away") and there again ("back").
async function comeBack() {
  for (let away = false; ; away = true) {
    try {
      await fetch("/api/session");
      coming = null;
      if (away) dispatchEvent(new Event("back"));
      return;
    } catch {
      if (!away) dispatchEvent(new Event("away"));
      await new Promise((done) => setTimeout(done, AGAIN));
    }
  }
}

async function ask(path, options) {
  const response = await reach(path, options);
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  const { status } = response;
  throw new Problem(error?.received ?? `the server says ${status}`, error?.expected, error?.fix, status);
}

const post = (path, body, signal) =>
  ask(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" }, signal });

export const getJson = async (path, signal) => (await ask(path, { signal })).json();
export const postJson = async (path, body) => (await post(path, body)).json();
export const getBytes = async (path) => (await ask(path)).blob();
export const getPacked = async (path, signal) => unpack(await (await ask(path, { signal })).arrayBuffer());
export const postPacked = async (path, body, signal) => unpack(await (await post(path, body, signal)).arrayBuffer());

export async function upload(file) {
  const headers = { "content-type": "application/octet-stream", "x-file-name": encodeURIComponent(file.name ?? "") };
  return (await ask("/api/images", { method: "POST", body: file, headers })).json();
}

// Pixels come through fetch, so that a page opened with a token can send it; -> ImageBitmap.
export async function getBitmap(path, signal) {
  return createImageBitmap(await (await ask(path, { signal })).blob());
}

// One request at a time: of the values that come meanwhile the newest is taken next, and the others never.
// run: value -> Promise; -> the function that takes values.
export function newest(run) {
  let next = null, busy = false;
  return async (value) => {
    next = { value };
    if (busy) return;
    busy = true;
    try {
      for (let now; (now = next);) {
        next = null;
        await run(now.value);
      }
    } finally {
      busy = false;
    }
  };
}

// Messages of arrays, in the format of safetensors (view/wire.py): -> {header, arrays: {name: TypedArray with .shape}}.
function unpack(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const { __metadata__, ...listed } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(listed)) {
    const count = shape.reduce((product, side) => product * side, 1);
    arrays[name] = Object.assign(READ[dtype](buffer, 8 + length + data_offsets[0], count), { shape });
  }
  return { header: JSON.parse(__metadata__.header), arrays };
}

const READ = {
  F32: (buffer, offset, count) => new Float32Array(buffer, offset, count),
  I32: (buffer, offset, count) => new Int32Array(buffer, offset, count),
  U8: (buffer, offset, count) => new Uint8Array(buffer, offset, count),
  F16: (buffer, offset, count) => Float32Array.from(new Uint16Array(buffer, offset, count), (bits) => HALVES[bits]),
};

// Every number of 16 bits; Float16Array is too young for the browsers that people have.
const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1, power = (bits >> 10) & 31, rest = bits & 1023;
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
});
