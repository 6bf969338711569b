"""What a way delivers, looked at in a pass that nobody times: which rows, how mixed, how often."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.case import Case
from benchmarks.memory import Memory, memory

__all__ = ["Check", "arrays_of", "check"]


@dataclass(frozen=True, slots=True)
class Check:
    """What one pass delivered.

    Attributes
    ----------
    elements : int
        Delivered in this pass.
    distinct : int
        Different ones among them: an element that came twice counts once.
    wrong : int
        Elements that are not whole, or whose second row is not the one that follows the first.
    complete : bool
        Whether the pass went to the end of the epoch, and was not stopped by the clock.
    entropy, full_entropy : float or None
        Mean Shannon entropy, in bits, of the 64 contiguous parts of the array that a full batch's
        elements come from; what a full shuffle is expected to reach. The definition is that of
        `oocdata.order.mixing`. None where rows don't hold their number.
    anonymous, file : int
        The most that was resident after a batch, in bytes.
    """

    elements: int
    distinct: int
    wrong: int
    complete: bool
    entropy: float | None
    full_entropy: float | None
    anonymous: int
    file: int

    @property
    def sound(self) -> bool:
        """Whether nothing came twice or wrong."""
        return self.wrong == 0 and self.distinct == self.elements


def arrays_of(batch: Any) -> list[NDArray[Any]]:
    """Return a batch's arrays, whatever made it."""
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    parts = batch if isinstance(batch, tuple | list) else (batch,)
    return [_dense(part) for part in parts]


def _dense(part: Any) -> NDArray[Any]:
    """Return an array; one of a sparse matrix of SciPy or a sparse tensor of TensorFlow too."""
    if hasattr(part, "toarray"):
        return np.asarray(part.toarray())
    if hasattr(part, "dense_shape"):
        made = np.zeros(tuple(part.dense_shape), np.asarray(part.values).dtype)
        made[tuple(np.asarray(part.indices).T)] = part.values
        return made
    return np.asarray(part)


def check(case: Case, batches: Iterable[Any], seconds: float) -> Check:
    """Iterate over one epoch, at most some seconds of it, and look at every batch."""
    found: list[NDArray[np.int64]] = []
    wrong = 0
    most = memory()
    complete = True
    deadline = time.perf_counter() + seconds
    for batch in batches:
        rows, bad = case.look(arrays_of(batch))
        wrong += bad
        found.append(rows)
        most = _most(most, memory())
        if time.perf_counter() > deadline:
            complete = False
            break
    rows = np.concatenate(found)
    elements = len(rows)
    return Check(
        elements=elements,
        distinct=len(np.unique(rows)) if case.stamped else elements,
        wrong=wrong,
        complete=complete,
        entropy=_entropy(case, found) if case.stamped else None,
        full_entropy=full_entropy(case) if case.stamped else None,
        anonymous=most.anonymous,
        file=most.file,
    )


def _most(one: Memory, other: Memory) -> Memory:
    return Memory(
        max(one.total, other.total),
        max(one.anonymous, other.anonymous),
        max(one.file, other.file),
    )


def _entropy(case: Case, found: list[NDArray[np.int64]]) -> float | None:
    from oocdata.order.mixing import batch_entropy

    full = [rows for rows in found if len(rows) == min(case.batch, case.elements)]
    if not full:
        return None
    entropy = batch_entropy(np.stack(full) // case.part_rows)
    assert 0 <= entropy <= log2(case.batch) + 1e-9
    return entropy


def full_entropy(case: Case) -> float:
    """Return what a full shuffle is expected to reach."""
    from oocdata.blocks import Blocks
    from oocdata.order.mixing import full_shuffle_entropy

    batch = min(case.batch, case.elements)
    return full_shuffle_entropy(case.elements, batch, Blocks(case.part_rows, case.part_rows))
