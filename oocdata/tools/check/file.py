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
from oocdata.tools.check.manifest import TableWriter, manifest_writer
from oocdata.tools.check.opening import opened
from oocdata.tools.check.result import KINDS, Checked, Finding, Health
from oocdata.tools.check.rows import kind_of, look_through
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


class _Discarded(Exception):  # noqa: N818  # no error: what was begun is not to be kept
    """The data are damaged, and get no manifest."""


def check_file(
    opening: Opening,
    compared: str | None,
    written: str | None,
    *,
    overwrite: bool,
    progress: bool,
    refused: list[Exception],
) -> Health:
    """Check one file or folder; compare it with a manifest, or write one.

    Where it is no array of numbers that is noted, and the error added to `refused`.
    """
    path = opening.target
    if "shape" not in opening.arguments:
        format_of(path)  # an error where there is nothing, or nothing that is known
    elif not (is_url(path) or os.path.isfile(path)):
        raise MissingFileError("a raw binary file must exist; it does not.", path=path)
    check = _Check(opening, progress, refused)
    if compared is not None:
        known = Manifest.read(compared)
        known.check_whole()
        check.read_all(known=known)
        return check.health(compared=(compared,))
    if written is None:
        check.read_all()
        return check.health()
    with suppress(_Discarded), manifest_writer(path, written, overwrite=overwrite) as table:
        check.read_all(table=table)
        if not check.datasets or any(one.kind in _NOT_TO_KEEP for one in check.findings):
            raise _Discarded
        return check.health(written=(written,))
    return check.health()


def health_of(view: View, name: str, *, progress: bool) -> Health:
    """Check the rows of a view, by their positions in it."""
    checked = Checked(name, None, view.shape, view.spec.kind, view.nbytes)
    found = look_through(view, label=f"checking {name}" if progress else "")
    for one in found:
        one.path, one.reason = name, one.reason + _files_of(view, one.rows)
    return Health(name, (checked,), findings=tuple(found))


def _files_of(view: View, rows: Sequence[range]) -> str:
    """Say in which of several files rows lie: a few of them."""
    try:
        parts = view.parts
    except ArgumentError:  # they are not put end to end along the rows
        return ""
    if len(parts) < 2:
        return ""
    found = np.unique(np.concatenate([parts.numbers[one.start : one.stop] for one in rows]))
    names = [parts.names[number] for number in found[:_FILES]]
    return f" In {', '.join([*names, '…'] if len(found) > _FILES else names)}."


class _Check:
    """What is found of one file, as it goes."""

    def __init__(self, opening: Opening, progress: bool, refused: list[Exception]) -> None:
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
        return Health(self.path, tuple(self.datasets), tuple(self.findings), compared, written)

    def note(self, key: str | None, *findings: Finding) -> None:
        """Add findings of a dataset, or of the file."""
        for one in findings:
            one.path, one.key = self.path, key
        self.findings += findings

    def read_all(self, *, known: Manifest | None = None, table: TableWriter | None = None) -> None:
        """Read every dataset that is asked for, and compare it or write of it."""
        keys = self._keys()
        for key in keys:
            try:
                self._read(*opened(self._opening(key, known)), known, table)
            except _NO_FAULT as error:
                message = error.message if isinstance(error, SourceError) else str(error)
                message = message.partition(" [file ")[0]
                once = known is not None and any(
                    key is None or _same(rows.key, key) for rows in known.datasets
                )  # it was an array
                if len(keys) == 1 and not once:
                    self.refused.append(error)
                self.note(key, Finding("unreadable" if once else "unchecked", message))
            except SourceError as error:
                self.note(key, Finding(kind_of(error), error.message))
        if known is None or self.key is not None:
            return
        there = [*keys, *(one.key for one in self.datasets)]
        for rows in known.datasets if keys else ():
            if not any(_same(rows.key, key) for key in there):
                reason = "every dataset of the manifest must be there; this one is not."
                self.note(rows.key, Finding("missing", reason))
                self.findings[-1].add([range(rows.shape[0])])

    def _opening(self, key: str | None, known: Manifest | None) -> Opening:
        """Return what is opened: along the axis that the file's own manifest was written for."""
        axis = self.opening.axis
        if known is not None and known.name == os.path.basename(self.path.rstrip("/")):
            with suppress(ManifestError):  # it was written of others alone
                axis = known.dataset(key).axis
        return Opening.of(replace(self.opening, key=key), axis=axis)

    def _keys(self) -> Sequence[str | None]:
        """Return the datasets that are asked for."""
        key = self.key
        if "shape" in self.opening.arguments or (isinstance(key, str) and not is_pattern(key)):
            return [key if isinstance(key, str) else None]
        try:
            names = [name or None for name in list_datasets(self.path)]
        except SourceError as error:
            # Locked by a writer, or not there at all, or a store that does not answer: nothing is
            # known of its health.
            damaged = isinstance(error, UnknownFormatError | TruncatedFileError)
            if type(error) is SourceError or (is_url(self.path) and not damaged):
                raise
            self.note(None, Finding(kind_of(error), error.message))
            return []
        return matches_of(key, [*filter(None, names)], self.path) if key and names else names

    def _read(
        self,
        view: View,
        findings: list[Finding],
        known: Manifest | None,
        table: TableWriter | None,
    ) -> None:
        key = view.storage.key
        self.datasets.append(Checked(self.path, key, view.shape, view.spec.kind, view.nbytes))
        self.note(key, *findings)
        expected = checksums = None
        if known is not None:
            try:
                checksums = known.dataset(key)
                known.check(checksums, view.shape, view.dtype)
                expected = View.of(known.table(checksums.member))
            except ManifestError as error:
                of_others = checksums is None and self.key is None  # it was written of them alone
                self.note(key, Finding("unchecked" if of_others else "changed", error.message))
                if not of_others:
                    return  # its shape may be damaged: reading so many rows could take for ever
        label = f"checking {key or os.path.basename(self.path)}" if self.progress else ""
        cut = (one.rows[0].start for one in findings if one.kind == "truncated" and one.rows)
        with nullcontext() if table is None else table(view) as append:
            seen = look_through(
                view[: next(cut, None)], expected=expected, append=append, label=label
            )
        self.note(key, *seen)


def _same(one: str | None, other: str | None) -> bool:
    return (one or "").strip("/") == (other or "").strip("/")
