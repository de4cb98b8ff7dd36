"""The tiny models of vlm_models.py as folders, in the files that a download from the Hub would have.

Some processors cannot be saved as a whole where the package of their video processors is missing, so their parts are
written one by one; what is read back is then read by the library's own code.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from foveate.vlm.loader import load
from tests.vlm_models import WIDTH, pair

SETTINGS: dict[str, dict[str, Any]] = {"smolvlm": {"image_seq_len": 16}, "internvl": {"image_seq_length": 4}}


def saved(name: str, folder: Path, *, template: bool = True, width: int = WIDTH) -> Path:
    """Write the tiny model of a family into a folder; `template`: with its chat template. -> the folder."""
    model, processor = pair(name, width)
    model.save_pretrained(folder)
    if name.startswith("llava"):  # the Hub's names of the tower's weights, from before transformers 5
        file = folder / "model.safetensors"
        weights = {
            key.replace("vision_tower.", "vision_tower.vision_model."): value for key, value in load_file(file).items()
        }
        save_file(weights, file, {"format": "pt"})
    if name in ("llava", "llava_next", "idefics3"):
        processor.save_pretrained(folder)
    else:
        processor.tokenizer.save_pretrained(folder)
        processor.image_processor.save_pretrained(folder)
        (folder / "chat_template.jinja").write_text(processor.chat_template)
        settings = {"processor_class": type(processor).__name__, **SETTINGS.get(name, {})}
        (folder / "processor_config.json").write_text(json.dumps(settings))
    if not template:
        (folder / "chat_template.jinja").unlink()
    return folder


loaded = cache(load)  # in the place of `load`, for tests of what comes after it: values, so tests share them
