"""Check files or folders one by one, with or without a manifest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np

from oocdata.datasets.view import View
from oocdata.errors import (
    ArgumentError,
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
from oocdata.formats.opening import format_of, list_datasets, tree_of
from oocdata.formats.paths import is_url
from oocdata.formats.patterns import is_pattern
from oocdata.tools.check.opening import opened
from oocdata.tools.check.result import KINDS, CheckedDataset, Finding, Health
from oocdata.tools.check.rows import TableWriter, check_rows, kind_of, manifest_writer
from oocdata.tools.opening import Opening

_NO_FAULT = (
    UnsupportedDtypeError,
    ArgumentError,
    ExternalDataError,
    MissingDependencyError,
    MissingKeyError,
)
"""Errors of an array that is not numeric, or can't be read here: a note, not a fault."""

_PREVENT_MANIFEST = ("truncated", "missing", "damaged", "unreadable", "trailing")
"""Findings after which no manifest is written: it would report the repaired file as changed."""

_MOST_FILES = 3
"""Files named in a reason."""


class _Discarded(Exception):  # noqa: N818  # not an error: it ends the writing of a manifest
    """The data are damaged, so no manifest is written."""


def health_of(view: View, name: str, *, progress: bool) -> Health:
    """Check the rows of a view, by their positions in it."""
    checked = CheckedDataset(name, None, view.shape, view.spec.kind, view.nbytes)
    findings = check_rows(view, label=f"checking {name}" if progress else "")
    for finding in findings:
        finding.path, finding.reason = name, finding.reason + _files_of(view, finding.rows)
    return Health(name, (checked,), findings=tuple(findings))


def _files_of(view: View, rows: Sequence[range]) -> str:
    """Name the files that hold the rows, a few at most; nothing if the view has one file."""
    try:
        parts = view.parts
    except ArgumentError:  # the files are not concatenated along the rows
        return ""
    if len(parts) < 2:
        return ""
    numbers = np.unique(np.concatenate([parts.numbers[run.start : run.stop] for run in rows]))
    names = [parts.names[number] for number in numbers[:_MOST_FILES]]
    return f" In {', '.join([*names, '…'] if len(numbers) > _MOST_FILES else names)}."


