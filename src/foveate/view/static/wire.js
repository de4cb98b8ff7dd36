// Messages of arrays, as view/wire.py makes them: -> {header, arrays: {name: TypedArray with .shape}}.

export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const { name, dtype, shape, offset } of header.arrays) {
    const count = shape.reduce((product, side) => product * side, 1);
    const array = READ[dtype](buffer, 4 + length + offset, count);
    array.shape = shape;
    arrays[name] = array;
  }
  delete header.arrays;
  return { header, arrays };
}

const READ = {
  f4: (buffer, offset, count) => new Float32Array(buffer, offset, count),
  i4: (buffer, offset, count) => new Int32Array(buffer, offset, count),
  u1: (buffer, offset, count) => new Uint8Array(buffer, offset, count),
  f2: (buffer, offset, count) => Float32Array.from(new Uint16Array(buffer, offset, count), (bits) => HALVES[bits]),
};

// Every number of 16 bits; Float16Array is too young for the browsers that people have.
const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1, power = (bits >> 10) & 31, rest = bits & 1023;
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
});
