"""Everything, one step after another: `python -m training.judges.collage --data DATA --cache CACHE [--out FOLDER]`."""

from __future__ import annotations

import json
from typing import Any

import training.judges.collage
from training.experiments.arguments import checked, command
from training.judges.collage import evaluate, features, tower, train


def main() -> None:
    """Command line."""
    args = checked(command("collage", training.judges.collage.__doc__))
    folder = args.cache / "collage"
    for side, count in features.COUNTS.items():
        features.make(args.data, folder, side, count)
    learned = tower.train(folder, steps=tower.STEPS)
    for side in features.COUNTS:
        tower.write_tokens(learned, folder, side)
    train.train(folder, alone=train.ALONE, steps=train.STEPS, rate=train.RATE, size=train.SIZE, slots=train.SLOTS)
    report = {}
    for side, rule in (("known", False), ("held", False), ("held", True)):
        name = f"{side}, by {'rule' if rule else 'model'}"
        ways = list(evaluate.WAYS)
        report[name] = evaluate.evaluate(folder, side, scenes=evaluate.SCENES, each=evaluate.EACH, ways=ways, rule=rule)
        print("\n" + evaluate.shown(report[name]))
    if args.out:
        (args.out / "report.json").write_text(json.dumps(report, indent=1), "utf-8")
        tables = "\n\n".join(evaluate.shown(result) for result in report.values())
        (args.out / "table.md").write_text(tables + "\n", "utf-8")
    print(json.dumps({name: _right(result) for name, result in report.items()}))


def _right(result: dict[str, Any]) -> dict[str, float]:
    """By way, of the questions that name what they ask of, from 12 % of the tokens."""
    return {way: row["12 %"]["named"]["accuracy"] for way, row in result["found"].items()}


if __name__ == "__main__":
    main()
