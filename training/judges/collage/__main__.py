"""A harder small LLaVA: twelve to thirty cut-out things on a photograph, many alike, with parts and relations.

    python -m training.judges.collage --data DATA --cache CACHE [--out FOLDER]      an hour and a half on two cores

What: does the question still find the tokens that an answer needs, where diversity alone cannot see everything? Scenes
of real cut-outs, a tower of nano's features and a small convolutional network, a projector and a small Llama, every way
to select at 3 to 100 % of 256 tokens. The selector is foveate's own: no ground truth reaches it.
Verdict: in, as a measurement. At 12 % of the tokens the question alone keeps .49 of the answers; question and diversity
.58, diversity alone .60, random .40; of all tokens .68. All: docs/learned.md, docs/log.md.
"""

from __future__ import annotations

from training import harness
from training.judges.collage import evaluate, features, model, tower


def main() -> None:
    """Every step that is missing, then both sides."""
    args = harness.start("collage", __doc__, package="training.judges")
    folder = args.cache / "collage"
    for side, count in features.COUNTS.items():
        features.make(args.data, folder, side, count)
    learned = tower.train(folder, steps=tower.STEPS)
    for side in features.COUNTS:
        tower.write_tokens(learned, folder, side)
    model.train(folder, alone=model.ALONE, steps=model.STEPS, size=model.SIZE, slots=model.SLOTS)
    report = {side: evaluate.evaluate(folder, side) for side in ("known", "held")}
    harness.report(args, "collage", report)


if __name__ == "__main__":
    main()
