"""Videos of the Qwens: a budget over all frames, the cells and positions of `foveate.vlm`, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import BudgetError, FoveateError, ModelError, OptionError
from foveate.serving.model import restore_prompt
from foveate.serving.selection import select_rows
from foveate.vlm.inputs.prompt import prompt_text
from tests.serving.engine import STEPS, Engine, Said, assert_same
from tests.vlm_models import VOCABULARY, photo

DOG = "where is the dog?"
PERSON = "what is on the left of the person in the picture"
FPS = 2.0
Video = NDArray[np.uint8]


def make_video(side: int, frames: int = 7, seed: int = 0) -> Video:
    """A photograph in which something moves to the right: uint8 [frames, 4 sides, 6 sides, 3]."""
    still = np.stack([photo(4 * side, 6 * side, seed=seed)] * frames)
    for number, frame in enumerate(still):
        at = 4 + 9 * number
        frame[side : 2 * side, at : at + side] = photo(side, side, seed=seed + 50)
    return still


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def engine(request: pytest.FixtureRequest, start: Callable[..., Engine]) -> Engine:
    return start(request.param, limit_mm_per_prompt={"image": 2, "video": 2})


@pytest.fixture(scope="module")
def video(engine: Engine) -> Video:
    """Of Qwen2.5-VL four frames: behind a longer video transformers 5.19 counts on from its columns, vLLM from its
    time, so that their stock answers differ."""
    return make_video(side_of(engine), 4 if type(engine.vlm.model).__name__.startswith("Qwen2_5") else 7)


def side_of(engine: Engine) -> int:
    """Pixels along a side of a visual token: frames of whole tokens, so that nobody resizes them."""
    vision = engine.vlm.model.config.vision_config
    return int(vision.patch_size * vision.spatial_merge_size)


def told(video: Video, **more: Any) -> tuple[Video, dict[str, Any]]:
    """A video with what vLLM's loader says of it."""
    every = {"fps": FPS, "total_num_frames": len(video), "frames_indices": [*range(len(video))]}
    return video, {"duration": len(video) / FPS, "video_backend": "opencv", "do_sample_frames": False, **every, **more}


def ask(engine: Engine, question: str, videos: list[Any], **keywords: Any) -> Said:
    from vllm import SamplingParams

    processor = engine.vlm.processor
    text = prompt_text(processor, question, len(videos), None, "video")
    if "qwen3" in type(engine.vlm.model).__name__.lower():  # no border round all pictures
        text = text.replace(f"<|vision_start|>{processor.video_token}<|vision_end|>", processor.video_token)
    prompt = {"prompt": text, "multi_modal_data": {"video": videos}, "mm_processor_kwargs": keywords}
    how = SamplingParams(max_tokens=STEPS, temperature=0, logprobs=VOCABULARY, ignore_eos=True)
    (output,) = engine.llm.generate([prompt], how, use_tqdm=False)
    return engine.read(output)


def changed(video: Video, side: int) -> list[NDArray[np.bool_]]:
    """Of pictures of two frames each, tokens whose pixels are not those of the picture before: bool [4, 6] each."""
    whole = np.concatenate([video, video[-1:]])[: len(video) + len(video) % 2]
    cells = whole.reshape(-1, 2, 4, side, 6, side, 3)
    differs = (cells[1:] != cells[:-1]).any((1, 3, 5, 6))
    return [np.ones((4, 6), bool), *differs]


