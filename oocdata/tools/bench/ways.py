"""The ways that `bench` compares: orders and batch sizes, and how long a stretch of each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oocdata.amplification import amplification
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.loader import Loader
from oocdata.order import BlockShuffle, Order
from oocdata.tools.bench.result import Limit, Look, Way
from oocdata.tools.profile.counts import Counts, counted, disk_bytes, fresh
from oocdata.tools.profile.needed import Needed, needed, sources_of, touched
from oocdata.tools.profile.pacing import Pace, pace, steps_of_a_period
from oocdata.tools.profile.sampling import Sampler, Spent

__all__ = ["ORDERS", "Candidate", "candidates", "element_bytes", "loader_of"]

_SHUFFLES: dict[str, bool | str] = {
    "sequential": False,
    "full shuffle": "global",
    "block shuffle": "block",
}
ORDERS = tuple(_SHUFFLES)
"""In words, as the results name them."""

_RUN_BYTES = 1 << 20
"""Where each row is addressable, a block of a block shuffle is a run of about so many bytes."""

_BLOCKS = 64
"""Such runs that are mixed at a time."""

_RUN_ROWS = 4096
"""And of at most so many rows."""

_MOST_TOGETHER = 1 << 22
"""Elements of one read, or of a window of the shuffle: where there are more, working out their
order alone takes longer than a measurement may."""


def _nothing() -> None:
    """Leave the page cache as it is."""


def element_bytes(dataset: Dataset) -> int:
    """Return the bytes of one element as delivered."""
    return sum(leaf.nbytes for leaf in leaves(dataset.spec))


def loader_of(dataset: Dataset, order: str, batch_size: int) -> Loader | None:
    """Return the loader of an order; None where that order makes no sense.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> loader_of(ooc.open(np.zeros((10_000, 64))), "block shuffle", 32).order
    BlockShuffle(block=156, window=64, first=None)
    """
    shuffle: bool | str | Order = _SHUFFLES[order]
    if order == "block shuffle" and dataset.blocks.length == 1:
        fitting = _RUN_BYTES // max(1, element_bytes(dataset))
        run = min(fitting, len(dataset) // _BLOCKS, _RUN_ROWS)
        if run < 2:  # as good as a full shuffle
            return None
        shuffle = BlockShuffle(run, _BLOCKS)
    return dataset.batches(batch_size, shuffle=shuffle)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way that is to be measured.

    Attributes
    ----------
    order, reader : str
    loader : Loader
    """

    order: str
    reader: str
    loader: Loader

    def measure(
        self,
        seconds: float,
        epoch: int,
        *,
        kept: bool = False,
        empty: Callable[[], None] = _nothing,
    ) -> Pace:
        """Read for some seconds, from the beginning of an epoch.

        Parameters
        ----------
        seconds : float
        epoch : int
        kept : bool
            Let it find what was decoded before; else each epoch reads everything anew.
        empty : callable
            Called before each epoch, outside of what is timed: a small file has many in a stretch,
            and only the first would come from the disk.
        """

        def epochs(number: int) -> Iterator[Any]:
            empty()
            loader = self.loader
            if not kept:
                loader = replace(loader, dataset=fresh(loader.dataset))
            return (
                loader.epoch(number)
                if self.reader == "NumPy"
                else iter(loader.to_tf(start=(number, 0)))
            )

        period = self._period if not kept else steps_of_a_period(self.loader)
        return pace(epochs, seconds, period=period, first=epoch)

    @property
    def _period(self) -> int:
        """Steps after which reading anew is where it was."""
        return steps_of_a_period(self.loader, anew=True)

    def way(self, rounds: Sequence[float], estimated: bool = False) -> Way:
        """Return what was measured of it."""
        return Way(self.order, self.loader.batch_size, self.reader, tuple(rounds), estimated)

    def period_seconds(self, limits: Sequence[Limit], *, cold: bool) -> tuple[int, float]:
        """Return the elements that are read together, and the least that can take, in seconds.

        From what must be decoded and fetched for them, then copied, and the limits of that.
        """
        loader = self.loader
        count = min(len(loader.dataset), self._period * loader.batch_size)
        again = 1.0
        if self.order == "full shuffle":
            dataset = loader.dataset
            some = loader.order.positions(len(dataset), 0, count, seed=loader.seed, epoch=0)
            once = _in_chunks(needed(dataset)) * count / len(dataset)
            again = max(1.0, _in_chunks(touched(dataset, some)) / max(1, once))
        each = {one.name: one.element_bytes / one.rate for one in limits}
        fetched = "disk at random" if self.order == "full shuffle" else "disk in sequence"
        names = {"decoder", fetched} if cold else {"decoder"}
        reading = max((each[name] for name in names & each.keys()), default=0.0)
        return count, count * (again * reading + each.get("memory", 0.0))

    def look(self, seconds: float, epoch: int, *, empty: Callable[[], None] = _nothing) -> Look:
        """Read for some seconds, as `measure` does; see where the time goes and what is read."""
        loader, counts = self.loader, Counts()
        decoded = [0.0]  # after each epoch that was read to its end

        def epochs(number: int) -> Iterator[Any]:
            empty()
            yield from counted(loader, counts)[0].epoch(number)
            decoded.append(counts.chunk_rows)

        before = disk_bytes()
        with Sampler() as sampler:
            pace(epochs, seconds, period=self._period, first=epoch)
        after = disk_bytes()
        fetched = None if before is None or after is None else after - before
        whole = len(decoded) - 1
        return Look(
            order=self.order,
            batch_size=loader.batch_size,
            spent=sampler.spent(counts.from_disk(fetched)),
            amplification=self._counted_again(decoded[-1] / whole) if whole else self._again,
            counted=whole > 0,
            chunks=counts.chunks,
            rows=counts.rows,
            disk_bytes=fetched,
        )

    def guess(self) -> Look:
        """Return what is decoded, of a way that takes too long to look at."""
        return Look(self.order, self.loader.batch_size, Spent(), self._again, False, 0, 0, None)

    @property
    def _again(self) -> float | None:
        """Rows decoded for each row used; None where nothing is decoded."""
        if all(one.chunk_rows == 1 for one in sources_of(self.loader.dataset)):
            return None
        return amplification(self.loader)

    def _counted_again(self, decoded: float) -> float | None:
        """Return the same from the rows that an epoch was seen to decode."""
        rows = needed(self.loader.dataset)
        plain = sum(one.rows for one in rows if one.source.chunk_rows == 1)
        used = sum(one.rows for one in rows)
        return None if plain == used else (decoded + plain) / used


def _in_chunks(some: Sequence[Needed]) -> float:
    """Return the rows in the chunks that are decoded for what is needed."""
    return sum(one.chunks * one.source.chunk_rows for one in some if one.source.chunk_rows > 1)


def candidates(
    dataset: Dataset, batch_sizes: Sequence[int], readers: Sequence[str]
) -> list[Candidate]:
    """Return all ways, those of one order together; without those that take in too much at a time.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> [(one.order, one.loader.batch_size) for one in candidates(
    ...     ooc.open(np.zeros((10, 3))), [2, 5], ["NumPy"])]
    [('sequential', 2), ('sequential', 5), ('full shuffle', 2), ('full shuffle', 5)]
    """
    found = []
    for order in ORDERS:
        for batch_size in batch_sizes:
            loader = loader_of(dataset, order, batch_size)
            together = 0 if loader is None else steps_of_a_period(loader) * batch_size
            if loader is not None and together <= _MOST_TOGETHER:
                found += [Candidate(order, reader, loader) for reader in readers]
    return found
