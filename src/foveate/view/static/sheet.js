// What is seen, as a picture to keep: the photographs beside one another, and a legend below each, on light paper.
const PAPER = "#fcfcfa", INK = "#16161c", QUIET = "#5f6169", GAP = 24;

// pictures: [{canvas, title, lines, colour}]; heat: 256 x 3, or null without a bar; -> a canvas. One without a legend is
// the picture itself, pixel by pixel.
export function makeSheet(pictures, { legend, heat }) {
  const columns = Math.min(pictures.length, 3), rows = Math.ceil(pictures.length / columns);
  const width = Math.max(...pictures.map(({ canvas }) => canvas.width)), height = Math.max(...pictures.map(({ canvas }) => canvas.height));
  const size = Math.max(11, Math.round(width / 36)); // of letters, in pixels
  const below = legend ? Math.round(size * 3.6) : 0, foot = legend && heat ? Math.round(size * 2.6) : 0;
  const gap = legend || pictures.length > 1 ? GAP : 0, margin = legend ? GAP : 0;
  const sheet = document.createElement("canvas");
  sheet.width = columns * width + (columns - 1) * gap + 2 * margin;
  sheet.height = rows * (height + below) + (rows - 1) * gap + foot + 2 * margin;
  const context = sheet.getContext("2d");
  context.fillStyle = PAPER;
  context.fillRect(0, 0, sheet.width, sheet.height);
  pictures.forEach((picture, i) => {
    const left = margin + (i % columns) * (width + gap), top = margin + Math.floor(i / columns) * (height + below + gap);
    context.drawImage(picture.canvas, left, top);
    if (legend) drawLegend(context, picture, left, top + picture.canvas.height, width, size);
  });
  if (foot) drawBar(context, heat, margin, sheet.height - margin - size * 1.6, Math.min(width, size * 22), size);
  return sheet;
}

function drawLegend(context, { title, lines, colour }, left, top, width, size) {
  const dot = colour ? size * 0.9 : 0;
  if (colour) {
    context.fillStyle = `rgb(${colour.join(",")})`;
    context.fillRect(left, top + size * 0.85, size * 0.6, size * 0.6);
  }
  write(context, title, left + dot, top + size * 1.4, width - dot, `600 ${size}px system-ui, sans-serif`, INK);
  write(context, lines, left, top + size * 2.8, width, `${Math.round(size * 0.85)}px system-ui, sans-serif`, QUIET);
}

function drawBar(context, heat, left, top, width, size) {
  for (let i = 0; i < 256; i++) {
    context.fillStyle = `rgb(${heat.slice(3 * i, 3 * i + 3).join(",")})`;
    context.fillRect(left + (i * width) / 256, top, width / 256 + 1, size * 0.5);
  }
  const font = `${Math.round(size * 0.75)}px system-ui, sans-serif`;
  context.textAlign = "left";
  write(context, "0", left, top + size * 1.4, width, font, QUIET);
  write(context, "relevance", left + width / 2, top + size * 1.4, width, font, QUIET, "center");
  write(context, "1", left + width, top + size * 1.4, width, font, QUIET, "right");
}

// One line, cut with an ellipsis where it is longer than its place.
function write(context, text, x, y, width, font, colour, align = "left") {
  Object.assign(context, { font, fillStyle: colour, textAlign: align });
  let letters = [...text];
  if (context.measureText(text).width > width) {
    while (letters.length && context.measureText(`${letters.join("")}…`).width > width) letters = letters.slice(0, -1);
    letters.push("…");
  }
  context.fillText(letters.join(""), x, y);
}
