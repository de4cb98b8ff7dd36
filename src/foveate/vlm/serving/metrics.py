"""Counts for vLLM's /metrics, by prometheus_client, which vLLM brings.

Its registry is global by design. With several API processes vLLM adds the processes' counts together.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

REQUESTS = Counter(
    "foveate_requests",
    "Requests with images, by what became of their budget: chosen; unsearched (the question names nothing that can be "
    "looked for: saliency and an even spread); all (the budget holds every visual token); unreadable (an image that "
    "no texture can be made of: the stock answer); stock (no budget)",
    ["outcome"],
)
KEPT = Counter("foveate_visual_tokens_kept", "Visual tokens of requests with a budget that the language model gets")
SAVED = Counter("foveate_visual_tokens_saved", "Visual tokens of requests with a budget that it does not get")
TEXTURES = Counter("foveate_textures", "Textures that were asked for", ["found"])
ENCODING = Histogram("foveate_encoding_seconds", "Seconds to make the texture of an image that is new")
SCORING = Histogram(
    "foveate_scoring_seconds",
    "Seconds to score a question and to choose, textures at hand",
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5),
)
FEATURES = Counter("foveate_features", "Full features of images that the engine was asked for", ["found"])
for counter in (TEXTURES, FEATURES):
    for found in ("kept", "made"):
        counter.labels(found)
