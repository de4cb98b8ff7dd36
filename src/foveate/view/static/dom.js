// An element with attributes and properties, and children: texts and elements. Names starting with "on" are listeners.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list" && name !== "form") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A button that is a picture: the path of a drawing of 20 x 20.
export function iconButton(label, path, { title = label, ...more } = {}) {
  const [icon, shape] = ["svg", "path"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  icon.setAttribute("viewBox", "0 0 20 20");
  icon.setAttribute("aria-hidden", "true");
  shape.setAttribute("d", path);
  icon.append(shape);
  return make("button", { type: "button", className: "icon", "aria-label": label, title, ...more }, icon);
}

const FIELDS = "input:not([type=radio], [type=checkbox], [type=range]), textarea, select, [contenteditable]";

// Whether a key is none of the page's: somebody writes, or a dialog is open. A closed one has the focus for a frame.
export function typing({ target }) {
  if (document.querySelector("dialog[open]")) return true;
  return Boolean(target.closest?.(FIELDS)) && !target.closest("dialog");
}

// An error in its three parts.
export function trouble({ received, message, expected, fix }) {
  const more = [expected && `expected: ${expected}`, fix].filter(Boolean).map((text) => make("span", {}, text));
  return make("div", { className: "trouble", role: "alert" }, make("b", {}, received ?? message), ...more);
}

// A way out of where an image is gone: what the viewer shows first. session: as the server tells it.
export function wayBack({ kind, name } = {}) {
  const back = kind === "empty" || !name ? "the first page" : name;
  return make("button", { type: "button", className: "main", onclick: () => location.assign("/") }, `Back to ${back}`);
}

// 1234 -> "1,234"
export const inNumber = new Intl.NumberFormat("en").format;
