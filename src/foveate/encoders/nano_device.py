"""nano and nano-fast on a GPU: the same files, run by torch (graph.py); `load_encoder("nano", device="cuda")`.

Features equal those of onnxruntime on the CPU to about 1e-5, so textures carry the same name and revision, and are
asked anywhere. Several images go through together where their padded sizes agree, in batches of 16, 8, 4, 2 and 1: each
size of a batch is a program of its own, and a batch that is filled up would be work for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.core.failures import run_in_halves
from foveate.core.threads import once
from foveate.encoders.graph import TorchGraph, read_graph
from foveate.encoders.nano import CALIBRATION, FAST_CALIBRATION, BuiltIn, NanoEncoder, NanoFastEncoder, fit_image
from foveate.encoders.protocol import Calibration, DenseFeatures, Floats

BATCH = 16  # images at once, a power of two


@once(2)
def _program(file: Path, device: str) -> TorchGraph:
    """Made once for each network and device; the two that were used last are kept, with their graphs."""
    return TorchGraph(read_graph(file), device)


class _OnDevice(BuiltIn):
    device: str

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """uint8 [H, W, 3] -> features float32 [h, w, D], at most 1 long; 64 cells along the default long side."""
        return self.encode_images([rgb], long_side=long_side)[0]

    def encode_images(
        self, images: Sequence[NDArray[np.uint8]], *, long_side: int | None = None
    ) -> list[DenseFeatures]:
        """Several images. Raises DeviceError where one of them alone does not fit, or the GPU stopped working."""
        fitted = [fit_image(rgb, long_side) for rgb in images]
        out: dict[int, DenseFeatures] = {}
        for shape in sorted({padded.shape for padded, _ in fitted}):
            members = [i for i, (padded, _) in enumerate(fitted) if padded.shape == shape]
            while members:
                count = 1 << min(len(members), BATCH).bit_length() - 1
                batch, members = members[:count], members[count:]
                features = run_in_halves(self._run, [fitted[i][0] for i in batch], self.device)
                out |= {i: self._cut(each, fitted[i][1]) for i, each in zip(batch, features, strict=True)}
        return [out[i] for i in range(len(images))]

    def _run(self, padded: Sequence[NDArray[np.uint8]]) -> list[Floats]:
        return list(_program(self.folder / self.files[0], self.device)(np.stack(padded)))


@dataclass(frozen=True, repr=False)
class NanoOnDevice(_OnDevice, NanoEncoder):
    """nano by torch. `NanoOnDevice.built_in(device="cuda:0")`."""

    name: str = "nano"
    calibration: Calibration = CALIBRATION
    device: str = "cpu"


@dataclass(frozen=True, repr=False)
class NanoFastOnDevice(_OnDevice, NanoFastEncoder):
    """nano-fast by torch."""

    name: str = "nano-fast"
    calibration: Calibration = FAST_CALIBRATION
    device: str = "cpu"
