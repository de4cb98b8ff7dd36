"""Vision-language models in stock transformers, which get only the visual tokens that a question needs.

    import foveate.vlm

    vlm = foveate.vlm.load("Qwen/Qwen2.5-VL-3B-Instruct")      # by name or folder
    vlm = foveate.vlm.attach(model, processor)                 # or a stock model you have; nothing is patched
    encoded = vlm.see("photo.jpg")                             # the encoder runs once
    vlm.ask(encoded, "what does the sign say?", budget=128)    # select, generate; the next question selects again
    vlm.ask_many(encoded, questions, budget=[64, 128, "auto"]) # one ragged batch

A visual token is what the language model receives: a row of features in the place of one placeholder of the prompt. The
room needs the extra `[vlm]` (transformers from 5.18 on). Begin with model.py; each file imports only from those above:

* families/: what is particular to each family of models, and where its visual tokens lie in an image.
* select/: how many visual tokens are kept, and which; baselines; tokens that are given; regions for mode "crop".
* inputs/: from kept tokens to the tensors of a call: ids, positions, features.
* encoded.py: the values EncodedImage, Prepared, Answer. tower.py: LLaVA's own vision tower as the encoder of textures.
* chat.py: a dialogue, in which every round selects anew. context.py: its rules, for a question without a model.
* images.py: images and videos -> EncodedImage. model.py: `see`, `prepare`, `ask`, `ask_many`, `chat`.
* attachment.py: which model is of which family. loader.py: model and processor by name.
* lmms.py: the plug-in for lmms-eval.
* rows.py, projector.py: a texture in the place of the vision tower; how it is trained is in training/judges/projector.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from foveate.vlm.attachment import FAMILIES, attach
from foveate.vlm.chat import Chat, Turn
from foveate.vlm.encoded import MODES, Answer, EncodedImage, Prepared
from foveate.vlm.loader import load
from foveate.vlm.model import VLM, QuestionWarning
from foveate.vlm.select.methods import METHODS

if TYPE_CHECKING:
    from foveate.vlm.projector import TextureProjector as TextureProjector
    from foveate.vlm.projector import encode_texture as encode_texture
    from foveate.vlm.rows import TextureRows as TextureRows

_LATER = {"TextureProjector": "projector", "encode_texture": "projector", "TextureRows": "rows"}  # these need torch
__all__ = [
    "FAMILIES", "METHODS", "MODES", "VLM", "Answer", "Chat", "EncodedImage", "Prepared", "QuestionWarning", "Turn",
    "attach", "load", *_LATER,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'foveate.vlm' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"foveate.vlm.{_LATER[name]}"), name)
