"""The kinds of figures that are asked for: each is computed from the results of one run."""

from __future__ import annotations

from benchmarks.results import Results, ratio
from benchmarks.section import Target

__all__ = ["as_fast", "faster", "first_batch", "more_memory", "of_bound"]

_MIB = 2**20


def faster(
    what: str, asked: float, ours: str, *than: str, case: str | None = None, consumer: str = "loop"
) -> Target:
    """Ask for a ratio of rates, to the fastest of some ways, in the same run."""

    def measure(results: Results) -> float | None:
        if len(than) > 1:
            return ratio(results.find(ours, case, consumer), results.best(than, case))
        return ratio(results.find(ours, case, consumer), results.find(than[0], case, consumer))

    return Target(what, asked, measure)


def as_fast(way: str, case: str, other: str, asked: float) -> Target:
    """Ask for a ratio of one way's rates on two cases."""

    def measure(results: Results) -> float | None:
        return ratio(results.find(way, case), results.find(way, other))

    return Target(f"{case}: of the rate on {other} ({way})", asked, measure)


def first_batch(what: str, way: str, case: str, asked: float) -> Target:
    """Ask for the milliseconds from opening the file to the first batch."""

    def measure(results: Results) -> float | None:
        found = results.find(way, case)
        return found.first * 1000 if found else None

    return Target(f"{what}, {way}", asked, measure, "ms", at_most=True)


def more_memory(way: str, few: str, many: str, asked: float) -> Target:
    """Ask for the MiB by which memory grows more on one case than on another."""

    def measure(results: Results) -> float | None:
        small, large = results.find(way, few), results.find(way, many)
        return (large.growth - small.growth) / _MIB if small and large else None

    what = f"{many}: more memory than {few} ({way})"
    return Target(what, asked, measure, "MiB", at_most=True)


def of_bound(way: str, case: str) -> Target:
    """Ask for no more memory than the way itself says it needs."""

    def measure(results: Results) -> float | None:
        found = results.find(way, case)
        return found.growth / found.bound if found and found.bound else None

    what = f"{case}: memory grew by this part of what explain() says ({way})"
    return Target(what, 1.0, measure, at_most=True)
