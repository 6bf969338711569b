"""Carrying a plan out: write, save, note, verify, and give the result its name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.open import open as open_view
from oocdata.engines.cache import cache
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, SourceError
from oocdata.explain import size
from oocdata.memory import at_most
from oocdata.threads import cores, in_order
from oocdata.tools.convert.choosing import Plan
from oocdata.tools.convert.steps import Grid, Scratch, read_box
from oocdata.tools.lines import Report, labelled
from oocdata.tools.lines import progress as bar
from oocdata.writers.disk import write_json
from oocdata.writers.lock import Lock
from oocdata.writers.storage import Storage
from oocdata.writers.target import Box

__all__ = ["Conversion", "Journal", "carry_out"]


class Journal:
    """How many boxes are done, by the stage of the conversion; `about` says of which one."""

    def __init__(self, path: str, about: Mapping[str, str]) -> None:
        self._path, self._about = path, dict(about)
        self.done: dict[str, int] = {}
        # Why what was there can't be gone on with; empty where nothing was, or it can.
        self.reason = self._read() if os.path.exists(path) else ""

    def _read(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                told = json.load(file)
            saved, done = told["about"], told["done"]
        except (ValueError, KeyError, TypeError):
            return "its journal is damaged"
        if not self._about:
            return "its source is not a file that can be told from another"
        other = [name for name, now in self._about.items() if saved.get(name) != now]
        if other:
            return f"{other[0]} has changed"
        self.done = done
        return "" if done else "nothing of it was saved yet"

    def note(self, **done: int) -> None:
        """Note how many boxes of a stage are safe on the disk."""
        self.done.update(done)
        write_json(self._path, {"about": self._about, "done": self.done})


SAVE_BYTES = 256 << 20
"""Bytes of elements after which what was written is saved, and noted."""

_MOST_ROWS = 20

Consume = Callable[[Box, NDArray[Any]], None]
"""Fills an array of a box's shape, or takes what it holds."""

Save = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Conversion(Report):
    """What a conversion did."""

    plan: Plan  #: what was to be done, and why so
    stored_bytes: int  #: of the result, on disk
    seconds: float
    resumed: bool  #: it went on with what an earlier run had done
    anew: str  #: why it didn't, where an earlier run had begun; empty where none had
    verified: bool | None  #: every bit of the result is that of the source; None: not asked for
    differing_rows: tuple[int, ...]  #: the first ones; the result was thrown away then

    def __str__(self) -> str:
        return f"{self.plan}\n{self.outcome}"

    @property
    def outcome(self) -> str:
        """What came of the plan, as aligned lines."""
        nbytes = self.plan.nbytes
        share = f", {self.stored_bytes / nbytes:.0%} of its size in memory" if nbytes else ""
        rate = f", {size(nbytes / self.seconds)}/s" if self.seconds > 0 else ""
        done = f"{size(self.stored_bytes)}{share}; {self.seconds:.1f} s{rate}"
        rows = ", ".join(map(str, self.differing_rows))
        damage = f"the result differs from the source in rows {rows}, …; it was thrown away. "
        same = "read back, and the source again: every bit is the same"
        lines = {
            "resumed": "went on with what an earlier run had done" if self.resumed else "",
            "anew": f"an earlier run had begun, but {self.anew}" if self.anew else "",
            "DAMAGED": f"{damage}Is the disk or the memory sound?" if rows else "",
            "done": "" if rows else done,
            "verified": same if self.verified else "",
        }
        return "\n".join(labelled(label, text) for label, text in lines.items() if text)

    def to_json(self) -> dict[str, Any]:
        """Return everything, for ``json.dumps``."""
        found = Report.to_json(self)
        return {**found.pop("plan"), **found}


def carry_out(plan: Plan, *, progress: bool = False) -> Conversion:
    """Do what a plan says; rows that differ are told, not raised."""
    hint = "The same conversion, started again, goes on with it.\n" if plan.about else ""
    with closing(Lock(plan.placement, hint)) as lock, at_most(plan.reading_bytes):
        run = _Run(plan, progress, lock)
        try:
            return run.whole()
        except BaseException as error:
            if not (run.journal.done and plan.about):  # nothing that another run can go on with
                if lock.held():  # or the folder is another's by now
                    plan.placement.remove()
            elif isinstance(error, OSError | ArgumentError):
                error.add_note(f"What was done is kept {plan.placement.left}.")
            raise


