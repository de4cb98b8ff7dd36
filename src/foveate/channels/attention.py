"""Where people and models looked: an eye tracker's fixations, a language model's attention, the dialogue so far.

A fixation is a Gaussian, integrated over each cell, whose sigma is one degree of visual angle. The viewer's distance is
not known: one degree is 1/36 of the image's diagonal (1024 x 768 pixels at 29 x 22 degrees, Einhäuser et al. 2008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array, check_number, check_pair
from foveate.core.errors import OptionError
from foveate.core.gone import without
from foveate.core.grid import Floats, Grid, resize_map

Doubles = NDArray[np.float64]

DEGREE = 1 / 36  # of the image's diagonal: one degree of visual angle, see above
SINK = 10.0  # a sink outweighs the mean of all tokens, and the median of its neighbours, by more than this
SINK_SHARE = 0.02  # of the tokens may be sinks; more than that is what the model looks at
HUGE = 1e30  # means of larger numbers may overflow, and no attention is that large
TENSORS = "of a tensor pass tensor.detach().float().cpu().numpy()"


def make_gaze_plane(fixations: ArrayLike, grid: Grid, *, sigma: float | None = None) -> Floats:
    """Fixations -> where a person looked: float32 [h, w] in [0, 1], the peak 1; all 0 without fixations.

    Args:
        fixations: [n, 3], rows (y, x, duration); y and x in pixels of the upright image. Durations count relatively.
        grid: of the texture, over the same image.
        sigma: of the Gaussian in pixels, at least 1e-6; None is one degree of visual angle.

    Raises OptionError: a wrong shape, NaN, a negative duration, a position outside the image, sigma below 1e-6.
    """
    fix = "rows are (y, x, duration) in pixels of the image; drop those that the eye tracker lost"
    empty = isinstance(fixations, Sequence) and not len(fixations)
    rows = check_array(
        "fixations", np.empty((0, 3)) if empty else fixations, (None, 3), dtype=np.float64, low=0, fix=fix
    )
    size = np.array([grid.height, grid.width])
    outside = (rows[:, :2] > size).any(1)
    if outside.any():
        y, x = rows[outside][0, :2]
        raise OptionError(
            f"a fixation at (y, x) = ({y:g}, {x:g}), outside the image ({int(outside.sum())} of {len(rows)} are)",
            expected=f"pixels of the image, y from 0 to {grid.height} and x from 0 to {grid.width}",
            fix="these look like (x, y): pass fixations[:, [1, 0, 2]]"
            if (rows[:, :2] <= size[::-1]).all()
            else "move them from the screen's coordinates to the image's, and drop those that are not on it",
        )
    width = math.hypot(*size) * DEGREE if sigma is None else check_number("sigma", sigma, 1e-6, None)
    if not rows[:, 2].any():
        return np.zeros(grid.shape, np.float32)
    longest = rows[:, 2] / rows[:, 2].max()  # any unit; and sums of huge ones do not overflow
    down = _integrate(rows[:, 0], grid.h, grid.height, width) * longest[:, None]
    plane = down.T @ _integrate(rows[:, 1], grid.w, grid.width, width)
    return np.asarray(plane / plane.max(), np.float32)


def _integrate(centres: Doubles, cells: int, length: int, sigma: float) -> Doubles:
    borders = np.arange(cells + 1) * (length / cells)
    scaled = (borders - centres[:, None]) / (sigma * math.sqrt(2))
    # NumPy has no erf, and SciPy is no dependency
    return np.diff(np.asarray(np.frompyfunc(math.erf, 1, 1)(scaled), np.float64), axis=1) / 2


@without("make_attention_plane")
def make_attention_plane(
    weights: ArrayLike,
    grid: Grid,
    *,
    tokens_grid: tuple[int, int] | None = None,
    layers: Sequence[int] | None = None,
    drop_sinks: bool = False,
) -> Floats:
    """A model's attention to the n visual tokens of an image -> where it looked: float32 [h, w] in [0, 1].

        np.stack([layer[0, :, answer][:, :, visual] for layer in attentions])  # weights from transformers' tensors

    Args:
        weights: finite, at least 0: [n], [h', w'], [heads, n] or [layers, heads, queries, n], averaged to [n].
        grid: of the texture, over the same image.
        tokens_grid: (h', w') of the n tokens, which run along rows over the whole image; None is the texture's grid.
        layers: which of [layers, heads, queries, n] to average; None is all, negative ones count from the end.
        drop_sinks: replace single tokens that outweigh ten times the mean of all and the median of their neighbours by
            that median; at most 2 % of the tokens.

    Raises OptionError: shapes that do not fit, negative weights, NaN or infinity, unknown layers.
    """
    values = check_array("attention weights", weights, None, dtype=None, low=0, high=HUGE, fix=TENSORS)
    h, w = _find_tokens_grid(values.shape, grid, tokens_grid)
    if layers is not None:
        values = values[_pick_layers(layers, values.shape)]
    tokens = values.reshape(-1, h * w).mean(0, dtype=np.float64).reshape(h, w)
    if drop_sinks:
        tokens = _replace_sinks(tokens)
    if tokens.max() <= 0:
        return np.zeros(grid.shape, np.float32)
    plane = resize_map(tokens / tokens.max(), grid.shape)
    return np.asarray(plane / plane.max(), np.float32)


def _find_tokens_grid(shape: tuple[int, ...], grid: Grid, given: tuple[int, int] | None) -> tuple[int, int]:
    what = f"attention weights of shape {list(shape)}"
    if len(shape) not in (1, 2, 4) or 0 in shape:
        raise OptionError(
            what,
            expected="[n], [h', w'], [heads, n] or [layers, heads, queries, n], none of them 0",
            fix="of one layer: weights[None]; of a batch: one sample at a time",
        )
    if given is not None:
        h, w = check_pair("tokens_grid", given, fix="(24, 24), for example")
        if shape != (h, w) and shape[-1] != h * w:
            raise OptionError(
                f"{what} with tokens_grid=({h}, {w})",
                expected=f"{h * w} tokens along the last axis, or a map [{h}, {w}]",
                fix="cut out the visual tokens, without class tokens and registers; some models merge 2 x 2",
            )
        return h, w
    if grid.shape != shape and grid.count != shape[-1]:
        raise OptionError(
            f"{what}, over a texture of {grid.h} x {grid.w} cells",
            expected="tokens_grid=(h', w'), as these are not the texture's own cells",
            fix="pass the grid of the visual tokens; a map [24, 24] goes with tokens_grid=(24, 24)",
        )
    return grid.shape


def _pick_layers(layers: Sequence[int], shape: tuple[int, ...]) -> list[int]:
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


def _replace_sinks(tokens: Doubles) -> Doubles:
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


def accumulate(previous: ArrayLike, now: ArrayLike, decay: float) -> Floats:
    """The dialogue so far: max(decay * previous, now), float32 in [0, 1].

    `previous` is what this returned for the last turn (a plane of 0 at first), `now` the attention or relevance of this
    turn, `decay` in [0, 1]. Raises OptionError for planes of different shapes or outside [0, 1].
    """
    share = check_number("decay", decay, fix="0.9 forgets a tenth a turn")
    before = check_array("previous", previous, None, dtype=np.float64, low=0, high=1, fix=TENSORS)
    fix = "foveate.core.grid.resize_map(plane, shape) moves a plane to another grid"
    after = check_array("now", now, before.shape, dtype=np.float64, low=0, high=1, fix=fix)
    return np.asarray(np.maximum(share * before, after), np.float32)
