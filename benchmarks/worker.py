"""One way in a process of its own, which does what it is told, a line of JSON at a time.

So the memory of a way is its own, and the rounds of all ways can still be interleaved. Commands:

``open``: make the dataset. ``epoch``: iterate over it, timed. ``check``: iterate over it and look.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.check import check
from benchmarks.layouts.layout import LayoutCase
from benchmarks.memory import forget_peak, memory, peak
from benchmarks.ways import WAYS, Way

__all__ = ["Session", "case_from"]

FEWEST_BATCHES = 8
"""Batches of a round, at least, however slow the way."""

SHARE_TO_GO_ON = 0.25
"""A way that has delivered this share of its epoch when its time is up goes on to the end.

What was read ahead would count for nothing if it were stopped.
"""


def case_from(text: str) -> Any:
    """Return the case that a line of JSON describes."""
    fields = json.loads(text)
    if "layout" in fields:
        return LayoutCase(**fields)
    return Case(**{**fields, "element": tuple(fields["element"])})


_READERS = {
    "hdf5": ("h5py", "imagecodecs"),
    "zarr": ("imagecodecs", "zarr"),
    "": ("h5py", "imagecodecs", "zarr"),  # layouts are of both
}
"""What reads a format, in one way or another: imported for all ways alike."""


def _warm_up(way: Way, case: Case) -> None:
    """Import what the way needs and run its threads once: not what is measured."""
    for package in (*way.packages, *_READERS.get(case.format, ())):
        importlib.import_module(package)
    if "tensorflow" in way.packages:
        import tensorflow as tf

        numbers = tf.data.Dataset.range(64)
        numbers = numbers.map(lambda x: tf.numpy_function(abs, [x], tf.int64), num_parallel_calls=2)
        for _ in numbers.batch(8).prefetch(2):
            pass


class Session:
    """A way on a case: what the commands do."""

    def __init__(self, way: Way, case: Case, path: Path) -> None:
        self.way, self.case, self.path = way, case, path
        self.drain: Callable[..., Any] | None = None
        _warm_up(way, case)
        gc.collect()
        self.before = memory()
        forget_peak()

    def open(self) -> dict[str, Any]:
        """Make the dataset."""
        began = time.perf_counter()
        self.dataset = self.way.make(self.case, self.path)
        return {"seconds": time.perf_counter() - began}

    def epoch(self, seconds: float, consumer: str) -> dict[str, Any]:
        """Iterate over one epoch, or as much of it as some seconds give."""
        if consumer == "graph":
            return self._epoch_in_a_graph(seconds)
        fewest = FEWEST_BATCHES
        clock = time.perf_counter
        batches = elements = 0
        batch: Any = None
        began = clock()
        iterator: Iterator[Any] = iter(self.dataset)
        first = 0.0
        for batch in iterator:
            batches += 1
            if batches == 1:
                first = clock() - began
            if self.way.kind == "limit" and isinstance(batch, int):
                elements += batch
            if clock() - began > seconds and batches >= fewest:
                if batches * self.case.batch < SHARE_TO_GO_ON * self.case.elements:
                    break
                seconds = math.inf
        taken = clock() - began
        del iterator, batch
        gc.collect()
        elements = elements or min(batches * self.case.batch, self.case.elements)
        return {"seconds": taken, "first_batch": first, "elements": elements} | self._growth()

    def _epoch_in_a_graph(self, seconds: float) -> dict[str, Any]:
        """What a compiled loop sees: the batches never come to Python."""
        import tensorflow as tf

        if self.drain is None:

            @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
            def drain(dataset: Any, deadline: Any) -> Any:
                def goes_on(number: Any, _: Any) -> Any:
                    in_time = tf.timestamp() < deadline
                    return in_time | (number < FEWEST_BATCHES) | (number >= far)

                timely = dataset.enumerate().take_while(goes_on)
                return timely.reduce(zero, lambda count, _: count + 1)

            zero = tf.constant(0, tf.int64)
            far = math.ceil(SHARE_TO_GO_ON * self.case.elements / self.case.batch)
            drain(self.dataset, tf.constant(0.0, tf.float64))  # traced before it is timed
            self.drain = drain
        began = time.perf_counter()
        deadline = tf.constant(time.time() + seconds, tf.float64)
        batches = int(self.drain(self.dataset, deadline))
        taken = time.perf_counter() - began
        elements = min(batches * self.case.batch, self.case.elements)
        return {"seconds": taken, "first_batch": None, "elements": elements} | self._growth()

    def check(self, seconds: float) -> dict[str, Any]:
        """Look at what one epoch delivers."""
        found = dataclasses.asdict(check(self.case, self.dataset, seconds))
        found["anonymous"] -= self.before.anonymous
        found["file"] -= self.before.file
        return found

    def bound(self) -> dict[str, Any]:
        """Say what the way itself says about its memory."""
        return {"bound": self.way.bound and self.way.bound(self.case, self.path)}

    def _growth(self) -> dict[str, Any]:
        return {"growth": max(peak(), memory().total) - self.before.total}


def main() -> None:
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, case_text, path = sys.argv[1:4]
    way, case = WAYS[name], case_from(case_text)
    if sys.argv[4:] == ["convert"]:
        assert way.convert is not None
        began = time.perf_counter()
        converted = way.convert(case, Path(path))
        print(
            json.dumps({"path": str(converted), "seconds": time.perf_counter() - began}),
            file=answers,
            flush=True,
        )
        return
    session = Session(way, case, Path(path))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        result = getattr(session, command.pop("do"))(**command)
        print(json.dumps(result), file=answers, flush=True)
    os._exit(0)  # nothing of the peers' exits is measured


if __name__ == "__main__":
    main()
