"""Vision-language models in stock transformers, which get only the visual tokens that a question needs.

    import foveate.vlm

    vlm = foveate.vlm.attach(model, processor)                 # any supported stock model; nothing is patched
    scene = vlm.see("photo.jpg")                               # the tower runs once
    vlm.ask(scene, "what does the sign say?", budget=128)      # select, generate; the next question selects afresh
    vlm.ask_many(scene, questions, budget=[64, 128, "auto"])   # one ragged batch

Needs the extra `[vlm]` (transformers from 5.18 on). Files, from the ground up:

* placement.py: where feature rows lie in an image. choose.py: which cells are kept, and the baselines.
* family.py: the contract of a model family; llava.py, tiles.py, qwen.py: the families.
* prompt.py: ids of the full prompt. batch.py: tensors of a call. features.py: weights and means.
* scene.py: the values. model.py: `see`, `prepare`, `ask`, `ask_many`. attach.py: which model is which family.
* crop.py: kept regions as further images. tower.py: LLaVA's own tower as the encoder of the texture.
"""

from foveate.vlm.attach import FAMILIES, attach
from foveate.vlm.choose import METHODS
from foveate.vlm.model import VLM
from foveate.vlm.scene import Answer, Prepared, Scene

__all__ = ["FAMILIES", "METHODS", "VLM", "Answer", "Prepared", "Scene", "attach"]
