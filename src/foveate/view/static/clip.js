// A clip: scrub, play, keyframes, confidence, cells that are new.

export function mountClip(app, root) {}
