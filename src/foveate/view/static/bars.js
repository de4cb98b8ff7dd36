// Labelled bars: a name, a bar from zero to the value, the number; and a mark where another value lies. Below each bar
// stands what the name means, which is seen within an element of class "explained".
import { make } from "./dom.js";

// rows: [{name, title, low, high, ids}]. -> {element, show(values, others)}; others: undefined where there are none.
export function makeBars(rows) {
  const element = make("ul", { className: "bars" });
  const painters = rows.map((row) => {
    const mark = make("i", { className: "mark" }), number = make("span", { className: "number" });
    const second = make("span", { className: "number second" });
    const track = make("span", { className: row.ids ? "track ids" : "track" }, make("i", { className: "fill" }), mark);
    const name = make("span", { className: "name", title: row.title }, row.name);
    element.append(make("li", {}, name, track, number, second, make("p", { className: "about" }, row.title)));
    return (value, other) => {
      const zero = share(0, row), end = share(value, row);
      track.style.setProperty("--from", Math.min(zero, end));
      track.style.setProperty("--to", Math.max(zero, end));
      mark.hidden = other === undefined || row.ids;
      if (!mark.hidden) track.style.setProperty("--mark", share(other, row));
      number.textContent = inDecimals(value, row);
      second.textContent = other === undefined ? "" : inDecimals(other, row);
    };
  });
  return {
    element,
    show(values, others) {
      element.classList.toggle("two", Boolean(others));
      painters.forEach((paint, i) => paint(values[i], others?.[i]));
    },
  };
}

const share = (value, { low, high }) => (high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0);

const inDecimals = (value, { ids }) => (ids ? String(value) : value.toFixed(Math.abs(value) < 10 ? 3 : 1));
