"""Views of rows of unequal length: what they have in common, however batches hold the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.composed import ComposedRequest
from oocdata.datasets.request import Request
from oocdata.datasets.view import View
from oocdata.engines.padded import RowLengths
from oocdata.engines.ragged_rows import Joined, Located, locate
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError

__all__ = ["RowsRequest", "Unequal"]


@dataclass(frozen=True)
class RowsRequest(ComposedRequest, Request):
    """Rows wanted of a source of rows of unequal length."""

    def found(self) -> Located:
        """Return the rows."""
        return locate(self.source, self.origins[:, 0])

    def joined(self, shares: Sequence[tuple[Located, NDArray[np.int64]]], rows: int) -> Located:
        """Return rows of several sources as one."""
        return Joined(rows, shares)


@dataclass(frozen=True, eq=False, repr=False)
class Unequal(View):
    """A view of a source for which `oocdata.engines.ragged_rows.is_ragged` holds."""

    @property
    def is_composed(self) -> bool:
        """True."""
        return True

    @property
    def lengths(self) -> View:
        """How long each row is, int64."""
        return self._beside(RowLengths(self.source))

    def row_lengths(self) -> NDArray[np.int64]:
        """Return how long each row is; all lengths are read."""
        return np.asarray(self.lengths)

    def __getitem__(self, key: Any) -> Any:
        """Read one row, shape (its length, …), or select without reading."""
        return self.take([key])[0] if type(key) is int else super().__getitem__(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Raise: an array has rows of one length."""
        raise ArgumentError(f"an array must be made of rows of one length; got {self!r}. Pad them.")

    def _beside(self, source: Source) -> View:
        """Return the view of a source of the same rows, of which the same are chosen."""
        view = View.of(source)
        return replace(view, cuts=(*self.cuts, *view.cuts[1:]), rows=self.rows)
