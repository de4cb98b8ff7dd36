// Zoom and pan: a canvas in a frame that shows a part of it. Wheel, pinch, drag, and keys of the canvas (+ - 0, shift
// and arrows). The canvas itself is moved and enlarged, so whoever measures it on the screen finds the whole image.

export const WHOLE = Object.freeze({ scale: 1, y: 0.5, x: 0.5 }); // y, x: what is in the middle, shares of the image
const MOST = 32;

// -> {left, top, width, height} of a canvas in a frame, in pixels of the screen, and the view kept within its borders.
export function placed({ scale, y, x }, image, frame) {
  const fit = Math.min(frame.width / image.width, frame.height / image.height);
  const width = image.width * fit * scale, height = image.height * fit * scale;
  const within = (share, side, room) =>
    (side <= room ? 0.5 : Math.min(1 - room / side / 2, Math.max(room / side / 2, share)));
  const view = { scale, y: within(y, height, frame.height), x: within(x, width, frame.width) };
  return { left: frame.width / 2 - view.x * width, top: frame.height / 2 - view.y * height, width, height, fit, view };
}

// The view with another scale, where one place of the image (shares) stays where it is on the screen.
export function scaledTo(view, scale, place = [view.y, view.x]) {
  const to = Math.min(MOST, Math.max(1, scale)), ratio = view.scale / to;
  return { scale: to, y: place[0] + (view.y - place[0]) * ratio, x: place[1] + (view.x - place[1]) * ratio };
}

const panned = (view, down, right) =>
  ({ ...view, y: view.y + down / view.scale, x: view.x + right / view.scale });

// read: () -> view; write: view -> nothing.
export function watchZoom(canvas, read, write) {
  const fingers = new Map();
  let apart = 0;
  const shares = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    return [(clientY - box.top) / box.height, (clientX - box.left) / box.width];
  };
  const middle = () => {
    const all = [...fingers.values()];
    return { clientX: all.reduce((sum, each) => sum + each.clientX, 0) / all.length,
      clientY: all.reduce((sum, each) => sum + each.clientY, 0) / all.length };
  };
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode ? 16 : 1;
    write(scaledTo(read(), read().scale * Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)),
      shares(event)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    if (fingers.size === 2) apart = spread();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = middle(), box = canvas.getBoundingClientRect();
    if (fingers.size < 3 && read().scale > 1 && !canvas.hasPointerCapture(event.pointerId)) {
      const from = fingers.get(event.pointerId);
      if (Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) < 4) return; // a click
      canvas.setPointerCapture(event.pointerId);
    }
    fingers.set(event.pointerId, event);
    const now = middle(), view = read();
    let next = view;
    if (view.scale > 1) next = { ...next, y: next.y - (now.clientY - before.clientY) / box.height,
      x: next.x - (now.clientX - before.clientX) / box.width };
    if (fingers.size === 2) {
      next = scaledTo(next, (next.scale * spread()) / Math.max(1, apart), shares(now));
      apart = spread();
    }
    if (next !== view) write(next);
  });
  for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) canvas.addEventListener(kind,
    (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey &&
      { ArrowUp: [-0.1, 0], ArrowDown: [0.1, 0], ArrowLeft: [0, -0.1], ArrowRight: [0, 0.1] }[event.key];
    if (!step) return;
    write(panned(read(), ...step));
    event.preventDefault();
  });
}
