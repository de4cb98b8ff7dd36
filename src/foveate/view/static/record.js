// A result as text: JSON of everything, the lines of Python that make it again, SVG of the kept cells. Pure functions
// of what `recordOf` takes from the page.

// The image, how cells are chosen, and every question with an answer: its map and its kept cells on the grid chosen.
export function recordOf(app) {
  const { image, state } = app, { h, w, label } = app.grid;
  const answers = state.questions.flatMap((text, i) => {
    const answer = app.answer(i), kept = answer && app.kept(i);
    if (!kept) return [];
    const { header, maps } = answer, { kinds } = app.allocation(i);
    return [{ number: i, text: text.trim(), header, map: maps[state.grid], kept, kinds, budget: app.budget(i) }];
  });
  return {
    version: app.session.version, source: app.session.name, first: app.session.first, image,
    grid: { name: state.grid, label, h, w }, context: app.context, answers, encoding: app.session.encoding,
    reads: app.session.reads,
    budget: state.budget, policy: state.policy, floor: state.floor, active: state.active, pin: state.pin,
  };
}

export function toJson(record) {
  const { version, image, grid, answers, budget, policy, floor, context } = record;
  const { id, name, height, width, encoder } = image;
  const questions = answers.map(({ text, header, map, kept, kinds, budget: cells }) => ({
    question: text, confidence: header.confidence, detected: header.detected,
    looked_for: header.looked_for, unknown: header.unknown, ignored: header.ignored, budget: cells,
    kept: [...kept], kinds, map: rows(map, grid),
  }));
  const { h, w } = grid, shown = { id, name, height, width, encoder };
  const about = { foveate: version, image: shown, grid: { name: grid.name, h, w } };
  return JSON.stringify({ ...about, budget, policy, floor, context, questions }, null, 1)
    .replace(/\n\s+(?=-?\d)/g, " "); // numbers stand in rows
}

// 9 digits are every float32.
const rows = (map, { h, w }) =>
  Array.from({ length: h }, (_, y) => Array.from(map.subarray(y * w, (y + 1) * w), (value) => +value.toPrecision(9)));

// The keyword of a policy, unless it is the default.
const chosenBy = (policy) => policy !== "worth" && `policy=${JSON.stringify(policy)}`;

// Names and numbers reach it as literals of JSON alone, which are Python's: there is no null among them.
export function toPython(record) {
  if (record.image.clip) return ofStream(record);
  const { image, source, first, grid, budget, policy, floor, context, encoding, reads, pin } = record;
  const { text, kept } = active(record), said = JSON.stringify;
  const beside = said(context) !== "{}"; // gaze and earlier questions
  const { encoder, read, preset } = encoding, by = keywords({ encoder });
  const place = grid.name === "cells" ? "" : `.on((${grid.h}, ${grid.w}))`;
  const how = [`budget=${said(budget)}`, chosenBy(policy), floor && `floor=${floor}`].filter(Boolean);
  const { file = image.name, number: page } = image.page ?? {};
  let texture = `foveate.encode(${said(file)}${keywords({ page, ...encoding })})`;
  if (image.stored) texture = `foveate.Store(${said(source)}${by})[${said(image.id)}]`;
  const at = kept.indexOf(pin), loaded = image.id === first && source.endsWith(".safetensors");
  if (loaded) {
    texture = `foveate.Texture.load(${said(source)})`;
    if (preset) texture = `remember_preset(${texture}, ${said(preset)})`;
    if (reads) texture += `.read(${typeof read === "string" ? said(read) : ""})`;
  }
  const question = beside
    ? [`context = read_context(${said(context)})`,
      `relevance, _ = score_in_context(texture, ${said(text)}, context${by})`,
      place && `relevance = relevance${place}`]
    : [`relevance = foveate.score(texture, ${said(text)}${by})${place}`];
  return [
    "import foveate",
    ...(loaded && preset ? ["from foveate.relevance.presets import remember_preset"] : []),
    ...(beside ? ["from foveate.vlm.context import read_context, score_in_context"] : []),
    "",
    `texture = ${texture}  # its path, from where this is run`,
    ...question.filter(Boolean),
    `kept = foveate.allocate(relevance, ${how.join(", ")})`,
    "print(kept.indices)",
    ...(at < 0 ? [] : [`print(kept.why(${at}))  # of row ${Math.floor(pin / grid.w)}, column ${pin % grid.w}`]),
    "",
  ].join("\n");
}

