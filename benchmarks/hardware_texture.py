"""Would a hardware texture serve a texture? Cache lines counted for six layouts, and the CUDA experiment itself.

python -m benchmarks hardware_texture                    # needs CuPy and a GPU for its second half only

On any machine: exactly which 32-byte sectors, 64-byte and 128-byte lines each layout touches for the same positions
(addresses are reckoned, nothing is sampled), how many of them miss in a simulated cache, the filter of the hardware (8
bits of fraction) beside ours, and the same gathers timed on the CPU. Hardware counters are not read anywhere.

With CuPy and a GPU: a layered CUDA array of ten half4 layers, linear filtering, border clamped, against a kernel that
reads rows of 40 halfs from linear memory and filters itself, and torch's grid_sample. Not in the package: an experiment
that stays beside it until it wins somewhere. The order inside a block-linear layer is as open drivers describe it (512
bytes are 64 bytes x 8 rows, a sector 16 bytes x 2 rows); the vendor does not publish it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import (
    KEPT,
    PHOTO,
    Repeats,
    circumstances,
    crop_square,
    make_row,
    print_json,
    show,
    time_once,
    time_row,
)
from foveate.core.checks import check_int
from foveate.core.grid import sample_linear
from foveate.pipeline import allocate, encode, score

Ints = NDArray[np.int64]
SIDE, GRID, CHANNELS, LAYERS = 1024, 64, 40, 10
SAMPLES = (KEPT, 4096, 65_536)
ON_GPU = (KEPT, 4096, 65_536, 1_000_000, 10_000_000)
FRACTION = 256  # steps of the hardware's filter between two texels
MARGIN = 1.25  # of a step: two fractions that are rounded are off by one at most, and a quarter is for its arithmetic
COMPARED = 4096  # positions that are compared with the host, of all
LINES = (32, 64, 128)
COLUMNS = ("what", "32 B", "64 B", "128 B", "L1 misses", "L2 misses", "measured")


class Layout(NamedTuple):
    """Where a layout keeps the channels of a position: rows, columns of its texels -> byte addresses [n, reads]."""

    name: str
    side: int  # texels along
    addresses: Callable[[Ints, Ints], Ints]
    width: int  # bytes a read


def planes(side: int) -> Layout:
    """40 planes of float32, one after the other: the documents' texture array."""
    layer = np.arange(CHANNELS, dtype=np.int64) * side * side * 4
    return Layout("40 planes of float32", side, lambda y, x: ((y * side + x) * 4)[:, None] + layer, 4)


