"""The viewer as an ASGI application: a target's images and questions, behind a guard."""

from __future__ import annotations

from starlette.applications import Starlette

from foveate.core.errors import FoveateError
from foveate.view.asking import question_routes
from foveate.view.images import image_routes
from foveate.view.models import LateModel, model_routes
from foveate.view.page import page_routes
from foveate.view.pictures import Pictures
from foveate.view.planes import plane_routes
from foveate.view.priors import prior_routes
from foveate.view.reply import refuse
from foveate.view.targets import Target


def make_app(target: Target, model: LateModel | None = None) -> Starlette:
    """The application for a target (`targets.open_target`). model: that answers questions (`models.load_late`)."""
    pictures = Pictures(target.find)
    routes = [
        *page_routes({**target.session, "model": model.name if model else None}),
        *image_routes(pictures),
        *question_routes(pictures),
        *plane_routes(pictures),
        *prior_routes(pictures),
        *model_routes(pictures, model),
        *target.routes(pictures),
    ]
    return Starlette(routes=routes, exception_handlers={FoveateError: refuse})
