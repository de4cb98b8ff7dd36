"""docs/vlm.md is true: its Python runs, in order, on tiny models; its options exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import foveate.vlm
from foveate.cli.main import app
from foveate.vlm import FAMILIES, METHODS, MODES
from foveate.vlm.attachment import OLDEST
from tests.conftest import PHOTOS
from tests.test_readme import blocks
from tests.video_clips import encode
from tests.video_scenes import panning
from tests.vlm_models import pair, photo

PAGE = (Path(__file__).parent.parent / "docs" / "vlm.md").read_text("utf-8")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(PHOTOS / "cake_and_coffee.jpg", tmp_path / "photo.jpg")
    shutil.copy(PHOTOS / "yellow_bus.jpg", tmp_path / "other.jpg")
    encode(tmp_path / "clip.mp4", list(panning(30, (112, 160))))
    monkeypatch.chdir(tmp_path)
    model, processor = pair("qwen2_5_vl")
    monkeypatch.setattr("foveate.vlm.load", lambda name, **how: foveate.vlm.attach(model, processor))
    monkeypatch.setattr(model.generation_config, "eos_token_id", None)  # a random model may end at once
    mine = pair("llava")
    names: dict[str, Any] = {"model": model, "processor": processor, "my_model": mine[0], "my_processor": mine[1]}
    names["frames"] = [photo(seed=number) for number in range(4)]
    exec("\n".join(blocks(PAGE, "python")), names)
    ids, prepared, said = names["ids"], names["prepared"], names["said"]
    generated = ids[0, prepared.text["input_ids"].shape[1] :]
    by_hand = torch.cat(said, 1)[0]
    assert len(set(generated.tolist())) > 1
    assert torch.equal(by_hand, generated)
    vlm = names["vlm_of_mine"]
    assert vlm.ask(vlm.see("photo.jpg"), "a cake", budget=5, generation={"max_new_tokens": 2}).tokens == (5, 16)


def test_one_oldest_transformers_everywhere() -> None:
    """`make test-oldest` reads it from the source, too."""
    root = Path(__file__).parent.parent
    assert f'"transformers>={OLDEST}"' in (root / "pyproject.toml").read_text("utf-8")
    assert f"transformers from {OLDEST} on" in PAGE
    make = (root / "Makefile").read_text("utf-8")
    assert re.search(r"^OLDEST :=.*OLDEST.*src/foveate/vlm/\*\.py", make, re.M)
    assert re.search(r"^test: .*\n(\t.*\n)*\t.*test-oldest$", make, re.M)  # CI calls `make test`


def test_it_names_every_family_method_mode_and_option() -> None:
    assert all(f"| `{name}` |" in PAGE for name in FAMILIES)
    assert all(f"| `{name}`" in PAGE for name in (*METHODS, *MODES))
    known = CliRunner().invoke(app, ["ask", "--help"], env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"`(--[a-z-]+)", PAGE)) | set(re.findall(r"foveate ask.*?(--[a-z-]+)", PAGE))
    assert {"--model", "--budget", "--mode", "--prompt"} <= options
    assert {option for option in options if option not in known} == set()
