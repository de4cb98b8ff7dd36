// The cell under the pointer, or the pinned one: its place, score and rank, what entered the score, its pixels, words,
// and channels.
import { newest, postPacked } from "./api.js";
import { makeBars } from "./bars.js";
import { byFamily, inDigits, loadChannels, rangeOf } from "./channels.js";
import { inNumber, make, trouble } from "./dom.js";
import { rectangle, strokeTwice } from "./layers.js";
import { boxOf, movedTo } from "./pointer.js";
import { inWords, overlaps, standing, why } from "./why.js";

const AROUND = 2; // cells around the magnified one
const SHARP = 176; // pixels of the magnified picture
const OPEN = new Set(["colour", "edges and light", "what stands out"]); // families that are open at first
const ABOUT = {
  participation: "how well the content of the cell answers the question",
  segment: "the mean of that over the segment of the cell",
  place: "how well the cell lies where the question says",
  reading: "what was read here",
  prior: "what the question was given beside its words: a gaze, a dialogue",
  floor: "kept as a part of the even spread",
  asked: "which part of what it is worth is the question's; the rest is context",
};

export function mountCell(app, root) {
  const title = make("h2"), hint = make("p", { className: "note" }, HINT);
  const pin = make("button", { type: "button", onclick: () => app.set({ pin: app.state.pin === null ? last : null }) });
  const spoken = make("p", { className: "unseen", "aria-live": "polite" });
  const pixels = make("canvas", { width: SHARP, height: SHARP, role: "img", "aria-label": "The cell, magnified" });
  const facts = make("dl"), verdict = make("p", { className: "verdict" });
  const parts = ["reasons explained", "words", "channels"];
  const [reasons, words, channels] = parts.map((className) => make("div", { className }));
  const meanings = make("button", { type: "button", "aria-pressed": "false", onclick: () => {
    meanings.setAttribute("aria-pressed", String(channels.classList.toggle("explained")));
  } }, "What they mean");
  const top = make("div", { className: "top" }, pixels, facts);
  const still = make("p", { className: "note" }, STILL);
  const body = make("div", { className: "body" }, top, verdict, still, reasons, words, channels);
  root.append(make("header", {}, title, pin), hint, spoken, body);

  const families = new Map(); // family -> {bars, planes, element}, of `listed`
  let listed = null, values = null, because = null, told = null, asked = false;
  let last = null; // pointed at last: it stays when the pointer leaves the image for the panel

  const repaint = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paint(); }); } };
  for (const kind of ["answer", "hover"]) app.on(kind, repaint);
  app.on("image", () => { last = null; repaint(); });
  app.on("state", (before) => {
    if (app.state.grid !== before.grid) last = null;
    followGrid(before);
    if (before.pin === null && app.state.pin !== null && before.image === app.state.image) {
      paint();
      if (NARROW.matches) root.scrollIntoView({ block: "start" }); // elsewhere the questions stay in view
    }
    repaint();
  });

  // The cell under the pointer stays where it is in the image when another grid is chosen.
  function followGrid(before) {
    const { grid, image } = app.state, from = app.image?.grids[before.grid], to = app.grid;
    if (grid === before.grid || image !== before.image || !from || !to) return;
    if (app.hovered !== null) app.hover(movedTo(from, app.hovered, to));
  }

  function paint() {
    root.hidden = !app.image;
    const grid = app.grid, count = grid ? grid.h * grid.w : 0;
    const inside = (cell) => (cell !== null && cell < count ? cell : null);
    const pinned = inside(app.state.pin), hovered = inside(app.hovered);
    last = hovered ?? last;
    const cell = pinned ?? inside(last);
    body.hidden = cell === null;
    hint.hidden = cell !== null;
    pin.hidden = cell === null;
    title.textContent = pinned === null ? "Cell" : "Pinned cell";
    if (cell === null) return;
    const other = pinned !== null && hovered !== pinned ? hovered : null;
    pin.textContent = pinned === null ? "Pin" : "Let go";
    drawPixels(pixels, app, cell);
    showFacts(cell, other);
    still.hidden = app.asking;
    showReasons(cell, other);
    showWords(cell);
    showChannels(cell, other);
  }

  function showFacts(cell, other) {
    const { w, h } = app.grid, box = boxOf(app.grid, app.image, cell), found = standing(app, cell);
    const place = (i) => `row ${Math.floor(i / w)}, column ${i % w}`;
    const rows = [
      ["place", place(cell), `of ${h} × ${w}, counted from 0; index ${cell}`],
      ["pixels", `${span("y", box.y0, box.y1)}, ${span("x", box.x0, box.x1)}`, "from the upper left corner"],
    ];
    if (found) {
      rows.push(["score", inDigits(found.score), "the map of the question here, from 0 to 1"]);
      rows.push(["rank", `${inNumber(found.rank)} of ${inNumber(found.count)}`, found.by]);
    }
    if (other !== null) {
      const score = found ? `; score ${inDigits(standing(app, other).score)}` : "";
      rows.push(["second", place(other) + score, "the cell under the pointer: marks on the bars, second numbers"]);
    }
    facts.replaceChildren(
      ...rows.flatMap(([name, text, about]) => [
        make("dt", {}, name), make("dd", {}, text, make("p", { className: "about" }, about)),
      ]),
    );
    verdict.textContent = found?.verdict ?? "A question gives it a score.";
    verdict.classList.toggle("kept", Boolean(found?.kept));
    const summary = `${rows.slice(0, 4).map(([name, text]) => `${name} ${text}`).join(", ")}. ${verdict.textContent}`;
    const now = other === null ? summary : rows.at(-1).slice(0, 2).join(" ");
    if ((app.state.pin !== null || app.walked) && spoken.textContent !== now) spoken.textContent = now;
  }

  // Planes of reasons come when a cell is looked at; a question that failed is not asked again at every move.
  const fetchReasons = newest(async ({ key, text, image, grid }) => {
    if (because?.key === key) return;
    try {
      const { header, arrays } = await postPacked("/api/reasons", { ...app.context, image, query: text, grid });
      because = {
        key,
        reasons: new Map(header.reasons.map((name) => [name, arrays[`reason:${name}`]])),
        phrases: new Map(header.phrases.map((name) => [name, arrays[`phrase:${name}`]])),
        weights: header.weights,
      };
    } catch (problem) {
      because = { key, problem };
    }
    repaint();
  });

  function showReasons(cell, other) {
    const answer = app.shown();
    reasons.hidden = !answer || !app.asking;
    if (reasons.hidden) return;
    const image = app.image.id, grid = app.state.grid, text = answer.header.query;
    const key = JSON.stringify([image, grid, app.key(text)]);
    if (because?.key !== key) {
      reasons.replaceChildren(); // those of another question
      fetchReasons({ key, text, image, grid });
      return;
    }
    if (because.problem) {
      if (told !== because) reasons.replaceChildren(trouble(because.problem)); // an alert speaks once
      told = because;
      return;
    }
    told = null;
    const even = app.allocation()?.even, asked = app.state.policy === "worth" ? answer.asked?.[grid] : undefined;
    const given = { reasons: because.reasons, even, asked, words: answer.header.words };
    const at = (i) => why(given, i, boxOf(app.grid, app.image, i));
    const all = at(cell), here = all.filter(([name]) => name !== "words"), { score, place } = standing(app, cell);
    const there = other === null ? null : new Map(at(other));
    const rows = here.map(([name]) => ({ name, low: 0, high: 1, title: aboutReason(name, because.weights) }));
    const phrases = because.phrases.size > 1 ? [...because.phrases] : [];
    rows.push(...phrases.map(([name]) => ({ name: `“${name}”`, low: 0, high: 1, title: "the map of the phrase" })));
    const bars = makeBars(rows);
    bars.show(
      [...here.map(([, value]) => value), ...phrases.map(([, plane]) => plane[cell])],
      there && [...here.map(([name]) => there.get(name)), ...phrases.map(([, plane]) => plane[other])],
    );
    reasons.replaceChildren(
      make("h3", {}, "What entered the score"), make("p", {}, inWords(text, all, score)), bars.element,
      ...(place < 0 ? [] : [make("p", { className: "note" }, "In Python: ", make("code", {}, `kept.why(${place})`))]),
    );
  }

  function showWords(cell) {
    const box = boxOf(app.grid, app.image, cell), found = app.shown()?.header.words ?? [];
    const read = (app.image.words ?? []).filter((word) => overlaps(word.box, box)).map((word) => {
      const answering = found.find((each) => each.text === word.text && each.box.join() === word.box.join());
      return answering?.because ? `${word.text} (${answering.because})` : word.text;
    });
    words.textContent = read.length ? `Written here: ${read.join(" · ")}` : "";
    words.hidden = !read.length;
  }

  function showChannels(cell, other) {
    channels.hidden = !app.asking;
    if (channels.hidden) return;
    const image = app.image, grid = app.state.grid;
    if (values?.image !== image || values.grid !== grid) {
      fetchChannels({ image, grid });
      return;
    }
    if (listed !== values.channels) listChannels(values.channels);
    channels.dataset.grid = grid; // for tests: whose values are shown
    for (const { bars: shown, planes, element } of families.values()) {
      const at = (i) => (i === null ? null : planes.map((plane) => plane[i]));
      if (element.open) shown.show(at(cell), at(other));
    }
  }

  const fetchChannels = newest(async ({ image, grid }) => {
    try {
      values = { image, grid, ...(await loadChannels(image, grid)) };
      repaint();
    } catch (problem) {
      listed = null; // what was listed is not there any more
      channels.replaceChildren(trouble(problem));
    }
  });

  function listChannels(all) {
    const open = new Set(listed ? [...families].filter(([, { element }]) => element.open).map(([name]) => name) : OPEN);
    listed = all;
    families.clear();
    for (const [family, numbers] of byFamily(all)) {
      const planes = numbers.map(values.plane), shown = makeBars(numbers.map((i, n) => rowOf(all[i], planes[n])));
      const how = { open: open.has(family), ontoggle: repaint };
      const element = make("details", how, make("summary", {}, family), shown.element);
      families.set(family, { bars: shown, planes, element });
    }
    const missing = all.filter((channel) => !channel.built).map((channel) => channel.name);
    const note = make("p", { className: "note", hidden: !missing.length }, `Not computed here: ${missing.join(", ")}.`);
    const listing = Array.from(families.values(), ({ element }) => element);
    channels.replaceChildren(make("header", {}, make("h3", {}, "Channels"), meanings), ...listing, note);
  }
}

