"""Carry out the plan of a conversion: write, verify, and move into place."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocdata.advice import size
from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.engines.cache import cache
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, DamagedChunkError, SourceError
from oocdata.tools.convert.planning import Plan
from oocdata.tools.passes import Block, each_block, read_rows
from oocdata.tools.report import Report, fields_text
from oocdata.writers.output import Output

__all__ = ["Conversion", "carry_out", "cast"]


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
        return fields_text(
            [
                ("resumed", "continued an earlier run" if self.resumed else ""),
                (
                    "restarted",
                    f"an earlier run was not continued: {self.anew}" if self.anew else "",
                ),
                ("done", done),
                ("verified", verified if self.verified else ""),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``, with the keys of the plan."""
        found = Report.to_json(self)
        return {**found.pop("plan"), **found}


def carry_out(plan: Plan, *, progress: bool = False) -> Conversion:
    """Run the planned conversion; raise the errors of `oocdata.convert`."""
    began, placement = perf_counter(), plan.placement
    with closing(Output(plan.target, placement, plan.about)) as output:
        resumed, row = bool(output.done), output.done
        try:
            label = "writing" if progress else ""
            with closing(_blocks(plan, label, lambda first, values: values, row)) as blocks:
                for values in blocks:
                    output.write(row, values)
                    row += len(values)
                    del values
            stored = output.finish(row, partial(_verify, plan, output, progress))
        except (OSError, ArgumentError, KeyboardInterrupt) as error:
            if output.is_kept:
                where = f"in '{placement.folder}'"
                if not placement.on_disk:
                    where = f"below '{placement.path}', and notes of it {where}"
                error.add_note(
                    f"The part that is done is kept {where}; the same command continues there."
                )
            raise
    return Conversion(plan, stored, perf_counter() - began, resumed, output.anew, plan.verify)


def _blocks(
    plan: Plan, label: str, work: Callable[[int, NDArray[Any]], Result], start: int = 0
) -> Generator[Result]:
    """Yield ``work(first row, values)`` for each block of rows to write, in order."""
    stored = replace(plan.view, dtype=plan.view.source.dtype)[start:]

    def cast_block(block: Block) -> Result:
        rows = block.rows
        values = cast(block.values, plan.target.dtype, stored[rows.start : rows.stop])
        return work(start + rows.start, values)

    return each_block(stored, cast_block, unit=plan.target.unit[0], label=label)


def cast(values: NDArray[Any], dtype: np.dtype[Any], view: View) -> NDArray[Any]:
    """Return numbers in a dtype; they may be rounded to floats, but not change otherwise.

    `view` has the rows that were read. A number that does not fit is a `SourceError`, with file,
    dataset and row. NumPy's conversion turns 300 into 44 in ``uint8``, NaN and 0.5 into 0, and
    1e300 into infinity in ``float32``. In a loader that can be corrected later; in a file it is
    permanent.
    """
    if values.dtype == dtype:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        out = values.astype(dtype)
    if np.can_cast(values.dtype, out.dtype, "safe"):
        return out
    is_exact = out.dtype.kind in "biu"
    changed = out != values if is_exact else np.isinf(out) & np.isfinite(values)
    if not changed.any():
        return out
    first = tuple(int(place) for place in np.argwhere(changed)[0])
    hint = "Choose a dtype that holds them"
    if is_exact and out.dtype.kind != "b":
        hint += f", or scale and round them into {out.dtype} yourself: oocdata.create writes them"
    path, key, row = _stored_row(view, first[0])
    raise SourceError(
        f"numbers must fit the dtype that they are written in, {out.dtype}; got {values[first]}. "
        f"{hint}.",
        path=path,
        key=key,
        rows=(row,),
    )


def _stored_row(view: View, row: int) -> tuple[str | None, str | None, int]:
    """Return the file and dataset of a row of a view, and the row's number in the dataset."""
    storage = view.storage
    at = int(view.origins(np.asarray(view.rows[row : row + 1], np.int64))[0, view.axes[0]])
    if len(storage.parts) == 1 or storage.parts_axis != view.axes[0]:
        return storage.path, storage.key, at
    part = bisect_right(storage.parts, at) - 1
    path, key = storage.part_names[part]
    return path, key, at - storage.parts[part]


def _verify(plan: Plan, output: Output, progress: bool) -> None:
    """Read result and source again if the plan says so; raise if a bit differs."""
    if not plan.verify:
        return
    target, placement = plan.target, plan.placement
    cache.forget()  # so that the source is read from its file again
    with _reading_back(output):
        path = placement.result if placement.on_disk else placement.path
        dtype = target.dtype if is_small_float(target.dtype) else None
        result = open_view(path, target.key, dtype=dtype)

    def compare(first: int, values: NDArray[Any]) -> list[int]:
        with _reading_back(output):
            written = read_rows(result, range(first, first + len(values)))
        # As bytes, because NaN != NaN and -0.0 == 0.0.
        unequal = written.reshape(-1).view(np.uint8) != values.reshape(-1).view(np.uint8)
        if not unequal.any():
            return []
        return (np.flatnonzero(unequal.reshape(len(values), -1).any(axis=1)) + first).tolist()

    with closing(_blocks(plan, "verifying" if progress else "", compare)) as differing:
        rows = tuple(islice(chain.from_iterable(differing), _MOST_ROWS))
    if rows:
        output.done = 0  # the result must not be resumed
        raise DamagedChunkError(
            "the result must hold every bit of the source; some rows differ, between the "
            "result and the source or between two reads of the source. The result was deleted. "
            "Is the disk or the memory faulty?",
            path=placement.path,
            key=target.key,
            rows=rows,
        )


@contextmanager
def _reading_back(output: Output) -> Iterator[None]:
    try:
        yield
    except (SourceError, OSError):
        output.done = 0  # the result is damaged, and must not be resumed
        raise
