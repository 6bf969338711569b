"""Carrying a plan out: write, save, note, verify, and give the result its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.open import open as open_view
from oocdata.engines.cache import cache
from oocdata.errors import ArgumentError, SourceError
from oocdata.memory import at_most
from oocdata.threads import cores
from oocdata.tools.convert.journal import Journal
from oocdata.tools.convert.plan import Plan
from oocdata.tools.convert.reading import BoxSource
from oocdata.tools.convert.run import each_box
from oocdata.tools.convert.scratch import Scratch
from oocdata.tools.convert.steps import Grid
from oocdata.tools.progress import progress as bar
from oocdata.writers.lock import Lock
from oocdata.writers.storage import Storage, open_storage
from oocdata.writers.target import Box
from oocdata.writers.writer import prepare

__all__ = ["Conversion", "carry_out"]

_MOST_ROWS = 20
_PLACING = "placing"
"""The stage of the journal in which the result gets its name."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion did.

    Attributes
    ----------
    plan : Plan
        What was to be done, and why so.
    stored_bytes : int
        Of the result, on disk.
    seconds : float
    resumed : bool
        It went on with what an earlier run had done.
    anew : str
        Why it didn't, where an earlier run had begun; empty where none had.
    verified : bool or None
        Every bit of the result is that of the source; None: not asked for.
    differing_rows : tuple of int
        The first of the rows that differ; the result was thrown away then.
    """

    plan: Plan
    stored_bytes: int
    seconds: float
    resumed: bool
    anew: str
    verified: bool | None
    differing_rows: tuple[int, ...]

    def __str__(self) -> str:
        from oocdata.tools.convert.text import outcome_text

        return f"{self.plan}\n{outcome_text(self)}"

    def as_json(self) -> dict[str, Any]:
        """Return everything, for ``json.dumps``."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "plan"}
        return {**self.plan.as_json(), **found}


def carry_out(plan: Plan, *, resume: bool = True, progress: bool = False) -> Conversion:
    """Do what a plan says; rows that differ are told, not raised."""
    began = perf_counter()
    hint = "The same conversion, started again, goes on with it.\n" if plan.about else ""
    with Lock(plan.placement, hint) as lock, at_most(plan.reading_bytes):
        run = _Run(plan, progress, lock)
        try:
            return run.whole(resume, began)
        except BaseException as error:
            if not run.worth_keeping:
                if lock.held():  # or the folder is another's by now
                    plan.placement.remove()
            elif isinstance(error, OSError | ArgumentError):
                error.add_note(f"What was done is kept in '{plan.placement.folder}'.")
            raise


