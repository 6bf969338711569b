"""What a loader does, in words and numbers: what is read, in which order, with how much memory."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocdata.choice import chunk_numbers
from oocdata.datasets.dataset import Dataset, Request
from oocdata.datasets.spec import leaves
from oocdata.order import BlockShuffle, Sequential
from oocdata.order.mixing import Mixing, mixing
from oocdata.sources.adapt import Converted, CutRows, layout_of
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.slots import chunk_budget, most_kept
from oocdata.sources.source import Layout, Source

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["Explanation", "explain", "size"]

_SCRATCH_BYTES = 4 << 20
"""What rearranging and converting take, for two batches at a time."""

_DECODING_BYTES = 16 << 20
"""What decoding takes whatever the chunks: the libraries, and what their threads hold."""

_BEING_READ = 2
"""Runs of steps that are read at a time."""

_READY = 2
"""Batches that are kept ready, in whole runs; besides, a run is handed out and one is in use."""

_MOST_POSITIONS = 1 << 16
"""Positions looked at to say how many chunks they touch."""

_POOR = 0.9
"""Below this share of a full shuffle's batch entropy, mixing is called poor."""


def size(nbytes: float) -> str:
    """Return a number of bytes in words, in binary units.

    Examples
    --------
    >>> size(1536), size(120_000_000)
    ('1.5 KiB', '114.4 MiB')
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} bytes" if unit == "bytes" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `Loader.explain` says; ``print`` it.

    Attributes
    ----------
    elements, batch_size, steps : int
        Of one epoch.
    arrays : tuple of str
        Shape and dtype of each array of an element.
    layouts : tuple of Layout
        Where and how each source is stored and read.
    order, reason : str
        The order, and why it was chosen.
    mixing : Mixing or None
        How well batches mix storage chunks against a full shuffle; None for sequential order.
    amplification : float
        Bytes read (and decoded) per byte used, estimated for an epoch.
    batch_bytes : int
        Bytes of one batch.
    resident_bytes : int
        Bound on what reading keeps in memory: batches in flight (`in_flight` of them), decoded
        chunks, scratch. Your process, model and what mapped functions take come on top.
    in_flight : int
        Batches that exist at a time with ``to_tf()``, at most: those being read and those ready,
        in whole runs of small ones, those handed out and those in use.
    """

    elements: int
    batch_size: int
    steps: int
    arrays: tuple[str, ...]
    layouts: tuple[Layout, ...]
    order: str
    reason: str
    mixing: Mixing | None
    amplification: float
    batch_bytes: int
    resident_bytes: int
    in_flight: int

    def __str__(self) -> str:
        lines = [
            f"{self.elements:,} elements of {' and '.join(self.arrays)}",
            f"in {self.steps:,} batches of {self.batch_size} ({size(self.batch_bytes)} each)",
        ]
        for layout in self.layouts:
            where = "memory" if layout.path is None else _as_typed(layout.path)
            key = f", {layout.key}" if layout.key else ""
            lines.append(
                f"from   {where}{key}: {layout.format}, {layout.storage}, codec {layout.codec}"
            )
            times = f"{self.amplification:.2g}"
            bytes_read = "1 byte" if times == "1" else f"{times} bytes"
            lines.append(f"read   {layout.reading}; {bytes_read} read for each one used")
        lines.append(f"order  {self.order}: {self.reason}")
        if self.mixing is not None:
            share = self.mixing.entropy / max(self.mixing.full_shuffle_entropy, 1e-9)
            words = "mixes as well as a full shuffle" if share > 0.99 else "mixes well"
            if share < _POOR:
                words = "mixes poorly: neighbours stay together, so keep more chunks in a window"
            lines.append(
                f"mixing {self.mixing.entropy:.2f} bits of batch entropy, "
                f"{self.mixing.full_shuffle_entropy:.2f} in a full shuffle; {words}"
            )
        lines.append(
            f"memory at most {size(self.resident_bytes)}: {self.in_flight} batches in flight, "
            "decoded chunks and scratch"
        )
        return "\n".join(lines)


