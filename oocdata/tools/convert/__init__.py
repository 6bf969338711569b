"""Convert an array to another file, format or chunking: write, verify, and move into place."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocdata.advice import size
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.engines.cache import cache
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, DamagedChunkError, SourceError
from oocdata.index import as_flag, as_path
from oocdata.tools.convert.planning import Plan, plan_of
from oocdata.tools.opening import Opening
from oocdata.tools.passes import Block, each_block, read_rows
from oocdata.tools.report import Report, fields_text
from oocdata.writers.output import Output
from oocdata.writers.storage import Storage

_MOST_ROWS = 20

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Conversion(Report):
    """The result of a conversion."""

    plan: Plan  #: what was planned, and why
    stored_bytes: int  #: of the result, on disk
    seconds: float
    resumed: bool  #: whether it continued an earlier run
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
        fields = {
            "resumed": "continued an earlier run" * self.resumed,
            "done": done,
            "verified": verified * self.verified,
        }
        return fields_text(fields.items())

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``, with the keys of the plan."""
        found = Report.to_json(self)
        return {**found.pop("plan"), **found}


def convert(
    source: View | str | os.PathLike[str] | Any,
    destination: str | os.PathLike[str],
    *,
    key: str | None = None,
    to_key: str | None = None,
    chunks: int | Sequence[int] | None = None,
    codec: str | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Conversion:
    """Write an array of any size to another file, format or chunking.

    The source is not changed. The result is written in a folder beside it,
    ``<destination>.oocdata-partial``, and moved to its name when it is complete (and verified, with
    `verify`). If the process is killed, the same call resumes the conversion.

    Parameters
    ----------
    source : View, or what `oocdata.open` opens
        A View can select rows (``view[10:20]``), cut every row, and change the dtype
        (``view.astype("f4")``): numbers are rounded to a floating dtype, and any other change of a
        value is an error.
    destination : path or URL
        The suffix says the format: ``.npy``, ``.h5``, ``.hdf5``, ``.zarr`` (version 3). ``s3://``,
        ``gs://`` and ``az://`` take Zarr: chunks are uploaded as they are made, and the array's
        metadata last, so that an incomplete array is not readable. The journal is then in the
        folder for temporary files. An array in a store is never replaced.
    key : str, optional
        The dataset in the source.
    to_key : str, optional
        The array's name in an HDF5 file or Zarr group. By default, in HDF5 the name in the source
        or ``"/data"``; in Zarr, an array without a group. A file or group is written whole, with
        one array, and one that holds more is never replaced.
    chunks, codec
        As for `oocdata.create`.
    verify : bool
        Read the result and the source again, and compare every bit.
    overwrite : bool
        Replace an existing array of that name, when the new one is complete.
    progress : bool
        Show a bar on standard error, if that is a terminal.

    Returns
    -------
    Conversion
        Its plan states the memory that it takes: more than `oocdata.set_memory` allows for reading,
        because rows are in flight to the result too.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the arguments don't fit together, or the destination may not be replaced, or is the
        source.
    oocdata.errors.SourceError
        If the source can't be read, a number does not fit the view's dtype, the disk is full, or
        another process is converting to the same destination.
    oocdata.errors.DamagedChunkError
        If the result differs from the source (`verify`); the result is deleted.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> from oocdata.tools.convert import convert
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(60.0).reshape(20, 3))
    ...     done = convert(f"{folder}/a.npy", f"{folder}/a.zarr", chunks=5, verify=True)
    ...     done.verified, ooc.open(f"{folder}/a.zarr")[7]
    (True, array([21., 22., 23.]))
    """
    if isinstance(source, Dataset) and not isinstance(source, View):
        raise ArgumentError(
            f"`source` must be a View, or what oocdata.open opens; got {source!r}. To write other "
            "datasets batch by batch, use oocdata.create."
        )
    plan = plan_of(
        Opening.of(source, key).view(),
        as_path("destination", destination, allows_url=True),
        to_key=to_key,
        chunks=chunks,
        codec=codec,
        verify=as_flag("verify", verify),
        overwrite=as_flag("overwrite", overwrite),
    )
    return carry_out(plan, progress=as_flag("progress", progress))


def carry_out(plan: Plan, *, progress: bool = False) -> Conversion:
    """Run the planned conversion; raise the errors of `oocdata.convert`."""
    began, placement = perf_counter(), plan.placement

    def open_storages(done: int) -> list[Storage]:
        return [placement.storage(plan.target, done=done)]

    with closing(Output(open_storages, placement, plan.about)) as output:
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
    return Conversion(plan, stored, perf_counter() - began, resumed, plan.verify)


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
    axis = view.axes[0]
    path, key, row = view.storage.place(int(view.origins(np.array(first[:1]))[0, axis]), axis)
    raise SourceError(
        f"numbers must fit the dtype that they are written in, {out.dtype}; got {values[first]}. "
        f"{hint}.",
        path=path,
        key=key,
        rows=(row,),
    )


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
