// A list of images as tiles. It has a screenful of elements, however long the list is.
//
//   new Tiles({wide, openAt})       wide(): whether tiles are large; openAt(i): somebody chose image i
//   tiles.root                      the element, a listbox: arrow keys move, Enter chooses
//   tiles.show({total, item, at})   item(i) -> {id, name, score?, detected?, words?, map?}, or undefined while it
//                                 is on its way
//   tiles.point(i)                  moves to image i; tiles.at is where it is
//   tiles.paint()                   again, as items came or another image is open
import { getJson } from "./api.js";
import { make } from "./dom.js";
import { USUAL, coloured, curves } from "./layers.js";

const SETTLE = 70; // milliseconds without scrolling until small pictures are fetched: what flies by is not
const GAP = 10, CAPTION = 24, LARGE = 168, SMALL = 112; // pixels
const DARK = 0.66; // how much is hidden where nothing is

export class Tiles {
  constructor({ wide, openAt, isOpen, colours }) {
    Object.assign(this, { wide, openAt, isOpen, colours });
    Object.assign(this, { at: 0, total: 0, columns: 0, item: () => undefined, shown: new Map(), timer: null });
    this.floor = make("div", { className: "floor", role: "presentation" });
    this.root = make("div", {
      className: "tiles", tabIndex: 0, role: "listbox", "aria-label": "Images",
      onscroll: () => this.paint(), onkeydown: (event) => this.press(event),
      onclick: ({ target }) => { const tile = target.closest("[role=option]"); if (tile) openAt(+tile.dataset.place); },
    }, this.floor);
    new ResizeObserver(() => this.fit()).observe(this.root);
  }

  show({ total, item, at = 0 }) {
    for (const tile of this.shown.values()) forget(tile);
    this.shown.clear();
    Object.assign(this, { total, item });
    this.root.hidden = !total;
    this.root.scrollTop = 0;
    this.point(at);
  }

  point(i) {
    this.at = Math.max(0, Math.min(i, this.total - 1));
    const { columns, height } = this.measure(), top = GAP + Math.floor(this.at / columns) * height, { root } = this;
    this.stretch();
    if (top - GAP < root.scrollTop) root.scrollTop = top - GAP;
    else if (top + height > root.scrollTop + root.clientHeight) root.scrollTop = top + height - root.clientHeight;
    this.paint();
  }

  // Where the columns change, and where the list comes back, what it points at is in view again.
  fit() {
    const columns = this.root.clientWidth && this.measure().columns, before = this.columns;
    this.columns = columns;
    if (columns && columns !== before) this.point(this.at);
    else this.paint();
  }

  press(event) {
    const { columns, rows } = this.measure();
    const by = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns,
      PageUp: -columns * rows, PageDown: columns * rows, Home: -Infinity, End: Infinity,
    }[event.key];
    if (by) this.point(this.at + by);
    else if (event.key === "Enter" || event.key === " ") this.openAt(this.at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  measure() {
    const width = this.floor.clientWidth - 2 * GAP, wanted = this.wide() ? LARGE : SMALL;
    const columns = Math.max(2, Math.floor((width + GAP) / (wanted + GAP)));
    const side = Math.floor((width + GAP) / columns) - GAP;
    const height = side + CAPTION + GAP, left = GAP + (width - columns * (side + GAP) + GAP) / 2;
    return { columns, side, height, left, rows: Math.max(1, Math.floor(this.root.clientHeight / height)) };
  }

  stretch() {
    const { columns, height } = this.measure();
    this.floor.style.setProperty("height", `${GAP + Math.ceil(this.total / columns) * height}px`);
  }

  // Tiles of what is in view, and of a row more on each side; the others go.
  paint() {
    const { root, shown } = this;
    if (!root.clientWidth) return;
    this.stretch();
    const { columns, side, height, left } = this.measure();
    const first = Math.max(0, Math.floor(root.scrollTop / height) - 1) * columns;
    const last = Math.min(this.total, (Math.ceil((root.scrollTop + root.clientHeight) / height) + 1) * columns);
    for (const [i, tile] of shown) if (i < first || i >= last) { forget(tile); shown.delete(i); }
    for (let i = first; i < last; i++) {
      if (!shown.has(i)) { shown.set(i, this.makeTile(i)); this.floor.append(shown.get(i)); }
      const tile = shown.get(i), item = this.item(i), row = Math.floor(i / columns);
      const x = left + (i % columns) * (side + GAP), y = GAP + row * height;
      tile.style.setProperty("transform", `translate(${x}px, ${y}px)`);
      tile.style.setProperty("width", `${side}px`);
      tile.style.setProperty("height", `${side + CAPTION}px`);
      tile.setAttribute("aria-selected", String(i === this.at));
      tile.classList.toggle("open", item !== undefined && this.isOpen(item.id));
      if (item && !tile.dataset.id) fill(tile, item, this.colours);
    }
    if (shown.has(this.at)) root.setAttribute("aria-activedescendant", shown.get(this.at).id);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { for (const tile of shown.values()) fetchPicture(tile); }, SETTLE);
  }

