"""Every image of a store against a question, on the workers of a Ray cluster (extra `[ray]`): how often is it there?

    python examples/store_ray.py                                             # the photographs that come with foveate
    python examples/store_ray.py photos.fov "a dog" --address auto           # a store of yours, on a cluster

`store.search` finds the best; this looks at all, exactly, and reads no image file. Each worker opens the store once, so
it must be where all of them can read: a common disk, or s3://...
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import ray

from foveate import Store


class Look:
    """Ids of images -> how sure it is that each thing is there."""

    def __init__(self, store: str, question: str) -> None:
        self.store, self.question = Store(store), question

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        where = "id IN (" + ", ".join(f"'{id}'" for id in batch["id"]) + ")"
        count = len(batch["id"])
        sure = {hit.id: hit.score for hit in self.store.search(self.question, count, where=where, rerank=count)}
        return {**batch, "score": np.array([sure.get(id, 0.0) for id in batch["id"]])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", nargs="?", help="left out, one is made in a temporary folder")
    parser.add_argument("question", nargs="?", default="a bus")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--address", help="of a cluster; left out, a Ray is started here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(args.store or Path(folder) / "photos.fov")
        if args.store is None:
            store.add(str(files("foveate") / "cli" / "photos"))

        ray.init(address=args.address, num_cpus=None if args.address else args.workers + 1, include_dashboard=False)
        try:
            rows = ray.data.from_arrow(store.dataset.to_table(columns=["id", "name", "taken"]))
            looked = rows.map_batches(
                Look, fn_constructor_args=(store.path, args.question), batch_size=256,
                compute=ray.data.ActorPoolStrategy(size=args.workers),
            ).take_all()  # fmt: skip
        finally:
            ray.shutdown()
    found = sorted((row for row in looked if row["score"] >= 0.5), key=lambda row: -row["score"])
    print(f"{args.question}: in {len(found)} of {len(looked)} images")
    for row in found[:10]:
        print(f"  {row['score']:.3f}  {row['name']}")


if __name__ == "__main__":
    main()
