"""One way in a process of its own, which runs an epoch whenever it is told to.

So the memory of a way is its own, and the rounds of all ways can still be interleaved.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.case import Case
from benchmarks.ways import WAYS

__all__: list[str] = []


def resident(field: str) -> int:
    """Return a figure of this process's memory in bytes: VmRSS (now) or VmHWM (peak)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def warm_up() -> None:
    """Load TensorFlow and run its threads once: not what is measured."""
    import keras  # noqa: F401
    import tensorflow as tf

    for _ in tf.data.Dataset.range(64).map(lambda x: x + 1, num_parallel_calls=2).batch(8):
        pass


def main() -> None:
    way, case_text, path = sys.argv[1:]
    fields = json.loads(case_text)
    case = Case(**{**fields, "element": tuple(fields["element"])})
    if not way.startswith("limit"):
        warm_up()
    start = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak
    dataset = WAYS[way](case, path)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        first = None
        batches = 0
        for _batch in dataset:
            if first is None:
                first = time.perf_counter() - began
            batches += 1
        seconds = time.perf_counter() - began
        print(
            json.dumps(
                {
                    "seconds": seconds,
                    "first_batch": first,
                    "batches": batches,
                    "growth": resident("VmHWM") - start,
                }
            ),
            flush=True,
        )
    os._exit(0)  # nothing of the peers' exits is measured


if __name__ == "__main__":
    main()
