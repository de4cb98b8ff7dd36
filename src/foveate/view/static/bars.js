// Labelled bars: a name, a bar from zero to the value, the number; and a mark where another value lies.
// rows: [{name, title, low, high, ids}]. -> {element, show(values, others)}; others: undefined where there are none.
export function makeBars(rows) {
  const element = document.createElement("ul");
  element.className = "bars";
  const painters = rows.map((row) => {
    const item = document.createElement("li"), name = part("span", "name", row.name), number = part("span", "number");
    const second = part("span", "number second");
    const track = part("span", "track"), fill = part("i", "fill"), mark = part("i", "mark");
    name.title = row.title ?? "";
    track.append(fill, mark);
    if (row.ids) track.classList.add("ids");
    item.append(name, track, number, second);
    element.append(item);
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

function part(tag, className, text = "") {
  return Object.assign(document.createElement(tag), { className, textContent: text });
}
