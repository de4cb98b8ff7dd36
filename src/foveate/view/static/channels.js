// The channels of an image: their values at the cells of a grid, fetched once, and planes as small pictures.
import { getPacked } from "./api.js";

const fetched = new WeakMap(); // image -> Map of grid -> Promise

// -> {channels: [{name, family, about, low, high, ...}], plane(i): Float32Array [h * w]}. Raises Problem.
export function loadChannels(image, grid) {
  if (!fetched.has(image)) fetched.set(image, new Map());
  const grids = fetched.get(image);
  if (!grids.has(grid)) {
    const asked = getPacked(`/api/images/${image.id}/channels?grid=${grid}`).then(({ header, arrays: { values } }) => {
      const count = values.shape[1];
      return { channels: header.channels, plane: (i) => values.subarray(i * count, (i + 1) * count) };
    });
    asked.catch(() => grids.delete(grid)); // so that it can be asked for again
    grids.set(grid, asked);
  }
  return grids.get(grid);
}

export async function loadPlane(image, name, level, signal) {
  const path = `/api/images/${image.id}/planes/${encodeURIComponent(name)}?level=${level}`;
  return (await getPacked(path, signal)).arrays.plane;
}

// -> Map of family -> numbers of its channels, in their order; what was not computed for the image is left out.
export function byFamily(channels) {
  const families = new Map();
  channels.forEach(({ family, built }, i) => {
    if (built) families.set(family, [...(families.get(family) ?? []), i]);
  });
  return families;
}

export function rangeOf(plane) {
  let low = Infinity, high = -Infinity;
  for (const value of plane) { if (value < low) low = value; if (value > high) high = value; }
  return { low, high };
}

export const inDigits = (value) => String(Number(value.toPrecision(3)));

const CONSTANT = [205, 205, 208];

// As foveate.viz draws one (viz/planes.py): heat from its lowest value to its highest; a colour for each id.
export function paintPlane(canvas, plane, { h, w }, { ids }, heat) {
  Object.assign(canvas, { width: w, height: h });
  const data = new ImageData(w, h), colourOf = colouring(plane, ids, heat);
  plane.forEach((value, i) => { data.data.set(colourOf(value), 4 * i); data.data[4 * i + 3] = 255; });
  canvas.getContext("2d").putImageData(data, 0, 0);
}

// -> value -> [red, green, blue].
function colouring(plane, ids, heat) {
  const { low, high } = rangeOf(plane);
  if (low === high) return () => CONSTANT;
  if (ids) {
    const colours = new Map([...new Set(plane)].sort((a, b) => a - b).map((id, i) => [id, colourOfId(i)]));
    return (value) => colours.get(value);
  }
  return (value) => {
    const level = 3 * Math.round((255 * (value - low)) / (high - low));
    return [heat[level], heat[level + 1], heat[level + 2]];
  };
}

// The golden ratio keeps neighbours in the list apart. Hue, saturation and value are bytes, as Pillow's.
function colourOfId(i) {
  const hue = Math.floor(((i * 0.61803399) % 1) * 255) * 6 / 255, part = hue - Math.floor(hue), saturation = 150 / 255;
  const value = Math.floor([0.95, 0.7, 0.85][i % 3] * 255);
  const p = Math.round(value * (1 - saturation)), q = Math.round(value * (1 - saturation * part));
  const t = Math.round(value * (1 - saturation * (1 - part)));
  const sixths = [[value, t, p], [q, value, p], [p, value, t], [p, q, value], [t, p, value], [value, p, q]];
  return sixths[Math.floor(hue) % 6];
}
