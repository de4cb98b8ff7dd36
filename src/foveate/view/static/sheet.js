// What is seen, as a picture to keep: the photographs beside one another, a legend below each, on light paper.
import { make } from "./dom.js";

const PAPER = "#fcfcfa", INK = "#16161c", QUIET = "#5f6169", GAP = 24, COLUMNS = 3;

// pictures: [{canvas, lines: [{text, colour (a dot), strong}]}]; bar: {canvas, low, high} or null; -> a canvas.
// A picture without a legend is itself, pixel by pixel.
export function makeFigure(pictures, bar, legend) {
  const columns = Math.min(pictures.length, COLUMNS), rows = Math.ceil(pictures.length / columns);
  const { width, height } = pictures[0].canvas, letters = Math.max(11, Math.round(width / 36)), line = 1.45 * letters;
  const below = legend ? Math.max(...pictures.map(({ lines }) => lines.length)) * line + 0.5 * letters : 0;
  const foot = legend && bar ? 2.4 * letters : 0, margin = legend ? GAP : 0, gap = pictures.length > 1 ? GAP : 0;
  const sheet = make("canvas", {
    width: columns * width + (columns - 1) * gap + 2 * margin,
    height: Math.round(rows * (height + below) + (rows - 1) * gap + foot + 2 * margin),
  });
  const context = sheet.getContext("2d");
  context.fillStyle = PAPER;
  context.fillRect(0, 0, sheet.width, sheet.height);
  pictures.forEach(({ canvas, lines }, i) => {
    const left = margin + (i % columns) * (width + gap);
    const top = Math.round(margin + Math.floor(i / columns) * (height + below + gap));
    context.drawImage(canvas, left, top);
    const base = (n) => top + height + (n + 1) * line;
    if (legend) lines.forEach((each, n) => drawLine(context, each, left, base(n), width, letters));
  });
  const low = sheet.height - margin - 1.5 * letters;
  if (foot) drawBar(context, bar, margin, low, Math.min(width, 22 * letters), letters);
  return sheet;
}

function drawLine(context, { text, colour, strong }, left, base, width, letters) {
  const side = 0.65 * letters, after = colour ? 1.6 * side : 0;
  if (colour) {
    context.fillStyle = `rgb(${colour.join(" ")})`;
    context.beginPath();
    context.arc(left + side / 2, base - 0.36 * letters, side / 2, 0, 2 * Math.PI);
    context.fill();
  }
  write(context, text, left + after, base, width - after, strong ? letters : 0.85 * letters, { strong });
}

function drawBar(context, { canvas, low, high }, left, top, width, letters) {
  context.drawImage(canvas, left, top, width, 0.5 * letters);
  const base = top + 1.4 * letters, size = 0.75 * letters;
  write(context, low, left, base, width / 3, size);
  write(context, "relevance", left + width / 2, base, width / 3, size, { align: "center" });
  write(context, high, left + width, base, width / 3, size, { align: "right" });
}

// One line, cut with an ellipsis where it is longer than its place.
function write(context, text, x, y, width, size, { strong = false, align = "left" } = {}) {
  const font = `${strong ? "600 " : ""}${Math.round(size)}px system-ui, sans-serif`;
  Object.assign(context, { font, fillStyle: strong ? INK : QUIET, textAlign: align });
  const fits = (shown) => context.measureText(shown).width <= width;
  let shown = text;
  for (const letters = [...text]; !fits(shown) && letters.length; shown = `${letters.join("")}…`) letters.pop();
  context.fillText(shown, x, y);
}
