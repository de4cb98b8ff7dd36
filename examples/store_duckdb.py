"""SQL beside the images: what a search found, and a store's columns (extra `[store]`, and `pip install duckdb`).

    python examples/store_duckdb.py                                   # the photographs that come with foveate
    python examples/store_duckdb.py photos.fov "a dog" "a beach"      # a store of yours

DuckDB reads the Arrow tables that Lance gives; no image is looked at again.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa

from foveate import Store

TOLD = ["id", "name", "width", "height", "taken", "tags", "file_bytes"]  # DuckDB takes no float16: vectors stay out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", nargs="?", help="left out, one is made in a temporary folder")
    parser.add_argument("questions", nargs="*", default=["broccoli", "a bus", "a cup of coffee"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(args.store or Path(folder) / "photos.fov")
        if args.store is None:
            store.add(str(files("foveate") / "cli" / "photos"), columns={"album": "samples"})

        photos = store.dataset.to_table(columns=TOLD)
        hits = pa.Table.from_pylist(
            [
                {"id": hit.id, "question": question, "score": hit.score}
                for question, found in zip(args.questions, store.search(args.questions, k=100), strict=True)
                for hit in found
                if hit.detected
            ],
            pa.schema([("id", pa.string()), ("question", pa.string()), ("score", pa.float64())]),
        )
        with duckdb.connect() as sql:
            sql.register("photos", photos)
            sql.register("hits", hits)
            print(sql.sql("SELECT count(*) AS images, sum(width * height) / 1e6 AS megapixels FROM photos"))
            print(
                sql.sql(
                    "SELECT question, count(*) AS images, max_by(name, score) AS best, round(max(score), 3) AS score "
                    "FROM hits JOIN photos USING (id) WHERE width >= 300 GROUP BY question ORDER BY question"
                )
            )


if __name__ == "__main__":
    main()
