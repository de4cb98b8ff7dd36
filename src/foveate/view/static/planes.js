// All channels of the image as a strip of small pictures; one can be laid over the image, at any mip level.
import { byFamily, inDigits, loadChannels, loadPlane, paintPlane, rangeOf } from "./channels.js";

export function mountPlanes(app, root) {
  const box = add(root, "details"), strip = (add(box, "summary", "Channels"), add(box, "div", "", "strip"));
  const level = makeLevel(app, root);
  const layer = document.createElement("canvas");
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) { seen.unobserve(target); target.paint(); }
  }, { rootMargin: "200px" });
  let image = null, buttons = new Map(), all = new Map(), waiting = null, laid = "";

  app.on("image", follow);
  app.on("state", follow);
  box.addEventListener("toggle", follow);

  async function follow() {
    root.hidden = !app.image || !app.asking;
    if (root.hidden) return lay(null);
    if (app.image === image) return lay(app.state.plane);
    if (!box.open && !app.state.plane) return lay(null);
    const asked = image = app.image;
    try {
      const { channels, plane } = await loadChannels(asked, "cells");
      if (app.image === asked) list(asked, channels, plane);
    } catch (problem) {
      if (app.image === asked) image = null;
      strip.textContent = [problem.received, problem.fix].filter(Boolean).join(". ");
    }
  }

  function list(asked, channels, plane) {
    seen.disconnect();
    strip.replaceChildren();
    all = new Map(channels.map((channel) => [channel.name, channel]));
    buttons = new Map();
    for (const [family, numbers] of byFamily(channels)) {
      const group = add(strip, "div", "", "family");
      add(group, "h3", family);
      const row = add(group, "div", "", "row");
      for (const number of numbers) {
        const channel = channels[number], button = add(row, "button"), canvas = add(button, "canvas");
        button.type = "button";
        button.title = channel.about;
        add(button, "span", channel.name);
        button.addEventListener("click", () => {
          const off = app.state.plane === channel.name;
          app.set(off ? { plane: null, level: 0 } : { plane: channel.name, level: levelOf(channel, app.state.level) });
        });
        canvas.paint = () => paintPlane(canvas, plane(number), asked.grids.cells, channel, app.session.colours.heat);
        buttons.set(channel.name, button);
        seen.observe(canvas);
      }
    }
    lay(app.state.plane);
  }

  // Lays a plane over the image, or takes it away; the newest choice wins.
  async function lay(name) {
    const channel = all.get(name);
    for (const [each, button] of buttons) button.setAttribute("aria-pressed", String(each === name));
    const wanted = channel ? `${app.image.id} ${name} ${app.state.level}` : "";
    level.show(channel, app.state.level);
    if (wanted === laid) return;
    laid = wanted;
    waiting?.abort();
    if (!channel) { app.overlay = null; return app.tell("overlay"); }
    waiting = new AbortController();
    try {
      const plane = await loadPlane(app.image, name, app.state.level, waiting.signal), [h, w] = plane.shape;
      paintPlane(layer, plane, { h, w }, channel, app.session.colours.heat);
      app.overlay = layer;
      app.tell("overlay");
      level.describe(channel, plane);
    } catch (problem) {
      if (problem.name !== "AbortError") app.tell("problem", problem);
    }
  }
}

const STEPS = Float32Array.from({ length: 64 }, (_, i) => i);
const levelOf = ({ levels: [first, last] }, level) => Math.min(last, Math.max(first, level));

// What is laid over the image, and at which of its mip levels.
function makeLevel(app, root) {
  const box = add(root, "div", "", "level"), about = add(box, "p", "", "note"), label = add(box, "label", "Mip level ");
  const slider = add(label, "input"), size = add(label, "output"), scale = add(box, "div", "", "scale");
  const low = add(scale, "span"), colours = add(scale, "canvas"), high = add(scale, "span");
  const off = add(box, "button", "Take it away");
  Object.assign(slider, { type: "range", step: 1 });
  off.type = "button";
  slider.addEventListener("input", () => app.set({ level: +slider.value }));
  off.addEventListener("click", () => app.set({ plane: null, level: 0 }));
  box.hidden = true;
  return {
    show(channel, level) {
      box.hidden = !channel;
      if (!channel) return;
      [slider.min, slider.max] = channel.levels;
      slider.value = level;
      slider.setAttribute("aria-label", `Mip level of ${channel.name}`);
      about.textContent = `${channel.name}: ${channel.about}${channel.how ? ` (${channel.how})` : ""}`;
    },
    describe(channel, plane) {
      const range = rangeOf(plane), [h, w] = plane.shape, constant = range.low === range.high;
      size.textContent = `${slider.value}: ${h} × ${w}`;
      low.textContent = (constant ? "constant " : "") + inDigits(range.low);
      if (channel.ids) low.textContent = `${new Set(plane).size} numbers`;
      colours.hidden = high.hidden = channel.ids || constant;
      high.textContent = inDigits(range.high);
      paintPlane(colours, STEPS, { h: 1, w: STEPS.length }, { ids: false }, app.session.colours.heat);
    },
  };
}

function add(parent, tag, text = "", className = "") {
  const made = Object.assign(document.createElement(tag), { textContent: text, className });
  parent.append(made);
  return made;
}
