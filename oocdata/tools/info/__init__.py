"""Describe the arrays of a file, how they will be read, and code that trains on them.

Only metadata are read, and no heavy library is imported unless the file's format needs it, so that
`oocdata info` answers at once.
"""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from shutil import get_terminal_size
from typing import Any

from oocdata.advice import Advice, advise, as_typed, reading_of, size
from oocdata.blocks import Blocks
from oocdata.errors import ArgumentError, MismatchedPartsError, SourceError
from oocdata.formats.opening import list_datasets
from oocdata.formats.paths import is_url
from oocdata.formats.patterns import numbered_groups
from oocdata.tools.info.code import BATCH_SIZE, code_for, columns_of
from oocdata.tools.info.layouts import Layout, recognise
from oocdata.tools.info.layouts.several import arrays_of_the_same_rows
from oocdata.tools.opening import Opening
from oocdata.tools.report import Report, fields_text, labelled, table

_MOST_DESCRIBED = 500
_OF_ONE_ARRAY = ("dtype", "format")
"""Arguments with which the whole file is opened as one array."""

_MOST_NAMED = 6
"""Names listed of datasets that can't be opened for the same reason."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """One array in a file; ``print`` it."""

    path: str | None
    key: str | None
    files: int  # more than one for a glob
    format: str
    shape: Shape  # as delivered: the number of rows, then an element's shape
    sample_shape: Shape  # lengths of the sample axes
    dtype: str  # with the unit of dates
    row_bytes: int
    memory_bytes: int
    stored_bytes: int | None
    storage: str  # the layout of the array in the file
    codec: str
    chunk_rows: int  # rows that are decoded together
    reading: str  # how oocdata reads it
    shuffling: str  # what ``shuffle=True`` does, and why; empty for one of several arrays
    advice: tuple[Advice, ...]
    note: str  # a hint about the call of `oocdata.open`; may be empty
    code: tuple[str, ...]  # lines of Python that open the array and make batches of it
    dimensions: tuple[str, ...] = ()  # names of the axes as stored, if any
    unequal: bool = False  # whether rows are of unequal length
    parts: int = 1  # datasets that are concatenated

    def __str__(self) -> str:
        return f"{self.facts}\n\n{_indented(self.code)}"

    @property
    def facts(self) -> str:
        """The printed lines, without the code."""
        commands = [f"{'':11}{advice.command}" for advice in self.advice if advice.command]
        return "\n".join([fields_text(self._fields()), *commands])

    def _fields(self) -> Iterator[tuple[str, str | None]]:
        rows, element = " × ".join(f"{length:,}" for length in self.sample_shape), self.shape[1:]
        stored = "unknown" if self.stored_bytes is None else size(self.stored_bytes)
        if self.stored_bytes and self.stored_bytes < self.memory_bytes:
            stored += f", {self.stored_bytes / self.memory_bytes:.0%} of its size in memory"
        in_storage = f"chunks of ({self.chunk_rows},"
        is_plain = self.chunk_rows <= 1 or self.storage.startswith(in_storage)
        yield "format", self.format + (f", dataset {self.key}" if self.key else "")
        yield "files", self.path if self.files > 1 else None
        of = " of fields" if self.dtype.startswith(("[", "{")) else ""
        yield "shape", f"{rows} rows of {element}" if element else f"{rows} rows{of}"
        yield "dimensions", ", ".join(name or "-" for name in self.dimensions)
        unequal = " of unequal length, about" if self.unequal else ","
        yield "dtype", f"{self.dtype}{unequal} {size(self.row_bytes)} a row"
        yield "in memory", size(self.memory_bytes)
        yield "stored" if is_url(self.path or "") else "on disk", stored
        yield "storage", self.storage
        yield "chunks", None if is_plain else f"{self.chunk_rows:,} rows are decoded together"
        yield "codec", self.codec
        yield "reading", self.reading
        yield "shuffling", self.shuffling
        yield "note", self.note
        for advice in self.advice:
            yield "advice", advice.text


@dataclass(frozen=True, slots=True)
class Unopened:
    """An array that can't be opened, and why."""

    key: str | None
    error: str  # the name of the error's class
    reason: str  # its message, without file and dataset