class _Run:
    """One conversion under way."""

    def __init__(self, plan: Plan, progress: bool, lock: Lock) -> None:
        self._plan, self._progress, self._lock = plan, progress, lock
        self._placement = plan.placement
        self._journal: Journal | None = None
        self._storage: Storage | None = None
        self._noted = False

    @property
    def worth_keeping(self) -> bool:
        """Whether something was saved that another run can go on with."""
        return self._noted and bool(self._plan.about)

    def whole(self, resume: bool, began: float) -> Conversion:
        """Do everything, and give the result its name."""
        plan, placement = self._plan, self._placement
        path = os.path.join(placement.folder, "journal")
        self._noted = os.path.exists(path)
        journal = Journal(path, plan.about)
        anew = "" if resume or not journal.resumed else "it was told to"
        # Once it has its name, what it has changed places with may lie here: the old array.
        placing = journal.done(_PLACING)
        if placing and placement.inode not in placing:
            anew = anew or "its result has its name already"
        threads = ThreadPoolExecutor(cores(), "oocdata-convert")
        try:
            anew = anew or journal.reason
            if journal.resumed and not anew:
                try:
                    self._storage = open_storage(plan.target, placement.result, resume=True)
                except (SourceError, OSError, KeyError, ValueError) as error:
                    anew = f"what was there is not sound ({error})"
            if self._storage is None:
                journal.resumed = self._noted = False
                placement.clear()
                plan.check_disk(0)
                prepare(placement)
                self._storage = open_storage(plan.target, placement.result)
            else:
                plan.check_disk(_on_disk(placement.folder))
            resumed = journal.resumed
            self._journal = journal
            journal.begin()
            source = BoxSource(plan.view)
            self._write(source, threads)
            self._lock.check()
            self._storage.close(plan.target.shape[0])
            differing = self._compare(source, threads) if plan.verify else ()
            self._lock.check()
            if not differing:
                journal.note(_PLACING, [placement.inode])
        finally:
            journal.close()
            if self._storage is not None:
                self._storage.abandon()
            threads.shutdown(wait=True, cancel_futures=True)
        stored = _stored_bytes(placement.result)
        if not differing:
            placement.place()
        placement.remove()
        return Conversion(
            plan=plan,
            stored_bytes=stored,
            seconds=perf_counter() - began,
            resumed=resumed,
            anew=anew,
            verified=not differing if plan.verify else None,
            differing_rows=differing,
        )

    def _write(self, source: BoxSource, threads: ThreadPoolExecutor) -> None:
        plan, storage = self._plan, self._storage
        assert storage is not None
        if plan.steps.tiles is None:
            self._pass("writing", source, plan.steps.blocks, storage.write, storage.save)
            return
        scratch = Scratch(self._scratch_path, plan.steps, plan.target.dtype, threads)
        try:
            self._pass("reordering", source, plan.steps.tiles, scratch.write, scratch.save)
            self._pass("writing", scratch, plan.steps.blocks, storage.write, storage.save)
        finally:
            scratch.close()

    @property
    def _scratch_path(self) -> str:
        return os.path.join(self._placement.folder, "scratch")

    def _pass(
        self,
        label: str,
        source: Any,
        grid: Grid,
        consume: Callable[[Box, NDArray[Any]], None],
        save: Callable[[], None],
    ) -> None:
        """Bring every box of a grid that is not done yet from one side to the other."""
        journal, dtype = self._journal, self._plan.target.dtype
        assert journal is not None
        done = journal.done(label)

        def saved(numbers: list[int]) -> None:
            save()
            self._noted = True  # an interrupt may come right behind the note
            journal.note(label, numbers)

        with bar(label, self._plan.nbytes, shown=self._progress) as advance:
            todo = []
            for number, box in enumerate(grid.boxes()):
                if number in done:
                    advance(_nbytes(box, dtype))
                else:
                    todo.append((number, box))
            each_box(source, todo, dtype, grid.most, consume, saved, advance)

    def _compare(self, source: BoxSource, threads: ThreadPoolExecutor) -> tuple[int, ...]:
        """Compare the result with what the source gives when it is read again, bit by bit."""
        plan = self._plan
        key = plan.target.key
        cache.forget()  # the source is read from its file again, not from what was decoded of it
        with self._reading_back():
            result = BoxSource(open_view(self._placement.result, key))
        held = np.empty(plan.steps.blocks.most, plan.target.dtype)
        differing: list[int] = []

        def compare(box: Box, values: NDArray[Any]) -> None:
            there = held[: values.size].reshape(values.shape)
            with self._reading_back():
                result.read(box, there)
            # As bytes: NaN is not equal to itself, and -0.0 is to 0.0.
            wrong = there.reshape(-1).view(np.uint8) != values.reshape(-1).view(np.uint8)
            if wrong.any():
                rows = np.flatnonzero(wrong.reshape(len(values), -1).any(axis=1)) + box[0].start
                differing.extend(rows[:_MOST_ROWS].tolist())

        def read(again: Any, grid: Grid, label: str, consume: Any) -> None:
            boxes = list(enumerate(grid.boxes()))
            with bar(label, plan.nbytes, shown=self._progress) as advance:
                each_box(
                    again, boxes, plan.target.dtype, grid.most, consume, lambda done: None, advance
                )

        if plan.steps.tiles is None:
            read(source, plan.steps.blocks, "verifying", compare)
        else:
            os.unlink(self._scratch_path)
            scratch = Scratch(self._scratch_path, plan.steps, plan.target.dtype, threads)
            try:
                read(source, plan.steps.tiles, "reading again", scratch.write)
                read(scratch, plan.steps.blocks, "verifying", compare)
            finally:
                scratch.close()
        return tuple(sorted(set(differing))[:_MOST_ROWS])

    @contextmanager
    def _reading_back(self) -> Iterator[None]:
        try:
            yield
        except (SourceError, OSError):
            self._noted = False  # it is not sound: a rerun must not go on with it
            raise


def _nbytes(box: Box, dtype: np.dtype[Any]) -> int:
    count = dtype.itemsize
    for part in box:
        count *= part.stop - part.start
    return count


def _stored_bytes(path: str) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(found.st_size for found in _files(path))


def _on_disk(path: str) -> int:
    """Return the bytes that they take on the disk: a file may have holes."""
    return sum(found.st_blocks * 512 for found in _files(path))


def _files(path: str) -> list[os.stat_result]:
    if not os.path.isdir(path):
        return [os.stat(path)]
    return [
        os.lstat(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names
    ]
