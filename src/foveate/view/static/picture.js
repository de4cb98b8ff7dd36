// One picture: an image and what is seen over it, painted on a canvas of any size. What is computed of a map or of an
// image is kept beside it and goes with it.
import {
  USUAL, areaOf, coloured, contour, curves, developed, keptBorder, makeCanvas, maskOf, smooth, strokeInside,
  strokeTwice,
} from "./layers.js";
import { difference } from "./scales.js";

const SENT = 0.22; // darkness of cells that were sent before; of dropped ones, too, or those would be as bright

const smoothed = new WeakMap(), outlines = new WeakMap(); // of a map
const scratches = new WeakMap(), heated = new WeakMap(); // of a photograph, of a canvas
const photographs = [], PHOTOGRAPHS = 4; // {bitmap, key, made}, the one used last first

function remembered(store, key, make) {
  if (!store.has(key)) store.set(key, make());
  return store.get(key);
}

// canvas: its width and height are those of the picture to be made.
// image: {bitmap, height, width}. grid: {h, w}.
// seen: {view, opacity, threshold, overlay (a canvas, or null), paper ([r, g, b]),
//        layers: [{map, kept, sent (of the kept cells those that were sent before: of a clip), found, scale,
//        line (the colour of the contour; null: none), edge (that of kept cells), areas (kept cells of a kind, and
//        their colour: [[cells, colour], ...]; or undefined), boxes}], minus (a map, for the view "difference")}
// line: width of lines, in pixels of the image.
export function paintPicture(canvas, image, grid, seen, line) {
  const context = canvas.getContext("2d"), { width, height } = canvas, { layers, view } = seen,
    several = layers.length > 1;
  const photo = photographOf(image, width, height, seen.paper);
  const lay = (what, opacity = 1) => {
    context.globalAlpha = opacity;
    context.drawImage(what, 0, 0, width, height);
    context.globalAlpha = 1;
  };
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.imageSmoothingEnabled = true;
  lay(photo.bright);
  if (seen.overlay) {
    context.imageSmoothingEnabled = false;
    lay(seen.overlay, seen.opacity);
    return toImage();
  }
  if (view === "photo" || !layers.length) return frame();
  if (view === "difference" && seen.minus) return paintDifference();
  const kept = view === "kept" || view === "both" ? layers.map((layer) => layer.kept).filter(Boolean) : [];
  if (view === "kept") {
    if (kept.length) paintKept(photo.dropped, 1);
  } else {
    const made = [photo, seen.opacity, seen.threshold, image.height, image.width,
      ...layers.flatMap(({ map, scale, found, level, line: ink }) => [map, scale, found, level, ink]), line];
    const last = remembered(heated, canvas, () => ({ made: [], canvas: makeCanvas(1, 1) }));
    if (made.length === last.made.length && made.every((value, i) => value === last.made[i])) lay(last.canvas);
    else {
      paintHeat();
      keep(last, made);
    }
    if (kept.length) paintKept(null, 0.4);
  }
  frame();

  function paintHeat() {
    const { lit, tint } = curves(seen.opacity, seen.threshold, several ? CLEARLY : 0),
      strength = Math.min(1, seen.opacity / USUAL);
    const planes = layers.map(({ map }) => planeOf(map, grid));
    if (layers.some(({ found }) => found)) {
      lay(photo.dark, strength);
      const top = planes.length === 1 ? planes[0] : { ...planes[0], values: highest(planes) };
      lay(cutOut(photo.bright, coloured(top, BLACK, lit), true));
    } else lay(photo.pale, strength);
    planes.forEach((plane, i) => lay(coloured(plane, layers[i].scale, tint)));
    toImage();
    planes.forEach((plane, i) => layers[i].line && layers[i].found &&
      strokeTwice(context, outlineOf(plane, layers[i].level), layers[i].line, (several ? 1.5 : 1) * line));
  }

  // Heat stays as it is while a budget moves.
  function keep(last, made) {
    last.made = made;
    if (last.canvas.width !== width || last.canvas.height !== height) Object.assign(last.canvas, { width, height });
    last.canvas.getContext("2d").drawImage(canvas, 0, 0);
    context.setTransform(1, 0, 0, 1, 0, 0);
  }

  // Over cells that no question keeps: another photograph, or darkness.
  function paintKept(below, darkness) {
    context.setTransform(1, 0, 0, 1, 0, 0);
    const mask = maskOf(kept.flatMap((cells) => [...cells]), grid.h, grid.w);
    const dropped = makeCanvas(grid.w, grid.h), inverse = dropped.getContext("2d");
    inverse.fillRect(0, 0, grid.w, grid.h);
    inverse.globalCompositeOperation = "destination-out";
    inverse.drawImage(mask, 0, 0);
    if (below) lay(cutOut(below, dropped, false));
    else { context.imageSmoothingEnabled = false; lay(dropped, darkness); context.imageSmoothingEnabled = true; }
    if (!several && layers[0].sent) {
      inverse.globalCompositeOperation = "source-over";
      if (!below) inverse.clearRect(0, 0, grid.w, grid.h); // those are dark already
      inverse.drawImage(maskOf(layers[0].sent, grid.h, grid.w), 0, 0);
      context.imageSmoothingEnabled = false;
      lay(dropped, SENT);
      context.imageSmoothingEnabled = true;
    }
    toImage();
    const border = (cells) => keptBorder(cells, grid.h, grid.w, image.height, image.width);
    layers.forEach(({ kept: cells, areas, edge }) => {
      if (!cells) return;
      if (!areas || several) return strokeTwice(context, border(cells), edge, 0.6 * line);
      for (const [some, colour] of areas) {
        strokeInside(context, border(some), areaOf(some, grid, image), colour, 1.2 * line);
      }
    });
  }

  function paintDifference() {
    const { map } = layers[0], values = map.map((value, i) => value - seen.minus[i]);
    const plane = smooth(values, grid.h, grid.w), strength = Math.min(1, seen.opacity / USUAL);
    const opacities = Uint8ClampedArray.from({ length: 256 }, (_, i) => {
      const size = Math.abs(i / 127.5 - 1);
      return size < Math.max(seen.threshold, 0.02) ? 0 : 255 * (0.25 + 0.75 * seen.opacity) * Math.min(1, size * 1.1);
    });
    lay(photo.grey, strength);
    lay(coloured({ ...plane, values: plane.values.map((value) => (value + 1) / 2) }, difference, opacities));
  }

  function frame() {
    toImage();
    for (const { boxes, line: colour } of layers) for (const [y0, x0, y1, x1] of boxes ?? []) {
      const path = new Path2D();
      path.rect(x0, y0, x1 - x0, y1 - y0);
      strokeTwice(context, path, colour, 1.2 * line);
    }
  }

  function toImage() { context.setTransform(width / image.width, 0, 0, height / image.height, 0, 0); }

  // A picture where a mask is.
  function cutOut(picture, mask, soft) {
    const cut = remembered(scratches, photo, () => makeCanvas(width, height)), pen = cut.getContext("2d");
    pen.globalCompositeOperation = "copy";
    pen.imageSmoothingEnabled = soft;
    pen.drawImage(mask, 0, 0, width, height);
    pen.globalCompositeOperation = "source-in";
    pen.drawImage(picture, 0, 0);
    return cut;
  }

  function outlineOf(plane, level) {
    const made = remembered(outlines, plane, () => ({}));
    if (made.height !== image.height || made.width !== image.width || made.level !== level) {
      Object.assign(made, { height: image.height, width: image.width, level,
        path: contour(plane, level, image.height, image.width) });
    }
    return made.path;
  }
}

const CLEARLY = 0.25; // of several maps in one picture, what is lower is left out: it would add up to a haze
const BLACK = new Uint8ClampedArray(256 * 3);
const planeOf = (map, { h, w }) => remembered(smoothed, map, () => smooth(map, h, w));

function highest(planes) {
  return planes[0].values.map((value, i) => planes.reduce((most, plane) => Math.max(most, plane.values[i]), value));
}

// The last few only: each is large, and a clip brings many.
function photographOf({ bitmap }, width, height, paper) {
  const key = `${width} ${height} ${paper}`,
    at = photographs.findIndex((each) => each.bitmap === bitmap && each.key === key);
  const found = at < 0 ? { bitmap, key, made: developed(bitmap, width, height, paper) } : photographs.splice(at, 1)[0];
  photographs.unshift(found);
  photographs.length = Math.min(photographs.length, PHOTOGRAPHS);
  return found.made;
}
