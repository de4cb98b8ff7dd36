"""A small LLaVA behind a frozen tower: a projector, places, and transformers' own Llama.

What is notable
* Everything but the tower is as in LLaVA: visual tokens are projected (two layers), stand in the prompt after
  `<s> <|user|>`, the question follows, `<|assistant|>`, one word. 16 x 16 cells, each a token.
* Sines and cosines of row and column are added behind the projector: a neighbour is a turn of them (`waves`).
* `Collage.model.language_model` and `Collage.lm_head` lie where stock Llava has them, so the losses and the independent
  reference of training/judges/micro_vlm work on it as they are.
"""

from __future__ import annotations

from types import SimpleNamespace

from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from training.judges.collage.cutouts import PARTS
from training.judges.collage.scenes import KINDS, NUMBERS, UNASKED
from training.judges.collage.tower import NAMES, WIDTH
from training.judges.micro_vlm.model import BOS, EOS, PAD, SPECIAL, waves
from training.judges.micro_vlm.scenes import COLOURS

SLOW = 1e8  # of the turns of places in the text: a word finds a cell 250 places before it
NOUNS = tuple(dict.fromkeys(KINDS.get(name, name) for name in NAMES if name not in UNASKED))
ASKING = tuple("what colour is the part of how many left right above below".split())
VOCABULARY = {word: i for i, word in enumerate(dict.fromkeys((*SPECIAL, *ASKING, *COLOURS, *NOUNS, *PARTS, *NUMBERS)))}


class Projector(nn.Module):
    """Visual tokens float [b, 256, WIDTH] -> [b, 256, width], with their places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.one, self.two = nn.Linear(WIDTH, 2 * width), nn.Linear(2 * width, width)
        self.places = nn.Parameter(1.5 * waves(width))  # as loud as what is seen, or "left of" is hardly learned

    def forward(self, tokens: Tensor) -> Tensor:
        seen: Tensor = self.two(nn.functional.gelu(self.one(self.norm(tokens))))
        return seen + self.places


class Collage(nn.Module):
    """Projector and language model, random weights (of torch's generator)."""

    def __init__(self, *, width: int = 256, layers: int = 5) -> None:
        super().__init__()
        self.sizes = {"width": width, "layers": layers}
        text = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(VOCABULARY),
                hidden_size=width,
                intermediate_size=width * 5 // 2,
                num_hidden_layers=layers,
                num_attention_heads=max(1, width // 64),
                num_key_value_heads=max(1, width // 64),
                max_position_embeddings=512,
                rope_parameters={"rope_type": "default", "rope_theta": SLOW},
                bos_token_id=BOS,
                eos_token_id=EOS,
                pad_token_id=PAD,
                tie_word_embeddings=False,
            )
        )
        self.projector = Projector(width)
        self.language_model, self.lm_head = text.model, text.lm_head
        self.config = SimpleNamespace(text_config=text.config)

    @property
    def model(self) -> Collage:
        """Where stock Llava keeps `language_model`."""
        return self

    def get_input_embeddings(self) -> nn.Module:
        return self.language_model.embed_tokens

    def forward(self, tokens: Tensor) -> Tensor:
        """Visual tokens of the language model: [b, 256, width]."""
        projected: Tensor = self.projector(tokens)
        return projected
