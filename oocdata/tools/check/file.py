"""The check of one file or folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from oocdata.errors import (
    ArgumentError,
    CompressedMemberError,
    ExternalDataError,
    ManifestError,
    MissingDependencyError,
    MissingFileError,
    MissingKeyError,
    SourceError,
    UnsupportedDtypeError,
)
from oocdata.formats.manifest import Manifest
from oocdata.formats.opening import format_of, list_datasets
from oocdata.formats.verified import manifest_of
from oocdata.tools.check import KINDS, Checked, Finding, Health
from oocdata.tools.check.holes import sparse_rows
from oocdata.tools.check.opening import Opened, opened
from oocdata.tools.check.rows import Rows, RowsSeen, kind_of, read_rows
from oocdata.tools.info import Opening, Unopened
from oocdata.tools.manifest import ManifestWriter
from oocdata.tools.manifest.stored import BLOCK_BYTES, block_checksums, changes, data_files
from oocdata.tools.progress import progress as bar
from oocdata.tools.ranges import Ranges

__all__ = ["check_file"]

_NO_FAULT = (
    UnsupportedDtypeError,
    ArgumentError,
    ExternalDataError,
    CompressedMemberError,
    MissingDependencyError,
)
"""Of what is no array of numbers, or can't be read here: not checked, which is no finding."""

_NOT_TO_KEEP = ("truncated", "missing", "damaged", "unreadable", "trailing")
"""Findings after which no manifest is written: it would call wrong what is there once repaired."""


def check_file(
    path: str,
    key: str | None,
    opening: Opening,
    manifest: Any,
    write_manifest: Any,
    *,
    force: bool,
    progress: bool,
) -> Health:
    """Check one file or folder; the arguments are those of `oocdata.tools.check.check`."""
    compared = manifest_of(manifest, path, "manifest")
    written = manifest_of(write_manifest, path, "write_manifest")
    if opening.shape is not None:
        if not os.path.isfile(path):
            raise MissingFileError("a raw binary file must exist; it does not.", path=path)
    elif compared is None or not os.path.exists(path):
        format_of(path)  # an error where there is nothing, or nothing that is known
    one = _Check(path, key, opening, progress)
    if compared is not None:
        known = Manifest.read(compared)
        if one.compare(known):
            one.read_all(besides=known)  # what the manifest knows nothing of
            return one.health(compared=compared)
        one.read_all(known=known)
        return one.health(compared=compared)
    if written is None:
        one.read_all()
        return one.health()
    with ManifestWriter(path, written, force=force) as writer:
        before = _state(path)
        one.read_all(writer=writer)
        if any(finding.kind in _NOT_TO_KEEP for finding in one.findings):
            writer.discard()
            return one.health()
        one.write_stored(writer)
        if _state(path) != before:
            raise SourceError(
                "the files must not change while their manifest is written; they did.", path=path
            )
    return one.health(written=written)