def expect(engine: Engine, question: str, video: Video, budget: Any) -> Said:
    """What foveate.vlm says of the cells that are served."""
    encoded = engine.vlm.see_video(list(video), fps=FPS, read=False)
    (layout,) = encoded.layouts
    kept = None
    if budget == "lossless":
        kept = changed(video, side_of(engine))
    elif budget is not None:
        (rows,) = select_rows(encoded.images, encoded.textures, encoded.layouts, question, budget).rows
        of_all = np.zeros(layout.count, bool)
        of_all[rows] = True
        kept = [of_all[grid.rows()].reshape(grid.shape) for grid in layout.grids]
    how = {"budget": None} if kept is None else {"kept": kept}
    prepared = engine.vlm.prepare(encoded, question, **how)
    with torch.no_grad():
        made = engine.vlm.model.generate(
            **prepared.inputs(), max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False,
            return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
    found = np.stack([torch.log_softmax(step[0].double(), -1).numpy() for step in made.logits])
    return Said(made.sequences[0, prepared.length :].tolist(), found, prepared.length)


@pytest.mark.parametrize("budget", [None, 1, 12, 40, "auto", "lossless", 10_000])
@pytest.mark.filterwarnings("ignore::foveate.core.errors.BudgetWarning")
def test_answers_about_a_video_are_those_of_the_library(engine: Engine, video: Video, budget: Any) -> None:
    for question in (DOG, PERSON):
        said = ask(engine, question, [told(video)], foveate_budget=budget)
        assert_same(said, expect(engine, question, video, budget))


def test_what_did_not_change_comes_last(engine: Engine, video: Video) -> None:
    """A still picture, shown again: its repetitions are kept after everything else."""
    still = np.stack([video[0]] * 4)
    encoded = engine.vlm.see_video(list(still), fps=FPS, read=False)
    (layout,) = encoded.layouts
    first = layout.grids[0].count
    (rows,) = select_rows(encoded.images, encoded.textures, encoded.layouts, DOG, first).rows
    assert rows.max() < first
    assert_same(ask(engine, DOG, [told(still)], foveate_budget=first), expect(engine, DOG, still, first))
    assert (
        ask(engine, DOG, [told(still)], foveate_budget="lossless").length
        < ask(engine, DOG, [told(video)], foveate_budget="lossless").length
    )


def test_another_question_encodes_nothing_again(engine: Engine, video: Video, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()
    encode = type(engine.model)._encode

    def counted(self: Any, *inputs: Any) -> Any:
        calls.append(1)
        return encode(self, *inputs)

    monkeypatch.setattr(type(engine.model), "_encode", counted)
    other = make_video(side_of(engine), seed=9)
    for question, budget in ((DOG, 9), (PERSON, 9), (PERSON, 30)):
        ask(engine, question, [told(other)], foveate_budget=budget)
    assert len(calls) == 1
    ask(engine, DOG, [told(other, fps=4.0)], foveate_budget=11)  # other times, the same frames
    assert len(calls) == 1


def test_two_videos_share_a_budget(engine: Engine) -> None:
    two = [told(make_video(side_of(engine), 4, seed=seed)) for seed in (20, 21)]
    full, short = ask(engine, DOG, two), ask(engine, DOG, two, foveate_budget=20)
    per = 2 * 4 * 6
    assert full.length - short.length == 2 * per - 20
    with pytest.raises(BudgetError, match="foveate_budget=1 for 2"):
        ask(engine, DOG, two, foveate_budget=1)


def test_what_is_not_served_is_refused(engine: Engine, video: Video) -> None:
    with pytest.raises(OptionError, match='foveate_encode="kept" for a video'):
        ask(engine, DOG, [told(video)], foveate_budget=9, foveate_encode="kept")
    text = prompt_text(engine.vlm.processor, DOG, 1, None, "video").replace(DOG, "<|image_pad|>" + DOG)
    both = {"video": [told(video)], "image": [Image.fromarray(video[0])]}
    prompt = {"prompt": text, "multi_modal_data": both, "mm_processor_kwargs": {"foveate_budget": 9}}
    with pytest.raises(ModelError, match="foveate_budget=9 for a request with video"):
        engine.llm.generate([prompt], use_tqdm=False)
    with pytest.raises(FoveateError):
        ask(engine, DOG, [told(video)], foveate_budget=0)


def test_ids_between_pictures_are_where_they_were() -> None:
    """A model finds the pictures of a video by them."""
    from vllm.multimodal.inputs import PlaceholderRange

    full = [7, 1, 5, 9, 9, 9, 6, 2, 5, 9, 9, 9, 6, 7]  # 1, 2: times; 5, 6: borders; 9: visual tokens
    places = torch.tensor([0, 1, 3, 5, 6, 7, 8 + 2, 11])
    short = [7, *(full[1 + n] for n in places.tolist()), 7]
    data = {"foveate_places": SimpleNamespace(data=places), "foveate_span": SimpleNamespace(data=torch.tensor(12))}
    visual = torch.tensor([full[1 + n] == 9 for n in places.tolist()])
    kind = make_dataclass("Feature", ["data", "mm_position", "modality"])
    found, (moved,), kept = restore_prompt(short, [kind(data, PlaceholderRange(1, 8, visual), "video")])
    assert found == full
    assert kept.tolist() == [0, *(places + 1).tolist(), 13]
    assert (moved.mm_position.offset, moved.mm_position.length) == (1, 12)