def half4_layers(side: int) -> Layout:
    """Ten block-linear layers of half4: a layered CUDA array."""
    layer = np.arange(LAYERS, dtype=np.int64) * (-(-side * 8 // 64) * -(-side // 8) * 512)

    def addresses(y: Ints, x: Ints) -> Ints:
        return block_linear(y, x * 8, side * 8)[:, None] + layer

    return Layout("10 block-linear layers of half4", side, addresses, 8)


def table(side: int, name: str, size: int = 2) -> Layout:
    """All channels of a texel in one row."""
    row = CHANNELS * size
    return Layout(name, side, lambda y, x: ((y * side + x) * row)[:, None], row)


def block_linear(y: Ints, x: Ints, pitch: int) -> Ints:
    """Address of byte x of row y in a surface of blocks of 64 bytes x 8 rows, `pitch` bytes wide."""
    block = (y // 8) * -(-pitch // 64) + x // 64
    inside = (x % 64) // 32 * 256 + (y % 8) // 2 * 64 + (x % 32) // 16 * 32 + (y % 2) * 16 + x % 16
    return block * 512 + inside


def arrays(side: int) -> list[Layout]:
    """What the documents compare with: colours, position, cluster, 16 numbers of CLIP and relevance, an array each."""
    out, start = [], 0
    for name, width in (("colours", 3), ("position", 8), ("cluster", 4), ("embedding", 64), ("relevance", 4)):
        out.append(Layout(name, side, partial(_row_of, start, side, width), width))
        start += -(-side * side * width // 64) * 64
    return out


def _row_of(start: int, side: int, width: int, y: Ints, x: Ints) -> Ints:
    return start + ((y * side + x) * width)[:, None]


def groups(side: int, grid: int) -> list[Layout]:
    """Ours: colours as bytes, quarter planes and cell planes in half precision, the embedding in rows of 24."""
    quarter, cells = side // 4, grid
    near, far = (np.arange(n, dtype=np.int64) * size * size * 2 for n, size in ((7, quarter), (4, cells)))
    start = side * side * 3
    mid = start + 7 * quarter * quarter * 2
    last = mid + 4 * cells * cells * 2
    return [
        Layout("colours", side, lambda y, x: ((y * side + x) * 3)[:, None], 3),
        Layout("quarter", quarter, lambda y, x: start + ((y * quarter + x) * 2)[:, None] + near, 2),
        Layout("cell", cells, lambda y, x: mid + ((y * cells + x) * 2)[:, None] + far, 2),
        Layout("embedding", cells, lambda y, x: last + ((y * cells + x) * 48)[:, None], 48),
    ]


def layouts(side: int = SIDE, grid: int = GRID) -> dict[str, list[Layout]]:
    """The six that are compared, each of one part or several, all for the same image."""
    return {
        "40 planes of float32 (the documents')": [planes(side)],
        "five arrays (what they compare with)": arrays(side),
        "10 block-linear layers of half4 (hardware)": [half4_layers(side)],
        "rows of 40 halfs, every pixel": [table(side, "rows")],
        "groups at native resolution (ours)": groups(side, grid),
        "token table, 64 x 64 rows of 40 halfs (ours)": [table(grid, "tokens")],
    }


def reads(parts: Iterable[Layout], uv: NDArray[np.float64], linear: bool) -> tuple[Ints, Ints]:
    """First and last byte of every read of positions uv [n, 2] in (0, 1), position after position."""
    first, last = [], []
    for part in parts:
        at = uv * part.side
        corner = np.floor(at - 0.5 if linear else at).astype(np.int64)
        steps = [(0, 0), (0, 1), (1, 0), (1, 1)] if linear else [(0, 0)]
        found = [part.addresses(*np.clip(corner + step, 0, part.side - 1).T) for step in steps]
        begin = np.stack(found, 1).reshape(len(uv), -1)
        first.append(begin)
        last.append(begin + part.width - 1)
    return np.concatenate(first, 1).ravel(), np.concatenate(last, 1).ravel()


def touched(first: Ints, last: Ints, line: int) -> Ints:
    """Numbers of the lines that reads touch, in their order; a read over borders touches several."""
    begin = first // line
    many = last // line - begin + 1
    step = np.arange(many.sum()) - np.repeat(many.cumsum() - many, many)
    return np.repeat(begin, many) + step


def misses(lines: Ints, size: int, ways: int = 8, line: int = 64) -> int:
    """Misses of a set-associative cache of `size` bytes that forgets what was used least recently, empty at first."""
    count = size // line // ways
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(count)]
    missed = 0
    for number in lines.tolist():
        held = sets[number % count]
        if number in held:
            held.move_to_end(number)
            continue
        missed += 1
        held[number] = None
        if len(held) > ways:
            held.popitem(last=False)
    return missed


def hardware_linear(plane: NDArray[np.floating], y: NDArray[np.floating], x: NDArray[np.floating]) -> NDArray[Any]:
    """`sample_linear` with the hardware's weights, 8 bits of fraction, clamped: [h, w], coordinates [n] -> [n]."""
    h, w = plane.shape
    down, across = (np.clip(np.asarray(v, np.float64) - 0.5, 0, n - 1) for v, n in ((y, h), (x, w)))
    y0, x0 = np.floor(down).astype(np.int64), np.floor(across).astype(np.int64)
    b, a = (np.rint((v - v0) * FRACTION) / FRACTION for v, v0 in ((down, y0), (across, x0)))
    y1, x1 = np.minimum(y0 + 1, h - 1), np.minimum(x0 + 1, w - 1)
    top, bottom = ((1 - a) * plane[r, x0] + a * plane[r, x1] for r in (y0, y1))
    return np.asarray((1 - b) * top + b * bottom)


def contrast(plane: NDArray[np.floating], y: NDArray[np.floating], x: NDArray[np.floating]) -> NDArray[Any]:
    """Highest less lowest of the four texels around each position."""
    h, w = plane.shape
    y0, x0 = (np.clip(np.floor(v - 0.5), 0, n - 1).astype(int) for v, n in ((y, h), (x, w)))
    four = [plane[np.minimum(y0 + i, h - 1), np.minimum(x0 + j, w - 1)] for i in (0, 1) for j in (0, 1)]
    return np.asarray(np.max(four, 0) - np.min(four, 0))


def command(
    repeats: Repeats = 20,
    side: Annotated[int, typer.Option(help="Pixels of the image along.")] = SIDE,
    samples: Annotated[int, typer.Option(help="At most so many positions on the CPU.")] = SAMPLES[-1],
) -> None:
    """Cache lines of six layouts, gathers timed; with CuPy and a GPU, hardware textures against linear memory."""
    report = measure(repeats, side, samples)
    show(report, COLUMNS)
    print_json(**report)


def measure(repeats: int = 20, side: int = SIDE, samples: int = SAMPLES[-1]) -> dict[str, Any]:
    """The report: lines of each layout, the filter's error, times on the CPU, and, with CuPy and a GPU, there."""
    check_int("--repeats", repeats, 1, 10_000)
    check_int("--side", side, 8 * GRID)
    kept = kept_positions()
    random = np.random.default_rng(0).random((samples, 2))
    rows = [*_filter_rows(), *_line_rows(f"{len(kept)} kept cells", kept, side)]
    if samples > KEPT:
        rows += _line_rows("4,096 positions at random", random[:4096], side, cache=False)
    rows += _cpu_rows(random, side, repeats)
    found, why = on_gpu(side, repeats)
    rows += found or [_row(f"on a GPU: not measured, {why}")]
    title = f"benchmarks hardware_texture: 40 channels of {side} x {side} px; lines and misses a position"
    return {"title": title, "rows": rows, "gpu_measured": bool(found), **circumstances()}


def kept_positions() -> NDArray[np.float64]:
    """Centres of the 273 cells that a question keeps of a photograph, in (0, 1): float64 [273, 2]."""
    texture = encode(crop_square(PHOTO, 512))
    centres = texture.grid.centres()[allocate(score(texture, "broccoli"), KEPT).indices]
    return np.asarray(centres, np.float64) / 512


def _line_rows(what: str, uv: NDArray[np.float64], side: int, cache: bool = True) -> list[dict[str, Any]]:
    rows = []
    for linear in (False, True):
        for name, parts in layouts(side).items():
            first, last = reads(parts, uv, linear)
            lines = {f"{size} B": len(np.unique(touched(first, last, size))) / len(uv) for size in LINES}
            known: dict[str, float] = dict(lines)
            if cache:
                order = touched(first, last, 64)
                known |= {"L1 misses": misses(order, 32 << 10) / len(uv), "L2 misses": misses(order, 1 << 20) / len(uv)}
            text = {key: f"{value:.1f}" for key, value in known.items()}
            filtered = "bilinear" if linear else "nearest"
            row = _row(f"{what}, {filtered}: {name}") | text
            rows.append(row | {"median": round(lines["64 B"], 4), "unit": "lines", "lines": known})
    return rows


def _filter_rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    plane = random.random((GRID, GRID))
    y, x = random.random((2, 100_000)) * GRID
    spread = contrast(plane, y, x)
    inside = spread > 0  # in a corner all four are one
    off = np.abs(hardware_linear(plane, y, x) - sample_linear(plane, y, x))[inside] / spread[inside]
    text = f"at most {off.max() * FRACTION:.2f} / 256 of the local contrast, rms {np.sqrt((off**2).mean()):.4f}"
    return [_row("8 bits of fraction against exact weights", text) | {"median": round(float(off.max()), 6)}]


def _cpu_rows(uv: NDArray[np.float64], side: int, repeats: int) -> list[dict[str, Any]]:
    """40 channels at positions, gathered by NumPy from three layouts in turn; places and weights are known."""
    random = np.random.default_rng(2)
    stack = random.random((CHANNELS, side * side), np.float32)
    rows = np.ascontiguousarray(stack.T)
    tables = {"planes": (stack, 1, side), "rows": (rows, 0, side), "token table": (rows[: GRID * GRID].copy(), 0, GRID)}
    out = []
    for n in (n for n in SAMPLES if n <= len(uv)):
        for linear in (False, True):
            ways = {
                name: partial(gather, values, axis, *places(uv[:n], width, linear))
                for name, (values, axis, width) in tables.items()
            }
            for way in ways.values():
                way()
            turns = max(min(9, repeats), repeats * KEPT // n)
            seconds = np.array([[time_once(way) for way in ways.values()] for _ in range(turns)])
            for name, each in zip(ways, seconds.T, strict=True):
                what = f"CPU, {n:,} positions, {'bilinear' if linear else 'nearest'}: {name}"
                out.append(_row(what) | time_row(what, each, "µs", slow=99))
    return out


def places(uv: NDArray[np.float64], side: int, linear: bool) -> tuple[Ints, NDArray[np.float32]]:
    """Flat texels of positions in (0, 1), one or four each, and their weights: both [1 or 4, n]."""
    at = uv * side
    if not linear:
        row, column = np.floor(at).astype(np.int64).T
        return (row * side + column)[None], np.ones((1, len(uv)), np.float32)
    at = np.clip(at - 0.5, 0, side - 1)
    corner = np.floor(at)
    b, a = (at - corner).T
    y, x = (np.minimum(np.stack([each, each + 1]), side - 1).astype(np.int64) for each in corner.T)
    weights = np.stack([(1 - b) * (1 - a), (1 - b) * a, b * (1 - a), b * a])
    return np.stack([y[i] * side + x[j] for i in (0, 1) for j in (0, 1)]), weights.astype(np.float32)


def gather(values: NDArray[Any], axis: int, texels: Ints, weights: NDArray[np.float32]) -> NDArray[Any]:
    """Texels along an axis, weighted and added up: [40, n] of planes (axis 1), [n, 40] of rows (axis 0)."""
    if len(texels) == 1:
        return values.take(texels[0], axis)
    shaped = weights[:, None] if axis else weights[..., None]
    out = values.take(texels[0], axis) * shaped[0]
    for some, weight in zip(texels[1:], shaped[1:], strict=True):
        out += values.take(some, axis) * weight
    return out


def _row(what: str, measured: str = "") -> dict[str, Any]:
    return dict.fromkeys(COLUMNS, "") | make_row(what, None, measured)


# --- on a GPU ---------------------------------------------------------------------------------------------------------

KERNELS = r"""
#include <cuda_fp16.h>
extern "C" __global__ void layered(cudaTextureObject_t t, const float2* uv, float4* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;  // one thread: one sample of one layer, four channels
  int s = i / LAYERS, l = i % LAYERS;
  if (s >= n) return;
  out[i] = tex2DLayered<float4>(t, uv[s].y, uv[s].x, l);
}
extern "C" __global__ void linear_rows(const uint2* __restrict__ rows, const float2* uv, float4* out, int n, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int s = i / LAYERS, c = i % LAYERS;
  if (s >= n) return;
  float y = fminf(fmaxf(uv[s].x * side - .5f, 0.f), side - 1.f);  // positions are (y, x)
  float x = fminf(fmaxf(uv[s].y * side - .5f, 0.f), side - 1.f);
  int y0 = y, x0 = x, y1 = min(y0 + 1, side - 1), x1 = min(x0 + 1, side - 1);
  float fy = y - y0, fx = x - x0, w[4] = {(1-fy)*(1-fx), (1-fy)*fx, fy*(1-fx), fy*fx}, r[4] = {0, 0, 0, 0};
  size_t at[4] = {(size_t)y0*side+x0, (size_t)y0*side+x1, (size_t)y1*side+x0, (size_t)y1*side+x1};
  for (int k = 0; k < 4; k++) {
    uint2 v = __ldg(rows + at[k] * LAYERS + c);
    float2 a = __half22float2(*(const __half2*)&v.x), b = __half22float2(*(const __half2*)&v.y);
    r[0] += w[k]*a.x; r[1] += w[k]*a.y; r[2] += w[k]*b.x; r[3] += w[k]*b.y;
  }
  out[i] = make_float4(r[0], r[1], r[2], r[3]);
}
extern "C" __global__ void halve(const __half* in, __half* out, int side, int wide) {  // rows of `wide` numbers a texel
  int i = blockIdx.x * blockDim.x + threadIdx.x, half = side / 2;
  if (i >= half * half * wide) return;
  int c = i % wide, x = i / wide % half, y = i / wide / half;
  const __half* p = in + ((size_t)2 * y * side + 2 * x) * wide + c;
  const __half* q = p + (size_t)side * wide;
  float four = __half2float(p[0]) + __half2float(p[wide]) + __half2float(q[0]) + __half2float(q[wide]);
  out[i] = __float2half(four / 4);
}
""".replace("LAYERS", str(LAYERS))


def on_gpu(side: int = SIDE, repeats: int = 20, samples: Iterable[int] = ON_GPU) -> tuple[list[dict[str, Any]], str]:
    """-> (rows, ""), or (none, why). What goes wrong on a GPU that is there is raised, never hidden."""
    try:
        cupy: Any = import_module("cupy")
    except ImportError as cause:
        return [], f"CuPy is not installed ({cause}): pip install 'cupy-cuda13x[ctk]', or 'cupy-cuda12x[ctk]'"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as cause:
        return [], f"CuPy finds no GPU ({cause})"
    return (_gpu_rows(cupy, side, repeats, samples), "") if count else ([], "CuPy finds no GPU")


def layered_array(cupy: Any, rows: Any, filtered: bool = True) -> tuple[Any, Any]:
    """(array, texture object) of a table of halfs [h, w, 40] on the GPU. Both must be kept while kernels read them."""
    runtime, texture = cupy.cuda.runtime, cupy.cuda.texture
    h, w = rows.shape[:2]
    kind = texture.ChannelFormatDescriptor(16, 16, 16, 16, runtime.cudaChannelFormatKindFloat)
    array = texture.CUDAarray(kind, w, h, LAYERS, 1)  # flags = cudaArrayLayered
    array.copy_from(layers_of(cupy, rows))
    resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array)
    mode = runtime.cudaFilterModeLinear if filtered else runtime.cudaFilterModePoint
    how = texture.TextureDescriptor(
        (runtime.cudaAddressModeClamp,) * 3, mode, runtime.cudaReadModeElementType, normalizedCoords=1
    )
    return array, texture.TextureObject(resource, how)


def layers_of(numpy: Any, rows: Any) -> Any:
    """[h, w, 40] -> [10, h, 4 w]: ten layers of four channels, as a copy into an array wants them."""
    h, w = rows.shape[:2]
    return numpy.ascontiguousarray(rows.reshape(h, w, LAYERS, 4).transpose(2, 0, 1, 3)).reshape(LAYERS, h, 4 * w)


def _gpu_rows(cupy: Any, side: int, repeats: int, samples: Iterable[int]) -> list[dict[str, Any]]:
    module = cupy.RawModule(code=KERNELS)
    layered, linear, halve = (module.get_function(name) for name in ("layered", "linear_rows", "halve"))
    rows = cupy.random.default_rng(0).random((side, side, CHANNELS), dtype=cupy.float32).astype(cupy.float16)
    array, texture = layered_array(cupy, rows)
    flush = cupy.empty(256 << 20, cupy.uint8)  # larger than the second cache
    packed = layers_of(cupy, rows)
    small = cupy.empty((side // 2, side // 2, CHANNELS), cupy.float16)
    many = small.size
    out = []

    def timed(what: str, run: Callable[[], Any], cold: bool) -> dict[str, Any]:
        times = []
        for turn in range(repeats + 3):
            if cold:
                flush.fill(turn % 251)
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
        return _row(what) | time_row(what, np.array(times[3:]), "µs", slow=99)

    def halved() -> None:
        halve((-(-many // 256),), (256,), (rows, small, np.int32(side), np.int32(CHANNELS)))

    out.append(timed("GPU: 40 channels copied into the layered array", lambda: array.copy_from(packed), False))
    out.append(timed("GPU: the same, from rows", lambda: array.copy_from(layers_of(cupy, rows)), False))
    out.append(timed("GPU: one mip level by means of 2 x 2", halved, False))
    made = np.array([time_once(lambda: layered_array(cupy, rows[:64, :64])) for _ in range(repeats)])
    out.append(_row("array and texture object") | time_row("GPU: a small array and its texture object", made, "µs"))
    halved()
    expected = rows.astype(cupy.float32).reshape(side // 2, 2, side // 2, 2, CHANNELS).mean((1, 3))
    worst = float(cupy.abs(small.astype(cupy.float32) - expected).max())
    if worst > 1e-3:  # halfs of numbers up to 1
        raise AssertionError(f"mip level: off by {worst:.1e} from the mean")
    out.append(_row("GPU: mip level against the mean", f"at most {worst:.1e}"))
    for n in samples:
        uv = cupy.random.default_rng(n).random((n, 2), dtype=cupy.float32)
        a, b = (cupy.empty((n, CHANNELS), cupy.float32) for _ in range(2))
        blocks = (-(-n * LAYERS // 256),)
        ways: dict[str, Callable[[], Any]] = {
            "layered texture": partial(layered, blocks, (256,), (texture, uv, a, np.int32(n))),
            "rows of halfs": partial(linear, blocks, (256,), (rows, uv, b, np.int32(n), np.int32(side))),
        }
        for way in ways.values():
            way()
        out.append(_compare(a, b, rows, uv, f"GPU, {n:,} positions: layered texture against rows"))
        if (sample := _grid_sample(cupy, rows, uv)) is not None:
            ways["torch grid_sample"] = sample
        for name, way in ways.items():
            what = f"GPU, {n:,} positions, "
            out += [timed(f"{what}warm: {name}", way, False), timed(f"{what}cold: {name}", way, True)]
    return out


def _compare(a: Any, b: Any, rows: Any, uv: Any, what: str) -> dict[str, Any]:
    """Both samplers at COMPARED of the positions, evenly, and in all channels, against float64 on the host: the
    hardware's within MARGIN 256ths of the local contrast. Raises otherwise."""
    some = slice(None, None, max(1, len(uv) // COMPARED))
    y, x = (uv[some].get().astype(np.float64) * rows.shape[0]).T
    found = [each[some].get() for each in (a, b)]
    share, off = 0.0, 0.0
    for channel in range(CHANNELS):
        plane = rows[..., channel].get().astype(np.float64)
        exact, spread = sample_linear(plane, y, x), contrast(plane, y, x)
        hardware, ours = (np.abs(each[:, channel] - exact) for each in found)
        share = max(share, float((hardware / np.maximum(spread, 1e-3)).max()) * FRACTION)
        off = max(off, float(ours.max()))
    if share > MARGIN or off > 1e-3:
        raise AssertionError(f"{what}: {share:.2f} / 256 of the local contrast, rows off by {off:.1e}")
    return _row(what, f"at most {share:.2f} / 256 of the local contrast; rows against the host {off:.1e}")


def _grid_sample(cupy: Any, rows: Any, uv: Any) -> Callable[[], Any] | None:
    """torch's sampler on the same numbers; None without torch on a GPU."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    image = torch.from_dlpack(rows).permute(2, 0, 1)[None].float().contiguous()  # half positions would be too coarse
    grid = (torch.from_dlpack(uv).flip(1) * 2 - 1)[None, None]
    sample = torch.nn.functional.grid_sample
    stream = torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)

    def run() -> Any:
        with torch.cuda.stream(stream):
            return sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)

    return run
