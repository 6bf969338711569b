"""One measurement from beginning to end: the disk first, then rounds in which all take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter

from oocdata.datasets.dataset import Dataset
from oocdata.tools.bench.disk import disk_at_random, disk_in_sequence, stored_unit
from oocdata.tools.bench.files import Files, available_memory
from oocdata.tools.bench.limits import Measure, copying, decoding
from oocdata.tools.bench.result import Limit, Look, Way
from oocdata.tools.bench.ways import Candidate, element_bytes
from oocdata.tools.profile.needed import all_kept, needed

__all__ = ["Session", "stretches"]

_ROUNDS = 3
_DISK_ROUNDS = 2
_LIMIT_TURNS = 3

# Shares of the time: of one reading of the disk, of the warming, of a round of a limit, of all
# rounds of all ways, of one look, and the most that one stretch may take.
_DISK, _WARMING, _LIMIT, _WAYS, _LOOK, _LONGEST = 0.045, 0.15, 0.005, 0.33, 0.04, 0.15

_HOLES = 0.5
"""From this share on a file is mostly holes, which no disk is asked for."""


def stretches(ways: Sequence[Candidate]) -> int:
    """Return how many stretches a session has, for whoever shows how far it is."""
    orders = len({one.order for one in ways})
    return 2 * _DISK_ROUNDS + 1 + _ROUNDS + orders + 1


class Session:
    """Measures, and keeps what was measured.

    Parameters
    ----------
    dataset : Dataset
    candidates : sequence of Candidate
    files : Files
    seconds : float
        About how long all of it may take.
    advance : callable
        Called with 1 after each stretch.

    Attributes
    ----------
    notes : list of str
    nbytes : int
        Of memory that measuring the limits takes.
    """

    def __init__(
        self,
        dataset: Dataset,
        candidates: Sequence[Candidate],
        files: Files,
        seconds: float,
        advance: Callable[[int], None],
    ) -> None:
        self.notes: list[str] = []
        self.nbytes = 0
        self._dataset, self._candidates, self._files = dataset, candidates, files
        self._seconds, self._advance = seconds, advance
        self._end = perf_counter() + seconds
        self._needed = needed(dataset) if len(dataset) else ()
        self._cold = False
        self._disk: list[Limit] = []
        self._rates: dict[str, list[float]] = {}
        self._measured: dict[int, list[float]] = {}
        self._guessed: dict[int, float] = {}
        self._element_bytes: dict[str, float] = {}

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Disk, decoder and memory, as far as they apply."""
        measured = [
            Limit(name, tuple(rates), self._element_bytes[name])
            for name, rates in self._rates.items()
        ]
        return (*self._disk, *measured)

    @property
    def ways(self) -> tuple[Way, ...]:
        """All of them, in the order they were given.

        Limits are of one thing alone, so what was worked out from them is too much. No shuffle is
        faster than reading in sequence, where that was measured.
        """
        measured = {
            number: one.way(self._measured[number])
            for number, one in enumerate(self._candidates)
            if number not in self._guessed
        }
        in_sequence = [way.rate for way in measured.values() if way.order == "sequential"]
        most = max(in_sequence, default=inf)
        return tuple(
            measured.get(number) or one.way([min(self._guessed[number], most)], estimated=True)
            for number, one in enumerate(self._candidates)
        )

    def disk(self) -> None:
        """Measure what the disk gives, where there is one."""
        files = self._files
        if not files.nbytes:
            self.notes.append("No disk is measured: the data lie in memory, or behind a URL.")
        elif files.holes > _HOLES:
            self.notes.append(
                f"{files.holes:.0%} of the file was never written (it is sparse): no disk is asked "
                "for that, so none is measured, and reading is faster than that of a full file."
            )
        elif not files.evict():
            self.notes.append(
                "The disk is not measured: the files could not be dropped from the page cache, "
                "because another process has mapped them or they lie in memory."
            )
        else:
            element = sum(one.stored_bytes for one in self._needed) / len(self._dataset)
            unit = stored_unit(self._dataset)
            ways = {
                "disk in sequence": disk_in_sequence(files),
                "disk at random": disk_at_random(files, unit),
            }
            rates: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(_DISK_ROUNDS):
                for name, measure in ways.items():
                    files.evict()
                    rates[name].append(measure.once(_DISK * self._seconds))
                    self._advance(1)
            self._disk = [Limit(name, tuple(found), element) for name, found in rates.items()]
            self.nbytes += max(measure.nbytes for measure in ways.values())

    def fill(self, cold: bool | None) -> str:
        """Fill the page cache or see that it is emptied before each epoch; return which of them."""
        files = self._files
        if not files.nbytes:
            return "memory"
        if cold is None:
            cold = files.nbytes > available_memory() // 2
            if not cold and not files.warm(_WARMING * self._seconds):
                cold = True
                self.notes.append("The files take too long to be read once: everything is cold.")
        elif not cold and not files.warm(self._seconds):
            self.notes.append("Only a part of the files was read into the page cache in time.")
        self._advance(1)
        self._cold = cold and files.evict()
        if cold and not self._cold:
            self.notes.append("The files could not be dropped from the page cache.")
        return "cold" if self._cold else "warm"

    def rounds(self) -> None:
        """Let limits and ways take turns.

        All ways have a round. Where time is short, those that take the longest then have no other:
        a read that has begun is not interrupted.
        """
        limits = self._measures()
        seconds = _WAYS * self._seconds / (_ROUNDS * len(self._candidates))
        chosen = set(range(len(self._candidates)))
        lasted: dict[int, float] = {}
        for number in range(_ROUNDS):
            if number:
                left = self._end - self._left_for_looks() - perf_counter()
                chosen = _affordable(lasted, left / (_ROUNDS - number))
            for _ in range(_LIMIT_TURNS if chosen else 0):  # short ones: the best of them counts
                for name, measure in limits.items():
                    self._rates.setdefault(name, []).append(measure.once(_LIMIT * self._seconds))
            if number == 0:
                self._guess()
                self._warm_up(seconds)
            for place in sorted(chosen - self._guessed.keys()):
                begun = perf_counter()
                way = self._candidates[place]
                rate = way.measure(seconds, number, empty=self._empty).rate
                self._measured.setdefault(place, []).append(rate)
                lasted[place] = perf_counter() - begun
            self._advance(1)

    def _warm_up(self, seconds: float) -> None:
        """Read in one way of each reader, so that none pays for what all of them use."""
        ways = [one for place, one in enumerate(self._candidates) if place not in self._guessed]
        for one in {one.reader: one for one in reversed(ways)}.values():
            one.measure(seconds / 2, _ROUNDS)

    def looks(self) -> tuple[Look, ...]:
        """See where the time of each order goes, with the smallest batch and plain iteration."""
        found: dict[str, Look] = {}
        for place, one in enumerate(self._candidates):
            if one.order in found or one.reader != "NumPy":
                continue
            if place in self._guessed:
                found[one.order] = one.guess()
            else:
                found[one.order] = one.look(_LOOK * self._seconds, _ROUNDS, empty=self._empty)
            self._advance(1)
        return tuple(found.values())

    def kept(self) -> Way | None:
        """Measure a second epoch where all that was decoded or read is kept from the first."""
        if not all_kept(self._dataset):
            return None
        last = [
            place
            for place, one in enumerate(self._candidates)
            if one.order == "full shuffle" and one.reader == "NumPy" and place not in self._guessed
        ]
        if not last:
            return None
        place = last[-1]
        one = self._candidates[place]
        epoch_seconds = len(self._dataset) / one.way(self._measured[place]).rate
        if epoch_seconds > _LONGEST * self._seconds:
            return None
        for _ in one.loader.epoch(0):
            pass
        rates = [
            one.measure(_LIMIT * self._seconds, 1 + number, kept=True).rate
            for number in range(_ROUNDS)
        ]
        self._advance(1)
        return one.way(rates)

    def _measures(self) -> dict[str, Measure]:
        batch_size = max(one.loader.batch_size for one in self._candidates)
        measures = {"memory": copying(self._dataset, batch_size)}
        self._element_bytes["memory"] = element_bytes(self._dataset)
        decoder = decoding(self._dataset)
        if decoder is not None:
            measures = {"decoder": decoder, **measures}
            decoded = sum(one.decoded_bytes for one in self._needed)
            self._element_bytes["decoder"] = decoded / len(self._dataset)
        self.nbytes += sum(measure.nbytes for measure in measures.values())
        return measures

    def _guess(self) -> None:
        """Work out the ways of which a single read would take too long."""
        for place, one in enumerate(self._candidates):
            elements, seconds = one.period_seconds(self.limits, cold=self._cold)
            # The first, those that are read ahead meanwhile, and one that is measured.
            if 3 * seconds > _LONGEST * self._seconds:
                self._guessed[place] = elements / seconds

    def _left_for_looks(self) -> float:
        return _LOOK * self._seconds * len({one.order for one in self._candidates})

    def _empty(self) -> None:
        if self._cold:
            self._files.drop()


def _affordable(lasted: dict[int, float], seconds: float) -> set[int]:
    """Return the stretches that fit into some time, the shortest first.

    Examples
    --------
    >>> sorted(_affordable({0: 1.0, 1: 9.0, 2: 0.5}, 2.0))
    [0, 2]
    """
    chosen = set()
    for place in sorted(lasted, key=lambda place: lasted[place]):
        seconds -= lasted[place]
        if seconds < 0:
            break
        chosen.add(place)
    return chosen
