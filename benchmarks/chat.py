"""How long a round of a dialogue takes to select its visual tokens again, and what a texture costs `see`.

    python -m benchmarks chat

A very narrow Qwen2.5-VL with random weights and 1,024 visual tokens: nothing but one token is generated, and the model
is not what takes the time.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import (
    PHOTO,
    Image,
    Repeats,
    circumstances,
    crop_square,
    print_json,
    show,
    time_calls,
    time_in_turn,
    time_row,
)
from benchmarks.vlm import prepare_model
from foveate.pipeline import encode
from foveate.vlm.inputs.images import CHANNELS

SIDE = 896  # pixels: 32 x 32 visual tokens of 28
BUDGET = 128
PARTS = ("score", "choose", "slice")


def command(image: Image = PHOTO, repeats: Repeats = 100) -> None:
    """Times of a round of a dialogue, without generation."""
    vlm = prepare_model("qwen2_5_vl", 1, True, "float32", "cpu")()
    photograph = crop_square(image, SIDE)
    texture = encode(photograph, channels=CHANNELS)
    seen = vlm.see(texture, read=False)
    chat = vlm.chat(seen, budget=BUDGET, max_new_tokens=1)
    chat.ask("where is the dog?")
    selecting = []

    def again() -> None:
        seconds = chat.prepare("and what colour is it?").seconds
        selecting.append(sum(seconds[part] for part in PARTS))

    whole = time_calls(again, repeats)
    few = max(5, repeats // 10)
    with_texture, alone = time_in_turn(
        lambda: vlm.see(texture, read=False), lambda: vlm.see(photograph, read=False), few
    )
    encoding = time_calls(lambda: encode(photograph, channels=CHANNELS), few)
    rows = [
        time_row("a round selects again: score, choose, slice", np.array(selecting[-repeats:]), "ms", "<= 3 ms"),
        time_row("  with the prompt laid out: chat.prepare", whole, "ms"),
        time_row("see(texture)", with_texture, "ms"),
        time_row("see(image)", alone, "ms"),
        time_row("  of which encode", encoding, "ms"),
    ]
    title = f"benchmarks chat: {seen.tokens[0]} visual tokens, {BUDGET} kept, medians of {repeats} ({few} of see)"
    report = {"title": title, "rows": rows, "image": str(image), **circumstances()}
    show(report)
    print_json(**report)
