"""Writing a manifest: streamed into a new file, which takes its name when it is complete.

See `oocdata.formats.manifest` for the format.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.checksums import CHECKSUM, running_checksum, unit_rows
from oocdata.formats.manifest import FORMAT, RowChecksums
from oocdata.writers.disk import sync_file

__all__ = ["ManifestWriter", "list_as_json", "manifest_writer"]


def list_as_json(files: Sequence[tuple[str, int]]) -> bytes:
    """Return the list of files as a manifest keeps it."""
    return json.dumps(files, separators=(",", ":")).encode("ascii")


@contextmanager
def manifest_writer(target: str, path: str, *, overwrite: bool = False) -> Iterator[ManifestWriter]:
    """Write a manifest: it is there, complete and on the disk, when the block ends.

    Nothing is if the block raises, or `ManifestWriter.discard` was called.
    """
    wanted, data = os.path.realpath(path), os.path.realpath(target)
    folder, name = os.path.split(os.path.abspath(path))
    place = os.path.join(folder, name)

    def refuse_to_overwrite() -> None:
        if not overwrite and os.path.lexists(place):
            raise ArgumentError(
                f"the manifest '{place}' must not be there yet; it is. Pass "
                "overwrite=True to write over it."
            )

    if wanted == data or wanted.startswith(os.path.join(data, "")):
        raise ArgumentError(f"a manifest must lie beside the data, not in it; got '{path}'.")
    refuse_to_overwrite()
    try:
        # A folder of its own, so that the file has the permissions of any that is made there.
        scratch = tempfile.mkdtemp(prefix=f".{name}.", dir=folder)
    except OSError as error:
        raise SourceError(
            f"a manifest must be written to a folder where files may be made; {error.strerror}."
            " Give it another path.",
            path=place,
        ) from error
    try:
        made = os.path.join(scratch, name)
        with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
            writer = ManifestWriter(target, archive)
            yield writer
        if writer.kept:
            sync_file(made)
            refuse_to_overwrite()
            os.replace(made, place)
            sync_file(folder)
    finally:
        shutil.rmtree(scratch)


class ManifestWriter:
    """Writes the members of a manifest: first the rows of each dataset, then the stored bytes."""

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
        rows = RowChecksums(key, shape, dtype.newbyteorder("<").str, axis, unit, member, "")
        digest = running_checksum()
        with self._table(member, rows.units, digest) as append:
            yield append
        self.datasets.append(replace(rows, table=digest.hexdigest()))

    def stored(
        self,
        files: Sequence[tuple[str, int]],
        block_bytes: int,
        checksums: Iterable[NDArray[np.uint64]],
        findings: Sequence[dict[str, Any]],
    ) -> None:
        """Write the list of files and the checksums of their blocks, and what holds it together."""
        listed = list_as_json(files)
        self.archive.writestr("files.json", listed)
        digest = running_checksum(listed)
        count = sum(-(-nbytes // block_bytes) for _, nbytes in files)
        with self._table("stored", count, digest) as append:
            for some in checksums:
                append(some)
        about = {
            "format": FORMAT,
            "checksum": CHECKSUM,
            "name": os.path.basename(self.target.rstrip("/")),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "files": len(files),
            "block_bytes": block_bytes,
            "blocks": digest.hexdigest(),
            "datasets": [asdict(one) for one in self.datasets],
            "findings": list(findings),
        }
        self.archive.writestr("manifest.json", json.dumps(about, allow_nan=False))

    @contextmanager
    def _table(
        self, member: str, count: int, digest: Any
    ) -> Iterator[Callable[[NDArray[np.uint64]], None]]:
        with self.archive.open(f"{member}.npy", "w", force_zip64=True) as file:
            npy_format.write_array_header_1_0(
                file, {"descr": "<u8", "fortran_order": False, "shape": (count,)}
            )

            def append(checksums: NDArray[np.uint64]) -> None:
                data = checksums.astype("<u8", copy=False).tobytes()
                digest.update(data)
                file.write(data)

            yield append
