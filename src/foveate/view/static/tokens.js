// How many visual tokens, and which: budget, policy, floor, grid.

export function mountTokens(app, root) {
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 1, max: 1, value: 1 });
  slider.setAttribute("aria-label", "Budget: cells to keep");
  slider.addEventListener("input", () => app.set({ budget: +slider.value, view: "kept" }));
  const said = document.createElement("output");
  root.append(slider, said);
  const show = () => {
    if (!app.image) return;
    slider.max = app.grid.h * app.grid.w;
    slider.value = app.budget();
    said.textContent = `${app.budget()} of ${app.grid.h * app.grid.w}`;
  };
  for (const kind of ["state", "image", "answer"]) app.on(kind, show);
}
