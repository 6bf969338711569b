"""Convert the batches of a run of steps to arrays that TensorFlow takes without a copy."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.multi_array import MultiArrayBatch, aligned_length
from oocdata.datasets.spec import ArraySpec, Batch, columns_of, leaves
from oocdata.engines.buffers import empty, side_by_side
from oocdata.errors import ArgumentError, PositionError
from oocdata.index import as_count

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream


def tensor_dtype(dtype: np.dtype[Any]) -> str:
    """Return TensorFlow's name of a dtype."""
    return "string" if dtype.kind in "SUO" else dtype.name


def checked_start(loader: Loader, start: tuple[int, int], epochs: int) -> tuple[int, int, int]:
    """Check `start` and `epochs`; return epoch, step and epochs as Python integers."""
    epochs = as_count("epochs", epochs)
    try:
        epoch, step = (operator.index(part) for part in start)
    except (TypeError, ValueError):
        raise ArgumentError(f"`start` must be a pair (epoch, step); got {start!r}.") from None
    if epoch < 0 or not 0 <= step < len(loader):
        raise PositionError(
            f"`start` must be an epoch from 0 and a step within [0, {len(loader)}); got {start!r}."
        )
    return epoch, step, epochs


def stack_batches(batches: Sequence[Batch], loader: Loader | Stream) -> list[NDArray[Any]]:
    """Return the batches of a run, all of one length, as arrays that TensorFlow takes.

    A dense leaf is an array of shape (steps, batch, …), and a padded one has the values of each
    step, shape (steps, longest, …), and its first two lengths. Sparse and ragged leaves are several
    arrays for each batch, see `separate_arrays`; then the number of batches, shape (1,), is last.
    """
    size, most = loader.batch_size // loader.num_shards, most_separate(loader)
    arrays: list[Iterable[NDArray[Any]]] = []
    for column, leaf in zip(columns_of(batches, loader.spec), leaves(loader.spec), strict=True):
        if leaf.form == "dense":
            one = replace(leaf, shape=leaf.shape[1:])
            arrays.append([_encoded(_stack(column, size, one))])
        elif leaf.form == "padded":
            arrays.append(_padded_arrays(column, replace(leaf, shape=leaf.shape[2:])))
        else:
            arrays.append(separate_arrays(column, leaf, most))
    count = [np.full(1, len(batches), np.int64)] if most else []
    return without_aliases(itertools.chain(*arrays, count))


def most_separate(loader: Loader | Stream) -> int:
    """Return the most batches of a run that are several arrays each; 0 if all leaves are dense."""
    return cast("Loader", loader).most_together if loader.dataset.is_multi_array else 0