@dataclass(frozen=True, slots=True)
class Contents(Report):
    """The arrays of a file (of a known layout, the main ones); ``print`` it."""

    path: str
    datasets: tuple[Description | Unopened, ...]  # the first 500
    others: tuple[str | None, ...] = ()  # names of the other datasets
    layout: Layout | None = None  # None for an unknown layout

    @property
    def described(self) -> list[Description]:
        """The arrays that can be opened."""
        return [entry for entry in self.datasets if isinstance(entry, Description)]

    def __str__(self) -> str:
        parts, layout = [], self.layout
        if layout is not None:
            parts += [layout.sentence, _indented(layout.code)]
        if len(self.described) == 1 and (layout is None or not layout.whole):
            (description,) = self.described
            parts.append(str(description) if layout is None else description.facts)
        elif self.described:
            largest = max(self.described, key=lambda description: description.memory_bytes)
            key = (layout and layout.whole) or largest.key
            example = shlex.join(["oocdata", "info", f"{as_typed(self.path)}::{key}"])
            advice = [labelled("advice", advice.text) for advice in largest.advice]
            parts += [self._table(), *advice]
            parts.append(f"Name one to see how it will be read: {example}")
        unopened: dict[str, list[str]] = {}
        for dataset in self.datasets:
            if isinstance(dataset, Unopened):
                unopened.setdefault(dataset.reason, []).append(dataset.key or "")
        lines = []
        for reason, keys in unopened.items():
            more = f" and {len(keys) - _MOST_NAMED:,} more" if len(keys) > _MOST_NAMED else ""
            lines.append(labelled(f"  {', '.join(keys[:_MOST_NAMED])}{more}:", reason, 6))
        if lines:
            parts.append("\n".join(["Can't be opened:", *lines]))
        if self.others:
            parts.append(f"{len(self.others):,} more are not listed; name one to see it.")
        return "\n\n".join(parts)

    def _table(self) -> str:
        header = ["dataset", "shape", "dtype", "chunk rows", "codec", "in memory"]
        rows = [
            (
                (entry.key or "") + f" ({entry.parts:,})" * (entry.parts > 1),
                " × ".join(map(str, entry.shape)),
                "fields" if entry.dtype.startswith(("[", "{")) else entry.dtype,
                f"{entry.chunk_rows:,}" if entry.chunk_rows > 1 or entry.codec != "none" else "-",
                f"{entry.storage.partition(';')[0]}, " * entry.storage.startswith("CSR")
                + entry.codec,
                size(entry.memory_bytes),
            )
            for entry in self.described
        ]
        return table(header, rows, (0, 1, 2, 4), get_terminal_size().columns)


def _indented(code: tuple[str, ...]) -> str:
    return "\n".join(f"    {line}" for line in code)


def contents(target: Any, key: str | None = None) -> Contents:
    """Describe all arrays of a file, or the one with a key; read metadata only.

    An array that can't be opened (text, structured rows, missing chunks, …) is listed with the
    reason. Arrays of numbered groups (``runs/run1/state``, …) are described as one,
    ``runs/run*/state``. Of a known layout only the main arrays are described. Advice is given for a
    single array, or for the first array of a known layout.
    """
    opening = Opening.of(target, key)
    path = opening.target
    is_path = isinstance(path, str)
    exists = is_path and (os.path.exists(path) or (is_url(path) and not glob.has_magic(path)))
    title = path if is_path else opening.name
    layout, entries = recognise(opening), list[Description | Unopened]()
    if layout is not None:
        opening = Opening.of(opening, axis=layout.axis)
        keys: list[str | None] = [name or None for name in layout.keys]
    elif opening.key is not None or {*opening.arguments} & {*_OF_ONE_ARRAY} or not exists:
        layout = _of_several_files(opening)
        if layout is None:
            return Contents(title, (_describe(opening),))
        keys = [*layout.keys]
    else:
        merged, keys = _merged(opening, [name or None for name in list_datasets(path)])
        entries += merged
    for name in keys[:_MOST_DESCRIBED]:
        brief = len(keys) > 1 and (layout is None or name != keys[0])
        try:
            entries.append(_describe(replace(opening, key=name), brief=brief))
        except (SourceError, ArgumentError) as error:
            if layout is None and len(keys) == 1:
                raise
            if layout is not None and isinstance(error, MismatchedPartsError):
                first = replace(opening, target=opening.paths()[0], key=name)
                entries.append(_describe(first, brief=brief))
                continue
            message = str(getattr(error, "message", error)).partition(" [file ")[0]
            entries.append(Unopened(name, type(error).__name__, message))
    described = [entry for entry in entries if isinstance(entry, Description)]
    if layout is not None:
        for number, entry in enumerate(entries):
            if isinstance(entry, Description):
                entries[number] = replace(entry, note="")
    elif len(described) == 1:  # describe it again, in full
        (entry,) = described
        entries[entries.index(entry)] = _describe(replace(opening, key=entry.key))
    elif not opening.arguments and all(entry.parts == 1 for entry in described):
        layout = arrays_of_the_same_rows(opening, [entry.key or "" for entry in described])
        layout = layout or _of_the_only_array(opening)
    return Contents(title, tuple(entries), tuple(keys[_MOST_DESCRIBED:]), layout)