class _Check:
    """What is found of one file, as it goes."""

    def __init__(self, path: str, key: str | None, opening: Opening, progress: bool) -> None:
        self.path, self.key, self.opening, self.progress = path, key, opening, progress
        self.datasets: list[Checked] = []
        self.unchecked: list[Unopened] = []
        self.findings: list[Finding] = []

    def health(self, *, compared: str | None = None, written: str | None = None) -> Health:
        """Return what was found."""
        worst = list(KINDS)
        order = {one.key: number for number, one in enumerate(self.datasets, 1)}
        self.findings.sort(key=lambda one: (order.get(one.key, 0), worst.index(one.kind)))
        return Health(
            self.path,
            tuple(self.datasets),
            tuple(self.unchecked),
            tuple(self.findings),
            (compared,) if compared else (),
            (written,) if written else (),
        )

    def note(
        self, kind: str, key: str | None, rows: Ranges, reason: str, values: int | None = None
    ) -> None:
        """Add a finding."""
        kept = tuple(rows.kept)
        self.findings.append(Finding(kind, self.path, key, kept, rows.count, values, reason))

    def compare(self, known: Manifest) -> bool:
        """Compare the stored bytes; return whether they tell all: they are what they were."""
        files = data_files(self.path)
        if not files or not known.files:  # at a URL they can't be listed
            return False
        with bar("comparing", sum(size for _, size in files), shown=self.progress) as advance:
            found = changes(known, self.path, advance)
        for change in found:
            place = os.path.join(self.path, change.name) if change.name else self.path
            self.findings.append(Finding(change.kind, place, None, (), 0, None, change.reason))
        if found:
            return False
        if self.key is not None and not any(_same(rows.key, self.key) for rows in known.datasets):
            raise ManifestError(
                f"the manifest must hold the checksums of {self.key!r}; it does not. Write it "
                "anew, or leave KEY out.",
                path=known.path,
            )
        for rows in known.datasets:
            if self.key is not None and not _same(rows.key, self.key):
                continue
            dtype = np.dtype(rows.dtype).newbyteorder("=")
            nbytes = prod(rows.shape) * dtype.itemsize
            self.datasets.append(Checked(self.path, rows.key, rows.shape, str(dtype), nbytes))
            said = [Finding.from_json(one) for one in known.findings]
            self.findings += [replace(one, path=self.path) for one in said if one.key == rows.key]
        return True

    def write_stored(self, writer: ManifestWriter) -> None:
        """Add the checksums of the files' bytes to a manifest."""
        files = data_files(self.path)
        with bar("checksums", sum(size for _, size in files), shown=self.progress) as advance:
            blocks = block_checksums(self.path, files, advance)
            findings = [finding.as_json() for finding in self.findings]
            writer.stored(files, BLOCK_BYTES, (found for _, _, found in blocks), findings)

    def read_all(
        self,
        *,
        known: Manifest | None = None,
        writer: ManifestWriter | None = None,
        besides: Manifest | None = None,
    ) -> None:
        """Read every dataset that is asked for, besides those of a manifest."""
        keys = self._keys()
        for key in keys:
            if besides is not None and _is_of(besides, key):
                continue
            try:
                with opened(self.path, key, self.opening) as found:
                    self._read(found, known, writer)
            except (*_NO_FAULT, MissingKeyError) as error:
                if known is not None and _is_of(known, key):  # it was an array once
                    self.note("unreadable", key, Ranges(), str(error))
                elif self.key is not None or len(keys) == 1:
                    raise
                else:
                    self.unchecked.append(Unopened(key, type(error).__name__, str(error)))
            except SourceError as error:
                self.note(kind_of(error), key, Ranges(), error.message)
        known_rows = known.datasets if known is not None and self.key is None and keys else ()
        checked = [one.key for one in self.datasets]
        for rows in known_rows:
            if not any(_same(rows.key, key) for key in (*checked, *keys)):
                self.note("missing", rows.key, Ranges([range(rows.shape[0])]), _GONE)

    def _keys(self) -> Sequence[str | None]:
        if self.key is not None or self.opening.shape is not None:
            return [self.key]
        try:
            if format_of(self.path) == "hdf5":
                from oocdata.tools.check.hdf5 import names_in

                return names_in(self.path)
            return [key or None for key in list_datasets(self.path)]
        except SourceError as error:
            # Locked by a writer, or not there at all: nothing is known of its health.
            if type(error) is SourceError or "://" in self.path:
                raise
            self.note(kind_of(error), None, Ranges(), error.message)
            return []

    def _read(self, found: Opened, known: Manifest | None, writer: ManifestWriter | None) -> None:
        rows = found.rows
        key = rows.source.storage().key
        nbytes = prod(rows.shape) * rows.dtype.itemsize
        self.datasets.append(Checked(self.path, key, rows.shape, str(rows.dtype), nbytes))
        holes = sparse_rows(rows)
        for fault in (*found.faults, *holes):
            self.note(fault.kind, key, fault.rows, fault.reason)
        zeros = tuple(part for fault in holes for part in fault.zeros)
        try:
            expected = None if known is None else _expected(known, key, rows)
        except ManifestError as error:
            # Its shape may be damaged as well: reading so many rows could take for ever.
            self.note("changed", key, Ranges(), error.message)
            return
        writing = (
            nullcontext(None)
            if writer is None
            else writer.rows(key, rows.shape, rows.dtype, rows.axis)
        )
        label = f"checking {key or os.path.basename(self.path)}"
        with bar(label, nbytes, shown=self.progress) as advance, writing as append:
            seen = read_rows(
                rows, lost=found.lost, zeros=zeros, expected=expected, note=append,
                advance=advance,
            )  # fmt: skip
        self._note_rows(key, seen)

    def _note_rows(self, key: str | None, seen: RowsSeen) -> None:
        for kind, (rows, reason) in seen.failed.items():
            self.note(kind, key, rows, reason)
        if seen.changed.count:
            reason = "every row must be what its checksum was made of; these are not."
            self.note("changed", key, seen.changed, reason)
        for kind, rows, count, name in (
            ("nan", seen.nan, seen.nans, "NaN"),
            ("inf", seen.inf, seen.infs, "infinite"),
        ):
            if count:
                word = "number is" if count == 1 else "numbers are"
                self.note(kind, key, rows, f"{count:,} {word} {name}.", count)


_GONE = "every dataset of the manifest must be there; this one is not."


def _expected(known: Manifest, key: str | None, rows: Rows) -> Rows:
    """Return the table of a dataset's checksums."""
    checksums = known.dataset(key)
    known.check(checksums, rows.shape, rows.dtype)
    return Rows(known.table(checksums.member))


def _is_of(known: Manifest, key: str | None) -> bool:
    return any(key is None or _same(rows.key, key) for rows in known.datasets)


def _same(one: str | None, other: str | None) -> bool:
    return (one or "").strip("/") == (other or "").strip("/")


def _state(path: str) -> list[tuple[str, int, int]]:
    """Return name, bytes and time of the last change of every file."""
    found: Iterable[tuple[str, int]] = data_files(path)
    return [
        (name, nbytes, os.stat(os.path.join(path, name) if name else path).st_mtime_ns)
        for name, nbytes in found
    ]
