"""A manifest is written, and files are compared with one: their bytes as they lie on disk.

It is streamed into a new file, which takes its name when it is complete. See
`oocdata.formats.manifest` for the format.
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
    "BLOCK_BYTES", "ManifestWriter", "block_checksums", "changes", "data_files", "list_as_json",
    "manifest_writer",
]  # fmt: skip


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
    listed, there = manifest.listed(), data_files(target)
    known, names = dict(listed), {name for name, _ in there}
    counts = [-(-nbytes // manifest.block_bytes) for _, nbytes in listed]
    first_of = dict(zip(known, np.cumsum([0, *counts]).tolist(), strict=False))
    table = _checked_tables(manifest, listed, sum(counts))
    found: list[Finding] = []

    def note(kind: str, name: str, reason: str) -> None:
        path = os.path.join(target, name) if name else target
        found.append(Finding(kind, path, None, (), 0, None, reason))

    for name, nbytes in there:
        if name not in known:
            reason = f"a file must be in the manifest; this one of {nbytes} bytes is not."
            note("added", name, reason)
        elif nbytes != known[name]:
            kind = "truncated" if nbytes < known[name] else "trailing"
            note(kind, name, f"the file must hold {known[name]} bytes; it holds {nbytes}.")
    for name, nbytes in listed:
        if name not in names:
            note("missing", name, f"a file of {nbytes} bytes must be there; it is not.")
    common = [(name, nbytes) for name, nbytes in there if name in known]
    # Where the lengths differ, only blocks that are whole on both sides can be equal.
    whole = {
        name: -(-nbytes // BLOCK_BYTES)
        if nbytes == known[name]
        else min(nbytes, known[name]) // BLOCK_BYTES
        for name, nbytes in common
    }
    different: dict[str, Ranges] = {}
    for name, first, checksums in block_checksums(target, common, label):
        count = min(len(checksums), whole[name] - first)
        if count > 0:
            start = first_of[name] + first
            wrong = read_rows(table, range(start, start + count)) != checksums[:count]
            if wrong.any():
                different.setdefault(name, Ranges()).add_all(ranges_of(wrong, first))
    for name, blocks in different.items():
        reason = (
            f"every byte must be what it was; {blocks.count} of {whole[name]} blocks of "
            f"{size(BLOCK_BYTES)} are not: {said(blocks.kept, 5)}."
        )
        note("changed", name, reason)
    return found


def _checked_tables(manifest: Manifest, listed: Files, blocks: int) -> View:
    """Return the checksums of blocks; raise if a table is not what it was when it was written."""
    stored = View.of(manifest.table("stored"))
    right = manifest.block_bytes == BLOCK_BYTES and len(stored) == blocks
    tables = [(stored, list_as_json(listed), manifest.blocks)]
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
