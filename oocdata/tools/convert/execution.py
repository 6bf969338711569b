"""Carry out the plan of a conversion: write, keep a journal, verify, and move into place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocdata.advice import size
from oocdata.datasets.open import open as open_view
from oocdata.engines.cache import cache
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, DamagedChunkError, SourceError
from oocdata.tools.convert.casting import cast
from oocdata.tools.convert.planning import Plan
from oocdata.tools.passes import Block, each_block, read_rows
from oocdata.tools.report import Report, labelled
from oocdata.writers.disk import write_json
from oocdata.writers.lock import Lock
from oocdata.writers.storage import Storage

__all__ = ["Conversion", "Journal", "carry_out"]


class Journal:
    """The rows done by a conversion, in a file; `about` identifies the conversion."""

    def __init__(self, path: str, about: Mapping[str, str]) -> None:
        self._path, self._about = path, dict(about)
        self.done, self.placing = 0, 0
        # Why an earlier run can't be resumed; empty if it can, or if there was none.
        self.reason = self._read() if os.path.exists(path) else ""

    def _read(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                journal = json.load(file)
            saved, done, placing = journal["about"], int(journal["done"]), int(journal["placing"])
        except (ValueError, KeyError, TypeError):
            return "its journal is damaged"
        if not self._about:
            return "changes of its source can't be detected"
        changed = [name for name, now in self._about.items() if saved.get(name) != now]
        if changed:
            return f"{changed[0]} has changed"
        self.done, self.placing = done, placing
        return "" if done else "it had saved nothing yet"

    def note(self, done: int, placing: int = 0) -> None:
        """Write how many rows are safe on the disk, and the inode of a result to be renamed."""
        self.done = done
        write_json(self._path, {"about": self._about, "done": done, "placing": placing})


SAVE_BYTES = 256 << 20
"""Bytes of elements after which the result is synced, and the journal written."""

_MOST_ROWS = 20

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Conversion(Report):
    """The result of a conversion."""

    plan: Plan  #: what was planned, and why
    stored_bytes: int  #: of the result, on disk
    seconds: float
    resumed: bool  #: whether it continued an earlier run
    anew: str  #: why an earlier run was not continued; empty if there was none
    verified: bool  #: whether result and source were compared bit by bit

    def __str__(self) -> str:
        return f"{self.plan}\n{self.outcome}"

    @property
    def outcome(self) -> str:
        """The outcome, as aligned lines."""
        nbytes = self.plan.nbytes
        share = f", {self.stored_bytes / nbytes:.0%} of its size in memory" if nbytes else ""
        rate = f", {size(nbytes / self.seconds)}/s" if self.seconds > 0 else ""
        done = f"{size(self.stored_bytes)}{share}; {self.seconds:.1f} s{rate}"
        verified = "result and source were read again: every bit is the same"
        lines = {
            "resumed": "continued an earlier run" if self.resumed else "",
            "restarted": f"an earlier run was not continued: {self.anew}" if self.anew else "",
            "done": done,
            "verified": verified if self.verified else "",
        }
        return "\n".join(labelled(label, text) for label, text in lines.items() if text)

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``, with the keys of the plan."""
        found = Report.to_json(self)
        return {**found.pop("plan"), **found}


def carry_out(plan: Plan, *, progress: bool = False) -> Conversion:
    """Run the planned conversion; raise the errors of `oocdata.convert`."""
    placement = plan.placement
    with closing(Lock(placement)) as lock:
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
        try:
            self._write(storage)
            self._lock.check()
            storage.close(plan.target.shape[0])
            if placement.on_disk:
                self._verify()
                self._lock.check()
            journal.note(plan.target.shape[0], placement.inode)
            if not placement.on_disk:  # an array in a store can be read only in its place
                placement.place()
                with ExitStack() as on_failure:
                    on_failure.callback(placement.withdraw)
                    self._verify()
                    on_failure.pop_all()
        finally:
            storage.abandon()
        stored = placement.stored_bytes()
        if placement.on_disk:
            placement.place()
        placement.remove()
        return Conversion(plan, stored, perf_counter() - began, resumed, reason, plan.verify)

    def _open(self) -> tuple[Storage, str]:
        """Open the array to write, and return why an earlier run is not continued, if so."""
        plan, placement, journal = self._plan, self._plan.placement, self.journal
        reason = journal.reason
        if journal.placing not in (0, placement.inode):
            # The result was exchanged with the old array, which is in the folder now.
            reason = "its result is in place already"
        if journal.done and not reason:
            try:
                return placement.storage(plan.target, resume=True), ""
            except (SourceError, OSError, KeyError, ValueError) as error:
                reason = f"its result is damaged ({error})"
        journal.done = 0
        placement.begin()
        return placement.storage(plan.target), reason

    def _blocks(
        self, label: str, work: Callable[[int, NDArray[Any]], Result], start: int = 0
    ) -> Generator[Result]:
        """Yield ``work(first row, values)`` for each block of rows to write, in order."""
        plan = self._plan
        stored = replace(plan.view, dtype=plan.view.source.dtype)[start:]

        def cast_block(block: Block) -> Result:
            rows = block.rows
            values = cast(block.values, plan.target.dtype, stored[rows.start : rows.stop])
            return work(start + rows.start, values)

        label = label if self._progress else ""
        return each_block(stored, cast_block, unit=plan.target.unit[0], label=label)

    def _write(self, storage: Storage) -> None:
        """Write all rows that an earlier run has not saved."""
        done, unsaved = self.journal.done, 0

        def save() -> None:
            storage.save()
            self.journal.note(done)

        with closing(self._blocks("writing", lambda first, values: values, done)) as blocks:
            for values in blocks:
                storage.write(done, values)
                done, unsaved = done + len(values), unsaved + values.nbytes
                del values
                if unsaved >= SAVE_BYTES:
                    save()
                    unsaved = 0
        if unsaved:
            save()

    def _verify(self) -> None:
        """Read result and source again if the plan says so; raise if a bit differs."""
        if not self._plan.verify:
            return
        cache.forget()  # so that the source is read from its file again
        with self._reading_back():
            target, placement = self._plan.target, self._plan.placement
            path = placement.result if placement.on_disk else placement.path
            dtype = target.dtype if is_small_float(target.dtype) else None
            result = open_view(path, target.key, dtype=dtype)

        def compare(first: int, values: NDArray[Any]) -> list[int]:
            with self._reading_back():
                written = read_rows(result, range(first, first + len(values)))
            # As bytes, because NaN != NaN and -0.0 == 0.0.
            unequal = written.reshape(-1).view(np.uint8) != values.reshape(-1).view(np.uint8)
            if not unequal.any():
                return []
            return (np.flatnonzero(unequal.reshape(len(values), -1).any(axis=1)) + first).tolist()

        with closing(self._blocks("verifying", compare)) as differing:
            rows = tuple(islice(chain.from_iterable(differing), _MOST_ROWS))
        if rows:
            self.journal.done = 0  # the result must not be resumed
            raise DamagedChunkError(
                "the result must hold every bit of the source; some rows differ, between the "
                "result and the source or between two reads of the source. The result was deleted. "
                "Is the disk or the memory faulty?",
                path=placement.path,
                key=target.key,
                rows=rows,
            )

    @contextmanager
    def _reading_back(self) -> Iterator[None]:
        try:
            yield
        except (SourceError, OSError):
            self.journal.done = 0  # the result is damaged, and must not be resumed
            raise
