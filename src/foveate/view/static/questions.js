// The questions: the map moves while one is typed.

export function mountQuestions(app, root) {
  const input = document.createElement("input");
  Object.assign(input, { type: "search", placeholder: "the red car", autocomplete: "off", spellcheck: true, value: app.state.questions[0] });
  input.setAttribute("aria-label", "Question 1");
  input.addEventListener("input", () => app.set({ questions: Object.freeze([input.value]) }));
  const said = document.createElement("p");
  root.append(input, said);
  app.on("answer", () => {
    const answer = app.answer();
    said.textContent = answer ? `confidence ${answer.header.confidence.toFixed(2)}` : "";
  });
}