def explain(loader: Loader) -> Explanation:
    """Return what a loader does. Reads no data.

    Parameters
    ----------
    loader : Loader
    """
    together = loader.steps_together
    in_flight = together * (_BEING_READ + _READY // together + 2)
    requests = loader.dataset.requests(loader.positions(0))
    sources = list({id(request.source): request.source for request in requests}.values())
    batch_bytes = sum(leaf.nbytes for leaf in leaves(loader.dataset.spec)) * loader.batch_size
    read_bytes = sum(request.rows.size * _row_bytes(request.source) for request in requests)
    batch_bytes //= loader.num_shards
    sequential = isinstance(loader.order, Sequential)
    return Explanation(
        elements=len(loader.dataset),
        batch_size=loader.batch_size,
        steps=len(loader),
        arrays=tuple(str(leaf) for leaf in leaves(loader.dataset.spec)),
        layouts=tuple(layout_of(source) for source in sources),
        order=_order_words(loader),
        reason=loader.reason,
        mixing=None if sequential else _mixing(loader),
        amplification=_amplification(loader),
        batch_bytes=batch_bytes,
        resident_bytes=in_flight * batch_bytes
        + _BEING_READ * together * _besides(loader.dataset, sources, read_bytes, batch_bytes)
        + _SCRATCH_BYTES
        + _decoded_bytes(sources),
        in_flight=in_flight,
    )


def _besides(dataset: Dataset, sources: Sequence[Source], read_bytes: int, batch_bytes: int) -> int:
    """Return what reading a batch takes besides the batch."""
    # What a function gets, and its result copied to where TensorFlow may keep it.
    mapped = read_bytes + batch_bytes if dataset.is_mapped else 0
    scattered = read_bytes if any(isinstance(source, Concat) for source in sources) else 0
    return mapped + scattered


def _decoded_bytes(sources: Sequence[Source]) -> int:
    """Return what decoded chunks take, and decoding them."""
    number_of: Counter[int] = Counter()
    for source in sources:
        for nbytes, number in _kept_chunks(source):
            number_of[nbytes] += number
    kept = sum(most_kept(nbytes, number) for nbytes, number in number_of.items())
    threads = (os.cpu_count() or 1) + _BEING_READ
    # Each thread has a chunk's stored bytes, and the chunk between two filters.
    return kept + (_DECODING_BYTES + 2 * threads * max(number_of) if kept else 0)


def _kept_chunks(source: Source) -> list[tuple[int, int]]:
    """Return (bytes of a chunk, number of chunks) of each array that a source is made of."""
    if isinstance(source, Chunks):
        return [source.kept_chunks]
    if isinstance(source, Concat):
        return [kept for part in source.parts for kept in _kept_chunks(part)]
    if isinstance(source, Converted | CutRows):
        return _kept_chunks(source.source)
    return []


def _mixing(loader: Loader) -> Mixing:
    blocks = loader.dataset.blocks
    return mixing(
        loader.order,
        len(loader.dataset),
        loader.batch_size,
        blocks.length,
        first=blocks.first,
        seed=loader.seed,
    )


def _as_typed(path: str) -> str:
    """Return a path below the current folder as a user would type it."""
    below = f"{os.getcwd()}{os.sep}"
    return path.removeprefix(below)


def _row_bytes(source: Source) -> int:
    return prod(source.shape[1:]) * source.dtype.itemsize


def _order_words(loader: Loader) -> str:
    order = loader.order
    if isinstance(order, BlockShuffle):
        return f"block shuffle, {order.window} blocks of {order.block} elements mixed"
    return {"Sequential": "in order", "Shuffle": "full shuffle"}.get(
        type(order).__name__, repr(order)
    )


def _amplification(loader: Loader) -> float:
    """Return rows decoded per row used, over a stretch of an epoch that shares what is kept."""
    count, order = len(loader.dataset), loader.order
    if isinstance(order, Sequential | BlockShuffle):
        stop = min(count, _MOST_POSITIONS)
        if isinstance(order, BlockShuffle):  # whole windows: the rest of one is used later
            stop = max(
                order.window_bounds(count, window, seed=loader.seed, epoch=0)[1]
                for window in range(max(1, stop // (order.window * order.block)))
            )
        positions = order.positions(count, 0, stop, seed=loader.seed, epoch=0)
        # Rows at the ends of blocks belong to elements of others too: in order, each counts once.
        used = sum(len(rows) for _, rows in _rows_of(loader.dataset, np.arange(stop)))
        return _decoded_rows(loader, positions) / max(used, 1)
    positions = order.positions(count, 0, min(count, loader.batch_size), seed=loader.seed, epoch=0)
    kept = min(1.0, chunk_budget() / max(1, _chunked_bytes(loader)))  # there already
    decoded = used = 0.0
    for source, rows in _rows_of(loader.dataset, positions):
        touched = len(np.unique(chunk_numbers(source, rows))) * source.chunk_rows
        decoded += max(len(rows), min(touched, source.shape[0]) * (1 - kept))
        used += len(rows)
    return decoded / max(used, 1)


def _decoded_rows(loader: Loader, positions: NDArray[np.int64]) -> float:
    """Return the rows read for positions in order, when the chunks used last are kept."""
    rows_of = _rows_of(loader.dataset, positions)
    decoded = float(sum(len(rows) for source, rows in rows_of if source.chunk_rows == 1))
    kept_bytes, budget = 0, chunk_budget()
    kept: OrderedDict[tuple[int, int], int] = OrderedDict()
    length = loader.batch_size * loader.steps_together
    for start in range(0, len(positions), length):
        for source, rows in _rows_of(loader.dataset, positions[start : start + length]):
            if source.chunk_rows == 1:
                continue
            nbytes = source.chunk_rows * _row_bytes(source)
            for number in np.unique(chunk_numbers(source, rows)).tolist():
                chunk = (id(source), number)
                if chunk in kept:
                    kept.move_to_end(chunk)
                    continue
                decoded += min(source.chunk_rows, source.shape[0])
                kept[chunk] = nbytes
                kept_bytes += nbytes
                while kept_bytes > budget and len(kept) > 1:
                    kept_bytes -= kept.popitem(last=False)[1]
    return decoded


def _rows_of(
    dataset: Dataset, positions: NDArray[np.int64]
) -> list[tuple[Source, NDArray[np.int64]]]:
    """Return each source with its rows that elements are made of, ascending."""
    requests_of: dict[int, list[Request]] = {}
    for request in dataset.requests(positions):
        requests_of.setdefault(id(request.source), []).append(request)
    return [
        (few[0].source, np.unique(np.concatenate([request.rows.ravel() for request in few])))
        for few in requests_of.values()
    ]


def _chunked_bytes(loader: Loader) -> int:
    requests = loader.dataset.requests(np.zeros(1, np.int64))
    sources = {id(request.source): request.source for request in requests}.values()
    return sum(_row_bytes(s) * s.shape[0] for s in sources if s.chunk_rows > 1)
