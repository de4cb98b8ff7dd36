"""What the plug-in does at vLLM's start, and compares: another vLLM is an error, never a budget that is ignored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import vllm
from vllm.model_executor.models.registry import ModelRegistry

from foveate.core.errors import ModelError, OptionError
from foveate.serving import families, hooks, metrics
from foveate.serving.layouts import ChosenImage
from foveate.serving.model import ChosenRows
from foveate.serving.plugin import register
from foveate.serving.processor import check_answer, check_names
from foveate.serving.request import check_others

ANOTHER = "0.99.0"


@pytest.fixture
def another_vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A release that was not looked at."""
    monkeypatch.setattr(vllm, "__version__", ANOTHER)
    yield
    monkeypatch.undo()
    register()


@pytest.mark.parametrize("version", ["0.31.2", "0.34.0", "0.34.0rc1.dev3+g123", "1.32.0", "dev"])
def test_a_release_that_was_not_looked_at_is_refused(version: str) -> None:
    with pytest.raises(ModelError, match=f"vLLM {version[:4]}") as caught:
        hooks.check_version(version)
    assert "0.32 or 0.33" in str(caught.value)


def test_releases_that_were_looked_at_are_taken() -> None:
    for version in ("0.32.0", "0.32.1+cpu", "0.33.0", vllm.__version__):
        hooks.check_version(version)


class Stock:
    """A processor with the hooks, as far as they are called."""

    def __init__(self) -> None:
        self.set = self.made  # type: ignore[attr-defined]  # read alone: no class sets it

    def apply(self, inputs: Any, timing_ctx: Any) -> None: ...

    def _get_mm_hashes(self, inputs: Any) -> None: ...


def test_a_hook_that_is_missing_or_takes_other_parameters_is_named() -> None:
    apply, hashes = hooks.PROCESSOR["apply"], hooks.PROCESSOR["_get_mm_hashes"]
    hooks.check_hooks(Stock, {"apply": apply, "_get_mm_hashes": hashes})
    with pytest.raises(ModelError, match="Stock has no _apply_hf_processor_main"):
        hooks.check_hooks(Stock, {"apply": apply, "_apply_hf_processor_main": ("mm_items", "hf_kwargs")})
    with pytest.raises(ModelError, match="Stock has no made"):
        hooks.check_hooks(Stock, {"set": None, "made": None})  # it is read alone
    with pytest.raises(ModelError, match=r"Stock.apply takes inputs, timing_ctx where foveate passes prompt"):
        hooks.check_hooks(Stock, {"apply": ("prompt",)})


def test_a_value_that_lost_a_parameter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.multimodal.inputs.PlaceholderRange", lambda offset: offset)
    with pytest.raises(ModelError, match=r"vllm.multimodal.inputs.PlaceholderRange takes no is_embed, length"):
        hooks.check_hooks(Stock, {})
    monkeypatch.delattr("vllm.multimodal.inputs.PlaceholderRange")
    monkeypatch.delattr("vllm.utils.mistral.is_mistral_tokenizer")
    with pytest.raises(ModelError, match=r"there is no .*PlaceholderRange; there is no vllm.utils.mistral.is_"):
        hooks.check_hooks(Stock, {})


def test_what_vllm_keeps_on_disk_of_a_class_goes_by_its_version() -> None:
    register()
    register()
    version = vllm.__version__.replace(".", "_")
    for name in families.FAMILIES:
        registered = ModelRegistry.models[name]
        assert (registered.module_name, registered.class_name) == (families.__name__, f"{name}__{version}")
        assert issubclass(registered.load_model_cls(), ChosenRows)


def test_another_release_stops_a_served_family_and_no_other_model(another_vllm: None) -> None:
    register()  # in a server of any model
    for name in families.FAMILIES:
        with pytest.raises(ModelError, match=f"vLLM {ANOTHER}"):
            ModelRegistry.models[name].load_model_cls()


def test_an_answer_that_is_not_the_choice_is_an_error() -> None:
    chosen = [ChosenImage(np.arange(3), np.arange(3), np.ones(9, bool), np.zeros(2, np.int64))]
    places = {"image": [SimpleNamespace(length=3)]}
    check_answer({"mm_placeholders": places, "mm_hashes": {"image": ["a-foveate-b"]}}, chosen)
    check_answer({}, None)
    for answer in (
        {"mm_placeholders": {"image": [SimpleNamespace(length=9)]}, "mm_hashes": {"image": ["a-foveate-b"]}},
        {"mm_placeholders": places, "mm_hashes": {"image": ["a"]}},  # another question would get these cells
    ):
        with pytest.raises(ModelError):
            check_answer(answer, chosen)


def test_names_like_ours_are_refused() -> None:
    check_names({"image": ["logo", None]})
    with pytest.raises(OptionError, match="uuid"):
        check_names({"image": [None, "0-foveate-1"]})


def test_an_owner_can_keep_other_keywords_out() -> None:
    check_others({"patch_size": 7}, {})
    check_others({}, {"FOVEATE_ONLY": "1"})
    with pytest.raises(OptionError, match="patch_size"):
        check_others({"patch_size": 7}, {"FOVEATE_ONLY": "1"})


def test_counts_of_the_engine_are_sums_over_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> dict[str, float]:
        (family,) = metrics.EngineCounts().collect()
        return {sample.labels["found"]: sample.value for sample in family.samples}

    monkeypatch.setenv(metrics.FOLDER, str(tmp_path))
    assert shown() == {"kept": 0, "made": 0}
    np.array([3, 4]).tofile(tmp_path / "11")
    np.array([30, 40]).tofile(tmp_path / "12")
    (tmp_path / "13").touch()  # of a process that begins to write
    assert shown() == {"kept": 33, "made": 44}


def test_the_folder_for_counts_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(metrics.FOLDER, "")
    monkeypatch.delenv(metrics.FOLDER)
    metrics.open_folder()
    named = os.environ[metrics.FOLDER]
    metrics.open_folder()
    assert os.environ[metrics.FOLDER] == named
    assert Path(named).is_dir()
    Path(named).rmdir()
