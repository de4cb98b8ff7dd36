// The cell under the pointer, or the pinned one: channels, reasons, rank, pixels, words.

export function mountCell(app, root) {}
