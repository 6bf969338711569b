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

__all__ = ["Checks", "health_of"]

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


class Checks:
    """What is found of files, one after the other."""

    def __init__(self, progress: bool) -> None:
        self._progress = progress
        self.datasets: list[Checked] = []
        self.findings: list[Finding] = []
        self.compared: list[str] = []
        self.written: list[str] = []
        self.refused: list[Exception] = []  # of files of which nothing can be said but why

    def add(
        self, opening: Opening, compared: str | None, written: str | None, overwrite: bool
    ) -> None:
        """Check one file or folder; compare it with a manifest, or write one.

        Findings are dataset by dataset, the worst first.
        """
        self._given, self._path, self._key = opening, str(opening.target), opening.key
        datasets, findings = len(self.datasets), len(self.findings)
        try:
            if "shape" not in opening.arguments:
                format_of(self._path)  # an error where there is nothing, or nothing that is known
            elif not (is_url(self._path) or os.path.isfile(self._path)):
                text = "a raw binary file must exist; it does not."
                raise MissingFileError(text, path=self._path)
            if compared is not None:
                known = Manifest.read(compared)
                known.check_whole()
                self._read_all(known=known)
                self.compared.append(compared)
            elif written is None:
                self._read_all()
            else:
                with manifest_writer(self._path, written, overwrite=overwrite) as table:
                    self._read_all(table=table)
                    kinds = {one.kind for one in self.findings[findings:]}
                    if len(self.datasets) == datasets or kinds & {*_NOT_TO_KEEP}:
                        raise _Discarded
                self.written.append(written)
        except _Discarded:
            pass
        except UnknownFormatError as error:
            self.refused.append(error)
            self._note(None, Finding("unreadable", error.message))
        order = {one.key: number for number, one in enumerate(self.datasets[datasets:], 1)}
        worst = list(KINDS)
        self.findings[findings:] = sorted(
            self.findings[findings:],
            key=lambda one: (order.get(one.key, 0), worst.index(one.kind)),
        )

    def _note(self, key: str | None, *findings: Finding) -> None:
        """Add findings of a dataset, or of the file."""
        for one in findings:
            one.path, one.key = self._path, key
        self.findings += findings

    def _read_all(self, *, known: Manifest | None = None, table: TableWriter | None = None) -> None:
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
                self._note(key, Finding("unreadable" if once else "unchecked", message))
            except SourceError as error:
                self._note(key, Finding(kind_of(error), error.message))
        if known is None or self._key is not None:
            return
        there = [*keys, *(one.key for one in self.datasets)]
        for rows in known.datasets if keys else ():
            if not any(_same(rows.key, key) for key in there):
                reason = "every dataset of the manifest must be there; this one is not."
                self._note(rows.key, Finding("missing", reason))
                self.findings[-1].add([range(rows.shape[0])])

    def _opening(self, key: str | None, known: Manifest | None) -> Opening:
        """Return what is opened: along the axis that the file's own manifest was written for."""
        axis = self._given.axis
        if known is not None and known.name == os.path.basename(self._path.rstrip("/")):
            with suppress(ManifestError):  # it was written of others alone
                axis = known.dataset(key).axis
        return Opening.of(replace(self._given, key=key), axis=axis)

    def _keys(self) -> Sequence[str | None]:
        """Return the datasets that are asked for."""
        key = self._key
        if "shape" in self._given.arguments or (isinstance(key, str) and not is_pattern(key)):
            return [key if isinstance(key, str) else None]
        try:
            names = [name or None for name in list_datasets(self._path)]
        except SourceError as error:
            # Locked by a writer, or not there at all, or a store that does not answer: nothing is
            # known of its health.
            damaged = isinstance(error, UnknownFormatError | TruncatedFileError)
            if type(error) is SourceError or (is_url(self._path) and not damaged):
                raise
            self._note(None, Finding(kind_of(error), error.message))
            return []
        return matches_of(key, [*filter(None, names)], self._path) if key and names else names

    def _read(
        self,
        view: View,
        findings: list[Finding],
        known: Manifest | None,
        table: TableWriter | None,
    ) -> None:
        key = view.storage.key
        self.datasets.append(Checked(self._path, key, view.shape, view.spec.kind, view.nbytes))
        self._note(key, *findings)
        expected = checksums = None
        if known is not None:
            try:
                checksums = known.dataset(key)
                known.check(checksums, view.shape, view.dtype)
                expected = View.of(known.table(checksums.member))
            except ManifestError as error:
                of_others = checksums is None and self._key is None  # it was written of them alone
                self._note(key, Finding("unchecked" if of_others else "changed", error.message))
                if not of_others:
                    return  # its shape may be damaged: reading so many rows could take for ever
        label = f"checking {key or os.path.basename(self._path)}" if self._progress else ""
        cut = (one.rows[0].start for one in findings if one.kind == "truncated" and one.rows)
        with nullcontext() if table is None else table(view) as append:
            seen = look_through(
                view[: next(cut, None)], expected=expected, append=append, label=label
            )
        self._note(key, *seen)


def _same(one: str | None, other: str | None) -> bool:
    return (one or "").strip("/") == (other or "").strip("/")
