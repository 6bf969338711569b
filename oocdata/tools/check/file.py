"""The check of one file or folder, with or without a manifest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np

from oocdata.datasets.view import View
from oocdata.errors import (
    ArgumentError,
    CompressedMemberError,
    ExternalDataError,
    ManifestError,
    MissingDependencyError,
    MissingFileError,
    MissingKeyError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.manifest import Manifest
from oocdata.formats.opening import format_of, list_datasets
from oocdata.formats.patterns import is_pattern, matches_of
from oocdata.formats.stored import is_url
from oocdata.tools.check.manifest import ManifestWriter, manifest_writer
from oocdata.tools.check.opening import Opened, opened
from oocdata.tools.check.ranges import Ranges
from oocdata.tools.check.result import KINDS, Checked, Finding, Health
from oocdata.tools.check.rows import Fault, kind_of, look_through
from oocdata.tools.opening import Opening

__all__ = ["check_file", "health_of"]

_NO_FAULT = (
    UnsupportedDtypeError,
    ArgumentError,
    ExternalDataError,
    CompressedMemberError,
    MissingDependencyError,
    MissingKeyError,
)
"""Of what is no array of numbers, or can't be read here: not checked, which is no finding."""

_NOT_TO_KEEP = ("truncated", "missing", "damaged", "unreadable", "trailing")
"""Findings after which no manifest is written: it would call wrong what is there once repaired."""

_FILES = 3
"""Files that a reason names."""


def check_file(
    opening: Opening,
    compared: str | None,
    written: str | None,
    *,
    overwrite: bool,
    progress: bool,
    refused: list[Exception] | None = None,
) -> Health:
    """Check one file or folder; compare it with a manifest, or write one.

    Where it is no array of numbers that is an error, or is noted, with `refused` for the error.
    """
    path = opening.target
    if opening.shape is not None:
        if not (is_url(path) or os.path.isfile(path)):
            raise MissingFileError("a raw binary file must exist; it does not.", path=path)
    else:
        format_of(path)  # an error where there is nothing, or nothing that is known
    check = _Check(opening, progress, refused)
    if compared is not None:
        known = Manifest.read(compared)
        known.check_whole()
        check.read_all(known=known)
        return check.health(compared=(compared,))
    if written is None:
        check.read_all()
        return check.health()
    with manifest_writer(path, written, overwrite=overwrite) as writer:
        check.read_all(writer=writer)
        if any(finding.kind in _NOT_TO_KEEP for finding in check.findings):
            writer.discard()
            return check.health()
    return check.health(written=(written,))


def health_of(view: View, name: str, *, progress: bool) -> Health:
    """Check the rows of a view, by their positions in it."""
    checked = Checked(name, None, view.shape, view.spec.kind, view.nbytes)
    faults = look_through(view, label=f"checking {name}" if progress else "")
    for fault in faults:
        fault.reason += _files_of(view, fault.rows)
    return Health(name, (checked,), findings=tuple(_finding(one, name, None) for one in faults))


def _files_of(view: View, rows: Ranges) -> str:
    """Say in which of several files rows lie: a few of them."""
    try:
        parts = view.parts
    except ArgumentError:  # they are not put end to end along the rows
        return ""
    if len(parts) < 2:
        return ""
    found = np.unique(np.concatenate([parts.numbers[one.start : one.stop] for one in rows.kept]))
    names = [parts.names[number] for number in found[:_FILES]]
    return f" In {', '.join([*names, '…'] if len(found) > _FILES else names)}."


def _finding(fault: Fault, path: str, key: str | None) -> Finding:
    rows = fault.rows
    return Finding(fault.kind, path, key, tuple(rows.kept), rows.count, fault.values, fault.reason)


