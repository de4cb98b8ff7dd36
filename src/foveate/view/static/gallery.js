// The images of a folder or a store: a list that holds a screenful of tiles, however long it is; search, previous, next.
//
// With list = 1 in the state the list takes the page; with 0 it stands beside the image that is open.
import { getJson, postPacked } from "./api.js";

const PAGE = 100; // images asked for together
const KEPT = 40; // pages of names kept
const SETTLE = 70; // milliseconds without scrolling until small pictures are fetched: what flies by is not
const TYPED = 220; // milliseconds without a key until a list is asked for
const HITS = 48, MOST_HITS = 480;
const GAP = 10, CAPTION = 24;
const count = new Intl.NumberFormat("en");

export function mountGallery(app, root) {
  const panel = document.createElement("header");
  const find = input();
  const said = make("p", "note");
  const tell = make("p", "note");
  const list = make("div", "tiles");
  const floor = make("div", "floor");
  const bar = make("nav", "steps");
  said.setAttribute("aria-live", "polite");
  Object.assign(list, { tabIndex: 0 });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Images");
  floor.setAttribute("role", "presentation");
  list.append(floor);
  panel.append(find, said, tell);
  const previous = button("Previous image (P)", "‹", () => step(-1));
  const next = button("Next image (N)", "›", () => step(1));
  const all = button("All images (L)", "All images", () => app.set({ list: 1 }));
  const place = make("span", "number");
  all.className = "all";
  bar.setAttribute("aria-label", "Images one by one");
  bar.append(previous, place, next, all);
  root.append(panel, bar, list);

  let source = null; // where the images come from: a list by names, or what a search found
  let at = 0; // the image that is pointed at, or open
  let asked = null; // AbortController of the list or search that is on its way
  let timer = null, settling = null;
  const tiles = new Map(); // place -> element

  app.on("session", () => {
    if (!["folder", "store"].includes(app.session.kind)) return;
    root.hidden = false;
    find.placeholder = app.session.kind === "store" ? "Search: a dog on a beach" : "Filter by name";
    find.setAttribute("aria-label", app.session.kind === "store" ? "Search in all images" : "Filter by name");
    find.value = app.state.find;
    arrange();
    look();
  });
  app.on("state", (before) => {
    if (root.hidden) return;
    if (before.find !== app.state.find && document.activeElement !== find) find.value = app.state.find;
    if (before.find !== app.state.find) { clearTimeout(timer); timer = setTimeout(look, TYPED); }
    if (before.list !== app.state.list || before.image !== app.state.image) arrange();
  });
  app.on("image", () => { if (!root.hidden) arrange(); });
  find.addEventListener("input", () => app.set({ find: find.value, list: 1 }));
  find.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); list.focus(); }
  });
  list.addEventListener("scroll", paint, { passive: true });
  list.addEventListener("keydown", move);
  list.addEventListener("click", (event) => {
    const tile = event.target.closest("[role=option]");
    if (tile) open(+tile.dataset.place);
  });
  new ResizeObserver(() => paint()).observe(list);
  addEventListener("keydown", (event) => {
    if (root.hidden || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
    else if (event.key === "l") app.set({ list: 1 - app.state.list });
    else return;
    event.preventDefault();
  });

  // --- what there is ----------------------------------------------------------------------------------------------

  async function look(hits = HITS) {
    asked?.abort();
    asked = new AbortController();
    const text = app.state.find.trim(), signal = asked.signal;
    root.setAttribute("aria-busy", "true");
    try {
      const found = app.session.kind === "store" && text ? await search(text, hits, signal) : await names(text, signal);
      source = found;
      at = 0;
      list.scrollTop = 0;
      clear();
      arrange();
    } catch (problem) {
      if (problem.name === "AbortError") return;
      source = { total: 0, item: () => undefined, problem };
      clear();
      arrange();
    }
    root.removeAttribute("aria-busy");
  }

  async function names(part, signal) {
    const pages = new Map(), query = new URLSearchParams({ part, limit: PAGE });
    const ask = (page, how) => getJson(`/api/gallery?${query}&offset=${page * PAGE}`, how);
    const first = await ask(0, signal);
    pages.set(0, first.images);
    const item = (i) => {
      const page = Math.floor(i / PAGE), images = pages.get(page);
      if (images === undefined) {
        pages.set(page, null); // asked for
        ask(page, signal).then(({ images: found }) => {
          pages.set(page, found);
          if (pages.size > KEPT) pages.delete(furthest(pages.keys(), page));
          paint();
        }, () => pages.delete(page));
      }
      return images?.[i - page * PAGE];
    };
    return { total: first.total, item, part };
  }

  async function search(query, hits, signal) {
    const { header, arrays } = await postPacked("/api/search", { query, count: hits }, signal);
    const found = header.hits.map((hit, i) => ({ ...hit, map: arrays[`map:${i}`] }));
    return { total: found.length, item: (i) => found[i], query, header, more: found.length === hits && hits < MOST_HITS };
  }

  // --- one of them ------------------------------------------------------------------------------------------------

  function open(i) {
    const item = source?.item(i);
    if (!item) return;
    at = i;
    const asks = source.query && app.state.questions[app.state.active] !== source.query;
    app.set({
      image: item.id, list: 0, pin: null,
      ...(asks && { questions: Object.freeze(app.state.questions.map((text, n) => (n === app.state.active ? source.query : text))) }),
    });
  }

  function step(by) {
    const i = Math.min(Math.max(0, at + by), (source?.total ?? 0) - 1);
    if (i < 0 || (i === at && app.state.image)) return;
    if (source.item(i)) open(i);
  }

  function move(event) {
    const { columns, rows } = measure();
    const jump = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -columns * rows, PageDown: columns * rows,
      Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" || event.key === " ") open(at);
    else if (jump) { at = Math.min(Math.max(0, at + jump), Math.max(0, (source?.total ?? 0) - 1)); reveal(); paint(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // --- how it looks -----------------------------------------------------------------------------------------------

  function arrange() {
    root.classList.toggle("whole", app.state.list === 1 || !app.state.image);
    const { total = 0, problem, header, query } = source ?? {};
    said.textContent = problem ? "" : describe();
    tell.replaceChildren(...(problem ? [trouble(problem)] : advice()));
    if (header) tell.append(...moreButton());
    tell.hidden = !tell.hasChildNodes();
    bar.hidden = !source || !app.state.image;
    const open = source?.item(at)?.id === app.state.image;
    place.textContent = open ? `${count.format(at + 1)} of ${count.format(total)}` : count.format(total);
    previous.disabled = at <= 0;
    next.disabled = at >= total - 1;
    list.hidden = !total;
    void query;
    requestAnimationFrame(() => { reveal(); paint(); });
  }

  function describe() {
    if (!source) return "Looking …";
    const { total, header, part } = source, what = total === 1 ? "image" : "images";
    if (header) return total ? `Best ${count.format(total)} for “${header.query}”` : `Nothing found for “${header.query}”`;
    if (part) return total ? `${count.format(total)} ${what} with “${part}” in the name` : `No name has “${part}”`;
    return total ? `${count.format(total)} ${what} in ${app.session.name}` : `No images in ${app.session.name}`;
  }

  function advice() {
    const out = [], { header } = source ?? {};
    if (app.image?.note && app.state.list === 0) out.push(line(app.image.note));
    if (header?.unknown.length) out.push(line(`Not understood: ${header.unknown.join(", ")}`));
    if (header?.note) out.push(line(header.note));
    if (app.session?.index && app.state.list === 1) {
      const hint = line("To search these images by what is in them, index them once, and view the store: ");
      const code = make("code");
      code.textContent = `${app.session.index} && foveate view photos.fov`;
      hint.append(code);
      out.push(hint);
    }
    return out;
  }

  function moreButton() {
    if (!source.more) return [];
    return [button("Show more results", "Show more", () => look(Math.min(2 * source.total, MOST_HITS)))];
  }

  function measure() {
    const width = list.clientWidth - 2 * GAP, wanted = root.classList.contains("whole") ? 168 : 112;
    const columns = Math.max(2, Math.floor((width + GAP) / (wanted + GAP)));
    const side = Math.floor((width - (columns - 1) * GAP) / columns);
    return { columns, side, height: side + CAPTION + GAP, rows: Math.max(1, Math.floor(list.clientHeight / (side + CAPTION + GAP))) };
  }

  function reveal() {
    if (!source?.total || list.hidden) return;
    const { columns, height } = measure(), top = GAP + Math.floor(at / columns) * height;
    floor.style.setProperty("height", `${GAP + Math.ceil(source.total / columns) * height}px`);
    if (top - GAP < list.scrollTop) list.scrollTop = top - GAP;
    else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
  }

  // Tiles of what is in view, and of a row more on each side; the others are taken away.
  function paint() {
    if (!source || list.hidden || !list.clientWidth) return;
    const { columns, side, height } = measure(), { total } = source;
    floor.style.setProperty("height", `${GAP + Math.ceil(total / columns) * height}px`);
    const first = Math.max(0, Math.floor(list.scrollTop / height) - 1) * columns;
    const last = Math.min(total, (Math.ceil((list.scrollTop + list.clientHeight) / height) + 1) * columns);
    for (const [i, tile] of tiles) if (i < first || i >= last) { forget(tile); tiles.delete(i); }
    for (let i = first; i < last; i++) {
      if (!tiles.has(i)) { tiles.set(i, makeTile(i, total)); floor.append(tiles.get(i)); }
      const tile = tiles.get(i), item = source.item(i);
      tile.style.setProperty("transform", `translate(${GAP + (i % columns) * (side + GAP)}px, ${GAP + Math.floor(i / columns) * height}px)`);
      tile.style.setProperty("width", `${side}px`);
      tile.style.setProperty("height", `${side + CAPTION}px`);
      tile.setAttribute("aria-selected", String(i === at));
      tile.classList.toggle("open", item !== undefined && item?.id === app.state.image);
      if (item && !tile.dataset.id) fill(tile, item);
    }
    if (tiles.has(at)) list.setAttribute("aria-activedescendant", tiles.get(at).id);
    clearTimeout(settling);
    settling = setTimeout(fetchPictures, SETTLE);
  }

  function makeTile(i, total) {
    const tile = make("div", "tile");
    Object.assign(tile, { id: `image-${i}` });
    Object.assign(tile.dataset, { place: i });
    tile.setAttribute("role", "option");
    tile.setAttribute("aria-posinset", i + 1);
    tile.setAttribute("aria-setsize", total);
    tile.append(make("div", "picture"), make("p", "name"));
    return tile;
  }

  function fill(tile, item) {
    const [picture, name] = tile.children;
    tile.dataset.id = item.id;
    tile.title = item.name;
    name.textContent = item.name.split("/").pop();
    tile.setAttribute("aria-label", item.score === undefined ? item.name : `${item.name}, score ${item.score.toFixed(2)}`);
    if (item.score === undefined) return;
    const score = make("span", item.detected ? "pill found" : "pill absent");
    score.textContent = item.score.toFixed(2);
    picture.append(drawHeat(item.map, app.session.colours.heat), score);
    if (item.words.length) {
      const words = make("span", "words");
      words.textContent = item.words.join(" ");
      picture.append(words);
    }
  }

  function fetchPictures() {
    for (const tile of tiles.values()) {
      const { id } = tile.dataset;
      if (!id || tile.dataset.asked) continue;
      tile.dataset.asked = "yes";
      const image = new Image(), path = `/api/gallery/${id}/thumbnail`;
      Object.assign(image, { alt: "", decoding: "async", draggable: false });
      image.addEventListener("load", () => { tile.classList.add("loaded"); });
      image.addEventListener("error", async () => {
        if (!image.isConnected) return;
        const why = make("span", "bad");
        why.textContent = await getJson(path).then(() => "cannot be shown", (problem) => problem.received);
        tile.classList.add("loaded");
        image.replaceWith(why);
      });
      tile.firstChild.prepend(image);
      image.src = path;
    }
  }

  function forget(tile) {
    tile.querySelector("img")?.removeAttribute("src"); // a picture that is on its way is not needed any more
    tile.remove();
  }

  function clear() {
    for (const tile of tiles.values()) forget(tile);
    tiles.clear();
  }
}

// The heat of a map over a small picture: the colour of each value, and the more of it the higher the value.
function drawHeat(map, colours) {
  const [h, w] = map.shape, canvas = document.createElement("canvas");
  Object.assign(canvas, { width: w, height: h });
  const data = new ImageData(w, h);
  for (let i = 0; i < map.length; i++) {
    const value = map[i];
    data.data.set([colours[3 * value], colours[3 * value + 1], colours[3 * value + 2], Math.min(215, 1.1 * value)], 4 * i);
  }
  canvas.getContext("2d").putImageData(data, 0, 0);
  return canvas;
}

function furthest(pages, from) {
  return [...pages].reduce((far, page) => (Math.abs(page - from) > Math.abs(far - from) ? page : far), from);
}

function isTyping(element) {
  return element.matches?.("input:not([type=range], [type=checkbox], [type=radio]), select, textarea, [contenteditable]");
}

function make(tag, className = "") {
  const element = document.createElement(tag);
  element.className = className;
  return element;
}

function line(text) {
  const element = make("span", "line");
  element.textContent = text;
  return element;
}

function trouble({ received, expected, fix }) {
  const box = make("span", "trouble"), what = make("b");
  what.textContent = received;
  box.append(what, ...[expected && `Expected: ${expected}`, fix && `Fix: ${fix}`].filter(Boolean).map(line));
  return box;
}

function button(label, text, act) {
  const element = document.createElement("button");
  Object.assign(element, { type: "button", title: label, textContent: text });
  element.setAttribute("aria-label", label);
  element.addEventListener("click", act);
  return element;
}

function input() {
  const element = document.createElement("input");
  Object.assign(element, { type: "search", autocomplete: "off", spellcheck: false, maxLength: 200 });
  return element;
}
