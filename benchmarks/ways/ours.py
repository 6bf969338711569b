"""oocdata, as its README shows it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.files import KEY, array_path
from benchmarks.ways.way import way

__all__: list[str] = []


def loader(case: Case, path: Path) -> Any:
    """Return the loader of a case, within the memory that all ways may use for chunks."""
    import oocdata as ooc

    # Half of it is for decoded chunks.
    ooc.set_memory(2 * case.chunk_budget)
    key = KEY if case.format == "hdf5" else None
    rows = ooc.open(array_path(case, path), key)
    elements = rows.next_frame() if case.pairs else rows
    return elements.batches(case.batch, shuffle=case.order, seed=1)


def bound(case: Case, path: Path) -> int:
    """Return the bound on memory that `explain` states."""
    return int(loader(case, path).explain().resident_bytes)


@way("oocdata to_tf", "oocdata", "tensorflow", kind="ours", tf_data=True, bound=bound)
def to_tf(case: Case, path: Path) -> Iterable[Any]:
    dataset: Iterable[Any] = loader(case, path).to_tf()
    return dataset


@way("oocdata NumPy", "oocdata", kind="ours", bound=bound)
def numpy_batches(case: Case, path: Path) -> Iterable[Any]:
    batches: Iterable[Any] = loader(case, path)
    return batches
