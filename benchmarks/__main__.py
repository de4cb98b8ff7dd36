"""`python -m benchmarks`: every number of ours."""

from benchmarks.command import bench
from foveate.cli.main import run

if __name__ == "__main__":
    run(bench)
