// The images of a folder or a store: all of them, those with a part of a name, or what a search finds; one after the
// other.
//
// With list = 1 in the state the list takes the page; with 0 it stands beside the image that is open.
import { getJson, postPacked, Problem } from "./api.js";
import { inNumber, make, trouble, typing } from "./dom.js";
import { inPlaceOf } from "./stage.js";
import { Tiles } from "./tiles.js";

const PAGE = 100; // names asked for together
const KEPT = 40; // pages of names kept
const TYPED = 200; // milliseconds without a key until something is asked for
const HITS = 48, MOST_HITS = 480; // of a page of a search, and of all its pages
const LONGEST = 200; // characters of a part of a name
const NONE = { total: 0, item: () => undefined };

export function mountGallery(app, root) {
  const find = make("input", { type: "search", autocomplete: "off", spellcheck: false, oninput: () =>
    app.set({ find: find.value, like: null, list: 1 }) });
  const said = make("span", { "aria-live": "polite" }), about = make("div", { className: "note" });
  const where = make("input", { // of a store
    type: "text", autocomplete: "off", spellcheck: false, hidden: true, "aria-label": "Only images where",
    placeholder: "Only where: tag = 'dog'", title: "taken > '2026-01-01' and width > height, say: SQL on the columns",
    onchange: () => app.set({ where: where.value.trim(), list: 1 }),
  });
  const showMore = () => look(source.found, tiles.at);
  const more = make("button", { type: "button", onclick: showMore }, "Show more");
  const button = (text, label, key, onclick, more) =>
    make("button", { type: "button", title: `${label} (${key})`, "aria-label": label, onclick, ...more }, text);
  const previous = button("‹", "Previous image", "P", () => step(-1));
  const next = button("›", "Next image", "N", () => step(1));
  const all = button("All", "All images", "L", () => app.set({ list: 1 }), { className: "all" });
  const number = make("input", { type: "text", inputMode: "numeric", autocomplete: "off", "aria-label": "Number",
    title: "Enter goes there", onchange: () => goTo(number.value.trim()), onblur: () => arrange() });
  const of = make("span"), place = make("span", { className: "number" }, number, of);
  const steps = { className: "steps", "aria-label": "One image after the other" };
  const likes = button("Like this", "Images like this one", "S", () => same(), { className: "all likes" }); // of a store
  const bar = make("nav", steps, previous, place, next, likes, all);
  const tiles = new Tiles({
    wide: () => root.classList.contains("whole"), openAt: open, isOpen: (id) => id === app.state.image,
    colours: () => app.session.colours.heat,
  });
  root.append(make("header", {}, find, where, make("p", { className: "note" }, said, more), about), bar, tiles.root);
  let source = null, asked = null, timer = null; // what is listed; AbortController of what is on its way
  let due = null; // an image that opens once its name is there
  let mistyped = null; // why a number leads nowhere, until another image is open

  app.on("session", () => {
    const { kind } = app.session;
    if (kind !== "folder" && kind !== "store") return;
    find.placeholder = kind === "store" ? "Search: a dog on a beach" : "Filter by name";
    find.setAttribute("aria-label", kind === "store" ? "Search in all images" : "Filter by name");
    find.value = app.state.find;
    where.value = app.state.where;
    where.hidden = likes.hidden = kind !== "store";
    root.hidden = false;
    arrange();
    look();
  });
  app.on("state", (before) => {
    if (root.hidden) return;
    if (before.find !== app.state.find) {
      if (document.activeElement !== find) find.value = app.state.find;
      clearTimeout(timer);
      timer = setTimeout(() => look([], app.state.list === 1 ? 0 : undefined), TYPED); // a new list: its top
    }
    if (before.where !== app.state.where || before.like !== app.state.like) {
      where.value = app.state.where;
      look([], 0);
    }
    if (before.list !== app.state.list || before.image !== app.state.image) arrange();
  });
  app.on("image", () => {
    mistyped = null;
    if (root.hidden) return;
    if (source?.part !== undefined && isAway()) look(); // dropped, or gone back to: where is it in the list?
    arrange();
  });
  find.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    tiles.root.focus();
  });
  addEventListener("keydown", (event) => {
    if (root.hidden || typing(event)) return;
    if (event.key === "/" && tiles.wide()) { event.preventDefault(); find.select(); }
    const act = {
      n: () => step(1), p: () => step(-1), l: () => app.set({ list: 1 - app.state.list }), s: !likes.hidden && same,
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  // --- what is listed ---------------------------------------------------------------------------------------------

  // The newest text wins: what is on its way for an older one is dropped. found: hits of the pages before. at: where
  // the list begins, else at the image that is open.
  async function look(found = [], at = undefined) {
    asked?.abort();
    const { signal } = asked = new AbortController(), text = app.state.find.trim();
    root.setAttribute("aria-busy", "true");
    due = null;
    try {
      const sought = app.session.kind === "store" && (text || app.state.like);
      source = await (sought ? search(text, found, signal) : names(text, signal));
    } catch (problem) {
      if (problem.name === "AbortError") return;
      source = { ...NONE, problem };
    }
    root.setAttribute("aria-busy", "false");
    tiles.show({ ...source, at: at ?? source.at });
    arrange();
  }

  async function search(query, before, signal) {
    const { like, where } = app.state, page = { count: HITS, offset: before.length, where };
    const { header, arrays } = await (like
      ? postPacked(`/api/gallery/${like}/like`, page, signal)
      : postPacked("/api/search", { query, ...page }, signal));
    const found = [...before, ...header.hits.map((hit, i) => ({ ...hit, map: arrays[`map:${i}`] }))];
    const at = Math.max(0, found.findIndex((hit) => hit.id === app.state.image));
    const seen = found.filter((hit) => hit.detected).length;
    const full = header.hits.length === HITS; // there may be more
    const more = full && found.length < Math.min(MOST_HITS, header.of);
    return { ...header, seen, at, found, total: found.length, item: (i) => found[i], full, more };
  }

  async function names(part, signal) {
    if (part.length > LONGEST) {
      throw new Problem(`${inNumber(part.length)} characters came`, `at most ${LONGEST}`, "a part of a name is enough");
    }
    const ask = (page, of) => {
      const asked = new URLSearchParams({ part, where: app.state.where, limit: PAGE, offset: page * PAGE, ...of });
      return getJson(`/api/gallery?${asked}`, signal);
    };
    const first = await ask(0, app.state.image && { of: app.state.image }), pages = new Map([[0, first.images]]);
    const item = (i) => {
      const page = Math.floor(i / PAGE);
      if (!pages.has(page)) {
        pages.set(page, []);
        if (pages.size > KEPT) pages.delete(pages.keys().next().value);
        ask(page).then(({ images }) => { pages.set(page, images); told(item, undefined); tiles.paint(); arrange(); },
          (problem) => { pages.delete(page); told(item, problem); });
      }
      return pages.get(page)[i % PAGE];
    };
    return { total: first.total, item, part, place: first.place, at: first.place ?? 0 };
  }

  // A page of names came, or could not be had: then a look at its tiles asks for it again.
  function told(item, problem) {
    if (source?.item !== item || problem?.name === "AbortError") return;
    source = { ...source, problem };
    advise();
    if (due !== null && !problem) open(due);
  }

  // --- one of them ------------------------------------------------------------------------------------------------

  function open(i) {
    const item = source?.item(i), { active, questions } = app.state;
    due = item ? null : i;
    tiles.point(i);
    if (!item) return;
    const asking = source.query ? { questions: Object.freeze(questions.with(active, source.query)) } : {};
    app.set({ image: item.id, list: 0, pin: null, ...asking });
  }

  function step(by) {
    const i = tiles.at + (by > 0 && !isHere() ? 0 : by); // an image that is not in the list stands before it
    if (i >= 0 && i < (source?.total ?? 0)) open(i);
  }

  // Of a number that is none here, what was expected is said.
  function goTo(text) {
    const wanted = Number(text.replaceAll(",", "")), { total } = source;
    const known = Number.isInteger(wanted) && wanted >= 1 && wanted <= total;
    mistyped = known ? null : new Problem(`${text || "nothing"} came`, `1 to ${inNumber(total)}`);
    if (known) open(wanted - 1);
    advise();
  }

  const same = () => app.state.image && app.set({ like: app.state.image, list: 1, find: "" });

  const isHere = () => source?.item(tiles.at)?.id === app.state.image;
  const isAway = () => source?.item(tiles.at) && !isHere(); // of one whose name is not there yet, neither

  // --- how it looks -----------------------------------------------------------------------------------------------

  function arrange() {
    root.classList.toggle("whole", app.overview);
    said.textContent = describe(source, app.session);
    more.hidden = !source?.more;
    advise();
    bar.hidden = !source?.total || !app.state.image;
    const { at, total } = tiles;
    if (document.activeElement !== number) number.value = isHere() ? inNumber(at + 1) : "";
    number.style.setProperty("width", `${inNumber(total).length + 2.5}ch`);
    of.textContent = `of ${inNumber(total)}`;
    previous.disabled = at <= 0;
    next.disabled = isHere() && at >= total - 1;
    tiles.paint();
  }

  function advise() {
    about.replaceChildren(...advice());
    about.hidden = !about.hasChildNodes();
  }

  function advice() {
    const { problem = mistyped, unknown = [], note } = source ?? {}, open = app.state.list === 0, out = [];
    const others = inPlaceOf(source ?? {});
    if (problem) out.push(trouble(problem));
    if (open && app.image?.note) out.push(make("p", {}, app.image.note));
    if (open && app.image && source?.place === null && isAway()) {
      out.push(make("p", {}, "The image that is open is not in this list."));
    }
    if (others.length) out.push(make("p", {}, `Looked for ${others.join(", ")}.`));
    if (unknown.length) {
      out.push(make("p", {}, `Not understood: ${unknown.join(", ")}. `, ...nextStep(source.encoder, unknown)));
    }
    if (note) out.push(make("p", {}, note));
    if (app.session.index && !open) {
      const commands = make("code", {}, `${app.session.index} && foveate view photos.fov`);
      const { images, units } = app.session, only = images === 1 ? "the image" : `the ${inNumber(images)} images`;
      const what = units[0] === "file" ? "these images" : `${only} here (no PDFs)`;
      const how = `To search ${what} by what is in them, index them once, then view the store: `;
      out.push(make("p", {}, how, commands));
    }
    return out;
  }
}

function describe(source, { units = ["image", "images"], name }) {
  if (!source) return "Looking …";
  const { total, query, like, seen, full, of, part, problem } = source;
  const files = `${inNumber(total)} ${units[total === 1 ? 0 : 1]}`; // of a folder: they were not read yet
  if (problem && !total) return "";
  if (like) return `Like ${like}: ${seenIn(seen, total, full ? of : total)}`;
  if (query && !total) return `Nothing found for “${query}”`;
  if (query) return `“${query}” found in ${seenIn(seen, total, full ? of : total)}`;
  if (part) return total ? `${files} with “${part}” in the name` : `No name has “${part}” in it`;
  return total ? `${files} in ${name}` : `No images in ${name}`;
}

const seenIn = (seen, listed, of) => (listed === of
  ? `${inNumber(seen)} of ${inNumber(of)} images`
  : `${inNumber(seen)} ${seen === 1 ? "image" : "images"}; these are the best ${inNumber(listed)} of ${inNumber(of)}`);

// What a person can do about words that an encoder does not know.
const nextStep = (encoder, unknown) => [
  `The encoder ${encoder} does not know ${unknown.length === 1 ? "this word" : "these words"}, so results say little: `,
  "use another word; or make the store again with an encoder that knows more words, ",
  make("code", {}, "foveate index --encoder clip"),
  ". What this one knows of it: ", make("code", {}, `foveate doctor --words "${unknown.join(" ")}"`), ".",
];
