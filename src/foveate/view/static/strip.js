// The clip as a strip over time: confidence of the features and of every question, keyframes, renewed parts.

// headers: Map number -> header; texts: questions; colours: [r, g, b] of each; -> paints the whole strip.
export function paintStrip(canvas, headers, total, texts, colours) {
  const style = getComputedStyle(canvas), scale = devicePixelRatio || 1;
  const sides = [canvas.clientWidth, canvas.clientHeight];
  const [width, height] = sides.map((side) => Math.max(1, Math.round(side * scale)));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), ink = (name) => style.getPropertyValue(name);
  context.clearRect(0, 0, width, height);
  const column = width / total, wide = Math.max(1, Math.ceil(column)), top = 8 * scale, tall = height - top - 6 * scale;
  const x = (number) => Math.floor(number * column);
  const y = (share) => top + (1 - share) * tall;
  const sorted = [...headers.values()].sort((a, b) => a.index - b.index);
  context.fillStyle = ink("--belief");
  for (const { index, belief } of sorted) context.fillRect(x(index), y(belief), wide, belief * tall);
  context.fillStyle = ink("--middle");
  // From here on a thing counts as detected.
  for (let at = 0; at < width; at += 6 * scale) context.fillRect(at, Math.round(y(0.5)), 2 * scale, scale);
  texts.forEach((text, i) => {
    context.beginPath();
    let last = -2;
    for (const { index, answers } of sorted) {
      const found = answers.find((answer) => answer.query === text);
      if (!found) continue;
      const at = [(index + 0.5) * column, y(found.confidence)];
      if (last === index - 1) context.lineTo(...at);
      else { context.moveTo(x(index), at[1]); context.lineTo(...at); }
      last = index;
    }
    Object.assign(context, { lineJoin: "round", lineCap: "round", lineWidth: 4 * scale, strokeStyle: ink("--halo") });
    context.stroke();
    Object.assign(context, { lineWidth: 2 * scale, strokeStyle: `rgb(${colours[i]})` });
    context.stroke();
  });
  const mark = Math.max(2 * scale, Math.min(wide, 3 * scale));
  for (const { index, reason, renewed } of sorted) {
    context.fillStyle = ink("--key");
    if (reason) context.fillRect(x(index), 0, mark, 6 * scale);
    context.fillStyle = ink("--renewed");
    if (renewed.length) context.fillRect(x(index), height - 4 * scale, mark, 4 * scale);
  }
}

export const REASONS = {
  first: "the first frame of the run",
  cut: "a cut",
  age: "the last one is long ago",
  stale: "too much of the picture was not seen before",
  residual: "the picture looks different from what was encoded",
};