// Options of the session, to be written behind others: of them alone `read` may be true or false.
const keywords = (options) => Object.entries(options).filter(([, value]) => value !== undefined)
  .map(([name, value]) => `, ${name}=${PYTHON.get(value) ?? JSON.stringify(value)}`).join("");

const PYTHON = new Map([[true, "True"], [false, "False"]]);

// A frame of a clip: the cells are those of the stream up to it, from the frame on with which it began (clip.js).
function ofStream({ image: { clip }, answers, active: number, budget, policy, floor, encoding }) {
  const said = JSON.stringify, { text } = active({ answers, active: number });
  const keep = [floor && `floor=${floor}`, chosenBy(policy)].filter(Boolean).join(", ");
  const how = [`budget=${said(budget)}`, keep && `keep=Keep(${keep})`].filter(Boolean);
  return [
    "import foveate.video",
    keep && "from foveate.allocation import Keep",
    "",
    `clip = foveate.video.open_clip(${said(clip.name)}, long_side=${clip.longSide})`
      + "  # its path, from where this is run",
    clip.start && `for _ in range(${clip.start}):\n    next(clip)`,
    `for frame in foveate.video.stream(clip, ${said(clip.questions)}, ${how.join(", ")}${keywords(encoding)}):`,
    `    if frame.index == ${clip.frame}:`,
    `        kept = frame.kept[${clip.questions.indexOf(text)}]`,
    "        break",
    "print(kept.indices)",
    "",
  ].filter((line) => line || line === "").join("\n");
}

export const active = (record) => record.answers.find(({ number }) => number === record.active) ?? record.answers[0];

const SVG = "http://www.w3.org/2000/svg";

// One rectangle a kept cell, its number and its score beside it; over the photograph, if its data: address is given.
export function toSvg(record, colour, photograph) {
  const { image: { width, height, name }, grid: { h, w } } = record, { text, kept, map } = active(record);
  const page = document.implementation.createDocument(SVG, "svg"), root = page.documentElement;
  const add = (parent, kind, attributes) => {
    const element = page.createElementNS(SVG, kind);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return parent.appendChild(element);
  };
  const frame = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" };
  for (const [key, value] of Object.entries(frame)) root.setAttribute(key, value);
  add(root, "title", {}).textContent = printable(`${kept.length} of ${h * w} cells kept for “${text}”, ${name}`);
  const places = Array.from(kept, (i) => {
    const y = Math.floor(i / w), x = i % w, [left, top] = [short((x * width) / w), short((y * height) / h)];
    return { i, x: left, y: top, width: short(width / w), height: short(height / h) };
  });
  if (photograph) {
    add(root, "image", { href: photograph, width, height });
    const holes = places.map((cell) => `M${cell.x} ${cell.y}h${cell.width}v${cell.height}h${-cell.width}z`).join("");
    const dim = { fill: "#101014", "fill-opacity": 0.78, "fill-rule": "evenodd" };
    add(root, "path", { id: "dropped", d: `M0 0H${width}V${height}H0z${holes}`, ...dim });
  }
  const line = { stroke: colour, "stroke-width": short(Math.max(width, height) / 1200) };
  const group = add(root, "g", { id: "kept", fill: colour, "fill-opacity": photograph ? 0 : 0.6, ...line });
  for (const { i, ...box } of places) add(group, "rect", { ...box, "data-cell": i, "data-score": short(map[i], 4) });
  return `${new XMLSerializer().serializeToString(page)}\n`;
}

const short = (value, digits = 3) => +value.toFixed(digits);

// What XML cannot hold is left out: control characters and halves of a pair.
const printable = (text) => text.replace(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "");
