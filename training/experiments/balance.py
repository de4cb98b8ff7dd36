"""A learned balance of the three tensions, by masks of things and by answers to questions.

    python -m training.experiments.balance --data DATA --cache CACHE [--out FOLDER]     after judges.collage.features

What: two forms of a balance of information, perspective and participation, learned through a soft top-K by the
overlap of kept cells with masks (of photographs that nano's head has not seen, and of scenes of judges/collage), and
by the answers of a reader of those scenes (scene_reader.py), for which each cell counts as the soft top-K has it.
Why: the seed documents fix the formula and say that its weights should be learned; the default here is the question
alone, because both published forms lose against it.
Verdict: out. By masks, weights end at the question alone (.998 participation) and are no better on either set. By
answers they gain where the answer is not what is named (up to +.07 of right answers at 25 %), nothing where it is, and
lose on both sets of photographs. All: docs/log.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import foveate
from foveate.core.grid import resize_map
from foveate.relevance.fusion import FUSIONS, Fusion, information, perspective
from training import harness
from training.experiments.scene_reader import Reader, ids_of, labels, learned_reader
from training.harness import Example, Judged, fit, once
from training.judges.collage.cutouts import cutouts, grounds
from training.judges.collage.features import Made, load
from training.judges.collage.model import VOCABULARY
from training.judges.collage.scenes import CELLS, NAMED, Question, draw, pick, pool_of, questions_of

Floats = NDArray[np.float32]
Loss = Callable[[nn.Module, NDArray[np.int64]], Tensor]  # a form and the rows of a batch -> a number
Score = Callable[[Tensor], Tensor]  # planes [q, 3, n] -> scores [q, n], of which only the order counts
BUDGETS = {"12 %": 31, "25 %": 64}  # of 256 cells
BUDGET = BUDGETS["12 %"]  # what is learned for
STEPS = {"masks": 600, "scenes' masks": 600, "answers": 200}
SCENES = {"train": 40, "held": 60}  # scenes of judges/collage, 24 questions each
ALONE = "participation"

# --- forms ------------------------------------------------------------------------------------------------------------

LEAST = 1e-4  # of a plane that is raised to a power, whose slope has no bound at 0
SOFT = 0.2  # of the step from rank k / 2 to rank 2 k


class Weighted(nn.Module):
    """A weighted mean, weights >= 0 that add up to 1: `foveate.relevance.fusion.Linear`."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.33, 0.33, 0.34]).log())

    def forward(self, planes: Tensor) -> Tensor:
        """float [..., 3, n] -> [..., n]."""
        return (planes * self.logits.softmax(0)[:, None]).sum(-2)


class Tensed(nn.Module):
    """b p^a s^c + (1 - b) i^e with b = u + v (1 - p): `foveate.relevance.fusion.Tensions` where it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.5, 0.5]))  # u, v
        self.powers = nn.Parameter(torch.tensor([1.0, 1.0, 2.0]).log())  # a, c, e

    def forward(self, planes: Tensor) -> Tensor:
        """float [..., 3, n] -> [..., n]."""
        i, s, p = planes.clamp(min=LEAST).unbind(-2)
        a, c, e = self.powers.exp()
        b = self.bias[0] + self.bias[1] * (1 - p)
        return b * p**a * s**c + (1 - b) * i**e


FORMS: dict[str, Callable[[], nn.Module]] = {"weights": Weighted, "tensions": Tensed}
RATES = {"weights": 0.1, "tensions": 0.05}


class Learned:
    """A form as `foveate.score(fusion=...)` takes it. Its map is scaled to [0, 1], as only its order was learned."""

    def __init__(self, name: str, form: nn.Module) -> None:
        self.name, self.form = name, form

    def fuse(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        """Three planes float32 [h, w] -> one."""
        stacked = np.stack([information, perspective, participation]).reshape(3, -1)
        with torch.no_grad():
            scores = self.form(torch.from_numpy(stacked)).numpy().reshape(participation.shape)
        low, high = scores.min(), scores.max()
        return np.asarray((scores - low) / max(high - low, 1e-9), np.float32)


def soft_top(scores: Tensor, k: int) -> Tensor:
    """Scores [b, n] -> weights [b, n], 1/2 between ranks k and k + 1; not changed by scaling or moving the scores."""
    ranked = scores.sort(-1, descending=True).values
    limit = (ranked[:, k - 1] + ranked[:, k])[:, None] / 2
    step = (ranked[:, max(k // 2, 1) - 1] - ranked[:, min(2 * k, scores.shape[1]) - 1]).detach()[:, None]
    return torch.sigmoid((scores - limit) / (SOFT * step).clamp(min=1e-9))


def hard_top(scores: Tensor, k: int) -> Tensor:
    """Scores [b, n] -> the k highest, int64 [b, k] ascending; of equal scores the lower index first."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[:, :k].sort(-1).values