class Checks:
    """Datasets and findings of files that are checked one after the other."""

    def __init__(self, progress: bool) -> None:
        self._progress = progress
        self.datasets: list[CheckedDataset] = []
        self.findings: list[Finding] = []
        self.compared: list[str] = []
        self.written: list[str] = []
        self.refused: list[Exception] = []  # errors of files that can't be checked at all

    def add(
        self, opening: Opening, compared: str | None, written: str | None, overwrite: bool
    ) -> None:
        """Check one file or folder; compare it with a manifest, or write one."""
        self._source, self._path, self._key = opening, str(opening.target), opening.key
        datasets, findings = len(self.datasets), len(self.findings)
        try:
            if "shape" not in opening.arguments:
                format_of(self._path)  # raises if the file is missing or of unknown format
            elif not (is_url(self._path) or os.path.isfile(self._path)):
                text = "a raw binary file must exist; it does not."
                raise MissingFileError(text, path=self._path)
            if compared is not None:
                known = Manifest.read(compared)
                known.check_whole()
                self._check_all(known=known)
                self.compared.append(compared)
            elif written is None:
                self._check_all()
            else:
                with manifest_writer(self._path, written, overwrite=overwrite) as table:
                    self._check_all(table=table)
                    kinds = {finding.kind for finding in self.findings[findings:]}
                    # At a URL, rows of unwritten chunks were not read.
                    prevent = {*_PREVENT_MANIFEST, *["unwritten"] * is_url(self._path)}
                    if len(self.datasets) == datasets or kinds & prevent:
                        raise _Discarded
                self.written.append(written)
        except _Discarded:
            pass
        except UnknownFormatError as error:
            self.refused.append(error)
            self._note(None, Finding("unreadable", error.message))

    def _note(self, key: str | None, *findings: Finding) -> None:
        """Add findings about a dataset, or about the file, the most severe first."""
        for finding in findings:
            finding.path, finding.key = self._path, key
        self.findings += sorted(findings, key=lambda finding: list(KINDS).index(finding.kind))

    def _check_all(
        self, *, known: Manifest | None = None, table: TableWriter | None = None
    ) -> None:
        """Check every requested dataset; compare it with a manifest, or write its checksums."""
        keys = self._keys()
        for key in keys:
            try:
                self._check(*opened(self._opening(key, known)), known, table)
            except _NO_FAULT as error:
                message = str(getattr(error, "message", error)).partition(" [file ")[0]
                in_manifest = known is not None and any(
                    key is None or _same_key(rows.key, key) for rows in known.datasets
                )
                if len(keys) == 1 and not in_manifest:
                    self.refused.append(error)
                kind = "unreadable" if in_manifest else "unchecked"  # it was an array once
                self._note(key, Finding(kind, message))
            except SourceError as error:
                self._note(key, Finding(kind_of(error), error.message))
        if known is None or self._key is not None:
            return
        present = [*keys, *(dataset.key for dataset in self.datasets)]
        for rows in known.datasets if keys else ():
            if not any(_same_key(rows.key, key) for key in present):
                reason = "every dataset of the manifest must be in the file; this one is not."
                self._note(rows.key, Finding("missing", reason))
                self.findings[-1].add([range(rows.shape[0])])

    def _opening(self, key: str | None, known: Manifest | None) -> Opening:
        """Return the opening of a dataset, along the axis for which its manifest was written."""
        axis = self._source.axis
        if known is not None and known.name == os.path.basename(self._path.rstrip("/")):
            with suppress(ManifestError):  # the dataset is not in the manifest
                axis = known.dataset(key).axis
        return Opening.of(replace(self._source, key=key), axis=axis)

    def _keys(self) -> Sequence[str | None]:
        """Return the keys of the datasets to check."""
        key = self._key
        if "shape" in self._source.arguments or (isinstance(key, str) and not is_pattern(key)):
            return [key if isinstance(key, str) else None]
        try:
            names = [name or None for name in list_datasets(self._path)]
        except SourceError as error:
            # A file that is locked by a writer, or a store that does not answer, may be healthy.
            damaged = isinstance(error, UnknownFormatError | TruncatedFileError)
            if type(error) is SourceError or (is_url(self._path) and not damaged):
                raise
            self._note(None, Finding(kind_of(error), error.message))
            return []
        if key is None or not names:
            return names
        with tree_of(self._path) as tree:
            return [name for name, _ in tree.matches(key)]

    def _check(
        self,
        view: View,
        findings: list[Finding],
        known: Manifest | None,
        table: TableWriter | None,
    ) -> None:
        key = view.storage.key
        self.datasets.append(
            CheckedDataset(self._path, key, view.shape, view.spec.kind, view.nbytes)
        )
        expected = checksums = None
        if known is not None:
            try:
                checksums = known.dataset(key)
                known.check(checksums, view.shape, view.dtype)
                expected = View.of(known.table(checksums.member))
            except ManifestError as error:
                is_new = checksums is None and self._key is None
                findings.append(Finding("unchecked" if is_new else "changed", error.message))
                if not is_new:  # a damaged shape may claim more rows than can be read in any time
                    self._note(key, *findings)
                    return
        label = f"checking {key or os.path.basename(self._path)}" if self._progress else ""
        truncated = [one.rows for one in findings if one.kind == "truncated" and one.rows]
        rows = view[: truncated[0][0].start] if truncated else view
        with nullcontext() if table is None else table(view) as append:
            findings += check_rows(rows, expected=expected, append=append, label=label)
        self._note(key, *findings)


def _same_key(one: str | None, other: str | None) -> bool:
    return (one or "").strip("/") == (other or "").strip("/")
