"""The six shared checkers: what they take, what they refuse, and what they say then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foveate.core.checks import check_array, check_choice, check_int, check_number, check_pair, check_type
from foveate.core.errors import BudgetError, OptionError


def test_what_is_right_comes_back_in_its_plain_type() -> None:
    assert type(check_int("n", np.int64(3), 1, 3)) is int
    assert type(check_number("x", np.float32(0.5))) is float
    assert check_choice("c", "a", ("a", "b")) == "a"
    assert check_type("t", 3, (int, float)) == 3
    assert check_pair("p", [2, np.int8(3)]) == (2, 3)
    plane = np.ones((2, 3), np.float32)
    assert check_array("a", plane, (2, None)) is plane
    assert check_array("a", [[1, 2]], (1, 2)).dtype == np.float32


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: check_int("n", True), "n=True"),
        (lambda: check_int("n", 1.0), "whole number from 1 on"),
        (lambda: check_int("n", 0, 1, 9), "from 1 to 9"),
        (lambda: check_number("x", float("nan")), "a number from 0 to 1"),
        (lambda: check_number("x", float("inf"), high=None), "from 0 on"),
        (lambda: check_number("x", 10**400, high=None), "from 0 on"),
        (lambda: check_number("x", 1j), "a number"),
        (lambda: check_choice("c", 1, ("a", True)), "'a' or True"),
        (lambda: check_choice("c", [], ("a", "b")), r"c=\[\]"),
        (lambda: check_type("t", True, int), "of type bool"),
        (lambda: check_pair("p", (2, 0)), "two whole numbers"),
        (lambda: check_pair("p", 2), "p=2"),
        (lambda: check_array("a", np.ones((2, 3)), (3, 2)), r"shape \[2, 3\]"),
        (lambda: check_array("a", [[np.nan]], (1, 1)), r"finite numbers, shape \[1, 1\]"),
        (lambda: check_array("a", [[2.0]], (1, 1), low=0, high=1), "from 0 to 1"),
        (lambda: check_array("a", [[1e300]], (1, 1)), "finite numbers"),  # too large for float32: no warning
        (lambda: check_number("x", [0.5] * 1000), r"^x=\[0.5, .{1,300}\n"),  # not all of a long list
        (lambda: check_array("a", np.ones((1, 1)), (1, 1), dtype=bool), "bool"),
        (lambda: check_array("a", object(), (1, 1)), "a object"),
        (lambda: check_array("a", [[1], [2, 3]], (None, 1)), "a list"),
    ],
)
def test_what_is_wrong_is_named(call: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        call()


def test_the_error_and_the_fix_are_the_caller_s() -> None:
    with pytest.raises(BudgetError, match="fix: ask for less"):
        check_int("budget", 9, 1, 4, fix="ask for less", error=BudgetError)
