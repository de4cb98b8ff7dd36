"""The viewer's service, asked without a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from foveate.view.app import make_app
from foveate.view.models import LateModel
from foveate.view.opening import open_target
from foveate.view.wire import unpack

HOME = "http://127.0.0.1"
Message = tuple[dict[str, Any], dict[str, Any]]


def client_of(target: Path | None, model: LateModel | None = None, **how: Any) -> TestClient:
    """how: of `open_target`."""
    return TestClient(make_app(open_target(target, **how), model), base_url=HOME)


def message(answer: Any) -> Message:
    """Header and arrays of an answer."""
    assert answer.status_code < 300, answer.text
    return unpack(answer.content)


def check_refusal(answer: Any, status: int = 422) -> dict[str, str]:
    """That it is an error of three parts. -> them."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert all(error[part] for part in ("received", "expected", "fix"))
    return dict(error)


class Service:
    """The operations over one image."""

    def __init__(self, image: Path, model: LateModel | None = None) -> None:
        self.client = client_of(image, model)
        self.first = self.client.get("/api/session").json()["first"]

    def post(self, route: str, **body: Any) -> Any:
        return self.client.post(f"/api/{route}", json={"image": self.first, **body})

    def send(self, route: str, **body: Any) -> Message:
        return message(self.post(route, **body))

    def map(self, query: str, **context: Any) -> Any:
        return self.send("score", query=query, **context)[1]["map:cells"]

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/images/{self.first}/{path}")
