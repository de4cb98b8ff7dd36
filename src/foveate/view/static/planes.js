// All channels of the image as a strip of small pictures; one can be laid over the image, at any mip level.
import { byFamily, inDigits, loadChannels, loadPlane, paintPlane, rangeOf } from "./channels.js";
import { make, trouble } from "./dom.js";

export function mountPlanes(app, root) {
  const strip = make("div", { className: "strip" }), level = makeLevel(app), layer = make("canvas");
  const box = make("details", { ontoggle: follow }, make("summary", {}, "Channels"), strip);
  root.append(box, level.element);
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) { seen.unobserve(target); target.paint(); }
  }, { rootMargin: "200px" });
  let image = null, buttons = new Map(), all = new Map(), waiting = null, laid = "";

  app.on("image", follow);
  app.on("state", follow);

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
      strip.replaceChildren(trouble(problem));
    }
  }

  function list(asked, channels, plane) {
    seen.disconnect();
    all = new Map(channels.map((channel) => [channel.name, channel]));
    buttons = new Map();
    const tile = (number) => {
      const channel = channels[number], canvas = make("canvas");
      canvas.paint = () => paintPlane(canvas, plane(number), asked.grids.cells, channel, app.session.colours.heat);
      const button = make("button", { type: "button", title: channel.about, onclick: () => choose(channel) },
        canvas, make("span", {}, channel.name));
      buttons.set(channel.name, button);
      seen.observe(canvas);
      return button;
    };
    strip.replaceChildren(...Array.from(byFamily(channels), ([family, numbers]) => make("div", { className: "family" },
      make("h3", {}, family), make("div", { className: "tiles" }, ...numbers.map(tile)))));
    lay(app.state.plane);
  }

  function choose(channel) {
    const off = app.state.plane === channel.name;
    app.set(off ? { plane: null, level: 0 } : { plane: channel.name, level: levelOf(channel, app.state.level) });
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
    if (!channel) {
      if (app.overlay === layer) app.overlay = null;
      return app.tell("overlay");
    }
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
function makeLevel(app) {
  const about = make("p", { className: "note" }), size = make("output"), colours = make("canvas");
  const slider = make("input", { type: "range", step: 1, oninput: () => app.set({ level: +slider.value }) });
  const low = make("span"), high = make("span"), takeAway = () => app.set({ plane: null, level: 0 });
  const element = make("div", { className: "level", hidden: true }, about,
    make("label", {}, "Mip level", slider, size), make("div", { className: "scale" }, low, colours, high),
    make("button", { type: "button", onclick: takeAway }, "Take it away"));
  return {
    element,
    show(channel, level) {
      element.hidden = !channel;
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
