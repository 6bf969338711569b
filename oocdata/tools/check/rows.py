"""What is wrong with the rows of an array: all of them are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import (
    ChecksumError,
    DamagedChunkError,
    MissingChunkError,
    MissingFileError,
    SourceError,
    TruncatedFileError,
)
from oocdata.formats.manifest import checksums_of, unit_rows
from oocdata.tools.check.result import Finding
from oocdata.tools.passes import Block, each_block, read_rows

__all__ = ["kind_of", "look_through", "ranges_of"]

_KINDS: dict[type[SourceError], str] = {
    TruncatedFileError: "truncated",
    DamagedChunkError: "damaged",
    ChecksumError: "changed",
    MissingChunkError: "missing",
    MissingFileError: "missing",
    SourceError: "unreadable",
}


def kind_of(error: SourceError) -> str:
    """Return what kind of finding an error is."""
    return next(kind for known, kind in _KINDS.items() if isinstance(error, known))


def look_through(
    view: View,
    *,
    expected: View | None = None,
    append: Callable[[NDArray[np.uint64]], object] | None = None,
    label: str = "",
) -> list[Finding]:
    """Read every row once, and say what is wrong with which.

    With `expected`, the checksum of each unit of rows, they are compared; `append` is called with
    the checksums of all units, block by block in order.
    """
    wanted = expected is not None or append is not None
    unit = unit_rows(view.shape, view.dtype) if wanted else 1
    failed: dict[str, Finding] = {}
    changed = Finding("changed", "every row must be what its checksum was made of; these are not.")
    bad = {"nan": Finding("nan", "NaN", values=0), "inf": Finding("inf", "infinite", values=0)}

    def look(block: Block) -> tuple[Block, dict[str, _Where], NDArray[np.uint64]]:
        checksums = checksums_of(block.values, unit) if wanted else np.empty(0, np.uint64)
        without_rows = replace(block, values=np.empty(0))
        return without_rows, _not_finite(block), checksums

    passed = each_block(view, look, goes_on=True, unit=unit, label=label)
    with closing(passed) as each:
        for block, found, checksums in each:
            for rows, error in block.failed:
                kind = kind_of(error)
                failed.setdefault(kind, Finding(kind, error.message)).add([rows])
            for name, (parts, count) in found.items():
                bad[name].values = (bad[name].values or 0) + count
                bad[name].add(parts)
            if append is not None:
                append(checksums)
            if expected is not None:
                start = block.rows.start
                units = range(start // unit, start // unit + len(checksums))
                wrong = read_rows(expected, units) != checksums
                for rows, _ in block.failed:  # nothing can be said of a unit with such a row
                    wrong[(rows.start - start) // unit : -((start - rows.stop) // unit)] = False
                changed.add(ranges_of(wrong, start, unit, len(view)))
    for one in bad.values():
        one.reason = f"{one.values:,} number{' is' if one.values == 1 else 's are'} {one.reason}."
    return [one for one in (*failed.values(), changed, *bad.values()) if one.row_count]


_Where: TypeAlias = tuple[list[range], int]
"""Rows with a kind of number that is not finite, and how many such numbers there are."""


def _not_finite(block: Block) -> dict[str, _Where]:
    found = [values for values in _floats(block.values) if not np.isfinite(values).all()]
    where = {}
    for name, is_bad in (("nan", np.isnan), ("inf", np.isinf)) if found else ():
        each = [is_bad(values).reshape(len(block.rows), -1) for values in found]
        mask: NDArray[np.bool_] = np.concatenate(each, axis=1)
        rows = ranges_of(np.asarray(mask.any(axis=1)), block.rows.start)
        where[name] = (list(rows), int(mask.sum()))
    return where


def _floats(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield what may hold NaN: an array of floats, or each such field at any depth."""
    if values.dtype.kind in "fc" or is_small_float(values.dtype):
        yield values
    for name in values.dtype.names or ():
        yield from _floats(values[name])


def ranges_of(
    chosen: NDArray[np.bool_], first: int = 0, step: int = 1, end: int | None = None
) -> Iterator[range]:
    """Yield the runs of what is true, as ranges of rows below `end`.

    Each entry stands for `step` rows, the first of them at `first`.

    Examples
    --------
    >>> list(ranges_of(np.array([True, True, False, True]), first=10))
    [range(10, 12), range(13, 14)]
    """
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    for start, stop in edges.reshape(-1, 2).tolist():
        last = first + stop * step
        yield range(first + start * step, last if end is None else min(last, end))
