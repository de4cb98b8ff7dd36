// How the map is drawn: view, colours, opacity, threshold; the difference of two questions.

export function mountLook(app, root) {}
