// What can be taken away: PNG, SVG, JSON, Python, an address.

export function mountExport(app, root) {}