def overlap_loss(weights: Tensor, masks: Tensor) -> Tensor:
    """1 - IoU of weights and masks [b, n] in [0, 1], the documents' proxy."""
    both = (weights * masks).sum(-1)
    return (1 - both / (weights.sum(-1) + masks.sum(-1) - both)).mean()


def learn(form: nn.Module, loss: Loss, rows: int, state: Path, *, steps: int, rate: float, batch: int = 32) -> None:
    """Adam over batches of rows, which the step alone decides; the rate falls in the second half."""

    def of_step(step: int) -> Tensor:
        return loss(form, np.random.default_rng([1, step]).integers(0, rows, batch))

    optimiser = torch.optim.Adam(form.parameters())
    falls = lambda step: rate * min(1.0, 2 * (1 - step / steps))  # noqa: E731
    fit(of_step, steps, state, optimiser, rate=falls, form=form)


def by_masks(planes: Tensor, masks: Tensor) -> Loss:
    """The loss of the documents' proxy: planes [q, 3, n], masks [q, n]."""
    return lambda form, rows: overlap_loss(soft_top(form(planes[rows]), BUDGET), masks[rows])


# --- scenes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions of some scenes, one row each.

    Attributes:
        made: the scenes. scene: int64 [q]. families: of each question.
        ids: int64 [q, n]. answers: int64 [q]. planes: float32 [q, 3, 256]. masks: float32 [q, 256], the things' cells.
    """

    made: Made
    scene: NDArray[np.int64]
    families: NDArray[np.str_]
    ids: Tensor
    answers: Tensor
    planes: Tensor
    masks: Tensor


def questions(made: Made, scene: int, count: int) -> list[Question]:
    """`count` of a scene's questions, or all; always the same."""
    if not questions_of(made.scenes[scene]):
        return []
    return list(dict.fromkeys(pick(made.scenes[scene], count, np.random.default_rng([3, scene]))))


def asked(data: Path, collage: Path, out: Path, side: str, *, scenes: int, count: int) -> Asked:
    """The first scenes of a side ("train", "held"), up to `count` questions each; planes are kept, a file a scene."""
    made, held = load(collage, side), side == "held"
    pool = behind = None
    per_scene, planes = [], []
    for number in tqdm(range(min(scenes, len(made.scenes))), desc=f"planes, {side}", mininterval=5):
        some = questions(made, number, count)
        per_scene.append(some)
        if not some:
            continue
        words = "\n".join([made.scenes[number].line(), *(q.text for q in some)])
        file = out / side / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}.npz"
        if not file.exists():
            pool = pool or pool_of(cutouts(data, held_out=held))
            behind = behind or grounds(data, held_out=held)
            picture, shown = draw(made.scenes[number], pool, behind[made.scenes[number].ground])
            np.testing.assert_array_equal(shown, made.shown[number])  # the scene that the features are of
            once(file, lambda: {"planes": scene_planes(picture, [q.text for q in some])})  # noqa: B023
        planes.append(np.load(file)["planes"])
    return gathered(made, per_scene, planes)


