"""A manifest is written: into a new file, which takes its name when it is complete.

See `oocdata.formats.manifest` for the format.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.engines.whole import sync_file
from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.manifest import CHECKSUM, FORMAT, RowChecksums, unit_rows

__all__ = ["ManifestWriter", "manifest_writer"]


@contextmanager
def manifest_writer(target: str, path: str, *, overwrite: bool = False) -> Iterator[ManifestWriter]:
    """Write a manifest: it is there, complete and on the disk, when the block ends.

    Nothing is if the block raises, or `ManifestWriter.discard` was called.
    """
    place, data = os.path.abspath(path), os.path.realpath(target)
    if os.path.join(os.path.realpath(path), "").startswith(os.path.join(data, "")):
        raise ArgumentError(f"a manifest must lie beside the data, not in it; got '{path}'.")
    if not overwrite and os.path.lexists(place):
        raise ArgumentError(
            f"the manifest '{place}' must not be there yet; it is. Pass "
            "overwrite=True to write over it."
        )
    unfinished = f"{place}.{os.getpid()}.new"
    try:
        archive = zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED)
    except OSError as error:
        raise SourceError(
            f"a manifest must be written to a folder where files may be made; {error.strerror}."
            " Give it another path.",
            path=place,
        ) from error
    try:
        with archive:
            writer = ManifestWriter(target, archive)
            yield writer
            writer.finish()
        if writer.kept:
            sync_file(unfinished)
            os.replace(unfinished, place)
            sync_file(os.path.dirname(place))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)


class ManifestWriter:
    """Writes the members of a manifest: a table for each dataset, then what they are of."""

    def __init__(self, target: str, archive: zipfile.ZipFile) -> None:
        self.target, self.archive = target, archive
        self.datasets: list[RowChecksums] = []
        self.kept = True

    def discard(self) -> None:
        """Leave nothing behind when the block ends."""
        self.kept = False

    @contextmanager
    def rows(
        self, key: str | None, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int
    ) -> Iterator[Callable[[NDArray[np.uint64]], None]]:
        """Write the table of a dataset: call what this gives with its checksums, in order."""
        unit, member = unit_rows(shape, dtype), f"rows/{len(self.datasets)}"
        rows = RowChecksums(key, shape, dtype.newbyteorder("<").str, axis, unit, member)
        with self.archive.open(f"{member}.npy", "w", force_zip64=True) as file:
            npy_format.write_array_header_1_0(
                file, {"descr": "<u8", "fortran_order": False, "shape": (rows.units,)}
            )

            def append(checksums: NDArray[np.uint64]) -> None:
                file.write(checksums.astype("<u8", copy=False).tobytes())

            yield append
        self.datasets.append(rows)

    def finish(self) -> None:
        """Write what the tables are of."""
        about = {
            "format": FORMAT,
            "checksum": CHECKSUM,
            "name": os.path.basename(self.target.rstrip("/")),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "datasets": [asdict(one) for one in self.datasets],
        }
        self.archive.writestr("manifest.json", json.dumps(about, allow_nan=False))
