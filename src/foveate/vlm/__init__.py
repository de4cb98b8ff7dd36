"""Vision-language models in stock transformers, which get only the visual tokens that a question needs.

    vlm = foveate.vlm.load("Qwen/Qwen2.5-VL-3B-Instruct")      # or foveate.vlm.attach(model, processor)
    encoded = vlm.see("photo.jpg")                             # the encoder runs once
    vlm.ask(encoded, "what does the sign say?", budget=128)    # the next question selects its own tokens

A visual token is what the language model receives: a row of features in the place of one placeholder of the prompt.
The extra `[vlm]` is needed (transformers from 5.18 on). Begin with model.py:

* model.py: `see`, `prepare`, `ask`, `ask_many`, `chat`. prepare.py: the steps of `prepare`, one function each.
* families/: where the visual tokens of a model lie in an image, and what it is asked for.
* select/: how many visual tokens are kept, and which; baselines; tokens that are given; regions for mode "crop".
* inputs/: images -> what a model encodes; kept tokens -> the tensors of a call: ids, positions, features.
* encoded.py: the values EncodedImage, Prepared, Answer. loader.py: models that are loaded, or by name.
* self_check.py: is foveate exact with a model?
* chat.py: a dialogue. context.py: its rules, for a question without a model. lmms.py: the plug-in for lmms-eval.
"""

from __future__ import annotations

from foveate.core.gone import gone_from
from foveate.vlm.chat import Chat, Turn
from foveate.vlm.encoded import MODES, Answer, EncodedImage, Prepared
from foveate.vlm.families.known import FAMILIES
from foveate.vlm.loader import attach, check, load
from foveate.vlm.model import VLM
from foveate.vlm.prepare import QuestionWarning
from foveate.vlm.select.choice import Choosing
from foveate.vlm.select.methods import METHODS
from foveate.vlm.self_check import Exactness

__all__ = [
    "FAMILIES", "METHODS", "MODES", "VLM", "Answer", "Chat", "Choosing", "EncodedImage", "Exactness", "Prepared",
    "QuestionWarning", "Turn", "attach", "check", "load",
]  # fmt: skip
__getattr__ = gone_from("foveate.vlm")