def gathered(made: Made, per_scene: Sequence[Sequence[Question]], planes: Sequence[NDArray[np.float32]]) -> Asked:
    """Questions of scene 0, 1, ... and their planes [q, 3, 256] as one value."""
    flat = [(number, question) for number, some in enumerate(per_scene) for question in some]
    masks = [np.isin(made.shown[number][0], question.needs) for number, question in flat]
    return Asked(
        made=made,
        scene=np.array([number for number, _ in flat]),
        families=np.array([question.family for _, question in flat]),
        ids=ids_of([question.text for _, question in flat]),
        answers=torch.tensor([VOCABULARY[question.answer] for _, question in flat]),
        planes=torch.from_numpy(np.concatenate(planes)),
        masks=torch.from_numpy(np.stack(masks).astype(np.float32)),
    )


def scene_planes(picture: NDArray[np.uint8], texts: Sequence[str]) -> NDArray[np.float32]:
    """Information, perspective and each question's own map on 16 x 16 tokens: float32 [q, 3, 256]."""
    texture = foveate.encode(picture)
    fixed = [resize_map(plane, (CELLS, CELLS)).ravel() for plane in (information(texture), perspective(texture))]
    found = [foveate.score(texture, text).on((CELLS, CELLS)).map.ravel() for text in texts]
    return np.array([[*fixed, own] for own in found], np.float32)


def seen_scenes(reader: Reader, asked: Asked) -> Tensor:
    """Tokens of all scenes as the reader sees them, [scenes, 256, width]; they do not depend on the balance."""
    with torch.no_grad():
        every = [reader.see(torch.from_numpy(labels(asked.made, n))[None]) for n in range(int(asked.scene.max()) + 1)]
    return torch.cat(every)


def by_answers(reader: Reader, asked: Asked, budget: int) -> Loss:
    """The loss of answers where each cell counts as soft selection has it."""
    seen = seen_scenes(reader, asked)

    def loss(form: nn.Module, rows: Any) -> Tensor:
        weights = soft_top(form(asked.planes[rows]), budget)
        bias = weights.clamp(min=1e-9).log()[:, None]
        logits, _ = reader.look(seen[asked.scene[rows]], asked.ids[rows][:, None], bias)
        return F.cross_entropy(logits[:, 0], asked.answers[rows])

    return loss


def answered(reader: Reader, asked: Asked, scores: Tensor, budget: int) -> NDArray[np.bool_]:
    """Which questions are answered right from the `budget` cells of the highest scores [q, 256]; others are dropped."""
    kept = torch.full_like(scores, float("-inf")).scatter(1, hard_top(scores, budget), 0.0)
    right = np.zeros(len(scores), bool)
    with torch.no_grad():
        for number, seen in enumerate(seen_scenes(reader, asked)):
            rows = np.flatnonzero(asked.scene == number)
            if len(rows):
                logits, _ = reader.look(seen[None], asked.ids[rows][None], kept[rows][None])
                right[rows] = (logits[0].argmax(-1) == asked.answers[rows]).numpy()
    return right


def on_scenes(
    reader: Reader, some: Asked, ways: dict[str, Score], budgets: dict[str, int] = BUDGETS
) -> tuple[Judged, list[str]]:
    """Way -> [questions, GROUP x BUDGET] of right answers, NaN where a question is of the other group; the columns."""
    named = np.isin(some.families, NAMED)
    groups = {"named": named, "not named": ~named}  # the thing that is the answer
    found: Judged = {"photograph": some.scene.astype(np.float64)}
    for way, score in ways.items():
        with torch.no_grad():
            scores = score(some.planes)
        hits = [answered(reader, some, scores, budget) for budget in budgets.values()]
        found[way] = np.stack([np.where(on, hit, np.nan) for hit in hits for on in groups.values()], 1)
    return found, [f"{group}, {budget}" for budget in budgets for group in groups]


# --- photographs ------------------------------------------------------------------------------------------------------


def planes_of(example: Example) -> list[Floats]:
    """Of each question: information, perspective and participation on the texture's cells, float32 [3, h, w]."""
    texture = example.texture
    fixed = [information(texture), perspective(texture)]
    return [np.stack([*fixed, foveate.score(texture, asked.text).map]) for asked in example.asked]


