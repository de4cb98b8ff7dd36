// Labelled bars: a name, a bar from zero to the value, the number; and a mark where another value lies.
import { inDigits } from "./channels.js";

// rows: [{name, title, low, high, ids}]. -> {element, show(values, others)}; others: undefined where there are none.
export function makeBars(rows) {
  const element = document.createElement("ul");
  element.className = "bars";
  const painters = rows.map((row) => {
    const item = document.createElement("li"), name = part("span", "name", row.name), number = part("span", "number");
    const track = part("span", "track"), fill = part("i", "fill"), mark = part("i", "mark");
    name.title = row.title ?? "";
    track.append(fill, mark);
    if (row.ids) track.classList.add("ids");
    item.append(name, track, number);
    element.append(item);
    return (value, other) => {
      const zero = share(0, row), end = share(value, row);
      track.style.setProperty("--from", Math.min(zero, end));
      track.style.setProperty("--to", Math.max(zero, end));
      mark.hidden = other === undefined || row.ids;
      if (!mark.hidden) track.style.setProperty("--mark", share(other, row));
      const differs = other !== undefined && other !== value;
      number.textContent = differs ? `${inDigits(value)} / ${inDigits(other)}` : inDigits(value);
    };
  });
  return { element, show: (values, others) => painters.forEach((paint, i) => paint(values[i], others?.[i])) };
}

const share = (value, { low, high }) => (high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0);

function part(tag, className, text = "") {
  return Object.assign(document.createElement(tag), { className, textContent: text });
}
