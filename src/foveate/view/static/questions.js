// The questions, up to six: the map moves while one is typed. Under each: whether its thing was found, and what was
// understood.
import { make, trouble, wayBack } from "./dom.js";
import { byDialogue, inPlaceOf, pill } from "./stage.js";
import { MANY, MOST_QUESTIONS, isQuestion } from "./state.js";

const PRIORS = { gaze: "your gaze", history: "the dialogue" };
const LISTS = ["folder", "store", "clip"]; // there, keys go from image to image

export function mountQuestions(app, root) {
  const list = make("ol", { className: "rows" }), rows = [];
  const add = make("button", { type: "button", className: "plain add", onclick: () => insert() }, "+ Another question");
  const tries = make("div", { className: "tries", role: "group", "aria-label": "Questions to try" });
  const many = makeMany(app);
  root.append(make("header", {}, make("h2", {}, "Questions")), list, tries, add, many.element);
  app.on("state", show);
  app.on("answer", show);
  app.on("image", show);
  app.on("image", begin);
  app.on("session", show);
  app.on("write", (i) => rows[i].input.focus());
  let known = [];
  app.examples.then((found) => { known = found; show(); });
  show();

  // An image was opened, and nothing is asked: typing can begin at once. On a phone this would bring up its keyboard.
  function begin() {
    const free = [document.body, null].includes(document.activeElement) && !app.state.questions.join("").trim();
    const desk = matchMedia("(pointer: fine) and (min-width: 861px)").matches;
    if (free && desk && !LISTS.includes(app.session?.kind)) rows[0].input.focus({ preventScroll: true });
  }

  function insert() {
    const { questions } = app.state;
    if (questions.length >= MOST_QUESTIONS) return;
    const at = questions.findIndex((text) => !text.trim());
    app.set(at < 0 ? { questions: Object.freeze([...questions, ""]), active: questions.length } : { active: at });
    rows[at < 0 ? questions.length : at].input.focus();
  }

  function write(i, text) {
    app.set({ questions: Object.freeze(app.state.questions.map((old, each) => (each === i ? text : old))), active: i });
  }

  // The bits of those that are left out move up with their questions.
  function remove(i) {
    const { questions, active, off, other } = app.state, left = questions.filter((_, each) => each !== i);
    const below = off & (2 ** i - 1), above = (off >> (i + 1)) << i;
    app.set({
      questions: Object.freeze(left.length ? left : [""]), off: below | above,
      other: other === null || other === i ? null : other - (other > i),
      active: Math.max(0, active > i || active === left.length ? active - 1 : active),
    });
    rows[Math.min(i, app.state.questions.length - 1)].input.focus();
  }

  function show() {
    const { questions, active, off, many: how, view } = app.state;
    const several = questions.filter((text) => text.trim()).length > 1;
    while (rows.length < questions.length) rows.push(makeRow(rows.length));
    rows.forEach((row, i) => {
      row.element.hidden = i >= questions.length;
      if (i >= questions.length) return;
      if (row.input.value !== questions[i]) row.input.value = questions[i];
      row.element.classList.toggle("active", i === active && questions.length > 1);
      row.element.classList.toggle("off", Boolean(off & (1 << i)) && how !== "one" && view !== "difference");
      row.dot.disabled = !several || how === "one" || view === "difference";
      row.dot.setAttribute("aria-pressed", String(!(off & (1 << i))));
      row.dot.title = row.dot.disabled ? `Question ${i + 1}` : off & (1 << i) ? "Show this question"
        : "Leave this question out of the picture";
      row.away.hidden = questions.length === 1 && !questions[i];
      const colours = app.session?.colours.questions;
      if (colours) row.dot.style.setProperty("--colour", `rgb(${colours[i].join(" ")})`);
      showSaid(row, app, i);
    });
    add.hidden = questions.length >= MOST_QUESTIONS || !questions[0].trim();
    many.show(several);
    showTries();
  }

  // Questions that fit a photograph that came with foveate, until they are asked.
  function showTries() {
    const asked = app.state.questions.map((text) => text.trim()), here = known.find(({ id }) => id === app.image?.id);
    const left = (here?.questions ?? []).filter((text) => !asked.includes(text)), key = left.join("\n");
    tries.hidden = !left.length || asked.length > 3;
    if (tries.dataset.key === key) return;
    tries.dataset.key = key;
    tries.replaceChildren(make("span", { className: "note" }, "Try"), ...left.map((text) => make("button", {
      type: "button", className: "chip", onclick: () => { insert(); write(app.state.active, text); },
    }, text)));
  }

  function makeRow(i) {
    const input = make("input", {
      type: "search", autocomplete: "off", spellcheck: true,
      "aria-label": `Question ${i + 1}`, "aria-keyshortcuts": "/",
      placeholder: i ? "another thing" : "“the red car”   ( / to type )",
    });
    input.addEventListener("input", () => write(i, input.value));
    input.addEventListener("focus", () => { if (app.state.active !== i) app.set({ active: i }); });
    input.addEventListener("blur", show);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.isComposing) { event.preventDefault(); input.blur(); } // else it is emptied
      if (event.key === "/" && !input.value) event.preventDefault(); // the key that leads here
      if (event.key === "Enter" && input.value.trim() && !event.isComposing) insert();
    });
    const dot = make("button", {
      type: "button", className: "swatch", "aria-label": `Question ${i + 1} in the picture`,
      onclick: () => app.set({ off: app.state.off ^ (1 << i) }),
    });
    const away = make("button", {
      type: "button", className: "plain icon", title: "Remove this question",
      "aria-label": `Remove question ${i + 1}`, onclick: () => remove(i),
    }, "×");
    const said = make("div", { className: "said", "aria-live": "polite" });
    const element = make("li", {}, dot, input, away, said);
    list.append(element);
    return { element, input, dot, away, said };
  }
}