class _Run:
    """One conversion under way."""

    def __init__(self, plan: Plan, progress: bool, lock: Lock) -> None:
        self._plan, self._progress, self._lock = plan, progress, lock
        self.journal = Journal(os.path.join(plan.placement.folder, "journal"), plan.about)

    def whole(self) -> Conversion:
        """Do everything, and give the result its name."""
        began = perf_counter()
        plan, placement, journal = self._plan, self._plan.placement, self.journal
        storage, anew = self._begun()
        resumed = bool(journal.done)
        threads = ThreadPoolExecutor(cores(), "oocdata-convert")
        differing: tuple[int, ...] = ()
        try:
            self._through("writing", threads, storage.write, storage.save)
            self._lock.check()
            storage.close(plan.target.shape[0])
            if placement.on_disk:
                differing = self._differing(threads) if plan.verify else ()
                self._lock.check()
            if not differing:
                journal.note(placing=placement.inode)
            if not placement.on_disk:  # it is read by its name alone
                placement.place()
                with ExitStack() as unsound:
                    unsound.callback(placement.withdraw)
                    differing = self._differing(threads) if plan.verify else ()
                    if not differing:
                        unsound.pop_all()
        finally:
            storage.abandon()
            threads.shutdown(wait=True, cancel_futures=True)
        stored = placement.stored_bytes()
        if placement.on_disk and not differing:
            placement.place()
        placement.remove()
        verified = not differing if plan.verify else None
        seconds = perf_counter() - began
        return Conversion(plan, stored, seconds, resumed, anew, verified, differing)

    def _begun(self) -> tuple[Storage, str]:
        """Return the array under construction, and why it is a new one though one was begun."""
        plan, placement, journal = self._plan, self._plan.placement, self.journal
        anew = journal.reason
        if journal.done.get("placing", placement.inode) != placement.inode:
            # What it has changed places with lies here: the old array.
            anew = "its result has its name already"
        if journal.done and not anew:
            try:
                return placement.storage(plan.target, resume=True), ""
            except (SourceError, OSError, KeyError, ValueError) as error:
                anew = f"what was there is not sound ({error})"
        journal.done = {}
        placement.begin()
        return placement.storage(plan.target), anew

    def _through(
        self, label: str, threads: ThreadPoolExecutor, consume: Consume, save: Save | None
    ) -> None:
        """Bring the whole array from the source to what takes its blocks, in the plan's steps.

        Without `save` nothing is noted, and nothing that was done is left out.
        """
        plan = self._plan
        read = partial(read_box, plan.view)
        blocks, tiles = plan.steps.blocks, plan.steps.tiles
        if tiles is None:
            self._pass(label, read, blocks, consume, save)
            return
        path = os.path.join(plan.placement.folder, "scratch")
        if save is None:
            os.unlink(path)
        with closing(Scratch(path, blocks, tiles, plan.target.dtype, threads)) as scratch:
            self._pass("reordering", read, tiles, scratch.write, save and scratch.save)
            self._pass(label, scratch.read, blocks, consume, save)

    def _pass(
        self, label: str, read: Consume, grid: Grid, consume: Consume, save: Save | None
    ) -> None:
        """Bring every box of a grid that is not done yet from one side to the other."""
        dtype = self._plan.target.dtype
        done = self.journal.done.get(label, 0) if save else 0
        unsaved = 0

        def filled(box: Box) -> tuple[Box, NDArray[Any]]:
            values = np.empty([part.stop - part.start for part in box], dtype)
            read(box, values)
            return box, values

        def saved() -> None:
            if save and unsaved:
                save()
                self.journal.note(**{label: done})

        with (
            bar(label, self._plan.nbytes, shown=self._progress) as advance,
            ThreadPoolExecutor(1, "oocdata-ahead") as ahead,
        ):
            boxes = grid.boxes()
            for box in islice(boxes, done):
                advance(prod(part.stop - part.start for part in box) * dtype.itemsize)
            with closing(in_order(ahead, filled, boxes, most=2)) as each:  # one is read meanwhile
                for box, values in each:
                    consume(box, values)
                    advance(values.nbytes)
                    done, unsaved = done + 1, unsaved + values.nbytes
                    del values
                    if unsaved >= SAVE_BYTES:
                        saved()
                        unsaved = 0
            saved()

    def _differing(self, threads: ThreadPoolExecutor) -> tuple[int, ...]:
        """Compare the result with what the source gives when it is read again, bit by bit."""
        cache.forget()  # the source is read from its file again, not from what was decoded of it
        with self._reading_back():
            target = self._plan.target
            dtype = target.dtype if is_small_float(target.dtype) else None
            result = open_view(self._plan.placement.reopened, target.key, dtype=dtype)
        differing: list[int] = []

        def compare(box: Box, values: NDArray[Any]) -> None:
            there = np.empty_like(values)
            with self._reading_back():
                read_box(result, box, there)
            # As bytes: NaN is not equal to itself, and -0.0 is to 0.0.
            wrong = there.reshape(-1).view(np.uint8) != values.reshape(-1).view(np.uint8)
            if wrong.any():
                rows = np.flatnonzero(wrong.reshape(len(values), -1).any(axis=1)) + box[0].start
                differing.extend(rows[:_MOST_ROWS].tolist())

        self._through("verifying", threads, compare, None)
        return tuple(sorted(set(differing))[:_MOST_ROWS])

    @contextmanager
    def _reading_back(self) -> Iterator[None]:
        try:
            yield
        except (SourceError, OSError):
            self.journal.done = {}  # it is not sound: a rerun must not go on with it
            raise
