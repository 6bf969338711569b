"""Carry out the plan of a conversion: write, keep a journal, verify, and move into place."""

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

from oocdata.advice import size
from oocdata.datasets.open import open as open_view
from oocdata.engines.cache import cache
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, SourceError
from oocdata.memory import lowered_limit
from oocdata.threads import cores, in_order
from oocdata.tools.convert.planning import Plan
from oocdata.tools.convert.steps import Grid, Scratch, read_box
from oocdata.tools.report import Report, labelled
from oocdata.tools.report import progress as bar
from oocdata.writers.disk import write_json
from oocdata.writers.lock import Lock
from oocdata.writers.storage import Storage
from oocdata.writers.target import Box

__all__ = ["Conversion", "Journal", "carry_out"]


class Journal:
    """Boxes done in each stage of a conversion, in a file; `about` identifies the conversion."""

    def __init__(self, path: str, about: Mapping[str, str]) -> None:
        self._path, self._about = path, dict(about)
        self.done: dict[str, int] = {}
        # Why an earlier run can't be resumed; empty if it can, or if there was none.
        self.reason = self._read() if os.path.exists(path) else ""

    def _read(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                journal = json.load(file)
            saved, done = journal["about"], journal["done"]
        except (ValueError, KeyError, TypeError):
            return "its journal is damaged"
        if not self._about:
            return "changes of its source can't be detected"
        changed = [name for name, now in self._about.items() if saved.get(name) != now]
        if changed:
            return f"{changed[0]} has changed"
        self.done = done
        return "" if done else "it had saved nothing yet"

    def note(self, **done: int) -> None:
        """Write how many boxes of a stage are safe on the disk."""
        self.done.update(done)
        write_json(self._path, {"about": self._about, "done": self.done})


SAVE_BYTES = 256 << 20
"""Bytes of elements after which the result is synced, and the journal written."""

_MOST_ROWS = 20

Consume = Callable[[Box, NDArray[Any]], None]
"""A function of a box and an array of its shape, which fills the array or writes it."""

Save = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Conversion(Report):
    """The result of a conversion."""

    plan: Plan  #: what was planned, and why
    stored_bytes: int  #: of the result, on disk
    seconds: float
    resumed: bool  #: whether it continued an earlier run
    anew: str  #: why an earlier run was not continued; empty if there was none
    verified: bool | None  #: whether every bit is that of the source; None: not verified
    differing_rows: tuple[int, ...]  #: the first rows that differ; the result was deleted then

    def __str__(self) -> str:
        return f"{self.plan}\n{self.outcome}"

    @property
    def outcome(self) -> str:
        """The outcome, as aligned lines."""
        nbytes = self.plan.nbytes
        share = f", {self.stored_bytes / nbytes:.0%} of its size in memory" if nbytes else ""
        rate = f", {size(nbytes / self.seconds)}/s" if self.seconds > 0 else ""
        done = f"{size(self.stored_bytes)}{share}; {self.seconds:.1f} s{rate}"
        rows = ", ".join(map(str, self.differing_rows))
        damage = f"the result differs from the source in rows {rows}, …; it was deleted. "
        verified = "result and source were read again: every bit is the same"
        lines = {
            "resumed": "continued an earlier run" if self.resumed else "",
            "restarted": f"an earlier run was not continued: {self.anew}" if self.anew else "",
            "DAMAGED": f"{damage}Is the disk or the memory faulty?" if rows else "",
            "done": "" if rows else done,
            "verified": verified if self.verified else "",
        }
        return "\n".join(labelled(label, text) for label, text in lines.items() if text)

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``, with the keys of the plan."""
        found = Report.to_json(self)
        return {**found.pop("plan"), **found}


def carry_out(plan: Plan, *, progress: bool = False) -> Conversion:
    """Run the planned conversion; differing rows are in the result, not raised."""
    placement = plan.placement
    hint = "To continue the conversion, start the same one again.\n" if plan.about else ""
    with closing(Lock(placement, hint)) as lock, lowered_limit(plan.reading_bytes):
        run = _Run(plan, progress, lock)
        try:
            return run.whole()
        except BaseException as error:
            if not (run.journal.done and plan.about):  # there is nothing to resume
                if lock.held():  # otherwise, another process uses the folder by now
                    placement.remove()
            elif isinstance(error, OSError | ArgumentError):
                where = f"in '{placement.folder}'"
                if not placement.on_disk:
                    where = f"below '{placement.path}', and notes of it {where}"
                error.add_note(f"The part that is done is kept {where}.")
            raise


class _Run:
    """A conversion in progress."""

    def __init__(self, plan: Plan, progress: bool, lock: Lock) -> None:
        self._plan, self._progress, self._lock = plan, progress, lock
        self.journal = Journal(os.path.join(plan.placement.folder, "journal"), plan.about)

    def whole(self) -> Conversion:
        """Run all stages, and move the result into place."""
        began = perf_counter()
        plan, placement, journal = self._plan, self._plan.placement, self.journal
        storage, reason = self._open()
        resumed = bool(journal.done)
        threads = ThreadPoolExecutor(cores(), "oocdata-convert")
        differing: tuple[int, ...] = ()
        try:
            self._transfer("writing", threads, storage.write, storage.save)
            self._lock.check()
            storage.close(plan.target.shape[0])
            if placement.on_disk:
                differing = self._differing(threads) if plan.verify else ()
                self._lock.check()
            if not differing:
                journal.note(placing=placement.inode)
            if not placement.on_disk:  # an array in a store can be read only in its place
                placement.place()
                with ExitStack() as on_failure:
                    on_failure.callback(placement.withdraw)
                    differing = self._differing(threads) if plan.verify else ()
                    if not differing:
                        on_failure.pop_all()
        finally:
            storage.abandon()
            threads.shutdown(wait=True, cancel_futures=True)
        stored = placement.stored_bytes()
        if placement.on_disk and not differing:
            placement.place()
        placement.remove()
        verified = not differing if plan.verify else None
        seconds = perf_counter() - began
        return Conversion(plan, stored, seconds, resumed, reason, verified, differing)

    def _open(self) -> tuple[Storage, str]:
        """Open the array to write, and return why an earlier run is not continued, if so."""
        plan, placement, journal = self._plan, self._plan.placement, self.journal
        reason = journal.reason
        if journal.done.get("placing", placement.inode) != placement.inode:
            # The result was exchanged with the old array, which is in the folder now.
            reason = "its result is in place already"
        if journal.done and not reason:
            try:
                return placement.storage(plan.target, resume=True), ""
            except (SourceError, OSError, KeyError, ValueError) as error:
                reason = f"its result is damaged ({error})"
        journal.done = {}
        placement.begin()
        return placement.storage(plan.target), reason

    def _transfer(
        self, label: str, threads: ThreadPoolExecutor, consume: Consume, save: Save | None
    ) -> None:
        """Pass every block of the source to `consume`, in the plan's steps.

        Without `save`, the journal is neither read nor written.
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
        """Read every box of a grid that is not done yet, and pass it to `consume`."""
        dtype = self._plan.target.dtype
        done = self.journal.done.get(label, 0) if save else 0
        unsaved = 0

        def read_values(box: Box) -> tuple[Box, NDArray[Any]]:
            values = np.empty([part.stop - part.start for part in box], dtype)
            read(box, values)
            return box, values

        def checkpoint() -> None:
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
            # The next box is read while one is consumed.
            with closing(in_order(ahead, read_values, boxes, most=2)) as filled:
                for box, values in filled:
                    consume(box, values)
                    advance(values.nbytes)
                    done, unsaved = done + 1, unsaved + values.nbytes
                    del values
                    if unsaved >= SAVE_BYTES:
                        checkpoint()
                        unsaved = 0
            checkpoint()

    def _differing(self, threads: ThreadPoolExecutor) -> tuple[int, ...]:
        """Read result and source again, and return the first rows in which a bit differs."""
        cache.forget()  # so that the source is read from its file again
        with self._reading_back():
            target, placement = self._plan.target, self._plan.placement
            path = placement.result if placement.on_disk else placement.path
            dtype = target.dtype if is_small_float(target.dtype) else None
            result = open_view(path, target.key, dtype=dtype)
        differing: list[int] = []

        def compare(box: Box, values: NDArray[Any]) -> None:
            written = np.empty_like(values)
            with self._reading_back():
                read_box(result, box, written)
            # As bytes, because NaN != NaN and -0.0 == 0.0.
            unequal = written.reshape(-1).view(np.uint8) != values.reshape(-1).view(np.uint8)
            if unequal.any():
                rows = np.flatnonzero(unequal.reshape(len(values), -1).any(axis=1)) + box[0].start
                differing.extend(rows[:_MOST_ROWS].tolist())

        self._transfer("verifying", threads, compare, None)
        return tuple(sorted(set(differing))[:_MOST_ROWS])

    @contextmanager
    def _reading_back(self) -> Iterator[None]:
        try:
            yield
        except (SourceError, OSError):
            self.journal.done = {}  # the result is damaged, and must not be resumed
            raise
