// Messages of arrays, in the format of safetensors (view/wire.py): -> {header, arrays: {name: TypedArray with .shape}}.

export function unpack(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const { __metadata__, ...listed } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(listed)) {
    const count = shape.reduce((product, side) => product * side, 1);
    arrays[name] = Object.assign(READ[dtype](buffer, 8 + length + data_offsets[0], count), { shape });
  }
  return { header: JSON.parse(__metadata__.header), arrays };
}

const READ = {
  F32: (buffer, offset, count) => new Float32Array(buffer, offset, count),
  I32: (buffer, offset, count) => new Int32Array(buffer, offset, count),
  U8: (buffer, offset, count) => new Uint8Array(buffer, offset, count),
  F16: (buffer, offset, count) => Float32Array.from(new Uint16Array(buffer, offset, count), (bits) => HALVES[bits]),
};

// Every number of 16 bits; Float16Array is too young for the browsers that people have.
const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1, power = (bits >> 10) & 31, rest = bits & 1023;
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
});