def without_aliases(arrays: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return C-contiguous arrays, copying each that shares memory with another one.

    A mapped function may return one array twice, as ``lambda x: (x, x)`` does. But TensorFlow
    computes in place in the memory of a tensor with a single reference.
    """
    distinct, end = list(arrays), 0
    for start, at in sorted((array.ctypes.data, at) for at, array in enumerate(distinct)):
        array = distinct[at]
        if array.nbytes and start < end:
            distinct[at] = empty(array.shape, array.dtype)
            np.copyto(distinct[at], array)
        else:
            end = max(end, start + array.nbytes)
    return distinct


def _encoded(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array with strings as bytes, as TensorFlow has them."""
    return np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array


def separate_specs(leaf: ArraySpec) -> list[ArraySpec]:
    """Return the specs of the arrays of a sparse or ragged leaf of a batch.

    All but the last have another length in each batch.
    """
    length, int64 = leaf.shape[0], np.dtype(np.int64)
    if leaf.form == "sparse":
        return [ArraySpec((None, 2), int64), ArraySpec((None,), leaf.dtype), ArraySpec((2,), int64)]
    splits = ArraySpec((None if length is None else length + 1,), int64)
    return [ArraySpec((None, *leaf.shape[2:]), leaf.dtype), splits]


def separate_arrays(
    batches: Sequence[MultiArrayBatch], leaf: ArraySpec, most: int
) -> Iterator[NDArray[Any]]:
    """Yield the arrays of a sparse or ragged leaf of the batches of a run.

    They are, for each spec of `separate_specs` but the last, an array of each batch, and empty ones
    up to `most`, because TensorFlow needs a fixed number; then one of shape (most, …) for the last.
    """
    no_rows = replace(leaf, shape=(leaf.shape[0] or 0, *leaf.shape[1:]))
    empties = [
        np.zeros([length or 0 for length in spec.shape], spec.dtype)
        for spec in separate_specs(no_rows)
    ]
    parts = [batch.arrays for batch in batches]
    for at, none in enumerate(empties[:-1]):
        for array in (each[at] for each in parts):
            yield _encoded(_stack([array], len(array), ArraySpec(array.shape[1:], none.dtype))[0])
        yield from [none] * (most - len(batches))
    fixed = np.zeros((most, *(parts[0] if parts else empties)[-1].shape), np.int64)
    for step, each in enumerate(parts):
        fixed[step] = each[-1]
    yield fixed


def _padded_arrays(batches: Sequence[NDArray[Any]], spec: ArraySpec) -> list[NDArray[Any]]:
    """Return the values of padded batches, shape (steps, longest, …), and the lengths of each."""
    values = [batch.reshape(-1, *batch.shape[2:]) for batch in batches]
    counts = np.array([batch.shape[:2] for batch in batches], np.int64).reshape(-1, 2)
    return [_encoded(_stack_unequal(values, spec)), counts]


def _stack_unequal(arrays: Sequence[NDArray[Any]], spec: ArraySpec) -> NDArray[Any]:
    """Stack arrays of different lengths; no copy if each begins a buffer of equal size.

    A copy took up to 1.3 times the processor's time (batches of 256 rows of 2,000 numbers).
    """
    whole = [array.base for array in arrays if isinstance(array.base, np.ndarray)]
    text = spec.dtype.kind == "U"  # is encoded, with what follows the rows
    if (
        len(whole) == len(arrays) > 0
        and not text
        and all(
            base.dtype == array.dtype
            and base.shape == whole[0].shape
            and base.shape[1:] == spec.shape
            and base.ctypes.data == array.ctypes.data
            for base, array in zip(whole, arrays, strict=True)
        )
    ):
        return _stack(whole, len(whole[0]), spec)
    longest = max(map(len, arrays), default=0)
    # `aligned_length` rounds the length up so that each step begins at an aligned address.
    copy = empty((len(arrays), aligned_length(longest), *spec.shape), spec.dtype)  # type: ignore[arg-type]
    if spec.dtype.hasobject or text:
        copy.fill("" if text else b"")  # TensorFlow takes no None
    for step, array in enumerate(arrays):
        copy[step, : len(array)] = array
    return copy


def _stack(arrays: Sequence[NDArray[Any]], size: int, spec: ArraySpec) -> NDArray[Any]:
    """Stack arrays of one shape; no copy if they are adjacent in memory.

    The result is aligned, of native byte order and has no other owner, so TensorFlow may alias it:
    pairs of rows of 60 KB then take 1 / 1.5 of the processor's time. Without arrays, the result has
    shape (0, size, …).
    """
    if not arrays:
        return np.empty((0, size, *spec.shape), spec.dtype)  # type: ignore[arg-type]
    first = arrays[0]
    if first.dtype == spec.dtype and first.dtype.isnative:
        together = side_by_side(arrays)
        if together is not None:
            return together
    # Results of mapped functions, or small batches with padding between them. NumPy copies without
    # the GIL; TensorFlow would hold it.
    copy = empty((len(arrays), *first.shape), spec.dtype)
    for step, array in enumerate(arrays):
        np.copyto(copy[step], array)
    return copy