const NARROW = matchMedia("(max-width: 860px)");
const STILL = "Open the frame as an image: then there is more to see of a cell.";
const HINT = "Point at the image: what does a cell hold, why is it kept? A click or Enter pins it, arrow keys move.";

function drawPixels(canvas, app, cell) {
  const { bitmap, width, height } = app.image, context = canvas.getContext("2d");
  context.clearRect(0, 0, SHARP, SHARP);
  if (!bitmap) return;
  const { y0, x0, y1, x1 } = boxOf(app.grid, app.image, cell), side = (1 + 2 * AROUND) * Math.max(y1 - y0, x1 - x0);
  const scale = SHARP / side, left = (x0 + x1 - side) / 2, upper = (y0 + y1 - side) / 2;
  context.imageSmoothingEnabled = false;
  context.setTransform(scale, 0, 0, scale, -left * scale, -upper * scale);
  context.drawImage(bitmap, 0, 0, width, height);
  strokeTwice(context, rectangle(x0, y0, x1, y1), "#ffffff", 1.6 / scale, "miter");
  context.resetTransform();
}

// A channel without bounds is drawn between the lowest and the highest value in the image, and zero.
function rowOf({ name, about, how, low, high, ids }, plane) {
  const range = rangeOf(plane), bounds = low === null || high === null ? "" : `; ${inDigits(low)} to ${inDigits(high)}`;
  return {
    name,
    ids,
    low: low ?? Math.min(0, range.low),
    high: high ?? Math.max(0, range.high),
    title: about + (how ? ` (${how})` : "") + bounds,
  };
}

const aboutReason = (name, weights) => {
  const about = ABOUT[name] ?? "a thing, a property or a channel that the question speaks of";
  return weights[name] ? `${about}; it counts ${inDigits(weights[name])}` : about;
};

const span = (axis, from, to) => `${axis} ${Math.round(from)}–${Math.round(to)}`;
