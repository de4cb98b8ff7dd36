// Colour scales: 256 x 3 bytes each, for values from 0 to 1; one of two ends for a difference from -1 to 1.
// Lightness rises along each, so that they read the same with any kind of colour vision and in print.

// Ten colours of each, evenly spaced (viridis: S. van der Walt, N. Smith; cividis: Nuñez, Anderton, Renslow 2018).
const ANCHORS = {
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  cividis: "00204d 00336f 39486b 575c6d 707173 8a8779 a69d75 c4b56c e4cf5b ffea46",
};
const bytes = (hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
const LOW = [70, 150, 255], HIGH = [255, 140, 20]; // blue and orange differ to any kind of colour vision

function along(anchors) {
  const scale = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (anchors.length - 1), left = Math.min(anchors.length - 2, Math.floor(at));
    const [from, to] = [anchors[left], anchors[left + 1]];
    for (let c = 0; c < 3; c++) scale[3 * i + c] = from[c] + (at - left) * (to[c] - from[c]);
  }
  return scale;
}

// name: of state.js COLOURS; heat: that of foveate.viz, which the server sends.
export const scaleOf = (name, heat) => (ANCHORS[name] ? along(ANCHORS[name].split(" ").map(bytes)) : heat);
export const plain = (colour) => along([colour, colour]);
export const difference = along([LOW, LOW, LOW, HIGH, HIGH, HIGH]);
