// Requests to the server. Every failure is a Problem with what came, what was expected, and what to do.
import { unpack } from "./wire.js";

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
