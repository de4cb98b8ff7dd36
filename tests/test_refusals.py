"""What functions refuse, in one table: the error is ours, of its kind, and names what was wrong.

One value for each check: test_core.py has every value that core/checks.py refuses. What takes files, models, devices
or a command to be refused stays beside the tests of those.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import foveate
from foveate import Allocation, Grid, Texture, tiles, viz
from foveate.allocation.crops import crop_sizes, regions
from foveate.channels.attention import accumulate, make_attention_plane, make_gaze_plane
from foveate.channels.geometry import compute_normals, measure_occlusion
from foveate.channels.objects import find_objects
from foveate.channels.sam import Sam
from foveate.channels.segments import KMeans, segment_image
from foveate.core.errors import (
    BadImagesError,
    BudgetError,
    ChannelError,
    EncoderNameError,
    FoveateError,
    ImageArrayError,
    OptionError,
    QueryError,
)
from foveate.core.image import load_image
from foveate.reading import Word, WordReader, Words
from foveate.reading.readers import find_reader
from foveate.relevance.boxes import cells_of, find_boxes, overlap, score_boxes
from foveate.relevance.fusion import Linear, ScorerWeights
from foveate.tiles.re_encode import refine
from foveate.video import Refresh
from foveate.viz import redraw

NAN, INF = np.nan, np.inf
Row = dict[str, Any] | tuple[Any, ...]  # wrong arguments, whose first is named; or (those, words of the message, error)
GRID, WIDE, SMALL = Grid(48, 64, 480, 640), Grid(6, 9, 200, 300), Grid(4, 6, 40, 60)
PLANE, IDS = np.zeros((3, 4)), np.zeros((3, 4), int)
RGB, FEATURES = np.full((20, 24, 3), 90, np.uint8), np.zeros((5, 6, 2), np.float32)
SEGMENTS = np.zeros((5, 6), int)
CELLS: dict[str, Any] = {"relevance": np.ones((48, 64)), "grid": GRID, "total": 512}
WORDS = {
    "texts": ("a", "b"), "boxes": np.array([[0, 0, 9, 9]] * 2, np.float32), "confidences": np.ones(2, np.float32),
    "line_numbers": np.array([0, 1], np.int32), "reader": "mine",
}  # fmt: skip
KEPT = Allocation(np.array([3]), np.ones(1, np.float32), Grid(4, 4, 40, 40))
COARSE = np.zeros((64, 48))
SCENE: dict[str, Any] = {"scene": tiles.survey(RGB), "query": "a bus"}


def provided(ids: Any) -> Any:
    """A provider of segments that returns these."""

    def provide(rgb: Any, features: Any) -> Any:
        return ids

    provide.name = "fixed"  # type: ignore[attr-defined]
    return provide


def named(name: Any) -> Any:
    return SimpleNamespace(name=name, read=lambda rgb: [])


# what is called -> (it, the error, arguments that are right, those that are wrong)
PLAIN: dict[str, tuple[Callable[..., Any], type[FoveateError], dict[str, Any], list[Row]]] = {
    "regions": (regions, OptionError, CELLS, [
        *(({"total": wrong}, "total=", BudgetError) for wrong in (0, "512", True)),
        ({"total": 10**9}, "1000000000", BudgetError), {"budgets": (9, 5)}, {"budgets": 64}, {"budgets": (64.0, 400)},
        ({"total": 4000, "relevance": np.ones((2, 2)), "grid": Grid(2, 2, 64, 64)}, "4 cells", BudgetError),
        ({"total": 134, "budgets": (67, 67)}, "regions of 67 to 67", BudgetError), {"cell": 0},
        {"relevance": np.ones((48, 63))}, {"relevance": np.full((48, 64), NAN)}, {"relevance": np.full((48, 64), -1.0)},
    ]),
    "crop_sizes": (crop_sizes, BudgetError,
    {"shares": np.array([400, 397]), "aspects": np.ones(2), "low": 64, "high": 400},
                   [({}, "2 regions of 64 to 400 tokens, 797 in all")]),  # 397 is prime, 398 is 2 x 199
    "crops": (regions(**CELLS).crops, ImageArrayError, {}, [
        ({"rgb": wrong}, "to crop") for wrong in (np.zeros((640, 480, 3), np.uint8), np.zeros((480, 640, 3)), "a.jpg")
    ]),
    "cells_of": (cells_of, OptionError, {"grid": SMALL}, [
        *(({"boxes": wrong}, "y0") for wrong in ([[1, 2, 3]], [1, 2, 3, 4], "box", [[0, 0, NAN, 4]], [[5, 5, 5, 9]],
                                                 [[-20, -20, -1, -1]])), ({"boxes": np.zeros((0, 4))}, "no box"),
    ]),
    "find_boxes": (find_boxes, OptionError,
    {"plane": np.ones((4, 6), np.float32), "grid": SMALL}, [{"threshold": 1.5}]),
    "score_boxes": (score_boxes, OptionError, {"plane": np.ones((4, 6), np.float32), "grid": SMALL},
                    [({"boxes": [[5, 5, 5, 9]]}, "y0")]),
    "overlap": (overlap, OptionError, {"kept": np.ones((4, 6), bool), "cells": np.ones((4, 6), bool)}, [
        (({name: wrong}, "")) for name in ("kept", "cells") for wrong in (np.zeros((4, 6), bool), np.ones((4, 5),
        bool), None)
    ]),
    "KMeans": (KMeans, OptionError, {}, [{"count": 0}, {"count": 51}, {"colour": -1}, {"embedding": NAN},
    {"steps": 0}]),
    "Sam": (Sam, OptionError, {}, [
        {"points": 65}, {"sure": 1.2}, {"stable": "x"}, {"overlap": -1}, ({"checkpoint": ""}, ""),
        ({"checkpoint": 3}, ""),
    ]),
    "segment_image": (segment_image, OptionError, {"rgb": RGB, "features": FEATURES}, [
        *(({"provider": provided(ids)}, f"{words}") for ids, words in (
            (None, "object"), (SEGMENTS[:4], "shape"), (SEGMENTS - 1, "the least -1"), (SEGMENTS / 1, "float64"))),
        ({"provider": "kmeans"}, ""), ({"provider": lambda rgb, features: None}, ""), ({"features": FEATURES[0]}, ""),
        ({"rgb": RGB.astype(np.float32)}, "", ImageArrayError), ({"rgb": RGB[:0]}, "", ImageArrayError),
        ({"features": FEATURES[:0]}, ""), ({"features": FEATURES + np.float32(INF)}, ""),
        ({"rgb": None}, "", ImageArrayError),
    ]),
    "measure_occlusion": (measure_occlusion, OptionError, {"depth": PLANE, "ids": IDS}, [
        ({"ids": IDS.T}, "shape [4, 3]"), ({"ids": IDS + 0.5}, "not whole numbers"), ({"ids": IDS * NAN}, "nan"),
        ({"ids": "ids"}, "segment ids: a str"), ({"depth": PLANE * NAN}, "nan"), ({"depth": PLANE + 1e300}, "1e+300"),
        {"depth": PLANE[None]}, ({"depth": PLANE[:0], "ids": IDS[:0]}, "shape [0, 4]"), {"depth": [[1, 2], [3]]},
        {"jump": 0},
    ]),
    "compute_normals": (compute_normals, OptionError, {"depth": PLANE}, [{"relief": 0}, {"relief": INF}]),
    "find_objects": (find_objects, OptionError, {"rgb": RGB, "features": FEATURES, "ids": SEGMENTS}, [
        ({"ids": SEGMENTS[:3]}, "segment ids"), ({"ids": SEGMENTS - 1}, "segment ids"),
        {"features": FEATURES * np.float32(NAN)},
        {"alike": -1}, {"depth": np.zeros(5)}, {"depth": np.full((4, 4), NAN)}, {"jump": 0, "depth": np.zeros((4, 4))},
        ({"rgb": RGB.astype(np.float32)}, "", ImageArrayError),
    ]),
    "make_gaze_plane": (make_gaze_plane, OptionError, {"fixations": [(1, 1, 1)], "grid": WIDE}, [
        ({"fixations": [(10, 250, 1), (210, 20, 1)]}, "outside the image (1 of 2 are)"),
        ({"fixations": [(10, 250, 1), (210, 20, 1)]}, "screen's coordinates"),
        ({"fixations": [(250, 10, 1), (30, 190, 1)]}, "fixations[:, [1, 0, 2]]"),
        ({"fixations": [(10, 10, -0.1)]}, "from -0.1"), ({"fixations": [(10, NAN, 1)]}, "nan"),
        ({"fixations": [(10, 10, INF)]}, "inf"), ({"fixations": np.empty((0, 2))}, "shape [0, 2]"),
        ({"fixations": [(10, 10, 1), (3,)]}, "a list"), ({"fixations": np.ones((2, 3), complex)}, "complex128"),
        {"sigma": 0},
    ]),
    "make_attention_plane": (make_attention_plane, OptionError,
    {"weights": np.ones(64), "grid": Grid(8, 8, 512, 512)}, [
        ({"weights": -np.ones(64)}, "from -1 to -1"), ({"weights": np.r_[NAN, np.ones(63)]}, "nan"),
        ({"weights": np.ones((4, 4, 64))}, "weights[None]"), ({"weights": np.ones((0, 64))}, "none of them 0"),
        ({"weights": np.float32(3)}, "shape []"), ({"weights": [[1, 2], [3]]}, "a list"),
        ({"scale": "minmax"}, "write (plane - plane.min())"), ({"layers": [0]}, "layers=[0]"),
        *(({"layers": wrong, "weights": np.ones((2, 2, 2, 64))}, words)
          for wrong, words in (([2], "-2 to 1"), ([0, -2], "each once"), (1, "layers=1"), ([True], "layers=[True]"))),
    ]),
    "accumulate": (accumulate, OptionError, {"previous": PLANE, "now": PLANE, "decay": 0.5}, [
        {"decay": 1.1}, ({"now": PLANE.T}, "resize_map"), ({"previous": PLANE * NAN}, "from nan"),
        ({"now": PLANE + 1.5}, "now: float64 of shape [3, 4] with values from 1.5"),
        ({"previous": None}, "previous: a NoneType"),
    ]),
    "Refresh": (Refresh, OptionError, {}, [
        ({name: wrong}, f"leave it out for {getattr(Refresh(), name)}")
        for name, wrong in (("every", 0), ("pause", 0), ("stale", 0), ("residual", "x"), ("cut", -1))
    ]),
    "redraw": (redraw, OptionError, {"kept": KEPT}, [
        {"rest": 0.01}, {"rest": 1.5}, *(({"kept": wrong}, "allocate") for wrong in (None, np.ones((24, 32), bool))),
    ]),
    "draw": (redraw(KEPT).draw, ImageArrayError, {}, [
        ({"rgb": wrong}, "") for wrong in (None, PLANE, np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8))
    ]),
    "load_image": (load_image, ImageArrayError, {}, [
        ({"source": np.zeros((3, 20, 30), np.uint8)}, "transpose"),
        ({"source": np.zeros((20, 30, 2), np.uint8)}, "[20, 30, 2]"),
        ({"source": np.zeros(5, np.uint8)}, "[5]"), ({"source": np.zeros((0, 5, 3), np.uint8)}, "0 x 5"),
        ({"source": np.zeros((4, 4), np.int64)}, "int64"), ({"source": np.zeros((4, 4), complex)}, "complex"),
        ({"source": np.full((4, 4), NAN)}, "nan"), ({"source": np.array([["a"]])}, "<U1"),
        ({"source": {"image": 1}}, "dict"),
        *({"value_range": wrong, "source": PLANE} for wrong in ((1, 0), (0, 0), (0, NAN), 3, (1, 2, 3), "ab")),
    ]),
    "allocate": (foveate.allocate, OptionError, {"budget": 5}, [({"relevance": "photo.jpg"}, "allocate")]),
    "Linear": (Linear, OptionError, {}, [
        ({"information": 0, "perspective": 0, "participation": 0}, "not all 0")]),
    "ScorerWeights": (ScorerWeights, OptionError, {}, [{"edges": -1}]),
    "find_reader": (find_reader, OptionError, {}, [
        ({"reader": wrong}, "") for wrong in (
            "rapid", "", "tesseract:", "tesseract:../../etc", "tesseract:-l", "rapidocr:eng", "tesseract:eng\n",
            "auto ", 3, None,
            WordReader, object(), [], Word, named(""), named("a\x1b[2J"), named(3))
    ]),
    "Words": (Words, OptionError, WORDS, [
        (change, "words") for change in (
            {"texts": ("a",)}, {"texts": ("a", "")}, {"texts": ("a", "\x1b[2J")},
            {"boxes": np.zeros((2, 3), np.float32)},
            {"boxes": np.full((2, 4), NAN, np.float32)}, {"boxes": np.array([[5, 5, 1, 1]] * 2, np.float32)},
            {"confidences": np.array([0.5, 1.5], np.float32)}, {"confidences": np.array([0.5, NAN], np.float32)},
            {"line_numbers": np.array([0, 2], np.int32)}, {"line_numbers": np.array([1, 1], np.int32)}, {"reader": ""},
            {"reader": "a\x1b"}, {"turned": 45})
    ]),
    "encode": (foveate.encode, OptionError, {"image": RGB}, [
        {"rank": "zip"}, {"rank": 0}, ({"encoder": "nan0"}, "nan0", EncoderNameError), {"page": 1}, {"threads": 0},
        *(({"preset": wrong}, "'document'") for wrong in ("documents", "", 3, ["text"], "Maximum")),
        *(({"image": wrong}, words, ImageArrayError) for wrong, words in (
            ((path for path in ["a.jpg"]), "list(images)"), ({"a.jpg"}, "given as set"),
            (np.zeros((2, 8, 8, 3), np.uint8),
            "encode(list(array))"), (3, "given as int"))),
        ({"image": [[0, 1], [2, 3]]}, "np.asarray(pixels, np.uint8)", BadImagesError),
    ]),
}  # fmt: skip

# the same of a texture of 64 x 48 cells and 640 x 480 pixels
OF_TEXTURE: dict[str, tuple[Callable[..., Any], type[FoveateError], dict[str, Any], list[Row]]] = {
    "sample": (Texture.sample, OptionError, {"positions": [[1.0, 1.0]], "channels": ["red"]}, [
        {"positions": [[1.0, 2.0, 3.0]]}, {"positions": [1.0, 2.0]}, {"positions": [[NAN, 0.0]]},
        *({"level": wrong} for wrong in ("high", [1, 2], [[1], [2, 3]], -1, NAN)),
        *({"footprint": wrong} for wrong in (np.zeros((3, 3)), np.array([NAN]))),
        ({"filter_mode": "cubic"}, "cubic"), ({"boundary_mode": "mirror"}, "mirror"),
        ({"channels": ["salience"]}, "salience", ChannelError),
        *(({"channels": wrong}, "channel", ChannelError) for wrong in (5, None, [["red"]], [3])),
    ]),
    "tokens": (Texture.tokens, OptionError, {}, [
        ({"grid": Grid(8, 8, 999, 111)}, "999 x 111"), ({"grid": (8, 8)}, "a Grid"),
        ({"dtype": np.float64}, "float32 or float16"),
        *(({"layout": wrong}, "no layout named", ChannelError) for wrong in (["red"], 5, None)),
    ]),
    "dense": (Texture.dense, ChannelError, {}, [
        ({"layout": "ful40"}, "perhaps full40"), ({"layout": {"a": 1}}, "no layout named"),
        *(({"dtype": wrong}, "float32 or float16", OptionError) for wrong in ("half16", int, None, np.uint8)),
    ]),
    "mip": (Texture.mip, OptionError, {"name": "red"}, [{"level": -1},
    ({"name": "salience", "level": 0}, "salience", ChannelError)]),
    "with_channel": (Texture.with_channel, OptionError, {"name": "gaze", "plane": COARSE}, [
        *(({"plane": wrong}, "gaze") for wrong in (np.zeros((3, 3)), COARSE + 1.5, COARSE * NAN, "a plane")),
        ({"low": -1.0}, ""),
        *(({"name": "cluster_id", "plane": wrong}, "") for wrong in (COARSE + 0.5, COARSE + 50)),
        *(({"name": name}, "", ChannelError) for name in ("red", "embedding_3", "embedding_16", "gradient", "My Plane",
        7)),
        *(({"name": "mine", **wrong}, "") for wrong in (
            {"plane": np.zeros((5, 5))}, {"low": 1.0, "high": 0.0}, {"filter": "nearest"},  # a mean of ids is no id
            {"neutral": 3.0}, {"plane": COARSE + 1e6, "high": 1e9})),  # float16 ends at 65504
    ]),
    "score": (foveate.score, OptionError, {"query": "broccoli"}, [
        *(({"channel_weights": wrong}, words, ChannelError) for wrong, words in (
            ({"salency": 0.3}, "perhaps saliency"), ({"depth": 0.3}, "does not hold"),
            ({"cluster_id": 0.3}, "from 0 to 49"),
            ({"gradient_x": 0.3}, "from -1 to 1"), ({1: 0.3}, "no channel named 1"))),
        *(({"channel_weights": wrong}, words) for wrong, words in (
            ({"colour:puce": 0.3}, "puce"), ({"saliency": 1.5}, "from 0 to 1"), (["saliency"], "of type list"))),
        {"smoothing": 1.1}, ({"channels": {"saliency": 0.3}}, "channel_weights="),  # what went says what to write
        ({"weights": ScorerWeights()}, "Linear"), {"fusion": "linaer"}, {"fusion": Linear}, {"cues": "all"},
        {"blance": 1},
        ({"prior": "pass_9"}, "pass_9", ChannelError),
        ({"prior": "gaze"}, "does not hold", ChannelError),  # unbuilt: 0 everywhere
        *(({"prior": wrong}, "prior: float64 of shape") for wrong in (PLANE, COARSE * NAN)), {"prior": object()},
        {"prior_weight": 2.0, "prior": COARSE}, {"preset": "documents"}, {"texture": "photo.jpg"},
        *(({"query": wrong}, "type", QueryError) for wrong in (None, 3, b"a dog")),
        ({"query": []}, "empty list", QueryError),
    ]),
    "on": (lambda texture, **how: foveate.score(texture, "a dog").on(**how), OptionError, {}, [{"grid": (24, 0)}]),
    "refine": (refine, OptionError, {"looking_for": "broccoli"}, [
        {"scale": 0.5}, {"scale": 5}, {"share": 0}, {"share": 1.5}, ({"steps": 2}, ""),
        ({"encoder": "clop"}, "", EncoderNameError),
        *(({"looking_for": wrong}, "", QueryError) for wrong in ("", ["a dog"], 3)),
        ({"texture": "photo.jpg"}, "Texture"),
        ({"looking_for": foveate.Relevance}, "", QueryError),
    ]),
    "look": (lambda _, **how: tiles.look(**{**SCENE, **how}), OptionError, {}, [
        {"share": 15}, {"sure": 0}, {"scene": RGB}]),
    "survey": (lambda _, **how: tiles.survey(**{"image": RGB} | how), OptionError, {}, [
        {"tile": 8}, ({"image": RGB[..., 0]}, "", ImageArrayError)]),
    "heatmap": (viz.heatmap, OptionError, {"relevance": PLANE}, [
        {"relevance": PLANE + 2}, {"relevance": "the dog"}, {"side": 3}]),
    "kept": (viz.kept, OptionError, {"allocation": KEPT}, [
        ({"allocation": np.ones((3, 3), bool)}, "allocate"),
        {"boxes": [1, 2], "texture": np.zeros((40, 40, 3), np.uint8)}]),
    "homunculus": (viz.homunculus, OptionError, {}, [({"allocation": None}, "allocate")]),
    "compare": (viz.compare, OptionError, {"relevances": {"a": PLANE}}, [
        ({"relevances": {}}, "dictionary"), ({"relevances": [1]}, "dictionary"), {"columns": 5},
        ({"relevances": {1: PLANE}}, "name of a question")]),
    "channel_sheet": (viz.channel_sheet, OptionError, {}, [({"texture": "photo.jpg"}, "encode")]),
}  # fmt: skip


def named_first(row: Row) -> tuple[Any, ...]:
    return row if isinstance(row, tuple) else (row, next(iter(row)))


def refused(call: Callable[..., Any], error: type[FoveateError], right: dict[str, Any], rows: list[Row]) -> None:
    for row in rows:
        wrong, words, kind = row if isinstance(row, tuple) and len(row) == 3 else (*named_first(row), error)
        with pytest.raises(kind) as caught:
            call(**{**right, **wrong})
        assert words in str(caught.value), wrong
        assert caught.value.fix, wrong


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_wrong_is_refused(name: str) -> None:
    refused(*PLAIN[name])


@pytest.mark.parametrize("name", OF_TEXTURE)
def test_what_is_wrong_with_a_texture_is_refused(name: str, texture: Texture) -> None:
    call, error, right, rows = OF_TEXTURE[name]
    refused(lambda **how: call(how.pop("texture", texture), **how), error, right, rows)