def _of_several_files(opening: Opening) -> Layout | None:
    """Return code for files of several arrays each; None for a target of another kind."""
    if opening.keywords() or not opening.is_paths or len(paths := opening.paths()) < 2:
        return None
    with suppress(SourceError):
        names = [name or "" for name in list_datasets(paths[0])]
        if len(names) > 1 and not numbered_groups(names):
            return arrays_of_the_same_rows(opening, names)
    return None


def _of_the_only_array(opening: Opening) -> Layout | None:
    """Return code for the array that `open` takes without a key, besides coordinates and text."""
    with suppress(SourceError, ArgumentError):
        found = _describe(opening, brief=True)
        return Layout("One array besides coordinates", found.key or "", found.code, ())
    return None


def _merged(opening: Opening, keys: list[str | None]) -> tuple[list[Description], list[str | None]]:
    """Describe datasets of numbered groups, such as episodes, as one array; return other keys."""
    merged, parts = list[Description](), set[str | None]()
    for pattern, members in numbered_groups([key or "" for key in keys]).items():
        with suppress(SourceError, ArgumentError):  # their shapes differ
            merged.append(_describe(replace(opening, key=pattern), brief=True))
            parts.update(members)
    return merged, [key for key in keys if key not in parts]


def _describe(opening: Opening, *, brief: bool = False) -> Description:
    view = opening.view(unequal=True)
    storage, blocks = view.storage, view.blocks
    hint, code = code_for(opening, view)
    shuffling, advice = "", list[Advice]()
    if not view.nbytes:
        shuffling = "nothing to shuffle: the array is empty"
    elif not brief:
        loader = (columns_of(view) or view).batches(BATCH_SIZE, shuffle=True)
        reading = reading_of(loader)
        advice += advise(reading)
        shuffling = f"shuffle=True is a {reading.order}: {loader.reason}."
        if reading.order == "block shuffle" and reading.full_amplification > 1.5:
            shuffling += (
                f' A full shuffle (shuffle="global") would decode '
                f"{reading.full_amplification:,.0f} bytes for each byte used."
            )
    return Description(
        path=storage.path,
        key=storage.key,
        files=len({path for path, _ in storage.part_names}) or 1,
        format=storage.format,
        shape=view.shape,
        sample_shape=view.sample_shape,
        dtype=view.spec.kind + (f" ({view.unit})" if view.unit else ""),
        unequal=view.is_multi_array or view.dtype.hasobject,
        row_bytes=view.nbytes // max(1, len(view)),
        memory_bytes=view.nbytes,
        stored_bytes=storage.stored_bytes,
        storage=storage.layout,
        codec=storage.codec,
        chunk_rows=min(blocks.length, len(view)) if isinstance(blocks, Blocks) else 1,
        reading=storage.reading,
        shuffling=shuffling,
        advice=tuple(advice),
        note=hint,
        code=code,
        dimensions=storage.dimensions,
        parts=max(1, len(storage.part_names)),
    )
