// Cells of the image: the one under the pointer, and the pinned one. Arrow keys move the first; Enter or a click pins
// it, and the pin stays until Escape, or the same again, lets go.
import { rectangle, strokeTwice } from "./layers.js";

// place: pointer event -> [y, x], shares of the image from 0 to 1, as far as it lies under the pointer.
export function watchCells(app, canvas, place = (event) => placeOn(canvas, event)) {
  let down = null; // a drag is no click
  const cellAt = (event) => {
    const grid = app.grid, [y, x] = place(event);
    if (!grid || y < 0 || y >= 1 || x < 0 || x >= 1) return null;
    return Math.floor(y * grid.h) * grid.w + Math.floor(x * grid.w);
  };
  const pin = (cell) => app.set({ pin: cell === app.state.pin ? null : cell });
  const follow = (event) => {
    const [y, x] = app.pointed = place(event);
    app.point = y >= 0 && y < 1 && x >= 0 && x < 1 ? [y, x] : null;
    app.hover(cellAt(event));
  };
  for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, follow); // a finger may rest
  canvas.addEventListener("pointerleave", () => { app.point = null; app.hover(null); });
  canvas.addEventListener("pointerdown", (event) => { down = [event.clientX, event.clientY]; });
  canvas.addEventListener("click", (event) => {
    const moved = down ? Math.hypot(event.clientX - down[0], event.clientY - down[1]) : 0;
    if (moved < 5) pin(cellAt(event));
  });
  canvas.addEventListener("keydown", (event) => {
    if (!app.grid || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const from = app.hovered ?? app.state.pin, here = from ?? bestCell(app), step = STEPS[event.key];
    if (step) app.hover(from === null ? here : stepped(app.grid, here, step), true);
    else if (event.key === "Enter") pin(here);
    else if (event.key === "Escape" && app.state.pin !== null) app.set({ pin: null });
    else return;
    event.preventDefault();
  });
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function placeOn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
}

// The neighbour of a cell, or itself at the border.
function stepped({ h, w }, cell, [down, right]) {
  const y = Math.min(h - 1, Math.max(0, Math.floor(cell / w) + down));
  const x = Math.min(w - 1, Math.max(0, (cell % w) + right));
  return y * w + x;
}

// Where the active question looks most; the middle without one.
function bestCell(app) {
  const map = app.shown()?.maps[app.state.grid], { h, w } = app.grid;
  if (!map) return Math.floor(h / 2) * w + Math.floor(w / 2);
  return map.reduce((best, value, i) => (value > map[best] ? i : best), 0);
}

// The cell of another grid over the same image that lies under the middle of this one.
export function movedTo(grid, cell, other) {
  const y = Math.floor(((Math.floor(cell / grid.w) + 0.5) / grid.h) * other.h);
  const x = Math.floor((((cell % grid.w) + 0.5) / grid.w) * other.w);
  return y * other.w + x;
}

// {y0, x0, y1, x1} in pixels of the image.
export function boxOf({ h, w }, { height, width }, cell) {
  const y = Math.floor(cell / w), x = cell % w;
  return { y0: (y * height) / h, x0: (x * width) / w, y1: ((y + 1) * height) / h, x1: ((x + 1) * width) / w };
}

// Frames of both cells on a context that counts in pixels of the image; `unit`: such pixels in one of the screen.
export function drawMarks(app, context, unit = 1) {
  for (const draw of app.marks) draw(context, unit);
  for (const [cell, width] of [[app.hovered, 1], [app.state.pin, 2]]) {
    if (cell === null || cell >= app.grid.h * app.grid.w) continue;
    const { y0, x0, y1, x1 } = boxOf(app.grid, app.image, cell);
    strokeTwice(context, rectangle(x0, y0, x1, y1), "#ffffff", width * unit, "miter");
  }
}
