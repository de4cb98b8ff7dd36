// The image with heat and kept cells over it. Everything is painted on one canvas, at most once a frame.
import { drawMarks, watchCells } from "./cells.js";

export function mountStage(app, root) {
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  root.append(canvas);
  const context = canvas.getContext("2d");
  const heat = document.createElement("canvas");
  app.pictures = () => [{ question: app.state.active, canvas }]; // for export
  let asked = false;
  const repaint = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paint(); }); } };
  for (const kind of ["state", "image", "answer", "hover", "overlay"]) app.on(kind, repaint);
  watchCells(app, canvas);

  function paint() {
    if (!app.image) return;
    paintPicture();
    drawMarks(app, context, canvas.width / canvas.clientWidth); // of no export
  }

  function paintPicture() {
    const { width, height, bitmap } = app.image;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    context.globalAlpha = 1;
    context.drawImage(bitmap, 0, 0);
    const answer = app.answer(), { view, opacity } = app.state;
    canvas.setAttribute("aria-label", describe(app, answer));
    if (app.overlay) {
      context.globalAlpha = opacity;
      context.imageSmoothingEnabled = false;
      context.drawImage(app.overlay, 0, 0, width, height);
    }
    if (!answer || app.overlay) return;
    const { h, w } = app.grid;
    if (view === "heat") {
      drawMap(heat, answer.maps[app.state.grid], h, w, app.session.colours.heat);
      context.globalAlpha = opacity;
      context.imageSmoothingEnabled = true;
      context.drawImage(heat, 0, 0, width, height);
    } else if (view === "kept" && app.kept()) { // undefined while Coverage is on its way
      drawMask(heat, app.kept(), h, w);
      context.imageSmoothingEnabled = false;
      context.drawImage(heat, 0, 0, width, height);
    }
    canvas.dataset.painted = app.state.questions[app.state.active]; // for tests: what is painted
  }
}

function drawMap(canvas, map, h, w, colours) {
  Object.assign(canvas, { width: w, height: h });
  const data = new ImageData(w, h);
  map.forEach((value, i) => {
    const level = 3 * Math.round(255 * Math.min(1, Math.max(0, value)));
    data.data.set([colours[level], colours[level + 1], colours[level + 2], 255], 4 * i);
  });
  canvas.getContext("2d").putImageData(data, 0, 0);
}

function drawMask(canvas, kept, h, w) {
  Object.assign(canvas, { width: w, height: h });
  const data = new ImageData(w, h);
  for (let i = 0; i < h * w; i++) data.data.set([16, 16, 20, 205], 4 * i);
  for (const i of kept) data.data[4 * i + 3] = 0;
  canvas.getContext("2d").putImageData(data, 0, 0);
}

function describe(app, answer) {
  if (!answer) return app.image.name;
  const { query, confidence, detected } = answer.header;
  return `${app.image.name}: where “${query}” looks, confidence ${confidence.toFixed(2)}, ${detected ? "detected" : "not detected"}`;
}
