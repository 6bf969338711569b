"""What `info` found, as text for a terminal, a file or a pipe."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oocdata.explain import size
from oocdata.tools.info import Contents, Description, Unopened
from oocdata.tools.info.shuffling import Shuffling
from oocdata.tools.lines import labelled

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["as_json", "code_text", "description_text", "reason", "show", "table"]

_REASONS = {
    "CompressedMemberError": "compressed: save it without compression, or convert it",
    "ExternalDataError": "its data lie in another file: --external",
    "MissingChunkError": "chunks are missing: --missing fill",
    "MissingDependencyError": "its filter is not installed",
    "MissingFileError": "the file it links to is missing",
    "DamagedChunkError": "damaged",
    "TruncatedFileError": "cut short",
    "TrailingBytesError": "longer than its header says",
}


def as_json(found: Contents) -> dict[str, Any]:
    """Return everything that was found, for ``json.dumps``.

    Returns
    -------
    dict
        ``{"path": …, "datasets": [{…}, …], "others": [key, …]}``; a dataset that can't be opened
        has ``error`` and ``reason``, all others the fields of `Description`.
    """
    return asdict(found)


def description_text(one: Description, width: int = 80) -> str:
    """Return a description as aligned lines of at most `width` characters where words allow it.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from oocdata.tools.info import describe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.zeros((10, 3), "f4"))
    ...     print(description_text(describe(f"{folder}/a.npy")).partition("storage")[0])
    format     .npy
    shape      10 rows of (3,)
    dtype      float32, 12 bytes a row
    in memory  120 bytes
    on disk    120 bytes
    """
    rows, element = one.shape[0], one.shape[1:]
    stored = "unknown" if one.stored_bytes is None else size(one.stored_bytes)
    if one.stored_bytes and one.stored_bytes < one.memory_bytes:
        stored += f", {one.stored_bytes / one.memory_bytes:.0%} of its size in memory"
    together = one.chunk_rows > 1 and not one.storage.startswith(f"chunks of ({one.chunk_rows},")
    fields = [
        ("format", one.format + (f", dataset {one.key}" if one.key else "")),
        ("files", one.path if one.files > 1 else None),
        ("shape", f"{_rows(one)} of {element}" if element else f"{rows:,} numbers"),
        ("dimensions", ", ".join(name or "-" for name in one.dimensions) or None),
        ("dtype", f"{one.dtype}, {size(one.row_bytes)} a row"),
        ("in memory", size(one.memory_bytes)),
        ("on disk", stored),
        ("storage", one.storage),
        ("chunks", f"{one.chunk_rows:,} rows are decoded together" if together else None),
        ("codec", one.codec),
        ("reading", one.reading),
        ("shuffling", _advice(one.shuffling)),
    ]
    return "\n".join(labelled(label, text, width) for label, text in fields if text)


def _rows(one: Description) -> str:
    """Return the number of rows, along each sample axis if there are several."""
    if len(one.sample_shape) > 1:
        return f"{' × '.join(f'{length:,}' for length in one.sample_shape)} rows"
    return f"{one.shape[0]:,} rows"


def _advice(shuffling: Shuffling | None) -> str:
    if shuffling is None:
        return "nothing to shuffle: the array is empty"
    words = " ".join(shuffling.advice)
    if shuffling.entropy is None or shuffling.full_entropy is None or shuffling.window_rows is None:
        return words
    return (
        f"{words} Batches mix {shuffling.entropy:.2f} bits of chunks, {shuffling.full_entropy:.2f} "
        "in a full shuffle."
    )


def code_text(one: Description) -> str:
    """Return the Python that opens it and trains on it, indented and never wrapped."""
    return textwrap.indent("\n".join(one.code), "    ")


def reason(one: Unopened) -> str:
    """Return in a few words why an array can't be opened.

    Examples
    --------
    >>> reason(Unopened("/note", "UnsupportedDtypeError", "must be numbers; got text. Save it."))
    'text'
    """
    if one.error in _REASONS:
        return _REASONS[one.error]
    # Messages say: what must hold; got what. One hint.
    got = re.search(r"; (?:got )?(.+?)(?:\. |\.$| \[|$)", one.reason)
    words = got.group(1) if got else one.reason
    return textwrap.shorten(words, 60, placeholder=" …")


def table(found: Contents) -> Table:
    """Return the arrays of a file that can be opened, as a table."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("dataset", "shape", "dtype", "chunk rows", "codec", "in memory"):
        right = title in ("chunk rows", "in memory")
        made.add_column(title, justify="right" if right else "left", overflow="fold")
    for one in found.datasets:
        name = Text(one.key or "(the array)")
        if isinstance(one, Unopened):
            continue
        chunk = f"{one.chunk_rows:,}" if one.chunk_rows > 1 else "-"
        shape = " × ".join(map(str, one.shape))
        made.add_row(name, shape, one.dtype, chunk, Text(one.codec), size(one.memory_bytes))
    return made


def show(found: Contents) -> None:
    """Print what was found: one array described in full, several as a table."""
    from rich.console import Console

    console = Console(highlight=False)
    width = console.width

    def say(text: str) -> None:
        # Not through rich, which would pad, wrap or colour what may be copied.
        sys.stdout.write(f"{text}\n")

    described = [one for one in found.datasets if isinstance(one, Description)]
    unopened = [one for one in found.datasets if isinstance(one, Unopened)]
    if len(described) > 1:
        console.print(table(found))
        say("")
    if len(described) == 1:
        say(description_text(described[0], width))
        if described[0].shuffling is not None:
            say(f"\n{code_text(described[0])}")
    elif described:
        largest = max(described, key=lambda one: one.memory_bytes)
        example = shlex.join(["oocdata", "info", f"{found.path}::{largest.key}"])
        say(f"Name one to see how it will be read: {example}")
    if unopened:
        say(("\n" if described else "") + "Can't be opened:")
        for one in unopened:
            say(labelled(f"  {one.key or '(the array)'}:", reason(one), width, indent=6))
    if found.others:
        say(f"\n{len(found.others):,} more are not described; name one to see it.")
