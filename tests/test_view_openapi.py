"""The service against its own description: every route is in it, and schemathesis attacks the service by it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.routing import Route

from foveate import view
from foveate.store import Store
from foveate.view import clips, priors, stores
from foveate.view.app import make_app
from foveate.view.openapi import CHANNEL, FIXATION, ID, LEVEL, TEXT, describe_service
from foveate.view.opening import open_target
from foveate.view.target import Target
from foveate.vlm import context
from tests.conftest import PHOTOS
from tests.view_page import serving

SERVICE = describe_service()
QUESTIONS = ["a bus", "the cake on the table", "what does the sign say?", "a violin"]
RIGHT = [  # what narrows a description to what is right for the photographs
    (TEXT, {"enum": QUESTIONS}),
    (FIXATION, {**FIXATION, "items": {"type": "number", "minimum": 0, "maximum": 240}}),
    (CHANNEL, {"enum": ["red", "saliency", "embedding_3"]}),
    (LEVEL, {"enum": [0, 2]}),
]
TAKES = [  # addresses that take more than a name: what they take can be wrong
    path
    for path, operations in SERVICE["paths"].items()
    for each in operations.values()
    if path != "/api/images" and ("parameters" in each or "requestBody" in each)
]


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    """A target of each kind."""
    folder = tmp_path_factory.mktemp("photos")
    for file in PHOTOS.glob("*.jpg"):
        (folder / file.name).write_bytes(file.read_bytes())
    store = folder.parent / "photos.fov"
    Store(store).add(folder)
    return {
        "empty": open_target(None),
        "image": open_target(PHOTOS / "yellow_bus.jpg"),
        "folder": open_target(folder),
        "store": open_target(store),
        "clip": open_target(folder, clip=True),
    }


def test_every_module_is_named_once_and_every_function() -> None:
    modules = sorted(Path(view.__file__).parent.glob("[a-z]*.py"))
    named = re.findall(r"^    (\w+\.py)|(?:   |; )(\w+\.py)", view.__doc__ or "", re.M)
    assert sorted(map("".join, named)) == [module.name for module in modules]
    names = [name for module in modules for name in re.findall(r"^def ([a-z]\w+)", module.read_text(), re.M)]
    assert [name for name in names if names.count(name) > 1] == []


def test_the_description_says_what_the_modules_allow() -> None:
    def schema(path: str, name: str) -> Any:
        body = SERVICE["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        return body["schema"]["properties"][name]

    assert schema("/api/priors", "queries")["maxItems"] == priors.QUESTIONS
    assert schema("/api/score", "earlier")["maxItems"] == schema("/api/answers", "rounds")["maxItems"] == context.ROUNDS
    assert schema("/api/score", "gaze")["maxItems"] == context.FIXATIONS
    assert schema("/api/clips/{id}/frames", "policy")["enum"] == list(clips.POLICIES)
    assert schema("/api/search", "count")["maximum"] == stores.MOST_HITS
    scheme = SERVICE["components"]["securitySchemes"]
    assert SERVICE["security"] == [{}, *({name: []} for name in scheme)]
    for operations in SERVICE["paths"].values():
        for operation in operations.values():
            assert {"400", "401", "500"} < set(operation["responses"])


def test_every_route_is_described(targets: dict[str, Target]) -> None:
    found = {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for target in targets.values()
        for route in make_app(target).routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }
    described = {(path, method) for path, operations in SERVICE["paths"].items() for method in operations}
    assert found == described


@pytest.fixture(scope="module")
def service(targets: dict[str, Target]) -> Iterator[dict[GenerationMode, Any]]:
    """The description of a service with a store and a clip.

    For requests that are right it is narrowed to images that are there, and to questions that can be asked.
    """
    store, clip = targets["store"], targets["clip"]
    both = Target(store.session, store.find, lambda pictures: [*store.routes(pictures), *clip.routes(pictures)])
    with serving(app=make_app(both)) as address:
        known = [each["id"] for each in httpx.get(f"{address}/api/gallery").json()["images"]]
        described = httpx.get(f"{address}/api/openapi.json").json()
        assert described == SERVICE
        yield {
            GenerationMode.POSITIVE: loaded(narrowed(described, known), address),
            GenerationMode.NEGATIVE: loaded(described, address),
        }


def loaded(described: dict[str, Any], address: str) -> Any:
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=address)
    return schema


def narrowed(value: Any, known: Sequence[str]) -> Any:
    """A description of what is right alone: ids that are known, questions that can be asked, channels there are."""
    for described, right in ((ID, {"enum": list(known)}), *RIGHT):
        if value == described:
            return right
    if isinstance(value, dict):
        return {name: narrowed(each, known) for name, each in value.items()}
    return [narrowed(each, known) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, GenerationMode.POSITIVE) for path in SERVICE["paths"]]
    + [(path, GenerationMode.NEGATIVE) for path in TAKES],
)
def test_no_request_breaks_it(service: dict[GenerationMode, Any], path: str, mode: GenerationMode) -> None:
    """What is right is answered, what is wrong refused, both as described, and nothing is a fault of the server."""
    for operation in service[mode][path].values():

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=15, suppress_health_check=list(HealthCheck))
        def attack(case: Any) -> None:
            case.call_and_validate(
                excluded_checks=[positive_data_acceptance] if path == "/api/images" else []
            )  # bytes are seldom an image

        attack()
