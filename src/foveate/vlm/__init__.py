"""Vision-language models in stock transformers, which get only the visual tokens that a question needs.

    import foveate.vlm

    vlm = foveate.vlm.attach(model, processor)                 # any supported stock model; nothing is patched
    scene = vlm.see("photo.jpg")                               # the tower runs once
    vlm.ask(scene, "what does the sign say?", budget=128)      # select, generate; the next question selects afresh
    vlm.ask_many(scene, questions, budget=[64, 128, "auto"])   # one ragged batch

Needs the extra `[vlm]` (transformers from 5.18 on). Files, from the ground up:

* placement.py: where feature rows lie in an image. choose.py, budgets.py, windows.py: which cells
  are kept, and the baselines.
* family.py: the contract of a model family; llava.py, tiles.py, qwen.py: the families.
* prompt.py: ids of the full prompt. batch.py: tensors of a call. features.py: weights and means.
* scene.py: the values. seeing.py: images and videos become one. model.py: `see`, `prepare`, `ask`, `ask_many`.
* attach.py: which model is which family. load.py: model and processor by name. lmms.py: the plug-in for lmms-eval.
* crop.py: kept regions as further images. tower.py: LLaVA's own tower as the encoder of the texture.
* rows.py, projector.py: a texture in the place of the vision tower. training/projector in a clone trains it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from foveate.vlm.attach import FAMILIES, attach
from foveate.vlm.encoded import Answer, Prepared, Scene
from foveate.vlm.model import VLM
from foveate.vlm.select.choose import METHODS

_LATER = {  # these need torch
    "TextureProjector": "projector",
    "scene_of": "projector",
    "TextureRows": "rows",
}
__all__ = ["FAMILIES", "METHODS", "VLM", "Answer", "Prepared", "Scene", "attach", *_LATER]

if TYPE_CHECKING:
    from foveate.vlm.projector import TextureProjector as TextureProjector
    from foveate.vlm.projector import scene_of as scene_of
    from foveate.vlm.rows import TextureRows as TextureRows


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'foveate.vlm' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"foveate.vlm.{_LATER[name]}"), name)