function showSaid(row, app, i) {
  const text = app.state.questions[i].trim(), known = app.answers.get(app.key(text)), answer = app.shown(i);
  const short = text && app.asking && !isQuestion(text) && document.activeElement !== row.input;
  const key = known?.problem ? `problem ${known.problem.received}`
    : answer ? JSON.stringify(answer.header) : String(short);
  row.element.classList.toggle("waiting", Boolean(isQuestion(text) && app.image && !known));
  if (row.said.dataset.key === key) return;
  row.said.dataset.key = key;
  row.said.replaceChildren(...(known?.problem ? explain(known) : answer ? describe(app, answer.header)
    : short ? [make("p", { className: "note" }, "A question has two letters or more.")] : []));
}

// Why there is no answer; where the image is gone, with a way out.
const explain = ({ problem, session }) =>
  [trouble(problem), ...(problem.status === 404 ? [wayBack(session)] : [])];

// What an answer says of itself; -> elements.
function describe(app, header) {
  const { query, phrases = [], ignored = [], unknown = [], words = [], answer = "", unread, prior, weight } = header;
  const others = inPlaceOf(header);
  const chips = (all) => all.flatMap((each) => [make("span", { className: "chip" }, each), " "]);
  const line = (name, all) => (all.length ? [make("p", { className: "note" }, `${name} `, ...chips(all))] : []);
  const split = phrases.length > 1 || (phrases.length === 1 && bare(phrases[0]) !== bare(query));
  if (byDialogue(header)) return [pill(header)];
  return [
    pill(header),
    ...line("looked for", split ? phrases : []),
    ...line("looked for", others),
    ...line("looks by", prior ? [`${PRIORS[prior]}, ${Math.round(100 * weight)} %`] : []),
    ...line("left out", ignored),
    ...line("not understood", unknown),
    ...(unknown.length && !unread ? [unknownHere(app, unknown)] : []),
    ...line("read there", answer.includes(" -> ") ? [answer.replace("->", "→")]
      : inReadingOrder(words.slice(0, 6)).map(({ text }) => text)),
    ...(unread
      ? [make("p", { className: "note" }, "not read: ", READS[app.image?.stored ? "stored" : "encoded"])] : []),
  ];
}

// Lines from the top, each from its left. A word is in the line of the one before if its middle lies in that one's box.
function inReadingOrder(words) {
  const middle = ({ box: [y0, , y1] }) => (y0 + y1) / 2, lines = [];
  for (const word of words.toSorted((a, b) => middle(a) - middle(b))) {
    const last = lines.at(-1)?.at(-1);
    if (last && middle(word) < last.box[2]) lines.at(-1).push(word);
    else lines.push([word]);
  }
  return lines.flatMap((line) => line.toSorted((a, b) => a.box[1] - b.box[1]));
}

// What can be done about words that the encoder does not know.
function unknownHere(app, words) {
  const encoder = app.session.encoding?.encoder ?? "nano", all = words.join(" ");
  const know = `${encoder} does not know ${words.length > 1 ? "these words" : "this word"}. `;
  if (app.image?.words?.length) return make("p", { className: "note" }, "No word that was read here fits, and ", know);
  if (encoder !== "nano") return make("p", { className: "note" }, know, "Try other words.");
  return make("p", { className: "note" }, know, make("code", {}, `foveate doctor --words "${all}"`),
    " says what it takes them for; ", make("code", {}, "foveate view --encoder clip:…"), " reads any words.");
}

const READS = {
  encoded: "start foveate view with --read, and it finds the words themselves",
  stored: "foveate index with --read reads the images of a store",
};
const bare = (text) => text.toLowerCase().replace(/^(the|a|an) /, "").replace(/[^\p{L}\p{N} ]/gu, "").trim();

function makeMany(app) {
  const inputs = Object.keys(MANY).map((many) =>
    make("input", { type: "radio", name: "many", value: many, onchange: () => app.set({ many }) }));
  const other = make("select", { "aria-label": "Difference to", onchange: () => app.set({ other: +other.value }) });
  const against = make("label", { className: "row" }, make("span", { className: "name" }, "Minus"), other);
  const choice = make("fieldset", { className: "choice" }, make("legend", {}, "Pictures of several questions"),
    ...inputs.map((input) => make("label", {}, input, make("span", {}, MANY[input.value]))));
  const element = make("div", {}, choice, against);
  return { element, show(several) {
    const { questions, active, many, view } = app.state;
    element.hidden = !several;
    choice.hidden = view === "difference";
    against.hidden = view !== "difference";
    inputs.forEach((input) => { input.checked = input.value === many; });
    other.replaceChildren(...questions.flatMap((text, i) =>
      (text.trim() && i !== active ? [make("option", { value: i, selected: i === app.other() }, text.trim())] : [])));
  } };
}
