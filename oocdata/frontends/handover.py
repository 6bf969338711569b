"""How a run of steps becomes batches that TensorFlow takes without a copy."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError, PositionError
from oocdata.runs import Pass
from oocdata.sources.buffers import empty, is_leased

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["batch_lengths", "cut", "first_pass", "handed_over"]


def first_pass(loader: Loader, start: tuple[int, int], epochs: int) -> Pass:
    """Return the pass from ``start``, (epoch, step), to the end of so many epochs.

    Raises
    ------
    oocdata.errors.ArgumentError, oocdata.errors.PositionError
        If `start` is no such place.
    """
    try:
        epoch, step = (operator.index(part) for part in start)
    except (TypeError, ValueError):
        raise ArgumentError(f"`start` must be a pair (epoch, step); got {start!r}.") from None
    steps = len(loader)
    if epoch < 0 or not 0 <= step < steps:
        raise PositionError(
            f"`start` must be an epoch from 0 and a step within [0, {steps}); got {start!r}."
        )
    return Pass(epoch * steps + step, epochs * steps - step, steps, loader.steps_together)


def batch_lengths(loader: Loader) -> tuple[int, bool]:
    """Return the elements of a full batch, and whether there is a short one too."""
    size = loader.batch_size // loader.num_shards
    return size, next(leaves(loader.spec)).shape[0] is None


def cut(arrays: list[NDArray[Any]], loader: Loader) -> list[NDArray[Any]]:
    """Return the arrays of a run as batches.

    Parameters
    ----------
    arrays : list of ndarray
        Of shape (elements of all steps, …).
    loader : Loader

    Returns
    -------
    list of ndarray
        The full batches of each, shape (steps, batch, …); and where the loader has a short one,
        that one of each, shape (0 or 1, its length, …).

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.arange(10)).batches(4)
    >>> [part.tolist() for part in cut([np.arange(10)], loader)]
    [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9]]]
    """
    size, has_short = batch_lengths(loader)
    full, rest = divmod(len(arrays[0]), size)
    parts = [array[: full * size].reshape(full, size, *array.shape[1:]) for array in arrays]
    if has_short:
        short = (min(rest, 1), rest)
        parts += [array[full * size :].reshape(*short, *array.shape[1:]) for array in arrays]
    return parts


def handed_over(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that TensorFlow may alias: aligned, native, and nobody else's to change."""
    if is_leased(array) and array.flags.c_contiguous and array.dtype.isnative:
        return array
    # What a mapped function made: copied here without the GIL, where TensorFlow would copy with it.
    copy = empty(array.shape, array.dtype.newbyteorder("="))
    np.copyto(copy, array)
    return copy
