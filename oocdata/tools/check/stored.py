"""The bytes of files as they lie on disk: their checksums by blocks, and what has changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.errors import ManifestError, SourceError
from oocdata.explain import size
from oocdata.formats.checksums import checksums_of, running_checksum
from oocdata.formats.manifest import Manifest
from oocdata.threads import in_order_by_few
from oocdata.tools.check.manifest import list_as_json
from oocdata.tools.check.result import Finding
from oocdata.tools.passes import each_block, read_rows
from oocdata.tools.progress import progress as bar
from oocdata.tools.ranges import Ranges, ranges_of, said

__all__ = ["BLOCK_BYTES", "block_checksums", "changes", "data_files"]

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
