"""Requests of datasets that are put one after the other, as those of one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.composed import ComposedComposite, ComposedRequest
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import ArrayRequest, Composite
from oocdata.datasets.spec import Spec, align, leaves, map_tree, spec_text

__all__ = ["composed_requests", "delivers_what_it_reads", "together", "without_rows"]


def together(requests: Sequence[ArrayRequest], where: Sequence[NDArray[np.int64]]) -> ArrayRequest:
    """Return the request for the elements of several, each of which has some places of a batch."""
    first = requests[0]
    if len(requests) == 1:
        return first
    kind: type[Composite] = ComposedComposite if isinstance(first, ComposedRequest) else Composite
    shape = (sum(map(len, where)), *first.shape[1:])
    return kind(tuple(zip(requests, where, strict=True)), shape, first.dtype)


def composed_requests(
    part: Dataset, requests: Sequence[ArrayRequest], spec: Spec
) -> list[ComposedRequest]:
    """Return the requests of a part for arrays that are not dense, in the order of a spec."""
    rest = iter(one for one in requests if isinstance(one, ComposedRequest))
    own = map_tree(lambda leaf: None if leaf.form == "dense" else next(rest), part.spec)
    return [one for one in leaves(align(own, spec)) if one is not None]


class _Elsewhere(Composite):
    """Stands for the rows of one part that are joined with those of others."""

    def read(self) -> None:
        """Read nothing."""


def without_rows(request: ArrayRequest) -> ArrayRequest:
    """Return a request that reads nothing in place of one whose rows are joined elsewhere."""
    return _Elsewhere((), (0,), request.dtype) if isinstance(request, ComposedRequest) else request


def delivers_what_it_reads(part: Dataset, spec: Spec) -> bool:
    """Return whether a part's requests are the arrays of a spec, in this order."""
    if part.is_mapped:
        return False
    none = np.zeros(0, np.int64)
    asked = [
        None if isinstance(one, ComposedRequest) else (one.shape[1:], one.dtype)
        for one in part.requests(none, Draw())
    ]
    # Dicts are equal in any order; their arrays are asked for in the order of the part's own.
    names = [spec_text(one) for one in (part.spec, spec)]
    delivered = [
        (leaf.shape, leaf.dtype) if leaf.form == "dense" else None for leaf in leaves(spec)
    ]
    return names[0] == names[1] and asked == delivered
