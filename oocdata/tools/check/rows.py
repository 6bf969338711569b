"""Read all rows of an array once, and find unreadable rows, changed rows, NaN and infinities.

Their checksums are written to a manifest; see `oocdata.formats.manifest` for the format.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.engines.atomic import atomic_file, write_errors
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import (
    ArgumentError,
    ChecksumError,
    DamagedChunkError,
    MissingChunkError,
    MissingFileError,
    SourceError,
    TruncatedFileError,
)
from oocdata.formats.manifest import CHECKSUM, FORMAT, RowChecksums, checksums_of, unit_rows
from oocdata.index import as_flag
from oocdata.tools.check.result import Finding
from oocdata.tools.passes import Block, each_block, read_rows

_KINDS: dict[type[SourceError], str] = {
    TruncatedFileError: "truncated",
    DamagedChunkError: "damaged",
    ChecksumError: "changed",
    MissingChunkError: "unwritten",
    MissingFileError: "missing",
    SourceError: "unreadable",
}


def kind_of(error: SourceError) -> str:
    """Return the kind of finding for an error."""
    return next(kind for known, kind in _KINDS.items() if isinstance(error, known))


def check_rows(
    view: View,
    *,
    expected: View | None = None,
    append: Callable[[NDArray[np.uint64]], object] | None = None,
    label: str = "",
) -> list[Finding]:
    """Read every row once, and return what is wrong with which rows.

    `expected` holds the checksum of each unit of rows, to compare with. `append` is called with
    the checksums of each block, in order.
    """
    with_checksums = expected is not None or append is not None
    unit = unit_rows(view.shape, view.dtype) if with_checksums else 1
    failed: dict[str, Finding] = {}
    changed = Finding("changed", "every row must match its checksum; these do not.")
    not_finite = {
        "nan": Finding("nan", "NaN", values=0),
        "inf": Finding("inf", "infinite", values=0),
    }

    def inspect(block: Block) -> tuple[Block, dict[str, _Counted], NDArray[np.uint64]]:
        checksums = checksums_of(block.values, unit) if with_checksums else np.empty(0, np.uint64)
        without_values = replace(block, values=np.empty(0))
        return without_values, _not_finite(block), checksums

    blocks = each_block(view, inspect, continue_on_error=True, unit=unit, label=label)
    with closing(blocks):
        for block, counted, checksums in blocks:
            for rows, error in block.failed:
                kind = kind_of(error)
                failed.setdefault(kind, Finding(kind, error.message)).add([rows])
            for name, (ranges, count) in counted.items():
                not_finite[name].values = (not_finite[name].values or 0) + count
                not_finite[name].add(ranges)
            if append is not None:
                append(checksums)
            if expected is not None:
                start = block.rows.start
                units = range(start // unit, start // unit + len(checksums))
                different = read_rows(expected, units) != checksums
                for rows, _ in block.failed:  # unreadable, which is not known to be changed
                    first, stop = (rows.start - start) // unit, -((start - rows.stop) // unit)
                    different[first:stop] = False
                changed.add(ranges_of(different, start, unit, len(view)))
    for finding in not_finite.values():
        verb = " is" if finding.values == 1 else "s are"
        finding.reason = f"{finding.values:,} number{verb} {finding.reason}."
    findings = (*failed.values(), changed, *not_finite.values())
    return [finding for finding in findings if finding.row_count]


_Counted: TypeAlias = tuple[list[range], int]
"""Rows with NaN (or infinite) numbers, and the count of such numbers."""


def _not_finite(block: Block) -> dict[str, _Counted]:
    arrays = [values for values in _floats(block.values) if not np.isfinite(values).all()]
    counted = {}
    for name, test in (("nan", np.isnan), ("inf", np.isinf)) if arrays else ():
        masks = [test(values).reshape(len(block.rows), -1) for values in arrays]
        mask: NDArray[np.bool_] = np.concatenate(masks, axis=1)
        rows = ranges_of(np.asarray(mask.any(axis=1)), block.rows.start)
        counted[name] = (list(rows), int(mask.sum()))
    return counted


def _floats(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the arrays of floats: the array itself, or its fields at any depth."""
    if values.dtype.kind in "fc" or is_small_float(values.dtype):
        yield values
    for name in values.dtype.names or ():
        yield from _floats(values[name])


def ranges_of(
    mask: NDArray[np.bool_], first: int = 0, step: int = 1, end: int | None = None
) -> Iterator[range]:
    """Yield the runs of true entries of a mask, as ranges of rows below `end`.

    Each entry stands for `step` rows; the first entry begins at row `first`.
    """
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    for start, stop in edges.reshape(-1, 2).tolist():
        last = first + stop * step
        yield range(first + start * step, last if end is None else min(last, end))


TableWriter: TypeAlias = Callable[
    [View], AbstractContextManager[Callable[[NDArray[np.uint64]], object]]
]
"""Open the table of a view; the context is a function to call with the checksums, in order."""


@contextmanager
def manifest_writer(target: str, path: str, *, overwrite: bool) -> Iterator[TableWriter]:
    """Write a manifest; the file appears, complete and synced, unless the context raises."""
    full_path, data = os.path.abspath(path), os.path.realpath(target)
    if os.path.join(os.path.realpath(path), "").startswith(os.path.join(data, "")):
        raise ArgumentError(f"a manifest must be beside the data, not in it; got '{path}'.")
    if not as_flag("overwrite", overwrite) and os.path.lexists(full_path):
        raise ArgumentError(
            f"the manifest '{full_path}' must not exist yet; it does. Pass overwrite=True to "
            "replace it."
        )
    datasets: list[RowChecksums] = []
    with (
        write_errors(full_path),
        atomic_file(full_path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):

        @contextmanager
        def table(view: View) -> Iterator[Callable[[NDArray[np.uint64]], object]]:
            unit, member = unit_rows(view.shape, view.dtype), f"rows/{len(datasets)}"
            dtype = view.dtype.newbyteorder("<").str
            rows = RowChecksums(view.storage.key, view.shape, dtype, view.axes[0], unit, member)
            header: Any = {"descr": "<u8", "fortran_order": False, "shape": (rows.units,)}
            with archive.open(f"{member}.npy", "w", force_zip64=True) as file:
                npy_format.write_array_header_1_0(file, header)
                yield lambda checksums: file.write(checksums.astype("<u8", copy=False).tobytes())
            datasets.append(rows)

        yield table
        header = {
            "format": FORMAT,
            "checksum": CHECKSUM,
            "name": os.path.basename(target.rstrip("/")),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "datasets": [asdict(rows) for rows in datasets],
        }
        archive.writestr("manifest.json", json.dumps(header, allow_nan=False))