def small(examples: Sequence[Example]) -> dict[str, Floats]:
    """Planes float32 [q, 3, 256], and shares of the cells on the masks [q, 256]."""
    planes, masks = [], []
    for example in tqdm(examples, desc="planes", mininterval=5):
        for one, each in zip(example.asked, planes_of(example), strict=True):
            planes.append([resize_map(plane, (CELLS, CELLS)).ravel() for plane in each])
            masks.append(resize_map(one.mask.astype(np.float32), (CELLS, CELLS)).ravel())
        example.__dict__.pop("texture", None)
    return {"planes": np.array(planes, np.float32), "masks": np.array(masks, np.float32)}


def numbers(form: nn.Module) -> dict[str, list[float]]:
    """What a form has learned."""
    values = {name: value.detach() for name, value in form.named_parameters()}
    shown = {"logits": lambda v: v.softmax(0), "powers": lambda v: v.exp()}
    return {name: np.round(shown.get(name, lambda v: v)(v).numpy(), 4).tolist() for name, v in values.items()}


def fixed(fusion: Fusion) -> Score:
    """A fusion of the package on planes [q, 3, n]."""

    def score(planes: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(fusion.fuse(*planes.numpy().transpose(1, 0, 2)), np.float32))

    return score


def main() -> None:
    """Learns every form by three losses; answers on scenes, precision on photographs."""
    args = harness.start("balance", __doc__, out="balance")
    torch.set_num_threads(1)
    collage = args.cache / "collage"
    for side in SCENES:
        load(collage, side)  # so that nothing is learned in vain
    reader = learned_reader(load(collage, "train"), args.out / "reader.pt")
    train, held = (asked(args.data, collage, args.out, s, scenes=n, count=24) for s, n in SCENES.items())
    unseen = lambda: [e for e in harness.learning(args.data, args.cache) if e.held_out]  # noqa: E731
    kept = {n: torch.from_numpy(x) for n, x in once(args.out / "held_out.npz", lambda: small(unseen())).items()}
    losses = {
        "masks": (by_masks(kept["planes"], kept["masks"]), len(kept["planes"])),
        "scenes' masks": (by_masks(train.planes, train.masks), len(train.planes)),
        "answers": (by_answers(reader, train, BUDGET), len(train.planes)),
    }
    forms: dict[str, nn.Module] = {}
    for source, (loss, rows) in losses.items():
        for name, make in FORMS.items():
            torch.manual_seed(0)
            form, file = make(), args.out / f"{source.replace(chr(39), '').replace(' ', '_')}_{name}.pt"
            learn(form, loss, rows, file, steps=STEPS[source], rate=RATES[name])
            forms[f"{name}, by {source}"] = form.eval()
            print(f"{name}, by {source}", numbers(form))
    noise = torch.from_numpy(np.random.default_rng(1).random(held.masks.shape, np.float32))
    scores: dict[str, Score] = {name: fixed(fusion) for name, fusion in FUSIONS.items()} | {**forms}
    scores |= {"random": lambda _: noise, "oracle": lambda _: held.masks + 0.1 * noise}
    found, columns = on_scenes(reader, held, scores)
    print(f"\n{len(held.scene)} questions of held-out scenes\n\n{harness.table(found, columns, ALONE, columns)}\n")
    report: dict[str, Any] = {"learned": {name: numbers(form) for name, form in forms.items()}}
    report["scenes"] = harness.record(found, columns, ALONE)
    ways: dict[str, Fusion] = {**FUSIONS, **{name: Learned(name, form) for name, form in forms.items()}}
    for name, examples in harness.held_back(args.data, args.cache).items():
        judged = harness.judge(examples, lambda e: [{w: f.fuse(*p) for w, f in ways.items()} for p in planes_of(e)])
        print(f"\n{name}\n\n{harness.table(judged, harness.MEASURES, ALONE)}\n", flush=True)
        report[name] = harness.record(judged, harness.MEASURES, ALONE)
    harness.report(args, "balance", report)


if __name__ == "__main__":
    main()
