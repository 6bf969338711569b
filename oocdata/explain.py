"""What a loader does, in words and numbers: what is read, in which order, with how much memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oocdata.amplification import amplification, row_bytes
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.order import BlockShuffle, Sequential
from oocdata.order.mixing import Mixing, mixing
from oocdata.sources.adapt import Wrapper, layout_of
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.extents import Extents
from oocdata.sources.slots import chunk_budget, most_kept
from oocdata.sources.source import Layout, Source
from oocdata.sources.verified import Verified
from oocdata.threads import cores

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["Explanation", "as_typed", "explain", "size"]

_SCRATCH_BYTES = 16 << 20
"""What rearranging and converting take, the stacks of the threads, what allocators keep."""

_DECODING_BYTES = 16 << 20
"""What decoding takes whatever the chunks: the libraries, and what their threads hold."""

_PROCESS_BYTES = 32 << 20
"""A worker process with NumPy and this package; what its functions import comes on top."""

_BEING_READ = 2
"""Runs of steps that are read at a time."""

_READY = 2
"""Batches that are kept ready, in whole runs; besides, a run is handed out and one is in use."""

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


def as_typed(path: str) -> str:
    """Return a path below the current folder as a user would type it.

    Examples
    --------
    >>> as_typed(f"{os.getcwd()}/ds.npy")
    'ds.npy'
    """
    return path.removeprefix(f"{os.getcwd()}{os.sep}")


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
        chunks, scratch, worker processes. Your process, model and what mapped functions take come
        on top.
    in_flight : int
        Batches that exist at a time with ``to_tf()``, at most: those being read and those ready,
        in whole runs of small ones, those handed out and those in use.
    steps_together : int
        Batches that share a read.
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
    steps_together: int

    def __str__(self) -> str:
        lines = [
            f"{self.elements:,} elements of {' and '.join(self.arrays)}",
            f"in {self.steps:,} batches of {self.batch_size} ({size(self.batch_bytes)} each)",
        ]
        for layout in self.layouts:
            where = "memory" if layout.path is None else as_typed(layout.path)
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
        together = f", {self.steps_together} to a read" if self.steps_together > 1 else ""
        lines.append(
            f"memory at most {size(self.resident_bytes)}: {self.in_flight} batches in flight"
            f"{together}; what is kept of chunks or small rows; scratch"
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
    read_bytes = sum(request.rows.size * row_bytes(request.source) for request in requests)
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
        amplification=amplification(loader),
        batch_bytes=batch_bytes,
        resident_bytes=in_flight * batch_bytes
        + _SCRATCH_BYTES
        + max(1, loader.workers) * _kept_bytes(sources)
        + max(1, loader.workers) * _decoded_bytes(sources)
        + _BEING_READ * together * _besides(loader.dataset, sources, read_bytes, batch_bytes)
        + _worker_bytes(loader, in_flight // together),
        in_flight=in_flight,
        steps_together=together,
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
    threads = cores() + _BEING_READ
    # Each thread has a chunk's stored bytes, and the chunk between two filters.
    return kept + (_DECODING_BYTES + 2 * threads * max(number_of) if kept else 0)


def _worker_bytes(loader: Loader, held: int) -> int:
    """Return what worker processes take besides: themselves, and what is shared with them."""
    if not loader.workers:
        return 0
    from oocdata.workers.pool import shared_bytes  # not for `import oocdata`

    return loader.workers * _PROCESS_BYTES + shared_bytes(loader, held)


def _kept_bytes(sources: Sequence[Source]) -> int:
    """Return what arrays of small rows take, whose blocks are read once and kept."""
    kept = {
        (part.kept.file, part.kept.first): part.kept_bytes
        for source in sources
        for part in _parts(source)
        if isinstance(part, Extents) and part.kept is not None
    }
    return min(sum(kept.values()), chunk_budget())


def _kept_chunks(source: Source) -> list[tuple[int, int]]:
    """Return (bytes of a chunk, number of chunks) of each array that a source is made of."""
    return [part.kept_chunks for part in _parts(source) if isinstance(part, Chunks)]


def _parts(source: Source) -> list[Source]:
    """Return what a source reads from: the files of several, what is cut or converted."""
    if isinstance(source, Concat):
        return [deeper for part in source.parts for deeper in _parts(part)]
    if isinstance(source, Verified):
        return [*_parts(source.source), source.checksums]
    if isinstance(source, Wrapper):
        return _parts(source.source)
    return [source]


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


def _order_words(loader: Loader) -> str:
    order = loader.order
    if isinstance(order, BlockShuffle):
        return f"block shuffle, {order.window} blocks of {order.block} elements mixed"
    return {"Sequential": "in order", "Shuffle": "full shuffle"}.get(
        type(order).__name__, repr(order)
    )
