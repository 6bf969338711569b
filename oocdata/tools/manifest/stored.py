"""The bytes of files as they lie on disk: their checksums by blocks, and what has changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ManifestError, SourceError
from oocdata.explain import size
from oocdata.formats.checksums import checksums_of, running_checksum
from oocdata.formats.manifest import Manifest
from oocdata.threads import in_order_by_few
from oocdata.tools.check.rows import Rows
from oocdata.tools.manifest import list_as_json
from oocdata.tools.ranges import Ranges, ranges_of, said

__all__ = ["BLOCK_BYTES", "Change", "block_checksums", "changes", "data_files"]

BLOCK_BYTES = 1 << 20

_BYTES_AT_ONCE = 8 << 20
"""Of a file, or of several small ones; a whole number of blocks."""

_PARTS_AT_ONCE = 64

_Part: TypeAlias = tuple[str, int, int]
"""Name of a file, first byte, bytes."""

_CHECKSUMS_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is not what its manifest says.

    Attributes
    ----------
    kind : str
        "changed", "missing", "added", "truncated" or "trailing".
    name : str
        Relative to the folder; empty for the file itself.
    reason : str
    """

    kind: str
    name: str
    reason: str


def data_files(target: str) -> list[tuple[str, int]]:
    """Return name and bytes of every file of a file or folder, ascending by name.

    Links are followed; names are relative, with ``/``, and empty for a target that is one file.
    None at a URL, where they can't be listed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.mkdir(f"{folder}/c")
    ...     for name in ("zarr.json", "c/0"):
    ...         with open(f"{folder}/{name}", "wb") as file:
    ...             _ = file.write(b"abc")
    ...     data_files(folder)
    [('c/0', 3), ('zarr.json', 3)]
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
    target: str, files: Sequence[tuple[str, int]], advance: Callable[[int], None]
) -> Iterator[tuple[str, int, NDArray[np.uint64]]]:
    """Yield (file, number of its first block, checksums of blocks that follow one another).

    Parameters
    ----------
    target : str
    files : sequence of (str, int)
        Name and bytes of each.
    advance : callable
        Called with the bytes that were read.

    Raises
    ------
    oocdata.errors.SourceError
        If a file can't be read, or is not as long as `files` says.
    """
    parts_of = _few_at_once(files)

    def read(few: list[_Part]) -> tuple[list[_Part], list[NDArray[np.uint64]]]:
        return few, _read(target, few)

    for parts, found in in_order_by_few("oocdata-check", read, parts_of):
        for (name, start, nbytes), checksums in zip(parts, found, strict=True):
            yield name, start // BLOCK_BYTES, checksums
            advance(nbytes)


def _few_at_once(files: Sequence[tuple[str, int]]) -> Iterator[list[_Part]]:
    """Yield all parts of all files: as many together as are worth a thread's while."""
    few: list[_Part] = []
    room = _BYTES_AT_ONCE
    for name, nbytes in files:
        for start in range(0, nbytes, _BYTES_AT_ONCE):
            few.append((name, start, min(_BYTES_AT_ONCE, nbytes - start)))
            room -= few[-1][2]
            if room <= 0 or len(few) == _PARTS_AT_ONCE:
                yield few
                few, room = [], _BYTES_AT_ONCE
    if few:
        yield few


def _read(target: str, parts: Sequence[_Part]) -> list[NDArray[np.uint64]]:
    """Return the checksums of the blocks of parts of files."""
    memory = np.empty(max(nbytes for _, _, nbytes in parts), np.uint8)
    found = []
    for name, start, nbytes in parts:
        path = os.path.join(target, name) if name else target
        left = memoryview(memory)[:nbytes]  # type: ignore[arg-type]
        try:
            with open(path, "rb", buffering=0) as file:
                while left:
                    got = os.preadv(file.fileno(), [left], start + nbytes - len(left))
                    if not got:
                        raise SourceError("a file must not change while it is read.", path=path)
                    left = left[got:]
        except SourceError:
            raise
        except OSError as error:
            raise SourceError(f"every byte must be readable; {error}.", path=path) from error
        found.append(checksums_of(memory[:nbytes], BLOCK_BYTES))
    return found


