"""How a loader reads: its storage and its cost, all that advice needs to know of it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from math import log2, prod
from os.path import basename, splitext
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.blocks import typical_length
from oocdata.cost import amplification, chunk_bytes
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import of_sources
from oocdata.datasets.view import View
from oocdata.engines.source import Storage
from oocdata.order import BlockShuffle, Sequential
from oocdata.order.mixing import Mixing, mixing
from oocdata.order.mixture import Mixture
from oocdata.order.order import laned
from oocdata.order.weighted import Weighted

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["Reading", "as_typed", "reading_of", "size"]

_CHUNK_BYTES = 128 << 10
"""Chunks of about this size cost little to decode for one row, and little each."""


def size(nbytes: float) -> str:
    """Return a number of bytes in words, in binary units.

    Examples
    --------
    >>> size(1536), size(120_000_000)
    ('1.5 KiB', '114.4 MiB')
    """
    if nbytes < 1024:
        return "1 byte" if nbytes == 1 else f"{nbytes:.0f} bytes"
    power = min(4, int(log2(nbytes)) // 10)
    return f"{nbytes / 1024**power:.1f} {' KMGT'[power]}iB"


def as_typed(path: str) -> str:
    """Return a path below the current folder as a user would type it.

    Examples
    --------
    >>> as_typed(f"{os.getcwd()}/ds.npy"), as_typed("-x.npy")  # which would be an option
    ('ds.npy', './-x.npy')
    """
    below = path.removeprefix(f"{os.getcwd()}{os.sep}")
    return f"./{below}" if below.startswith("-") else below


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a loader reads."""

    storage: Storage  # of the source that costs most to read badly
    axes: tuple[int, ...] | None = (0,)  # its sample axes; None where there are several arrays
    order: str = "sequential"  # or "full shuffle", "block shuffle"
    batch_size: int = 32
    workers: int = 0
    row_bytes: int = 1  # of a stored row, as far as elements use it
    together: int = 1  # neighbouring elements that are decoded together
    amplification: float = 1.0  # bytes decoded for each byte used
    full: float = 1.0  # the same for a full shuffle
    unused: float = 1.0  # bytes of chunks for each byte of an element, where it is cut out of them
    pieces: int = 1  # chunks that each row is cut into
    chunk_rows: int = 1  # rows that a chunk holds, or pieces of so many
    mixing: Mixing | None = None  # None for sequential order
    spread: int = 0  # bytes that an element reaches over where others lie in between; else 0

    @property
    def fitting_rows(self) -> int:
        """Rows of a chunk that suits any order: a power of two."""
        rows = min(_CHUNK_BYTES // max(1, self.row_bytes), self.batch_size)
        return 1 << int(log2(max(1, rows)))

    def convert(
        self, *, chunks: int | None = None, codec: str | None = None, chunked: bool = False
    ) -> str | None:
        """Return the `oocdata convert` command; None where no command opens the array.

        With `chunked` it chooses the chunks itself; with nothing it writes ``.npy``.

        Examples
        --------
        >>> storage = Storage("HDF5", opened={"target": "sim.h5", "key": "/u"})
        >>> Reading(storage=storage).convert(chunks=32)
        'oocdata convert sim.h5 sim-new.h5 --key /u --chunks 32'
        """
        options = dict(self.storage.opened or {})
        target = options.pop("target", None)
        if not isinstance(target, str) or self.axes is None:
            return None
        plain = chunks is None and codec is None and not chunked
        suffix = ".zarr" if "Zarr" in self.storage.format else ".npy" if plain else ".h5"
        stem, _ = splitext(basename(target))
        words = ["oocdata", "convert", as_typed(target), as_typed(f"{stem}-new{suffix}")]
        options |= {"axis": self.axes, "chunks": chunks, "codec": codec}
        for name, value in options.items():
            usual = (None,) if name == "pad" else (None, 0, (0,))
            if value in usual:  # as it is without the option
                continue
            words.append(f"--{name}")
            if value is not True:
                several = isinstance(value, tuple | list)
                words.append(",".join(map(str, value)) if several else str(value))
        return shlex.join(words)


def reading_of(loader: Loader) -> Reading:
    """Describe how a loader reads; reads no data."""
    dataset, order, count = loader.dataset, loader.order, len(loader.dataset)
    at = np.array([0, count - 1])
    requests = of_sources(dataset.requests(at, Draw(positions=at)))
    request = max(requests, key=lambda one: chunk_bytes(one.source, one.source.storage()))
    storage = request.source.storage()
    view = view_below(dataset)
    axes = None if view is None else view.axes
    # Of several arrays: the axes along which elements differ.
    samples = np.ptp(request.origins, axis=0) > 0
    if axes is not None:
        samples = np.isin(np.arange(len(samples)), axes)
    lengths, spans = np.array(request.extent.lengths), np.array(request.extent.spans)
    unused, pieces, chunk_rows, spread = 1.0, 1, 1, 0
    if storage.strides is not None and samples.any():
        steps = np.abs(storage.strides)
        reach = int(((spans - 1) * steps)[~samples].sum())
        if reach >= steps[samples].min():  # other elements lie in between
            spread = reach + request.source.dtype.itemsize
    elif storage.strides is None and storage.chunks is not None:
        chunks, first = np.array(storage.chunks), request.origins[0]
        met = np.maximum(1, (first + spans - 1) // chunks - first // chunks + 1)
        pieces, chunk_rows = int(met[~samples].prod()), int(chunks[samples].prod())
        if request.extent.size:
            whole = np.minimum(met * chunks, request.source.shape)
            unused = float((whole / lengths)[~samples].prod())
    mixed, orders = None, [order]
    if isinstance(order, Mixture | Weighted):  # no permutation of all elements to compare it with
        orders = list(order.orders)
    elif not isinstance(order, Sequential):
        blocks = dataset.blocks
        if blocks.number(count) == count and isinstance(order, BlockShuffle):
            blocks = order.blocks  # no two elements are stored together: runs that the order keeps
        mixed = mixing(loader.positions, len(loader), blocks, count)
    shuffled = "full shuffle" if laned(order) is None else "block shuffle"
    blocks, full = dataset.blocks, 1.0
    if loader.chunked and blocks.number(count) < count:
        full = amplification(dataset.batches(loader.batch_size, shuffle="global"))
    return Reading(
        storage=storage,
        axes=axes,
        order="sequential" if all(isinstance(one, Sequential) for one in orders) else shuffled,
        batch_size=loader.batch_size,
        workers=loader.workers,
        row_bytes=prod(lengths[~samples].tolist()) * request.source.dtype.itemsize,
        together=typical_length(blocks, count),
        amplification=amplification(loader),
        full=full,
        unused=unused,
        pieces=pieces,
        chunk_rows=chunk_rows,
        mixing=mixed,
        spread=spread,
    )


def view_below(dataset: Any) -> View | None:
    """Return the one view that windows, maps and the like are made from; None of several."""
    while not isinstance(dataset, View) and dataset is not None:
        below = (getattr(dataset, name, None) for name in ("view", "source", "dataset"))
        dataset = next((one for one in below if isinstance(one, Dataset)), None)
    return dataset
