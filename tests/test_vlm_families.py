"""Every family of tiny models: all tokens are the stock model, kept tokens the full prompt with the others hidden.

The reference is the library's own model in every case (foveate/vlm/check.py, which is tested here as well).
"""

from __future__ import annotations

import pytest

from examples.tiny_vlms import FAMILIES
from foveate.vlm import check
from foveate.vlm.families import known
from tests.vlm_models import pair

EXACT = 1e-5  # of the largest logit
pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_family_is_exact(name: str) -> None:
    report = check(*pair(name))
    assert report.all_tokens == 0, report
    assert report.kept <= EXACT, report
    assert report.dropped > 100 * EXACT, report  # dropping tokens does change something
    assert report.places is not None, report
    assert report.places >= 0.98, report
    assert report.model in known.FAMILIES
