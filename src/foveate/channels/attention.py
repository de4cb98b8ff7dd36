"""Where somebody looked: an eye tracker's fixations, a language model's attention, the dialogue so far.

What is notable
* A fixation is spread over the eye's sharp field: a Gaussian whose sigma is one degree of visual angle. Nobody knows
  how far the viewer sat, so one degree is taken as 1/36 of the image's diagonal. This is the usual laboratory: pictures
  of 1024 x 768 shown at 29 x 22 degrees (Einhäuser et al., Journal of Vision 2008), 35 of 1280 pixels. Pass `sigma` in
  pixels where the set-up is known.
* The Gaussian is integrated over each cell, not read at its centre. So a sigma far below the size of a cell loses no
  fixation, and the same fixations on a coarser grid are the mean of the finer plane, before the peak is scaled to 1.
* Attention is averaged, never taken apart: which heads or layers point at things differs from model to model. Choose
  layers where you know your model.
* Relative planes: the peak of gaze and attention is 1 whatever was looked at. They say where, not how much.

Not covered: fixations from raw samples (the eye tracker's software detects them), attention rollout, tokens of padded
or cropped images (cut the padding off first: the tokens must span the whole image), several images in one prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import OptionError
from foveate.core.grid import Grid, resize_map

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Scale = Literal["max", "minmax"]

DEGREE = 1 / 36  # of the image's diagonal: one degree of visual angle, see above
SQUARE = 1.25  # cells of a guessed token grid are at most this much longer than wide, or wider than long
SINK = 10.0  # a sink outweighs the mean of all tokens, and the median of its neighbours, by more than this
SINK_SHARE = 0.02  # of the tokens may be sinks; more than that is what the model looks at
HUGE = 1e30  # means of larger numbers may overflow, and no attention is that large

# --- an eye tracker ---------------------------------------------------------------------------------------------------


def make_gaze_plane(fixations: ArrayLike, grid: Grid, *, sigma: float | None = None) -> Floats:
    """Fixations -> where a person looked: float32 [h, w] in [0, 1], the peak 1.

    The plane is sum_i duration_i * (integral over the cell of a Gaussian around fixation i), divided by its maximum.
    Without fixations, or when all durations are 0, it is 0 everywhere: the channel's neutral value.

    Args:
        fixations: [n, 3], one row (y, x, duration) a fixation; y and x in pixels of the upright image, continuous (the
            centre of the first pixel is (0.5, 0.5)), from 0 to its height and width. Only ratios of durations count, so
            seconds and milliseconds give the same plane.
        grid: of the texture, over the same image.
        sigma: of the Gaussian in pixels; None is one degree of visual angle, taken as 1/36 of the image's diagonal.

    Raises:
        OptionError: a wrong shape, NaN or infinity, a negative duration, a position outside the image, sigma <= 0.
    """
    rows = _numbers(fixations, "fixations", "rows (y, x, duration), [n, 3]").astype(np.float64)
    if rows.size == 0 and (rows.ndim == 1 or rows.shape[1:] == (3,)):
        rows = rows.reshape(0, 3)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise OptionError(
            f"fixations of shape {list(rows.shape)}",
            expected="one row (y, x, duration) a fixation, [n, 3]",
            fix="np.stack([y, x, duration], -1); where durations are not known, let them be 1",
        )
    if not np.isfinite(rows).all():
        raise OptionError(
            "fixations with NaN or infinity",
            expected="finite pixels and durations",
            fix="drop the rows that the eye tracker lost: fixations[np.isfinite(fixations).all(1)]",
        )
    _check_inside(rows, grid)
    if (rows[:, 2] < 0).any():
        raise OptionError(
            f"a fixation that lasts {rows[:, 2].min():g}",
            expected="durations of 0 and more",
            fix="the columns are (y, x, duration); is a column a time of start?",
        )
    width = math.hypot(grid.height, grid.width) * DEGREE if sigma is None else _sigma(sigma)
    if not rows[:, 2].any():
        return np.zeros(grid.shape, np.float32)
    longest = rows[:, 2] / rows[:, 2].max()  # any unit; and sums of huge ones do not overflow
    down = _mass(rows[:, 0], grid.h, grid.height, width) * longest[:, None]
    plane = down.T @ _mass(rows[:, 1], grid.w, grid.width, width)
    return np.asarray(plane / plane.max(), np.float32)


def _mass(centres: Doubles, cells: int, length: int, sigma: float) -> Doubles:
    """Share of a Gaussian around each centre [n] that falls into each of the cells along one axis: [n, cells]."""
    borders = np.arange(cells + 1) * (length / cells)
    scaled = (borders - centres[:, None]) / (sigma * math.sqrt(2))
    # NumPy has no erf of its own, and SciPy is no dependency
    return np.diff(np.asarray(np.frompyfunc(math.erf, 1, 1)(scaled), np.float64), axis=1) / 2


def _check_inside(rows: Doubles, grid: Grid) -> None:
    size = np.array([grid.height, grid.width])
    outside = ((rows[:, :2] < 0) | (rows[:, :2] > size)).any(1)
    if not outside.any():
        return
    y, x = rows[outside][0, :2]
    swapped = ((rows[:, :2] >= 0) & (rows[:, :2] <= size[::-1])).all()
    raise OptionError(
        f"a fixation at (y, x) = ({y:g}, {x:g}), outside the image ({int(outside.sum())} of {len(rows)} are)",
        expected=f"pixels of the image, y from 0 to {grid.height} and x from 0 to {grid.width}",
        fix="these look like (x, y): pass fixations[:, [1, 0, 2]]"
        if swapped
        else "move them from the screen's coordinates to the image's, and drop those that are not on it",
    )


def _sigma(sigma: float) -> float:
    if isinstance(sigma, bool) or not isinstance(sigma, int | float | np.number) or not 1e-6 <= sigma < math.inf:
        raise OptionError(
            f"sigma={sigma!r}",
            expected="pixels, above 0 (1e-6 and more)",
            fix="leave it out for one degree of visual angle, 1/36 of the image's diagonal",
        )
    return float(sigma)


# --- a language model -------------------------------------------------------------------------------------------------


def make_attention_plane(
    weights: ArrayLike,
    grid: Grid,
    *,
    tokens_grid: tuple[int, int] | None = None,
    layers: Sequence[int] | None = None,
    scale: Scale = "max",
    drop_sinks: bool = False,
) -> Floats:
    """A model's attention to the n visual tokens of an image -> where it looked: float32 [h, w] in [0, 1].

    Accepted are [n]; a map [h', w']; [heads, n]; and [layers, heads, queries, n]. The mean is taken over all axes but
    the tokens', which run along rows of the token grid. Without `tokens_grid` the grid is guessed only where one answer
    is left: n tokens are the texture's own grid, or the one grid of n cells that are square within a factor of 1.25;
    two axes are a map if they are the texture's own grid or would have such cells, and [heads, n] if that n can be
    guessed. If both could be meant, or neither, it is an error. A given `tokens_grid` is taken at its word.

    Of the tensors that transformers returns, take one sample, the queries of interest, and the visual tokens as keys:
    `np.stack([layer[0, :, answer][:, :, visual] for layer in attentions])`, with index arrays answer and visual.

    Args:
        weights: finite, 0 and more. Attention probabilities, or any score that is larger where more was looked.
        grid: of the texture, over the same image.
        tokens_grid: (h', w') of the visual tokens; they span the whole image.
        layers: which layers to average of [layers, heads, queries, n]; None is all, negative ones count from the end.
        scale: of the plane on `grid`: "max" divides by its maximum, so that no attention stays 0, and even attention is
            1 everywhere; "minmax" stretches it from 0 to 1, and even attention is 0 everywhere. No attention at all is
            0 everywhere, the channel's neutral value.
        drop_sinks: replace sinks, single tokens that models park attention on whatever is asked. A sink outweighs ten
            times the mean of all tokens, and ten times the median of its up to 8 neighbours, which then takes its
            place. At most 2 % of the tokens (at least one), the heaviest first. Off by default, because a thing that is
            one token large looks the same.

    Raises:
        OptionError: shapes that do not fit, negative weights, NaN or infinity, unknown layers or scale.
    """
    if scale not in ("max", "minmax"):
        raise OptionError(f"scale={scale!r}", expected="'max' or 'minmax'", fix="leave it out for 'max'")
    values = _numbers(weights, "attention weights", "[n], [h', w'], [heads, n] or [layers, heads, queries, n]")
    shape = _tokens_shape(values.shape, grid, tokens_grid)
    if layers is not None:
        values = values[_layers(layers, values.shape)]
    low, high = float(values.min()), float(values.max())  # NaN goes through both
    if not 0 <= low <= high <= HUGE:
        raise OptionError(
            f"attention weights from {low:g} to {high:g}",
            expected="finite weights, 0 and more",
            fix="take them after the softmax, not before; masked rows may be NaN: leave those queries out",
        )
    tokens = values.reshape(-1, shape[0] * shape[1]).mean(0, dtype=np.float64).reshape(shape)
    if drop_sinks:
        tokens = _without_sinks(tokens)
    if tokens.max() <= 0:
        return np.zeros(grid.shape, np.float32)
    plane = resize_map(tokens / tokens.max(), grid.shape)
    if scale == "minmax":
        if np.ptp(plane) < 1e-6:  # of a peak of about 1: resizing an even plane leaves that much noise
            return np.zeros(grid.shape, np.float32)
        plane = plane - plane.min()
    return np.asarray(plane / plane.max(), np.float32)


def _tokens_shape(shape: tuple[int, ...], grid: Grid, given: tuple[int, int] | None) -> tuple[int, int]:
    """(h', w') of the tokens of weights of this shape."""
    if len(shape) not in (1, 2, 4) or 0 in shape:
        raise OptionError(
            f"attention weights of shape {list(shape)}",
            expected="[n], [h', w'], [heads, n] or [layers, heads, queries, n], none of them 0",
            fix="of one layer: weights[None]; of a batch: one sample at a time",
        )
    if given is not None:
        return _given_shape(shape, given)
    as_tokens = _guess(shape[-1], grid)
    if len(shape) != 2:
        if as_tokens is None:
            raise _unknown_grid(shape, f"there is not exactly one grid of {shape[-1]} nearly square cells", grid)
        return as_tokens
    if shape == grid.shape:
        return grid.shape
    as_map = (shape[0], shape[1]) if _squareness((shape[0], shape[1]), grid) <= SQUARE else None
    if as_map and as_tokens and as_map != as_tokens:
        raise _unknown_grid(shape, "it may be a map [h', w'] or [heads, n]", grid)
    if not (found := as_map or as_tokens):
        raise _unknown_grid(shape, "neither as a map [h', w'] nor as [heads, n] are cells square", grid)
    return found


def _given_shape(shape: tuple[int, ...], given: tuple[int, int]) -> tuple[int, int]:
    whole = isinstance(given, tuple | list) and len(given) == 2
    if not whole or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in given):
        raise OptionError(
            f"tokens_grid={given!r}", expected="(h', w'), two whole numbers above 0", fix="(24, 24), for example"
        )
    h, w = int(given[0]), int(given[1])
    if shape != (h, w) and shape[-1] != h * w:
        raise OptionError(
            f"attention weights of shape {list(shape)} with tokens_grid=({h}, {w})",
            expected=f"{h * w} tokens along the last axis" + (f", or a map [{h}, {w}]" if len(shape) == 2 else ""),
            fix="cut out the visual tokens, without class tokens, registers and line breaks; some models merge 2 x 2",
        )
    return h, w


def _guess(n: int, grid: Grid) -> tuple[int, int] | None:
    """The texture's grid, or the one grid of n nearly square cells; None if there is none, or more than one."""
    if n == grid.count:
        return grid.shape
    pairs = ((h, n // h) for h in range(1, n + 1) if n % h == 0)
    fitting = [pair for pair in pairs if _squareness(pair, grid) <= SQUARE]
    return fitting[0] if len(fitting) == 1 else None


def _squareness(shape: tuple[int, int], grid: Grid) -> float:
    """How many times longer than wide the cells are, or wider than long."""
    ratio = (grid.height / shape[0]) / (grid.width / shape[1])
    return max(ratio, 1 / ratio)


def _unknown_grid(shape: tuple[int, ...], why: str, grid: Grid) -> OptionError:
    return OptionError(
        f"attention weights of shape {list(shape)} over an image of {grid.height} x {grid.width} pixels: {why}",
        expected="tokens_grid=(h', w')",
        fix="pass the grid of the visual tokens; a map [24, 24] goes with tokens_grid=(24, 24)",
    )


def _layers(layers: Sequence[int], shape: tuple[int, ...]) -> list[int]:
    count = shape[0] if len(shape) == 4 else 0
    try:
        chosen = [range(count)[layer] for layer in layers if not isinstance(layer, bool)]
    except (TypeError, IndexError):
        chosen = []
    if not chosen or len(set(chosen)) != len(layers):
        raise OptionError(
            f"layers={layers!r} of attention weights of shape {list(shape)}",
            expected=f"some of {-count} to {count - 1}, each once" if count else "weights [layers, heads, queries, n]",
            fix="layers=(-2, -1), for example; leave it out for all",
        )
    return chosen


def _without_sinks(tokens: Doubles) -> Doubles:
    if tokens.size == 1:
        return tokens
    h, w = tokens.shape
    padded = np.pad(tokens, 1, constant_values=np.nan)
    around = [padded[y : y + h, x : x + w] for y in range(3) for x in range(3) if (y, x) != (1, 1)]
    neighbours = np.nanmedian(np.stack(around), axis=0)
    sinks = (tokens > SINK * tokens.mean()) & (tokens > SINK * neighbours)
    most = max(1, int(SINK_SHARE * tokens.size))
    heaviest = np.argsort(np.where(sinks, -tokens, 0), axis=None, kind="stable")[: min(most, int(sinks.sum()))]
    out = tokens.copy()
    out.flat[heaviest] = neighbours.flat[heaviest]
    return out


# --- the dialogue so far ----------------------------------------------------------------------------------------------


def accumulate(previous: ArrayLike, now: ArrayLike, decay: float) -> Floats:
    """The dialogue so far: decay * previous + (1 - decay) * now, float32 in [0, 1] of the planes' shape.

    After n turns the attention of turn i weighs (1 - decay) * decay^(n - i). Start with a plane of 0.

    Args:
        previous: what this returned for the last turn, in [0, 1].
        now: attention or relevance of this turn, in [0, 1], on the same grid.
        decay: how much stays of a turn, 0 (only this turn) to 1 (only what was).

    Raises:
        OptionError: planes of different shapes, values outside [0, 1] or NaN, decay outside [0, 1].
    """
    if isinstance(decay, bool) or not isinstance(decay, int | float | np.number) or not 0 <= decay <= 1:
        raise OptionError(f"decay={decay!r}", expected="0 to 1", fix="0.9 forgets a tenth a turn")
    before, after = _unit_plane(previous, "previous"), _unit_plane(now, "now")
    if before.shape != after.shape:
        raise OptionError(
            f"planes of shapes {list(before.shape)} and {list(after.shape)}",
            expected="two planes on the same grid",
            fix="move one with foveate.core.grid.resize_map(plane, shape)",
        )
    return np.asarray(float(decay) * before + (1 - float(decay)) * after, np.float32)


def _unit_plane(plane: ArrayLike, name: str) -> Doubles:
    values = _numbers(plane, f"the plane '{name}'", "numbers in [0, 1]")
    if values.size and not 0 <= float(values.min()) <= float(values.max()) <= 1:
        raise OptionError(
            f"the plane '{name}' from {float(values.min()):g} to {float(values.max()):g}",
            expected="finite values in [0, 1]",
            fix="scale it first; make_attention_plane and make_gaze_plane give planes in [0, 1]",
        )
    return values.astype(np.float64)


def _numbers(value: ArrayLike, what: str, expected: str) -> NDArray[Any]:
    """Any array of real numbers, not copied."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors of bfloat16, on a GPU, or with gradients
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise OptionError(
            f"{what} given as {type(value).__name__}" + ("" if array.dtype == object else f" of {array.dtype}"),
            expected=expected,
            fix="pass a NumPy array; of a tensor: tensor.detach().float().cpu().numpy()",
        )
    return array
