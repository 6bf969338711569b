"""What the decoder allows, and what memory allows: each does nothing but that.

In a thread for each core, and two at least; into memory that is there already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.sources.buffers import empty
from oocdata.sources.chunk_layout import Box
from oocdata.sources.chunks import Chunks
from oocdata.threads import cores
from oocdata.tools.profile.needed import parts_of, sources_of

__all__ = ["THREADS", "Measure", "copying", "decoding", "together"]

THREADS = max(2, cores())

_MOST_BYTES = 32 << 20
"""Of the chunks that are decoded, and of a buffer that is copied to."""

_CHUNKS = 64
_MOST_ROWS = 4096
_COPIED_BYTES = 128 << 20
"""Memory that rows are copied from: larger than the processor's cache."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A limit that can be measured, again and again.

    Attributes
    ----------
    once : callable
        Gets seconds, does it for about so long, and returns the bytes a second.
    nbytes : int
        Of memory that it takes.
    """

    once: Callable[[float], float]
    nbytes: int


def decoding(dataset: Dataset) -> Measure | None:
    """Return the measuring of decoding chunks and nothing else; None where nothing is decoded.

    Some chunks from all over the array, decoded again and again into the same memory; what is
    stored of them is in the page cache.
    """
    generator = np.random.default_rng(2)
    sampled: list[tuple[Any, Box]] = []
    nbytes = 0
    parts = [
        part
        for source in sources_of(dataset)
        for part in parts_of(source)
        if isinstance(part, Chunks) and max(part.reader.chunk_shape) > 1
    ]
    if not parts:
        return None
    while len(sampled) < _CHUNKS and (nbytes < _MOST_BYTES or len(sampled) < 1):
        part = parts[int(generator.integers(len(parts)))]
        layout = part.known.layout(part)
        down = -(-layout.shape[layout.axis] // layout.rows)
        column = layout.columns[int(generator.integers(len(layout.columns)))]
        sampled.append((part.reader, layout.box(int(generator.integers(down)), column)))
        nbytes += layout.nbytes
    outs = [empty(_lengths(box), reader.dtype) for reader, box in sampled]
    own = any(getattr(reader, "own_threads", False) for reader, _ in sampled)
    threads = 1 if own else min(THREADS, len(sampled))
    shares = [range(number, len(sampled), threads) for number in range(threads)]
    # The others are given several chunks at a time by the engine too.
    at_once = len(sampled) if own else max(1, min(8, len(sampled) // threads))
    _decode(sampled, outs, range(len(sampled)))  # once, so that the page cache has them

    def once(seconds: float) -> float:
        def work(number: int, end: float) -> int:
            done, mine = 0, list(shares[number])
            while True:
                for first in range(0, len(mine), at_once):
                    some = mine[first : first + at_once]
                    _decode(sampled, outs, some)
                    done += sum(outs[place].nbytes for place in some)
                    if perf_counter() >= end:
                        return done

        return together(work, threads, seconds)

    return Measure(once, sum(out.nbytes for out in outs))


def _lengths(box: Box) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in box)


def _decode(
    sampled: list[tuple[Any, Box]], outs: list[NDArray[Any]], places: range | list[int]
) -> None:
    by_reader: dict[int, list[int]] = {}
    for place in places:
        by_reader.setdefault(id(sampled[place][0]), []).append(place)
    for some in by_reader.values():
        reader = sampled[some[0]][0]
        if hasattr(reader, "read_boxes"):
            reader.read_boxes([sampled[place][1] for place in some], [outs[one] for one in some])
        else:
            for place in some:
                outs[place][...] = reader.read_box(sampled[place][1])


def copying(dataset: Dataset, batch_size: int) -> Measure:
    """Return the measuring of rows copied from memory, at random, into buffers that are reused."""
    source = max(sources_of(dataset), key=lambda one: int(np.prod(one.shape[1:])))
    row = max(1, int(np.prod(source.shape[1:])) * source.dtype.itemsize)
    row = min(row, _COPIED_BYTES // 8)
    held = max(1, min(_COPIED_BYTES // row, source.shape[0]))
    arrays = len(dataset.requests(np.zeros(1, np.int64)))
    rows_at_once = max(1, min(batch_size * arrays, _MOST_ROWS, _MOST_BYTES // row))
    rows = empty((held * row,), np.uint8)
    rows[:] = 1
    items = rows.view(f"V{row}")
    buffers = [empty((rows_at_once * row,), np.uint8).view(f"V{row}") for _ in range(THREADS)]
    seeds = np.random.default_rng(3).spawn(THREADS)

    def once(seconds: float) -> float:
        def work(number: int, end: float) -> int:
            done = 0
            while True:
                for some in seeds[number].integers(held, size=(64, rows_at_once)):
                    np.take(items, some, out=buffers[number], mode="clip")
                    done += rows_at_once * row
                    if perf_counter() >= end:  # after one, at least: a limit is never 0
                        return done

        return together(work, THREADS, seconds)

    return Measure(once, rows.nbytes + rows_at_once * row * THREADS)


def together(work: Callable[[int, float], int], threads: int, seconds: float) -> float:
    """Call ``work(number, end)`` in threads; return what they did together, a second."""
    done = [0] * threads
    failed: list[BaseException] = []
    began = perf_counter()
    end = began + seconds

    def safely(number: int) -> None:
        try:
            done[number] = work(number, end)
        except BaseException as error:
            failed.append(error)

    team = [
        threading.Thread(target=safely, args=(number,), name="oocdata-limit", daemon=True)
        for number in range(threads)
    ]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    if failed:
        raise failed[0]
    return sum(done) / max(perf_counter() - began, 1e-9)
