"""A tiny model as a folder, in the files that a download from the Hub would have: what `vllm serve` takes.

    python -m examples.tiny_vlms qwen2_5_vl FOLDER

Some processors cannot be saved as a whole where the package of their video processors is missing, so their parts are
written one by one; what is read back is then read by the library's own code.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

HEADS = 128  # width of the language models: four heads of 32, as vLLM's attention on the CPU asks
PARTS = ("tokenizer", "image_processor", "feature_extractor")


def save(name: str, model: Any, processor: Any, folder: Path, *, template: bool = True) -> Path:
    """Write the tiny model of a family into a folder; `template`: with its chat template. -> the folder."""
    model.save_pretrained(folder)
    _as_on_the_hub(name, folder / "model.safetensors")
    if name in ("llava", "llava_next", "idefics3"):
        processor.save_pretrained(folder)
    else:
        for part in PARTS[::-1]:
            if hasattr(processor, part):
                getattr(processor, part).save_pretrained(folder)
        (folder / "chat_template.jinja").write_text(processor.chat_template)
        settings = {"processor_class": type(processor).__name__, **_settings(processor)}
        (folder / "processor_config.json").write_text(json.dumps(settings))
    if not template:
        (folder / "chat_template.jinja").unlink()
    return folder


def _as_on_the_hub(name: str, file: Path) -> None:
    """Names and shapes of weights as before transformers 5, which vLLM goes by."""
    weights = load_file(file)
    if name.startswith("llava") and any("vision_tower.embeddings" in key for key in weights):
        weights = {key.replace("vision_tower.", "vision_tower.vision_model."): value for key, value in weights.items()}
    if name == "qwen3_vl_moe":
        turned = {key: value.mT.contiguous() for key, value in weights.items() if ".experts." in key}
        weights = {**weights, **turned}
    save_file(weights, file, {"format": "pt"})


def _settings(processor: Any) -> dict[str, Any]:
    """What a processor was made with, apart from its parts."""
    names = set(inspect.signature(type(processor)).parameters) - {*PARTS, "chat_template"}
    given = ((name, getattr(processor, name, None)) for name in sorted(names))
    return {name: value for name, value in given if isinstance(value, int | str | list)}
