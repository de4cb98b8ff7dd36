"""The service against its own description: all that it answers is in it, and schemathesis attacks the service by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from foveate import view
from foveate.store import Store
from foveate.view.app import make_app
from foveate.view.opening import open_target
from foveate.view.service import REFUSALS, Operation, describe_service
from foveate.view.session import Target
from tests.conftest import PHOTOS
from tests.view_page import serving

QUESTIONS = ["a bus", "the cake on the table", "what does the sign say?", "a violin"]
PLACE = {"type": "number", "minimum": 0, "maximum": 240}
# What narrows a field to what is right for the photographs; beside it, ids of those that are there.
RIGHT: dict[str, Any] = {
    "query": {"enum": QUESTIONS},
    "queries": {"type": "array", "items": {"enum": QUESTIONS}, "maxItems": 3},
    "questions": {"type": "array", "items": {"enum": QUESTIONS}, "minItems": 1, "maxItems": 3},
    "earlier": {"type": "array", "items": {"enum": QUESTIONS}, "maxItems": 3},
    "gaze": {"type": "array", "items": {"type": "array", "items": PLACE, "minItems": 3, "maxItems": 3}, "maxItems": 9},
    "name": {"enum": ["red", "saliency", "embedding_3"]},
    "level": {"enum": [0, 2]},
}


def test_every_module_is_named_once_and_every_function() -> None:
    modules = sorted(Path(view.__file__).parent.glob("[a-z]*.py"))
    named = re.findall(r"^    (\w+\.py)|(?:   |; )(\w+\.py)", view.__doc__ or "", re.M)
    assert sorted(map("".join, named)) == [module.name for module in modules]
    names = [name for module in modules for name in re.findall(r"^def ([a-z]\w+)", module.read_text(), re.M)]
    assert [name for name in names if names.count(name) > 1] == []


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
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


def test_the_description_says_what_is_refused(service: tuple[str, dict[str, Any]]) -> None:
    described = service[1]
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


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_breaks_it(service: tuple[str, dict[str, Any]], mode: GenerationMode) -> None:
    """What is right is answered, what is wrong refused, both as described, and nothing is a fault of the server."""
    address, described = service
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
    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    def each(case: Any) -> None:
        case.call_and_validate(excluded_checks=unsure)

    each()
