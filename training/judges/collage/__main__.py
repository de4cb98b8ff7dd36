"""A harder small LLaVA: twelve to thirty cut-out things on a photograph, many alike, with parts and relations.

    python -m training.judges.collage --data DATA --cache CACHE [--out FOLDER]      about 1.25 hours on two quiet cores

What: does the question still find the tokens that an answer needs, where diversity alone cannot see everything? Scenes
of real cut-outs, a tower of nano's numbers and a small convolutional network, a projector and a small Llama, every way
to select at 6 to 100 % of 256 tokens. The selector is foveate's own: no ground truth reaches it.
Verdict: in, as a measurement. At 12 % of the tokens the default keeps .72 of the answers about a named thing and .66
of those about what is beside it; the map alone .67 and .45, question and diversity .71 and .55, diversity alone .74 and
.51, random .46 and .36; of all tokens .84 and .93. All: docs/numbers.md, docs/log.md.
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
