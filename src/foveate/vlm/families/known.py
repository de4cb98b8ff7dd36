"""Model classes by name: those that tests cover, those that cannot be served, and why."""

from __future__ import annotations

from foveate.vlm.families.family import Family

FAMILIES = (
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
    "InternVLForConditionalGeneration",
)
RESAMPLED = "a fixed number of queries reads the whole image: its visual tokens lie nowhere in it"
CROSSED = "its language model looks at the image by cross-attention: there are no visual tokens to drop"
REFUSED = {
    "Blip2ForConditionalGeneration": RESAMPLED,
    "InstructBlipForConditionalGeneration": RESAMPLED,
    "InstructBlipVideoForConditionalGeneration": RESAMPLED,
    "Idefics2ForConditionalGeneration": RESAMPLED,
    "MllamaForConditionalGeneration": CROSSED,
    "IdeficsForVisionText2Text": CROSSED,
}
PECULIAR: dict[str, type[Family]] = {}  # by the model type of the configuration


def family_of(model: object) -> Family:
    """The adapter of a stock model, by its configuration's model type."""
    kind = str(model.config.model_type)  # type: ignore[attr-defined]
    return PECULIAR.get(kind, Family)(kind)
