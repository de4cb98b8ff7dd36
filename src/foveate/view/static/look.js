// How the map is drawn: colours, opacity, threshold, boxes.
import { make } from "./dom.js";
import { COLOURS, INITIAL } from "./state.js";

const FIELDS = ["colours", "opacity", "threshold", "boxes"];
const NAMES = { heat: "Heat", viridis: "Viridis", cividis: "Cividis" };

export function mountLook(app, root) {
  const colours = COLOURS.map((name) =>
    make("input", { type: "radio", name: "colours", value: name, onchange: () => app.set({ colours: name }) }));
  const opacity = slider("Strength", "opacity", "How much of the colour and the darkness is laid over the photograph");
  const threshold = slider("Hide below", "threshold", "Relevance below this is not drawn");
  const boxes = make("input", { type: "checkbox", onchange: () => app.set({ boxes: +boxes.checked }) });
  const reset = make("button", {
    type: "button", className: "plain",
    onclick: () => app.set(Object.fromEntries(FIELDS.map((name) => [name, INITIAL[name]]))),
  }, "Reset");
  root.append(
    make("header", {}, make("h2", {}, "Display"), reset),
    make("div", { className: "row" }, make("span", { className: "name" }, "Colours"),
      make("fieldset", { className: "choice" }, make("legend", {}, "Colour scale"),
        ...colours.map((input) => make("label", {}, input, make("span", {}, NAMES[input.value]))))),
    opacity.row, threshold.row,
    make("label", { className: "check" }, boxes, "Boxes around what was found"),
  );
  const show = () => {
    root.hidden = !app.image;
    const { state } = app, mapless = state.view === "kept" || state.view === "photo";
    for (const input of colours) {
      input.checked = input.value === state.colours;
      input.disabled = mapless || state.view === "difference" ||
        (state.many === "together" && app.questionsOn().length > 1);
    }
    for (const each of [opacity, threshold]) each.show(mapless && !app.overlay);
    boxes.checked = Boolean(state.boxes);
    reset.hidden = FIELDS.every((name) => state[name] === INITIAL[name]);
  };
  for (const kind of ["state", "image", "overlay"]) app.on(kind, show);
  show();

  function slider(text, name, title) {
    const input = make("input",
      { type: "range", min: 0, max: 1, step: 0.01, id: `look-${name}`, title,
      oninput: () => app.set({ [name]: +input.value }) });
    const value = make("output", { htmlFor: input.id });
    const row = make("div", { className: "row" }, make("label", { htmlFor: input.id, title }, text), input, value);
    return { row, show(disabled) {
      input.value = app.state[name];
      input.disabled = disabled;
      value.textContent = app.state[name].toFixed(2);
    } };
  }
}
