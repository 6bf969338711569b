"""What the demonstration checks: that an epoch is every element once, every value as it was."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.view import View
from oocdata.errors import SourceError
from oocdata.formats.opening import format_of
from oocdata.loader import Loader
from oocdata.tools.demo.data import Clips, checksums
from oocdata.tools.demo.measuring import Advance

__all__ = ["check_elements", "check_frames", "check_order", "check_rows"]

_MOST_CHECKED = 50_000_000
_ROWS_COMPARED = 8
_LIBRARIES = {"npy": "NumPy", "npz": "NumPy", "hdf5": "h5py", "zarr": "zarr-python"}


def check_elements(loader: Loader, sums: NDArray[np.uint32], advance: Advance) -> int:
    """Check that an epoch through tf.data is each element once, every frame as it was written.

    Parameters
    ----------
    loader : Loader
        Of windows: ``(x, y)``.
    sums : ndarray of uint32, shape (rows,)
        Checksums of the rows, from before they were written.

    Returns
    -------
    int
        Elements, each seen exactly once.

    Raises
    ------
    oocdata.errors.SourceError
        At the first frame that differs.
    """
    seen = np.zeros(len(loader.dataset), np.int64)
    for step, batch in enumerate(loader.to_tf()):
        positions = loader.positions(step)
        for rows, array in zip(_rows_of(loader.dataset, positions), batch, strict=True):
            frames = array.numpy().reshape(len(rows), -1)
            wrong = rows[checksums(frames) != sums[rows]]
            if len(wrong):
                raise SourceError(
                    "frames must come back as they were written; some differ.", rows=wrong
                )
        seen[positions] += 1
        advance(1)
    _check_once(seen)
    return len(seen)


def _rows_of(dataset: Dataset, positions: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows along axis 0 that each array of a batch is read from, in order."""
    return [
        (one.origins[:, :1] + np.arange(one.extent.lengths[0]) * one.extent.strides[0]).ravel()
        for one in dataset.requests(positions, Draw())
    ]


def check_order(loader: Loader) -> int | None:
    """Check that the positions of an epoch are each element once; None where there are too many."""
    if len(loader.dataset) > _MOST_CHECKED:
        return None
    seen = np.zeros(len(loader.dataset), np.int64)
    for step in range(len(loader)):
        np.add.at(seen, loader.positions(step), 1)
    _check_once(seen)
    return len(seen)


def _check_once(seen: NDArray[np.int64]) -> None:
    wrong = np.flatnonzero(seen != 1)
    if len(wrong):
        raise SourceError(
            f"an epoch must deliver each element once; {len(wrong)} came another number of times, "
            f"the first at position {wrong[0]} ({seen[wrong[0]]} times)."
        )


def check_frames(loader: Loader, clips: Clips) -> int:
    """Compare the targets of a shuffled batch bit by bit with frames that are made again.

    Returns
    -------
    int
        Frames compared.

    Raises
    ------
    oocdata.errors.SourceError
        If one differs.
    """
    step = len(loader) // 2
    batch: Any = loader.batch(step)
    rows = _rows_of(loader.dataset, loader.positions(step))[-1]
    for row, got in zip(rows.tolist(), batch[-1][:, 0], strict=True):
        clip, frame = divmod(row, clips.frames)
        if got.tobytes() != clips.render(clip)[frame].tobytes():
            raise SourceError("frames must come back bit for bit; one differs.", rows=[row])
    return len(rows)


def check_rows(view: View, path: str) -> str | None:
    """Compare rows bit by bit with what the format's own library reads.

    Parameters
    ----------
    view : View
        All rows of the array.
    path : str
        As it was opened.

    Returns
    -------
    str or None
        What was compared, in words; None for a glob, a URL, raw binary or several
        sample axes.

    Raises
    ------
    oocdata.errors.SourceError
        If they differ.
    """
    storage = view.storage
    path = os.path.expanduser(path)
    if not os.path.exists(path) or storage.format == "raw" or len(view.axes) > 1:
        return None
    rows = np.unique(np.linspace(0, len(view) - 1, _ROWS_COMPARED).astype(np.int64))
    wanted = _by_library(path, storage.key, view.axes[0], rows)
    for row, got, right in zip(rows.tolist(), view.take(rows), wanted, strict=True):
        native = right.astype(right.dtype.newbyteorder("="))
        if got.tobytes() != np.ascontiguousarray(native).tobytes():
            raise SourceError(
                "rows must be what the format's own library reads; one differs.",
                path=path,
                key=storage.key,
                rows=[row],
            )
    return f"{len(rows)} rows are bit for bit what {_LIBRARIES[format_of(path)]} reads"


def _by_library(
    path: str, key: str | None, axis: int, rows: NDArray[np.int64]
) -> list[NDArray[Any]]:
    def pick(array: Any) -> list[NDArray[Any]]:
        before = (slice(None),) * (axis % array.ndim)
        return [np.asarray(array[(*before, int(row))]) for row in rows]

    kind = format_of(path)
    if kind == "npy":
        return pick(np.load(path, mmap_mode="r"))
    if kind == "npz":
        with np.load(path) as archive:
            return pick(archive[key])
    if kind == "hdf5":
        import h5py

        with h5py.File(path, "r") as file:
            return pick(file[key])
    import zarr

    found: Any = zarr.open(path, mode="r")
    return pick(found[key] if key else found)
