"""Ways to deliver the same elements, each in a process of its own, which take turns."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Batches", "measured", "parser", "passes", "serve", "table"]

Batches = Callable[[], Iterable[Any]]
"""A function that returns the batches of the next epoch."""

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def _cpu_seconds() -> float:
    """Return what this process and its children took, those that live too."""
    own = os.times()
    ended = own.user + own.system + own.children_user + own.children_system
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return ended + sum(each.user + each.system for each in times)


def parser(
    module: str, about: str | None, elements: str, count: int, *, files: bool = True
) -> argparse.ArgumentParser:
    """Return the command line of a module in which ways take turns; `count` is the default."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    made.add_argument("--count", type=int, default=count, help=f"{elements} ({count:,})")
    made.add_argument("--rounds", type=int, default=3, help="counted rounds (3)")
    made.add_argument("--way", help="serve this way (what the processes do)")
    if files:
        made.add_argument("--folder", type=Path, help="where they are, or are kept; else removed")
    return made


def passes(loader: Any, *, to_tf: bool) -> Batches:
    """Return the epochs of a loader, by `to_tf` or by NumPy."""
    if to_tf:
        dataset = loader.to_tf()
        return lambda: dataset
    epochs = itertools.count()
    return lambda: loader.epoch(next(epochs))


def serve(batches: Batches, elements: Callable[[Any], int]) -> None:
    """Deliver an epoch for each line of standard input, and say what it took; first say "ready".

    Parameters
    ----------
    batches : callable
        Returns the batches of the next epoch.
    elements : callable
        Returns how many elements a batch has.
    """
    print("ready", flush=True)
    for _ in sys.stdin:
        before, begun, count = _cpu_seconds(), time.perf_counter(), 0
        for batch in batches():
            count += elements(batch)
        batch = None
        found = {"seconds": time.perf_counter() - begun, "cpu": _cpu_seconds() - before}
        print(json.dumps({**found, "count": count}), flush=True)


def measured(
    module: str,
    names: Iterable[str],
    given: Sequence[str],
    rounds: int,
    *,
    warm_up: int = 1,
    pythons: Mapping[str, str] | None = None,
) -> dict[str, list[dict[str, float]]]:
    """Return what each way took in each round; a round before them warms up.

    Parameters
    ----------
    module : str
        Serves the way that ``--way`` names, with the arguments `given`; see `serve`.
    names : iterable of str
    given : sequence of str
    rounds : int
    warm_up : int
        Rounds before them.
    pythons : mapping of str to str, optional
        The interpreters of ways that do not run in this one.
    """
    processes = {
        name: subprocess.Popen(
            [(pythons or {}).get(name, sys.executable), "-m", module, "--way", name, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_QUIET},
        )
        for name in names
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in processes}
    try:
        # None begins while others import TensorFlow: connections that were starved in their first
        # round stay slow (rows of 1 MiB took 2.7 times as long for all rounds that followed).
        for process in processes.values():
            assert process.stdout is not None
            while process.stdout.readline() != "ready\n":
                assert process.poll() is None
        for _ in range(rounds + warm_up):
            for name, process in processes.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                found[name].append(json.loads(process.stdout.readline()))
    finally:
        for process in processes.values():
            process.communicate()
    return {name: each[warm_up:] for name, each in found.items()}


def table(
    found: dict[str, list[dict[str, float]]], what: str, ours: Callable[[str], str], count: int
) -> int:
    """Print a table of medians; return 1 if a way does not deliver `count` elements an epoch.

    `what` is an element; `ours` says which of our ways a way is compared with.
    """
    print(f"| way | {what}s/s | CPU, µs each | ours is faster | with less CPU |")
    print("|---|---:|---:|---:|---:|")
    for name, each in found.items():
        rate = statistics.median(count / one["seconds"] for one in each)
        cpu = statistics.median(one["cpu"] / count for one in each)
        pairs = list(zip(each, found[ours(name)], strict=True))
        times = statistics.median(one["seconds"] / mine["seconds"] for one, mine in pairs)
        less = statistics.median(one["cpu"] / mine["cpu"] for one, mine in pairs)
        print(f"| {name} | {rate:,.0f} | {1e6 * cpu:,.1f} | {times:.2f} | {less:.2f} |")
    return int(any(one["count"] != count for each in found.values() for one in each))
