// Layers of a picture, as foveate.viz.layers draws them: the photograph stays in colour. What is detected is lit and
// outlined, and hardly tinted; what is half as relevant glows; the rest is dark. Dropped cells lie in grey fog.
// Pure: canvases and paths out of values. Paths count in pixels of the image, masks are stretched over it.
export const DETECTED = 0.5; // where a thing counts as detected: the outline
const COLD = 95, PALE = 0.55, VEIL = 0.62; // as in viz/layers.py
const FOG = 78, THROUGH = 0.32; // of dropped cells: grey of little contrast, from which dark things differ, too
const TINT = 0.58, CLEAR = 0.18; // opacity of colour at DETECTED, and at 1
const STRONG_TINT = 0.96, STRONG_CLEAR = 0.92; // the same where colour is opaque
export const USUAL = 0.75; // the opacity (state.js) that looks as foveate.viz draws
const FINE = 320; // samples along the long side of a map that is made smooth

export function makeCanvas(width, height) {
  return Object.assign(document.createElement("canvas"), { width, height });
}

// The photograph at a size, in the states that layers need: as it is, dark, pale on `paper`, of dropped cells, grey.
export function developed(bitmap, width, height, paper) {
  const bright = makeCanvas(width, height), made = { bright };
  const context = bright.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  const shade = Float32Array.from({ length: 256 },
    (_, tone) => (COLD / (1 - Math.exp(-2)) * (1 - Math.exp(-tone / 127.5))) / Math.max(tone, 1));
  const kinds = {
    dark: (value, grey) => (grey + (value - grey) * PALE) * shade[Math.round(grey)],
    pale: (value, grey, c) => { const pale = grey + (value - grey) * PALE; return pale + (paper[c] - pale) * VEIL; },
    dropped: (value, grey) => FOG + (grey - FOG) * THROUGH,
    grey: (value, grey) => grey * 0.5 + 18,
  };
  for (const [name, tone] of Object.entries(kinds)) {
    Object.defineProperty(made, name, { configurable: true, get() { // when it is first needed
      const canvas = makeCanvas(width, height), image = context.getImageData(0, 0, width, height), data = image.data;
      for (let i = 0; i < data.length; i += 4) {
        const grey = 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
        for (let c = 0; c < 3; c++) data[i + c] = tone(data[i + c], grey, c);
      }
      canvas.getContext("2d").putImageData(image, 0, 0);
      Object.defineProperty(made, name, { value: canvas });
      return canvas;
    } });
  }
  return made;
}

// A map [h, w] made smooth (cubic, as OpenCV's): {values, h, w}.
export function smooth(map, h, w) {
  const times = Math.max(1, Math.ceil(FINE / Math.max(h, w)));
  if (times === 1) return { values: map, h, w };
  return { values: stretch(stretch(map, h, w, times), w * times, h, times), h: h * times, w: w * times };
}

// Rows `times` as long, and turned: [h, w] -> [w * times, h].
function stretch(values, h, w, times) {
  const out = new Float32Array(h * w * times), a = -0.75;
  const near = (x) => ((a + 2) * x - (a + 3)) * x * x + 1, far = (x) => ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  for (let i = 0; i < w * times; i++) {
    const at = (i + 0.5) / times - 0.5, left = Math.floor(at), part = at - left;
    const weights = [far(1 + part), near(part), near(1 - part), far(2 - part)];
    const columns = [-1, 0, 1, 2].map((step) => Math.min(w - 1, Math.max(0, left + step)));
    for (let y = 0; y < h; y++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += weights[k] * values[y * w + columns[k]];
      out[i * h + y] = sum;
    }
  }
  return out;
}

// Opacities of 256 levels from 0 to 1: of the lit photograph over the dark one, and of colour over both. Both begin at
// the level `from`.
export function curves(opacity, threshold, from = 0) {
  const lit = new Uint8ClampedArray(256), tint = new Uint8ClampedArray(256);
  const less = Math.min(1, opacity / USUAL), more = Math.max(0, (opacity - USUAL) / (1 - USUAL));
  const most = TINT + (STRONG_TINT - TINT) * more, clear = CLEAR + (STRONG_CLEAR - CLEAR) * more;
  for (let i = 0; i < 256; i++) {
    const level = i / 255;
    if (level < threshold || level < from) continue;
    const rise = Math.min((level - from) / (DETECTED - from), 1), left = Math.min((1 - level) / (1 - DETECTED), 1) ** 2;
    lit[i] = 255 * rise ** 1.5;
    tint[i] = 255 * less * (clear + (most - clear) * left) * rise ** 1.25;
  }
  return { lit, tint };
}

