"""A manifest is written, and files are compared with one: their bytes as they lie on disk.

It is streamed into a new file, which takes its name when it is complete. See
`oocdata.formats.manifest` for the format.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, ManifestError, SourceError
from oocdata.explain import size
from oocdata.formats.manifest import (
    CHECKSUM,
    FORMAT,
    Manifest,
    RowChecksums,
    checksums_of,
    running_checksum,
    unit_rows,
)
from oocdata.threads import in_order_by_few
from oocdata.tools.check.result import Finding
from oocdata.tools.passes import each_block, read_rows
from oocdata.tools.progress import progress as bar
from oocdata.tools.ranges import Ranges, ranges_of, said
from oocdata.writers.disk import sync_file

__all__ = [
    "BLOCK_BYTES", "ManifestWriter", "block_checksums", "changes", "data_files", "manifest_writer",
]  # fmt: skip


def _list_as_json(files: Sequence[tuple[str, int]]) -> bytes:
    """Return the list of files as a manifest keeps it."""
    return json.dumps(files, separators=(",", ":")).encode("ascii")


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
        if writer.kept:
            sync_file(unfinished)
            os.replace(unfinished, place)
            sync_file(os.path.dirname(place))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)


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
        listed = _list_as_json(files)
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


BLOCK_BYTES = 1 << 20

_READ_BYTES = 8 << 20
"""Of a file at a time; a whole number of blocks."""

Files: TypeAlias = Sequence[tuple[str, int]]
"""Name and bytes of each file."""


def data_files(target: str) -> list[tuple[str, int]]:
    """Return name and bytes of every file of a file or folder, ascending by name.

    Links are followed; names are relative, as ``c/0``, and empty for a target that is one file.
    None at a URL, where they can't be listed.
    """
    if "://" in target:
        return []
    if not os.path.isdir(target):
        return [("", os.path.getsize(target))]
    return sorted(_below(target, "", set()))


def _below(folder: str, prefix: str, entered: set[tuple[int, int]]) -> Iterator[tuple[str, int]]:
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in entered:  # a link that leads back up
        return
    entered.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        name = prefix + entry.name
        if entry.is_dir():
            yield from _below(entry.path, f"{name}/", entered)
        elif entry.is_file():
            yield name, entry.stat().st_size


def block_checksums(
    target: str, files: Files, label: str = ""
) -> Iterator[tuple[str, int, NDArray[np.uint64]]]:
    """Yield (file, number of its first block, checksums of blocks that follow one another)."""

    def read(part: tuple[str, int, int]) -> tuple[str, int, NDArray[np.uint64], int]:
        name, start, nbytes = part
        path = os.path.join(target, name) if name else target
        try:
            with open(path, "rb") as file:
                file.seek(start)
                data = file.read(nbytes)
        except OSError as error:
            raise SourceError(f"every byte must be readable; {error}.", path=path) from error
        if len(data) < nbytes:
            raise SourceError("a file must not change while it is read.", path=path)
        checksums = checksums_of(np.frombuffer(data, np.uint8), BLOCK_BYTES)
        return name, start // BLOCK_BYTES, checksums, nbytes

    parts = (
        (name, start, min(_READ_BYTES, nbytes - start))
        for name, nbytes in files
        for start in range(0, nbytes, _READ_BYTES)
    )
    with bar(label, sum(nbytes for _, nbytes in files), shown=bool(label)) as advance:
        for name, first, checksums, nbytes in in_order_by_few("oocdata-check", read, parts):
            yield name, first, checksums
            advance(nbytes)


def changes(manifest: Manifest, target: str, label: str = "") -> list[Finding]:
    """Return which files of the data are not what the manifest says."""
    listed, there = manifest.listed(), dict(data_files(target))
    first_of, blocks, found = dict[str, int](), 0, list[Finding]()

    def note(kind: str, name: str, reason: str) -> None:
        path = os.path.join(target, name) if name else target
        found.append(Finding(kind, path, None, (), 0, None, reason))

    for name in sorted(set(there) - {name for name, _ in listed}):
        nbytes = there[name]
        note("added", name, f"a file must be in the manifest; this one of {nbytes} bytes is not.")
    for name, nbytes in listed:
        first_of[name] = blocks
        blocks += -(-nbytes // manifest.block_bytes)
        if name not in there:
            note("missing", name, f"a file of {nbytes} bytes must be there; it is not.")
        elif there[name] != nbytes:
            kind = "truncated" if there[name] < nbytes else "trailing"
            note(kind, name, f"the file must hold {nbytes} bytes; it holds {there[name]}.")
    table = _checked_tables(manifest, listed, blocks)
    alike = [(name, nbytes) for name, nbytes in listed if there.get(name) == nbytes]
    different: dict[str, Ranges] = {}
    for name, first, checksums in block_checksums(target, alike, label):
        start = first_of[name] + first
        wrong = read_rows(table, range(start, start + len(checksums))) != checksums
        different.setdefault(name, Ranges()).add_all(ranges_of(wrong, first))
    for name, nbytes in alike:
        changed = different.get(name, Ranges())
        if changed.count:
            reason = (
                f"every byte must be what it was; {changed.count} of {-(-nbytes // BLOCK_BYTES)} "
                f"blocks of {size(BLOCK_BYTES)} are not: {said(changed.kept, 5)}."
            )
            note("changed", name, reason)
    return found


def _checked_tables(manifest: Manifest, listed: Files, blocks: int) -> View:
    """Return the checksums of blocks; raise if a table is not what it was when it was written."""
    stored = View.of(manifest.table("stored"))
    right = manifest.block_bytes == BLOCK_BYTES and len(stored) == blocks
    tables = [(stored, _list_as_json(listed), manifest.blocks)]
    tables += [(View.of(manifest.table(one.member)), b"", one.table) for one in manifest.datasets]
    for table, before, wanted in tables:
        digest = running_checksum(before)
        for data in each_block(table, lambda block: block.values.astype("<u8", copy=False)):
            digest.update(data)
        right = right and digest.hexdigest() == wanted
    if not right:
        raise ManifestError(
            "the manifest must be as it was written; it is damaged itself. The data may well be "
            "whole: restore the manifest from a copy.",
            path=manifest.path,
        )
    return stored
