"""Writing a manifest: streamed into a new file, which takes its name when it is complete.

See `oocdata.formats.manifest` for the format.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.checksums import CHECKSUM, running_checksum, unit_rows
from oocdata.formats.manifest import FORMAT, RowChecksums
from oocdata.writers.disk import sync_file

__all__ = ["ManifestWriter", "list_as_json"]


def list_as_json(files: Sequence[tuple[str, int]]) -> bytes:
    """Return the list of files as a manifest keeps it.

    Examples
    --------
    >>> list_as_json([("c/0", 3)])
    b'[["c/0",3]]'
    """
    return json.dumps(files, separators=(",", ":")).encode("ascii")


class ManifestWriter:
    """Writes one manifest: first the rows of each dataset, then the stored bytes.

    A context manager: the file is there, complete and on the disk, when the block ends; nothing is
    if it raises, or if `discard` was called.

    Parameters
    ----------
    target : str
        What it is of.
    path : str
        Where to write it.
    overwrite : bool
        Write over an existing file.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there is a file already, or `path` lies inside of the data.
    oocdata.errors.SourceError
        If nothing can be written there.
    """

    def __init__(self, target: str, path: str, *, overwrite: bool = False) -> None:
        self.target, self.path, self.overwrite = target, os.path.abspath(path), overwrite
        inside = os.path.join(os.path.realpath(target), "")
        if os.path.realpath(self.path).startswith(inside) or (
            os.path.exists(self.path)
            and os.path.exists(target)
            and os.path.samefile(self.path, target)
        ):
            raise ArgumentError(f"a manifest must lie beside the data, not in it; got '{path}'.")
        self._refuse_to_overwrite()
        self.datasets: list[RowChecksums] = []
        self._kept = True

    def _refuse_to_overwrite(self) -> None:
        if not self.overwrite and os.path.lexists(self.path):
            raise ArgumentError(
                f"the manifest '{self.path}' must not be there yet; it is. Pass "
                "overwrite=True to write over it."
            )

    def __enter__(self) -> Self:
        folder, name = os.path.split(self.path)
        try:
            number, self._temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        except OSError as error:
            raise SourceError(
                f"a manifest must be written to a folder where files may be made; {error.strerror}."
                " Give it another path.",
                path=self.path,
            ) from error
        self._file = os.fdopen(number, "wb")
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # Closed in any case, so that the archive does not warn of it later.
            self._archive.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if kind is None and self._kept:
                self._refuse_to_overwrite()
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)
                os.replace(self._temporary, self.path)
                sync_file(os.path.dirname(self.path))
        finally:
            self._file.close()
            if os.path.exists(self._temporary):
                os.unlink(self._temporary)

    def discard(self) -> None:
        """Leave nothing behind when the block ends."""
        self._kept = False

    @contextmanager
    def rows(
        self, key: str | None, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int
    ) -> Iterator[Callable[[NDArray[np.uint64]], None]]:
        """Write the table of a dataset: call what this gives with its checksums, in order."""
        unit = unit_rows(shape, dtype)
        member = f"rows/{len(self.datasets)}"
        rows = RowChecksums(key, shape, dtype.newbyteorder("<").str, axis, unit, member, "")
        digest = running_checksum()
        with self._table(member, rows.units, digest) as append:
            yield append
        self.datasets.append(replace(rows, table=digest.hexdigest()))

    def stored(
        self,
        files: Sequence[tuple[str, int]],
        block_bytes: int,
        checksums: Iterator[NDArray[np.uint64]],
        findings: Sequence[dict[str, Any]],
    ) -> None:
        """Write the list of files and the checksums of their blocks, and what holds it together."""
        listed = list_as_json(files)
        self._archive.writestr("files.json", listed)
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
        self._archive.writestr("manifest.json", json.dumps(about, allow_nan=False))

    @contextmanager
    def _table(
        self, member: str, count: int, digest: Any
    ) -> Iterator[Callable[[NDArray[np.uint64]], None]]:
        with self._archive.open(f"{member}.npy", "w", force_zip64=True) as file:
            npy_format.write_array_header_1_0(
                file, {"descr": "<u8", "fortran_order": False, "shape": (count,)}
            )

            def append(checksums: NDArray[np.uint64]) -> None:
                data = checksums.astype("<u8", copy=False).tobytes()
                digest.update(data)
                file.write(data)

            yield append