class _Check:
    """What is found of one file, as it goes."""

    def __init__(self, opening: Opening, progress: bool, refused: list[Exception] | None) -> None:
        self.opening, self.progress, self.refused = opening, progress, refused
        self.path: str = opening.target
        self.key = opening.key
        self.datasets: list[Checked] = []
        self.findings: list[Finding] = []

    def health(self, *, compared: tuple[str, ...] = (), written: tuple[str, ...] = ()) -> Health:
        """Return what was found: file by file, then dataset by dataset, the worst first."""
        order = {one.key: number for number, one in enumerate(self.datasets, 1)}
        worst = list(KINDS)
        self.findings.sort(key=lambda one: (order.get(one.key, 0), worst.index(one.kind)))
        found = (tuple(self.datasets), tuple(self.findings))
        return Health(self.path, *found, compared, written)

    def note(self, kind: str, key: str | None, reason: str, rows: Sequence[range] = ()) -> None:
        """Add a finding."""
        self.findings.append(_finding(Fault(kind, reason, Ranges(rows)), self.path, key))

    def read_all(
        self, *, known: Manifest | None = None, writer: ManifestWriter | None = None
    ) -> None:
        """Read every dataset that is asked for, and compare it or write of it."""
        keys = self._keys()
        for key in keys:
            try:
                self._read(opened(self._opening(key, known)), known, writer)
            except _NO_FAULT as error:
                message = error.message if isinstance(error, SourceError) else str(error)
                message = message.partition(" [file ")[0]
                if known is not None and _is_of(known, key):  # it was an array once
                    self.note("unreadable", key, message)
                    continue
                if len(keys) == 1:
                    if self.refused is None:
                        raise
                    self.refused.append(error)
                self.note("unchecked", key, message)
            except SourceError as error:
                self.note(kind_of(error), key, error.message)
        if known is None or self.key is not None:
            return
        there = [*keys, *(one.key for one in self.datasets)]
        for rows in known.datasets if keys else ():
            if not any(_same(rows.key, key) for key in there):
                reason = "every dataset of the manifest must be there; this one is not."
                self.note("missing", rows.key, reason, [range(rows.shape[0])])

    def _opening(self, key: str | None, known: Manifest | None) -> Opening:
        """Return what is opened: along the axis that the file's own manifest was written for."""
        axis = self.opening.axis
        if known is not None and known.name == os.path.basename(self.path.rstrip("/")):
            with suppress(ManifestError):  # it was written of others alone
                axis = known.dataset(key).axis
        return replace(self.opening, key=key, axis=axis)

    def _keys(self) -> Sequence[str | None]:
        if (
            isinstance(self.key, str) and not is_pattern(self.key)
        ) or self.opening.shape is not None:
            return [self.key if isinstance(self.key, str) else None]
        names = self._names()
        if self.key is None or not names:
            return names
        return matches_of(self.key, [name for name in names if name], self.path)

    def _names(self) -> Sequence[str | None]:
        """Return the datasets of the file."""
        try:
            return [key or None for key in list_datasets(self.path)]
        except SourceError as error:
            # Locked by a writer, or not there at all, or a store that does not answer: nothing is
            # known of its health.
            damaged = isinstance(error, UnknownFormatError | TruncatedFileError)
            if type(error) is SourceError or (is_url(self.path) and not damaged):
                raise
            self.note(kind_of(error), None, error.message)
            return []

    def _read(self, found: Opened, known: Manifest | None, writer: ManifestWriter | None) -> None:
        view = found.view
        key = view.storage.key
        self.datasets.append(Checked(self.path, key, view.shape, view.spec.kind, view.nbytes))
        self.findings += [_finding(fault, self.path, key) for fault in found.faults]
        expected = checksums = None
        if known is not None:
            try:
                checksums = known.dataset(key)
                known.check(checksums, view.shape, view.dtype)
                expected = View.of(known.table(checksums.member))
            except ManifestError as error:
                if checksums is None and self.key is None:  # it was written of others alone
                    self.note("unchecked", key, error.message)
                else:
                    # Its shape may be damaged as well: reading so many rows could take for ever.
                    self.note("changed", key, error.message)
                    return
        writing = (
            nullcontext()
            if writer is None
            else writer.rows(key, view.shape, view.dtype, view.axes[0])
        )
        label = f"checking {key or os.path.basename(self.path)}" if self.progress else ""
        with writing as append:
            whole = view[: found.whole_rows]
            seen = look_through(whole, expected=expected, append=append, label=label)
        self.findings += [_finding(fault, self.path, key) for fault in seen]


def _is_of(known: Manifest, key: str | None) -> bool:
    return any(key is None or _same(rows.key, key) for rows in known.datasets)


def _same(one: str | None, other: str | None) -> bool:
    return (one or "").strip("/") == (other or "").strip("/")
