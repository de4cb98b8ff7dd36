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

// An error in its three parts.
export const trouble = ({ received, message, expected, fix }) => make("div", { className: "trouble", role: "alert" },
  make("b", {}, received ?? message), ...[expected && `expected: ${expected}`, fix].filter(Boolean).map((text) => make("span", {}, text)));