  makeTile(i) {
    const place = { "aria-posinset": i + 1, "aria-setsize": this.total };
    const tile = make("div", { className: "tile", id: `image-${i}`, role: "option", ...place },
      make("div", { className: "picture" }), make("p", { className: "name" }));
    tile.dataset.place = i;
    return tile;
  }
}

function fill(tile, { id, name, score, detected, words, map }, colours) {
  const [picture, caption] = tile.children;
  tile.dataset.id = id;
  tile.title = name;
  tile.classList.toggle("page", /\.pdf$/i.test(name)); // all of it is seen
  caption.textContent = name.split("/").pop();
  tile.setAttribute("aria-label", score === undefined ? name : `${name}, score ${score.toFixed(2)}`);
  if (score === undefined) return;
  tile.classList.add("hit", detected ? "lit" : "pale");
  if (detected) picture.append(drawHeat(map, colours()));
  picture.append(make("span", { className: `pill ${detected ? "found" : "absent"}` }, score.toFixed(2)));
  if (words.length) picture.append(make("span", { className: "words" }, words.join(" ")));
}

function fetchPicture(tile) {
  const { id, asked } = tile.dataset;
  if (!id || asked) return;
  tile.dataset.asked = "yes";
  const path = `/api/gallery/${id}/thumbnail`;
  const shown = () => tile.classList.add("loaded");
  const image = make("img", { alt: "", decoding: "async", draggable: false, onload: shown, onerror: explain });
  tile.firstChild.prepend(image);
  image.src = path;

  async function explain() { // an element does not know why its picture cannot be shown
    if (!image.isConnected) return;
    const why = await getJson(path).then(() => "cannot be shown", (problem) => problem.received);
    tile.classList.add("loaded");
    image.replaceWith(make("span", { className: "bad" }, why));
  }
}

function forget(tile) {
  tile.querySelector("img")?.removeAttribute("src"); // a picture that is on its way is not needed any more
  tile.remove();
}

// The heat of a map (0 to 255) over a small picture as the stage has it over a large one: dark where nothing is, the
// picture itself where the thing is, and colour between.
function drawHeat(map, colours) {
  const { lit, tint } = curves(USUAL, 0), scale = new Uint8ClampedArray(768), opacities = new Uint8ClampedArray(256);
  for (let level = 0; level < 256; level++) {
    const colour = tint[level] / 255, dark = DARK * (1 - lit[level] / 255) * (1 - colour), both = colour + dark;
    for (let c = 0; c < 3; c++) scale[3 * level + c] = (colours[3 * level + c] * colour) / (both || 1);
    opacities[level] = 255 * both;
  }
  const [h, w] = map.shape;
  return coloured({ values: Float32Array.from(map, (value) => value / 255), h, w }, scale, opacities);
}
