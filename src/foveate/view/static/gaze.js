// Fixations from the places of a pointer, by dispersion (I-DT; Salvucci and Goldberg, ETRA 2000). Pure functions.
//
// track: {done: [[y, x, seconds], ...], window: [[y, x, at], ...]}, in pixels and seconds; nothing is changed in place.
export const SHORTEST = 0.15, LONGEST = 5; // seconds; a pointer that rests for longer is left alone
export const MOST = 50; // fixations kept, the newest
export const NOTHING = Object.freeze({ done: Object.freeze([]), window: Object.freeze([]) });

// The eye's sharp field: one degree, 1/36 of the image's diagonal, as of `make_gaze_plane`.
export const reachOf = ({ height, width }) => Math.hypot(height, width) / 36;

// The track after another place [y, x] at a time; null: the pointer left the image.
export function follow(track, place, at, reach) {
  if (!place) return { done: fixations(track), window: [] };
  const window = [...track.window, [...place, at]];
  if (spread(window) <= reach) return at - window[0][2] > LONGEST ? track : { ...track, window };
  if (lasted(track.window) >= SHORTEST) return { done: fixations(track), window: window.slice(-1) };
  while (spread(window) > reach) window.shift();
  return { ...track, window };
}

// [[y, x, seconds], ...], with the one that goes on.
export function fixations({ done, window }) {
  if (lasted(window) < SHORTEST) return done;
  const mean = (axis) => window.reduce((sum, place) => sum + place[axis], 0) / window.length;
  return [...done, [mean(0), mean(1), lasted(window)]].slice(-MOST);
}

const lasted = (window) => (window.length ? window.at(-1)[2] - window[0][2] : 0);

function spread(window) {
  const length = (axis) => {
    const values = window.map((place) => place[axis]);
    return Math.max(...values) - Math.min(...values);
  };
  return length(0) + length(1);
}

// "y,x,seconds;...", for the address.
export const spell = (list) => list.map(([y, x, s]) => `${+y.toFixed(1)},${+x.toFixed(1)},${+s.toFixed(2)}`).join(";");

// Those on the image alone: an address may come from anybody.
export function read(text, { height, width }) {
  const rows = text ? text.split(";").map((row) => row.split(",").map(Number)) : [];
  return rows.filter(([y, x, s]) => y >= 0 && y <= height && x >= 0 && x <= width && s >= 0 && s < 1e6);
}