// A smooth map as a canvas of a colour scale, its opacity that of a curve.
export function coloured({ values, h, w }, scale, opacities) {
  const canvas = makeCanvas(w, h), image = new ImageData(w, h), data = image.data;
  for (let i = 0; i < values.length; i++) {
    const level = Math.min(255, Math.max(0, Math.round(255 * values[i])));
    data[4 * i] = scale[3 * level];
    data[4 * i + 1] = scale[3 * level + 1];
    data[4 * i + 2] = scale[3 * level + 2];
    data[4 * i + 3] = opacities[level];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Where kept cells are, as a mask of h x w pixels.
export function maskOf(kept, h, w) {
  const canvas = makeCanvas(w, h), image = new ImageData(w, h);
  for (const cell of kept) image.data[4 * cell + 3] = 255;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// The line where a smooth map passes a level, over an image of height x width pixels (marching squares).
export function contour({ values, h, w }, level, height, width) {
  const path = new Path2D();
  const Y = (y) => (Math.min(h, Math.max(0, y + 0.5)) * height) / h;
  const X = (x) => (Math.min(w, Math.max(0, x + 0.5)) * width) / w;
  for (let y = -1; y < h; y++) for (let x = -1; x < w; x++) {
    const above = Math.max(0, y) * w, below = Math.min(h - 1, y + 1) * w, left = Math.max(0, x);
    const right = Math.min(w - 1, x + 1);
    const a = values[above + left], b = values[above + right], c = values[below + right], d = values[below + left];
    const kind = (a >= level) | ((b >= level) << 1) | ((c >= level) << 2) | ((d >= level) << 3);
    if (kind === 0 || kind === 15) continue;
    const share = (low, high) => (level - low) / (high - low);
    const sides = [
      () => [x + share(a, b), y], () => [x + 1, y + share(b, c)], () => [x + share(d, c), y + 1],
      () => [x, y + share(a, d)],
    ];
    for (const [from, to] of CROSSINGS[kind]) {
      const [x0, y0] = sides[from](), [x1, y1] = sides[to]();
      path.moveTo(X(x0), Y(y0));
      path.lineTo(X(x1), Y(y1));
    }
  }
  return path;
}

// By which of its corners (a 1, b 2, c 4, d 8; clockwise) are above: the sides (0 above, 1 right, 2 below, 3 left) that
// a line joins.
const CROSSINGS = [
  [], [[3, 0]], [[0, 1]], [[3, 1]], [[1, 2]], [[3, 0], [1, 2]], [[0, 2]], [[3, 2]],
  [[2, 3]], [[2, 0]], [[0, 1], [2, 3]], [[2, 1]], [[1, 3]], [[1, 0]], [[0, 3]], [],
];

// The border between kept and dropped cells, in pixels of the image; none along the image's own border.
export function keptBorder(kept, h, w, height, width) {
  const path = new Path2D(), inside = new Uint8Array(h * w), dy = height / h, dx = width / w;
  for (const cell of kept) inside[cell] = 1;
  const runs = (length, differs, line) => {
    for (let from = -1, i = 0; i <= length; i++) {
      const on = i < length && differs(i);
      if (on && from < 0) from = i;
      if (!on && from >= 0) { line(from, i); from = -1; }
    }
  };
  const draw = (x0, y0, x1, y1) => { path.moveTo(x0 * dx, y0 * dy); path.lineTo(x1 * dx, y1 * dy); };
  for (let y = 1; y < h; y++) runs(w, (x) => inside[y * w + x] !== inside[(y - 1) * w + x],
    (from, to) => draw(from, y, to, y));
  for (let x = 1; x < w; x++) runs(h, (y) => inside[y * w + x] !== inside[y * w + x - 1],
    (from, to) => draw(x, from, x, to));
  return path;
}

// Cells as an area, in pixels of the image.
export function areaOf(cells, { h, w }, { height, width }) {
  const path = new Path2D(), dy = height / h, dx = width / w;
  for (const cell of cells) path.rect((cell % w) * dx, Math.floor(cell / w) * dy, dx, dy);
  return path;
}

// A line along the inner side of a border.
export function strokeInside(context, border, area, strokeStyle, width) {
  context.save();
  context.clip(area);
  Object.assign(context, { globalAlpha: 1, strokeStyle, lineWidth: 2 * width, lineJoin: "miter", lineCap: "square" });
  context.stroke(border);
  context.restore();
}

// A dark line and a light one: one of the two is seen on any photograph.
export function strokeTwice(context, path, colour, width, lineJoin = "round") {
  Object.assign(context, { globalAlpha: 1, lineCap: "round", lineJoin });
  for (const [ink, times] of [["rgb(12 12 20)", 2.4], [colour, 1]]) {
    Object.assign(context, { strokeStyle: ink, lineWidth: width * times });
    context.stroke(path);
  }
}

export function rectangle(x0, y0, x1, y1) {
  const path = new Path2D();
  path.rect(x0, y0, x1 - x0, y1 - y0);
  return path;
}
