"""The table of rules that choose tokens: what counts as met, and what is said of the default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foveate.cli.evaluate.policies import RULES, SHARES, Case, Need, cells_of, report
from foveate.pipeline import score
from foveate.texture.texture import Texture

SIDE = 16
BUDGETS = [max(1, round(share * SIDE * SIDE)) for share in SHARES]


def cases(texture: Texture, rule: str) -> list[Case]:
    """Images whose question needs what a rule keeps first, and nothing else."""
    relevance = score(texture, "a bus").on((SIDE, SIDE))
    rows = np.random.default_rng(0).normal(size=(SIDE * SIDE, 8)).astype(np.float32)
    blank = Case("made", "", "a bus", relevance, rows, ())
    kept = RULES[rule](blank, BUDGETS[0])
    return [Case("made", f"{rule} {n}", "a bus", relevance, rows, (Need(kept, len(kept)),)) for n in range(6)]


@pytest.mark.parametrize("rule", ["default", "maxmin"])
def test_the_default_loses_where_another_rule_keeps_what_is_needed(street: Texture, rule: str) -> None:
    found: dict[str, Any] = report(cases(street, rule))
    rows = {row["rule"]: row for row in found["rows"]}
    assert rows[rule]["scores"][0]["mean"] == rows["oracle"]["scores"][0]["mean"] == 1
    assert bool(rows[rule]["loses"]) == (rule != "default")
    assert not rows["default"]["loses"]
    assert not rows["oracle"]["loses"]
    assert any("no rule is" in line for line in found["after"]) == (rule == "default")
    assert any("oracle - random" in line and "no judge" not in line for line in found["after"])


def test_a_need_is_met_by_its_least_tokens_and_shares_count(street: Texture) -> None:
    few, many = Need(np.arange(4), 2), Need(np.arange(8, 20), 5)
    case = cases(street, "default")[0]
    both, share = (Case("made", "", "", case.relevance, case.rows, (few, many), share) for share in (False, True))
    for kept, all_met, met in (([0, 3], 0, 0.5), ([0, *range(8, 12)], 0, 0), ([1, 2, *range(8, 13)], 1, 1)):
        assert (both.score(np.array(kept)), share.score(np.array(kept))) == (all_met, met)


def test_a_small_thing_has_the_token_that_shows_it_most() -> None:
    mask = np.zeros((160, 160), bool)
    mask[33:36, 50:53] = True
    assert cells_of(mask, (SIDE, SIDE)).tolist() == [3 * SIDE + 5]
    mask[40:80, 40:80] = True
    assert cells_of(mask, (SIDE, SIDE)).tolist() == [SIDE * y + x for y in range(4, 8) for x in range(4, 8)]
