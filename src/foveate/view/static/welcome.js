// The stage without an image: how to open one; while one is on its way; and why one could not be opened.
import { make, trouble, wayBack } from "./dom.js";

export function mountWelcome(app, root) {
  const photographs = make("div", { className: "examples" });
  const choose = (className = "") =>
    make("button", { type: "button", className, onclick: () => app.choose() }, "Choose an image");
  const empty = make("div", { className: "empty" },
    make("h2", {}, "Where does a question look?"),
    make("p", {}, "Drop an image or a PDF here, paste one, or choose a file. "
      + "Then type what you look for: the map moves while you type."),
    choose("main"), make("p", { className: "note" }, "or begin with a photograph"), photographs);
  const loading = make("div", { className: "loading", role: "status" },
    make("progress", { "aria-label": "The image is on its way" }), make("p"));
  const failed = make("div", { className: "failed" });
  root.append(empty, loading, failed);

  app.on("session", () => { if (!app.image && !app.state.image && !app.session.first &&
    app.session.kind === "empty") show(empty); });
  app.on("loading", (name) => {
    const { kind, reads } = app.session ?? {}, what = name.includes?.(".") ? name : "the image";
    const opens = kind === "store" || !app.asking; // of a store, a clip: nothing is encoded for it alone
    loading.lastChild.textContent = `${opens ? "Opening" : reads ? "Encoding and reading" : "Encoding"} ${what} …`;
    show(loading);
  });
  app.on("image", () => show(null));
  app.on("problem", (problem) => {
    if (app.image) return show(null); // the page says it, and the image stays
    failed.replaceChildren(make("h2", {}, "That did not work"), trouble(problem), make("div", { className: "ways" },
      wayBack(app.session), choose()));
    show(failed);
  });
  app.examples.then((all) => photographs.append(...all.map(({ id, name, questions }) => make("button", {
    type: "button", onclick: () => app.set({ image: id, questions: Object.freeze([questions[0]]), active: 0 }),
  }, make("img", { src: `/api/examples/${id}`, alt: name.replace(/\..*$/, "").replaceAll("_", " ") })))));
  show(null);

  function show(what) {
    root.hidden = !what;
    root.classList.toggle("over", what === loading && Boolean(app.image));
    for (const each of [empty, loading, failed]) each.hidden = each !== what;
  }
}
