"""The viewer's operations: the numbers that Python has, their description, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from PIL import Image
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import foveate
from foveate import view
from foveate.allocation.allocation import auto_budget
from foveate.allocation.policies import to_typical_distance
from foveate.allocation.worth import worth_keeping
from foveate.channels import make_gaze_plane
from foveate.core.layout import DERIVED, FULL40, Layout
from foveate.relevance import add_dialogue
from foveate.store import Store
from foveate.texture.texture import Texture
from foveate.view.app import make_app
from foveate.view.images import MOST, channel_names, describe_channels, describe_plane, levels_of
from foveate.view.opening import open_target
from foveate.view.questions import NamedGrid, grids_of
from foveate.view.service import REFUSALS, Operation, describe_service
from foveate.view.session import Target
from foveate.view.wire import pack, unpack
from tests.conftest import PHOTOS
from tests.view_client import Service, check_refusal, message
from tests.view_page import serving

BUS = PHOTOS / "yellow_bus.jpg"
QUESTIONS = [
    "the bus",
    "a police car",
    "a bus and a wheel",
    "a zeppelin",
    "a wheel but not the bus",
    "what does the sign say?",
]
GAZE = [[120.5, 200.25, 0.4], [300.0, 90.0, 1.5]]


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(BUS)


@pytest.fixture(scope="module")
def texture() -> Texture:
    return foveate.encode(BUS)


def on(relevance: foveate.Relevance, each: NamedGrid) -> foveate.Relevance:
    return relevance if each.name == "cells" else relevance.on(each.grid)


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_what_score_says(service: Service, texture: Texture, question: str) -> None:
    header, arrays = service.send("score", query=question)
    relevance = foveate.score(texture, question)
    for each in grids_of(texture.grid):
        moved = on(relevance, each)
        assert np.array_equal(arrays[f"map:{each.name}"], moved.map)
        assert np.array_equal(arrays[f"worth:{each.name}"], worth_keeping(moved))
        assert header["auto"][each.name] == auto_budget(moved) == len(foveate.allocate(moved))
    for name in ("confidence", "detected"):
        assert header[name] == getattr(relevance, name)
    assert header["confidences"] == dict(relevance.confidences)
    assert header["phrases"] == list(relevance.parts)
    assert (header["unknown"], header["ignored"]) == (list(relevance.unknown), list(relevance.ignored))
    assert header["looked_for"] == relevance.looked_for
    assert np.array_equal(np.reshape(header["boxes"], (-1, 4)), relevance.boxes())
    assert header["words"] == []


def test_points_are_what_coverage_compares(service: Service, texture: Texture) -> None:
    for each in grids_of(texture.grid):
        _, arrays = message(service.get(f"points?grid={each.name}"))
        features = on(foveate.score(texture, "the bus"), each).features
        assert features is not None
        assert np.array_equal(arrays["points"], to_typical_distance(features.reshape(each.grid.count, -1)))
    assert "24x24" in check_refusal(service.get("points?grid=25x25"))["expected"]
    check_refusal(service.client.get("/api/images/nothing/points"), 404)


def test_a_message_is_read_as_it_was_written() -> None:
    arrays: dict[str, Any] = {
        "odd": np.arange(7, dtype=np.uint8), "turned": np.arange(12, dtype="f4").reshape(3, 4).T, "": np.float32(3),
        "none": np.zeros((2, 0), np.float16), "half": np.arange(5, dtype=np.float16), "4": np.arange(3, dtype=np.int32),
    }  # fmt: skip
    header = {"text": "é \u2028 🧀", "none": None, "rows": [1, 2.5]}
    message = pack(header, arrays)
    said, found = unpack(message)
    assert (said, set(found)) == (header, set(arrays))
    length = int.from_bytes(message[:8], "little")
    assert length % 8 == 0
    listed = json.loads(message[8 : 8 + length])
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(found[name], array)
        assert listed[name]["data_offsets"][0] % array.dtype.itemsize == 0  # the page reads it without a copy


# --- gaze and dialogue ------------------------------------------------------------------------------------------------


def test_a_gaze_is_a_prior(service: Service, texture: Texture) -> None:
    plane = make_gaze_plane(GAZE, texture.grid)
    for weight in (0.1, 0.3, 1):
        expected = foveate.score(texture, "a wheel", prior=plane, prior_weight=weight)
        assert np.array_equal(service.map("a wheel", gaze=GAZE, gaze_weight=weight), expected.map)
    assert np.array_equal(service.map("a wheel", gaze=GAZE, gaze_weight=0), foveate.score(texture, "a wheel").map)
    assert np.array_equal(service.send("priors", queries=[], gaze=GAZE)[1]["gaze"], plane)


def test_a_dialogue_is_a_prior_of_questions_that_go_back(service: Service, texture: Texture) -> None:
    earlier, plain = ["a bus", "the sky"], service.map("and its wheels?")
    for query in earlier:
        texture = add_dialogue(texture, foveate.score(texture, query))
    history = texture.channel("history")
    queries = ["is it open?", "and its wheels?", "a tree", " ", "?!"]
    header, planes = service.send("priors", queries=queries, earlier=earlier)
    assert np.array_equal(planes["history"], history)
    assert [(q["goes_back"], q["prior"], q["weight"]) for q in header["questions"]] == [
        ("wholly", "history", 1.0), ("partly", "history", 0.7), *[("not", None, 0.0)] * 3,
    ]  # fmt: skip
    assert [round["added"] for round in header["rounds"]] == [True, True]
    assert np.array_equal(service.map("is it open?", earlier=earlier), history)
    assert service.send("score", query="is it open?", earlier=earlier)[0]["prior"] == "history"
    assert service.send("score", query="a tree", earlier=earlier)[0]["prior"] is None
    partly = foveate.score(texture, "and its wheels?", prior="history", prior_weight=0.7).map
    assert np.array_equal(service.map("and its wheels?", earlier=earlier), partly)
    assert np.array_equal(service.map("a tree", earlier=earlier), foveate.score(texture, "a tree").map)
    assert np.array_equal(service.map("and its wheels?"), plain)  # requests leave nothing behind
    one, two = (service.send("priors", queries=[], earlier=e) for e in (["a bus"], ["a bus", "and what colour is it?"]))
    assert np.array_equal(one[1]["history"], two[1]["history"])
    assert [(r["goes_back"], r["added"]) for r in two[0]["rounds"]] == [("not", True), ("wholly", False)]
    header, _ = service.send("priors", queries=queries[:3], earlier=["a bus"], gaze=GAZE)  # only who names nothing
    assert [q["prior"] for q in header["questions"]] == ["history", "gaze", "gaze"]


def test_a_context_needs_no_server() -> None:
    """The lines of Python that the page exports run in a base installation."""
    code = "import sys, foveate.vlm.context; sys.exit('starlette' in sys.modules or 'anyio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_context_that_is_none_is_refused(service: Service) -> None:
    for wrong in (
        {"gaze": "x"}, {"gaze": [[1, 2]]}, {"gaze": [[-1, 2, 3]]}, {"gaze": [[1e9, 2, 3]]}, {"gaze": [["a", 2, 3]]},
        {"gaze": GAZE * 200}, {"gaze": [[float("1e300")] * 3]}, {"gaze_weight": 2}, {"gaze_weight": "much"},
        {"earlier": "a bus"}, {"earlier": [3]}, {"earlier": [""]}, {"earlier": ["a"] * 21}, {"earlier": ["a" * 1001]},
        {"earlier": [None]}, {"gaze": None},
    ):  # fmt: skip
        for route, what in (("score", {"query": "a wheel"}), ("priors", {"queries": ["a wheel"]})):
            check_refusal(service.post(route, **{**what, **wrong}))
    for queries in ([1, {}], ["a wheel", None], ["a wheel"] * 7):
        check_refusal(service.post("priors", queries=queries))


# --- channels ---------------------------------------------------------------------------------------------------------


def test_values_at_the_cells_are_those_of_tokens(texture: Texture) -> None:
    for each in grids_of(texture.grid):
        header, arrays = describe_channels(texture, each.grid)
        names = [channel["name"] for channel in header["channels"]]
        assert names[:40] == list(FULL40.names)
        assert len(set(names)) == len(names)
        assert {*texture.built, "gradient", "colour_variance"} <= {*names}
        expected = texture.tokens(each.grid, Layout("all", tuple(names)), dtype=np.float16)
        assert arrays["values"].dtype == np.float16
        assert np.array_equal(arrays["values"].T, expected)


def test_what_is_said_of_channels(texture: Texture) -> None:
    said = {each["name"]: each for each in describe_channels(texture, texture.grid)[0]["channels"]}
    assert json.dumps(said, allow_nan=False)
    assert (said["saliency"]["built"], said["motion"]["built"]) == (True, False)
    assert said["cluster_id"]["ids"]
    assert said["cluster_id"]["how"] == texture.made_by["cluster_id"]
    assert (said["embedding_0"]["low"], said["embedding_0"]["high"]) == (None, None)
    assert (said["saliency"]["low"], said["saliency"]["high"]) == (0, 1)
    assert said["gradient"]["family"] == said["edge_on"]["family"]
    assert said["red"]["levels"] == [0, 10]  # 640 pixels along
    assert said["edge_on"]["levels"] == [0, 8]


def test_planes_are_those_of_mip_and_not_kept_with_the_texture() -> None:
    texture, fresh = foveate.encode(BUS), foveate.encode(BUS)
    for name in channel_names(texture):
        for level in (0, 1, 3):
            header, arrays = describe_plane(fresh, name, level)
            expected = texture.mip(name, level, warn=False).astype(np.float16)
            assert header == {"name": name, "level": level}
            assert np.array_equal(arrays["plane"], expected), (name, level)
    describe_channels(fresh, fresh.grid)
    assert not any(isinstance(value, np.ndarray) for value in fresh._derived.values())


def test_a_large_plane_is_never_sent_whole() -> None:
    assert levels_of((4000, 6000)) == (2, 13)  # 1000 x 1500 samples
    assert levels_of((1024, 2048)) == (0, 11)
    assert levels_of((1, 1)) == (0, 0)
    shape = (3001, 5003)
    first, _ = levels_of(shape)
    finest, finer = (np.prod([-(-side // 2**level) for side in shape]) for level in (first, first - 1))
    assert finest <= MOST < finer
    small, large = (foveate.encode(Image.new("RGB", (2048, height)), long_side=512) for height in (1024, 1025))
    assert set(channel_names(small)) - set(channel_names(large)) == {each.name for each in DERIVED}


def test_a_texture_of_a_store_whose_image_is_gone(tmp_path: Path) -> None:
    shutil.copy(BUS, tmp_path / "bus.jpg")
    store = Store(tmp_path / "store")
    store.add(tmp_path / "bus.jpg")
    (tmp_path / "bus.jpg").unlink()
    (texture,) = (store[name] for name in store)
    header, arrays = describe_channels(texture, texture.grid)
    names = [channel["name"] for channel in header["channels"]]
    expected = texture.tokens(layout=Layout("all", tuple(names)), dtype=np.float16)
    assert np.array_equal(arrays["values"].T, expected)
    assert "thumbnail" in header["channels"][names.index("red")]["how"]


def test_channels_over_the_service(service: Service) -> None:
    header, arrays = message(service.get("channels?grid=24x24"))
    assert arrays["values"].shape == (len(header["channels"]), 576)
    assert message(service.get("planes/saliency?level=2"))[1]["plane"].shape == (11, 16)
    for path, received in {
        "channels?grid=7x7": "grid='7x7'",
        "planes/nothing": "no channel named 'nothing'",
        "planes/saliency?level=-1": "level='-1'",
        "planes/saliency?level=9": "level 9 of saliency",
        "planes/saliency?level=one": "level='one'",
        "planes/saliency?level=%C2%B2": "level='²'",
    }.items():
        assert received in check_refusal(service.get(path))["received"], path
    check_refusal(service.client.get("/api/images/000000000000000000000000/channels"), 404)


def test_every_image_has_channels() -> None:
    for size in ((1, 1), (3, 200)):
        texture = foveate.encode(Image.new("RGB", size, (200, 40, 40)))
        header, arrays = describe_channels(texture, texture.grid)
        assert np.isfinite(arrays["values"].astype(np.float32)).all()
        for channel in header["channels"]:
            for level in channel["levels"]:
                assert describe_plane(texture, channel["name"], level)[1]["plane"].size


# --- the description --------------------------------------------------------------------------------------------------

ATTACKS = ["a bus", "the cake on the table", "what does the sign say?", "a violin"]
PLACE = {"type": "number", "minimum": 0, "maximum": 240}
# What narrows a field to what is right for the photographs; beside it, ids of those that are there.
RIGHT: dict[str, Any] = {
    "word": {"enum": ["our logo"]},
    "box": {"enum": [[10.5, 20, 80, 90]]},
    "query": {"enum": ATTACKS},
    "queries": {"type": "array", "items": {"enum": ATTACKS}, "maxItems": 3},
    "questions": {"type": "array", "items": {"enum": ATTACKS}, "minItems": 1, "maxItems": 3},
    "earlier": {"type": "array", "items": {"enum": ATTACKS}, "maxItems": 3},
    "gaze": {"type": "array", "items": {"type": "array", "items": PLACE, "minItems": 3, "maxItems": 3}, "maxItems": 9},
    "name": {"enum": ["red", "saliency", "embedding_3"]},
    "level": {"enum": [0, 2]},
    "where": {"enum": ["", "width > height"]},
}


def test_every_module_is_named_and_no_function_twice() -> None:
    modules = sorted(Path(view.__file__).parent.glob("[a-z]*.py"))
    assert sorted(re.findall(r"\w+\.py", view.__doc__ or "")) == [module.name for module in modules]
    names = [name for module in modules for name in re.findall(r"^def ([a-z]\w+)", module.read_text(), re.M)]
    assert [name for name in names if names.count(name) > 1] == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """A service with a store and a clip: its address and description."""
    folder = tmp_path_factory.mktemp("photos")
    for file in PHOTOS.glob("*.jpg"):
        (folder / file.name).write_bytes(file.read_bytes())
    Store(folder.parent / "photos.fov").add(folder)
    store, clip = open_target(folder.parent / "photos.fov"), open_target(folder, clip=True)
    app = make_app(
        Target(store.session, store.find, lambda pictures: [*store.routes(pictures), *clip.routes(pictures)])
    )
    described = describe_service(app.routes)
    assert {(each.path, each.method) for each in app.routes if isinstance(each, Operation)} == {
        (path, method) for path, operations in described["paths"].items() for method in operations
    }
    assert all(isinstance(each, Operation) for each in app.routes)
    with serving(app=app) as address:
        assert httpx.get(f"{address}/api/openapi.json").json() == described
        yield address, described


def test_the_description_says_what_is_refused(whole: tuple[str, dict[str, Any]]) -> None:
    described = whole[1]
    assert described["security"] == [{}, *({name: []} for name in described["components"]["securitySchemes"])]
    for operations in described["paths"].values():
        for operation in operations.values():
            assert {str(status) for status in REFUSALS} < set(operation["responses"])
    body = described["paths"]["/api/answers"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["image", "query"]
    assert body["properties"]["rounds"]["maxItems"] == body["properties"]["earlier"]["maxItems"] == 20


def narrowed(described: Any, known: list[str]) -> Any:
    """A description of what is right alone: ids that are known, questions that can be asked, channels there are."""
    right = RIGHT | {"id": {"enum": known}, "image": {"enum": known}}
    if isinstance(described, dict):
        if "schema" in described and described.get("name") in right:
            return {**described, "schema": right[described["name"]]}
        given = {name for name, each in described.items() if name in right and "title" in each}  # a field's schema
        return {name: right[name] if name in given else narrowed(each, known) for name, each in described.items()}
    return [narrowed(each, known) for each in described] if isinstance(described, list) else described


@pytest.mark.filterwarnings("ignore::foveate.core.errors.ReadingWarning")  # of writing in a store that nobody read
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_breaks_it(whole: tuple[str, dict[str, Any]], mode: GenerationMode) -> None:
    """What is right is answered, what is wrong refused, both as described, and nothing is a fault of the server."""
    address, described = whole
    right = mode is GenerationMode.POSITIVE
    if right:
        known = [each["id"] for each in httpx.get(f"{address}/api/gallery").json()["images"]]
        described = narrowed(described, known)
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=address)
    for path, operations in described["paths"].items():
        for method, about in operations.items():
            if not right and (path == "/api/images" or not {"parameters", "requestBody"} & about.keys()):
                continue  # it takes nothing that could be wrong
            unsure = {positive_data_acceptance} if path == "/api/images" else set()  # bytes are seldom an image
            cases = schema[path][method.upper()].as_strategy(generation_mode=mode)
            attack(cases, [*unsure])


def attack(cases: Any, unsure: list[Any]) -> None:
    @given(case=cases)
    @settings(max_examples=3, suppress_health_check=list(HealthCheck))
    def each(case: Any) -> None:
        case.call_and_validate(excluded_checks=unsure)

    each()
