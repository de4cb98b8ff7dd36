"""Do the maps of the shipped file, whose segmenters count in integers, agree with those of the float network?"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from training.nano.features import fitted

CORRELATION, DIFFERENCE, LOST = 0.99, 0.05, 0.1  # measured: 0.997, 0.02 and 0.04
CLEAR = 0.1  # maps whose peak is lower hold no peak to lose
SAMPLE = 4  # every fourth photograph of an archive


class Agreement(NamedTuple):
    """Least correlation of a name, largest difference of a value, largest loss at a peak in shares of the peak, and
    the share of clear peaks that lie within one cell of where they were."""

    correlation: float
    difference: float
    lost: float
    kept: float

    def bad(self) -> bool:
        return not (self.correlation >= CORRELATION and self.difference <= DIFFERENCE and self.lost <= LOST)

    def __str__(self) -> str:
        return (
            f"least correlation {self.correlation:.4f}, largest difference {self.difference:.3f}, "
            f"lost at a peak {self.lost:.1%}, peaks kept {self.kept:.1%}"
        )


def photographs(folder: Path, archive: Path | None = None) -> list[np.ndarray]:
    """JPEG files of a folder and a sample of an archive's, as the network sees them: uint8 [1, H, W, 3]."""
    files = [Image.open(path) for path in sorted(folder.glob("*.jpg"))]
    if archive is not None and archive.exists():
        with tarfile.open(archive) as tar:
            members = sorted((m for m in tar.getmembers() if m.name.endswith(".jpg")), key=lambda m: m.name)[::SAMPLE]
            files += [Image.open(io.BytesIO(tar.extractfile(m).read())) for m in members]
    return [fitted(np.array(image.convert("RGB")))[0][None] for image in files]


def compare(pairs: list[tuple[np.ndarray, np.ndarray]]) -> Agreement:
    """(float planes, shipped planes) of each photograph, both [h, w, names]."""
    exact, ours = (np.concatenate([pair[k].reshape(-1, pair[k].shape[-1]) for pair in pairs]) for k in (0, 1))
    spoken = exact.std(0) > 0
    correlations = [np.corrcoef(exact[:, i], ours[:, i])[0, 1] for i in np.flatnonzero(spoken)]
    lost, near = [0.0], []
    for a, b in pairs:
        for i in np.flatnonzero(a.max((0, 1)) > CLEAR):
            was, now = (np.array(np.unravel_index(x[..., i].argmax(), x.shape[:2])) for x in (a, b))
            lost.append(1 - float(a[..., i][tuple(now)] / a[..., i].max()))
            near.append(bool(np.abs(was - now).max() <= 1))
    return Agreement(min(correlations), float(np.abs(exact - ours).max()), max(lost), float(np.mean(near or [True])))


def agreement(float_session: Any, session: Any, images: list[np.ndarray]) -> Agreement:
    return compare([(float_session.run(None, {"rgb": x})[0][0], session.run(None, {"rgb": x})[0][0]) for x in images])