def changes(manifest: Manifest, target: str, advance: Callable[[int], None]) -> list[Change]:
    """Return which files of the data are not what the manifest says.

    Raises
    ------
    oocdata.errors.ManifestError
        If the manifest is damaged.
    oocdata.errors.SourceError
        If a file can't be read.
    """
    listed = manifest.listed()
    table = Rows(manifest.table("stored"))
    counts = [-(-nbytes // manifest.block_bytes) for _, nbytes in listed]
    if manifest.block_bytes != BLOCK_BYTES or table.shape != (sum(counts),):
        raise _damaged(manifest)
    first_of = dict(
        zip((name for name, _ in listed), np.cumsum([0, *counts]).tolist(), strict=False)
    )
    check_tables(manifest, table, listed)
    known = dict(listed)
    there = data_files(target)
    found = [
        Change("added", name, f"a file must be in the manifest; this one of {nbytes} bytes is not.")
        for name, nbytes in there
        if name not in known
    ]
    names = {name for name, _ in there}
    found += [
        Change("missing", name, f"a file of {nbytes} bytes must be there; it is not.")
        for name, nbytes in listed
        if name not in names
    ]
    common = [(name, nbytes) for name, nbytes in there if name in known]
    # Where the lengths differ, only blocks that are whole on both sides can be equal.
    whole = {
        name: -(-nbytes // BLOCK_BYTES)
        if nbytes == known[name]
        else min(nbytes, known[name]) // BLOCK_BYTES
        for name, nbytes in common
    }
    different: dict[str, Ranges] = {}
    for name, first, checksums in block_checksums(target, common, advance):
        count = min(len(checksums), whole[name] - first)
        if count <= 0:
            continue
        expected = np.empty(count, np.uint64)
        start = first_of[name] + first
        table.read(range(start, start + count), expected)
        wrong = expected != checksums[:count]
        if not wrong.any():
            continue
        ranges = different.setdefault(name, Ranges())
        for part in ranges_of(wrong, first):
            ranges.add(part)
    for name, nbytes in common:
        if nbytes != known[name]:
            kind = "truncated" if nbytes < known[name] else "trailing"
            reason = f"the file must hold {known[name]} bytes; it holds {nbytes}."
            found.append(Change(kind, name, reason))
        if name in different:
            blocks = different[name]
            where = said(blocks.kept, 5)
            found.append(
                Change(
                    "changed",
                    name,
                    f"every byte must be what it was; {blocks.count} of "
                    f"{whole[name]} blocks of {size(BLOCK_BYTES)} are not: {where}.",
                )
            )
    return found


def check_tables(manifest: Manifest, stored: Rows, listed: Sequence[tuple[str, int]]) -> None:
    """Raise if a table of checksums is not what it was when it was written."""
    tables = [(stored, list_as_json(listed), manifest.blocks)]
    each = ((Rows(manifest.table(one.member)), b"", one.table) for one in manifest.datasets)
    tables += each
    for table, before, wanted in tables:
        digest = running_checksum(before)
        for start in range(0, table.shape[0], _CHECKSUMS_AT_ONCE):
            some = np.empty(min(_CHECKSUMS_AT_ONCE, table.shape[0] - start), np.uint64)
            table.read(range(start, start + len(some)), some)
            digest.update(some.astype("<u8", copy=False).tobytes())
        if digest.hexdigest() != wanted:
            raise _damaged(manifest)


def _damaged(manifest: Manifest) -> ManifestError:
    return ManifestError(
        "the manifest must be as it was written; it is damaged itself. The data may well be whole: "
        "restore the manifest from a copy.",
        path=manifest.path,
    )
