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
    "Gemma3ForConditionalGeneration",
    "PaliGemmaForConditionalGeneration",
    "FastVlmForConditionalGeneration",
    "GotOcr2ForConditionalGeneration",
    "Gemma3nForConditionalGeneration",
    "ChameleonForConditionalGeneration",
    "Emu3ForConditionalGeneration",
    "VipLlavaForConditionalGeneration",
    "JanusForConditionalGeneration",
    "DeepseekVLForConditionalGeneration",
    "DeepseekVLHybridForConditionalGeneration",
    "VideoLlavaForConditionalGeneration",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    "Lfm2VlForConditionalGeneration",
    "Lfm3VlForConditionalGeneration",
    "VideoLlama3ForConditionalGeneration",
    "Kimi_K25ForConditionalGeneration",
    "MuseGlimmerForConditionalGeneration",
    "MuseSparkForConditionalGeneration",
    "NemotronH_Omni_Reasoning_V3",
    "Glm5NextForConditionalGeneration",
    "Inkling2ForConditionalGeneration",
    "InklingForConditionalGeneration",
    "Dots3NoteForConditionalGeneration",
    "Molmo2ForConditionalGeneration",
    "Exaone4_5_ForConditionalGeneration",
    "HyperCLOVAXVisionV2ForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "MistralLarge4ForConditionalGeneration",
    "LightOnOcrForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "LlavaNextVideoForConditionalGeneration",
    "Granite4VisionForConditionalGeneration",
    "GraniteDoclingForConditionalGeneration",
    "AyaVisionForConditionalGeneration",
    "Cohere2VisionForConditionalGeneration",
    "PerceptionLMForConditionalGeneration",
    "Ovis2ForConditionalGeneration",
    "QianfanOCRForConditionalGeneration",
    "MiniCPMV4_6ForConditionalGeneration",
    "MiniCPMOcrForConditionalGeneration",
    "Step3p7ForConditionalGeneration",
    "UnlimitedOcrForConditionalGeneration",
    "Llama4ForConditionalGeneration",
)
RESAMPLED = "a fixed number of queries reads the whole image: its visual tokens lie nowhere in it"
CROSSED = "its language model looks at the image by cross-attention: there are no visual tokens to drop"
BY_ITSELF = "it encodes the image in the call of its language model: features of kept tokens cannot be passed"
NUMBERED = "its text encoder numbers the tokens that it gets: kept tokens would lie at other positions"
REFUSED = {
    "AriaForConditionalGeneration": RESAMPLED,
    "Blip2ForConditionalGeneration": RESAMPLED,
    "BlipForConditionalGeneration": CROSSED,
    "DeepseekOcr2ForConditionalGeneration": RESAMPLED,
    "DiffusionGemmaForBlockDiffusion": "it fills a canvas of tokens by diffusion: it writes no token after the other",
    "EvollaForProteinText2Text": "it reads proteins, not images",
    "Florence2ForConditionalGeneration": NUMBERED,
    "GitForCausalLM": BY_ITSELF,
    "Idefics2ForConditionalGeneration": RESAMPLED,
    "IdeficsForVisionText2Text": CROSSED,
    "InstructBlipForConditionalGeneration": RESAMPLED,
    "InstructBlipVideoForConditionalGeneration": RESAMPLED,
    "Kosmos2ForConditionalGeneration": RESAMPLED,
    "Kosmos2_5ForConditionalGeneration": RESAMPLED,
    "MiniMaxM3SparseForConditionalGeneration": "it looks for blocks of keys at their positions: where these have "
    "gaps, it finds others or none",
    "Mistral4ForCausalLM": "it takes no images",
    "MllamaForConditionalGeneration": CROSSED,
    "PI0ForConditionalGeneration": "it moves a robot: it writes no text",
    "PPFormulaNetForConditionalGeneration": CROSSED,
    "Pix2StructForConditionalGeneration": CROSSED,
    "T5Gemma2ForConditionalGeneration": "its encoder takes features of kept tokens, and does not use them",
    "UdopForConditionalGeneration": BY_ITSELF,
    "VisionEncoderDecoderModel": CROSSED,
}
PECULIAR: dict[str, type[Family]] = {}  # by the model type of the configuration


def family_of(model: object) -> Family:
    """The adapter of a stock model, by its configuration's model type."""
    kind = str(model.config.model_type)  # type: ignore[attr-defined]
    return PECULIAR.get(kind, Family)(kind)
