"""Define which rows the elements of a dataset have: what selections and splits ask of it.

A dataset that is made of others (its members) has the rows of its members, in the same order of
elements. So a zip or a map defines nothing of this but `_members` and `_with_members`. Views,
windows, patches and concatenations are numbered otherwise, and override the other methods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import lcm
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.shared_rows import Rows, StoredRows, sharing_distance, stored_rows
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_index, as_numbers, as_range
from oocdata.stretches import stretches

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset
    from oocdata.datasets.mix import Mix


class ElementRows:
    """The rows that elements have; the base class of `Splitting`, and so of all datasets."""

    def __len__(self) -> int:
        return len(self._split_members[0])

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Lengths of the sample axes that number the elements; ``(len,)`` for one axis.

        Zipped rows along one axis, e.g. labels, adopt the sample axes of the others.
        """
        members = self._split_members
        shapes = [part.sample_shape for part in members]
        if len(set(shapes)) > 1 and all(
            part._elements_are_rows
            for part, shape in zip(members, shapes, strict=True)
            if len(shape) == 1
        ):
            shapes = [shape for shape in shapes if len(shape) > 1]
        return shapes[0] if len(set(shapes)) == 1 else (len(self),)

    @property
    def _members(self) -> Sequence[Dataset]:
        """Datasets whose elements make up an element of this one, in order."""
        return ()

    @property
    def _split_members(self) -> Sequence[Dataset]:
        """Datasets that determine selections and splits: `_members`, except for a cache."""
        return self._members

    @property
    def _multi_axis_members(self) -> Sequence[Dataset]:
        """Members with several sample axes; the others have labels or other values per row."""
        return [part for part in self._split_members if len(part.sample_shape) > 1]

    def _with_members(self, members: Sequence[Any]) -> Self:
        """Return the same dataset over other members, in their order."""
        raise NotImplementedError

    @property
    def mixture(self) -> Mix | None:
        """The mixture that elements come from, or None."""
        mixtures = [shares for part in self._split_members if (shares := part.mixture) is not None]
        if len({(each.counts, each.weights, each.length) for each in mixtures}) > 1:
            raise ArgumentError(
                "zipped mixtures must have equal lengths and weights, because element i of each "
                "goes together; these differ. Zip the members first, and mix the zips."
            )
        return mixtures[0] if mixtures else None

    def _select(self, positions: Selection) -> Self:
        """Return the dataset of the elements at checked positions, in that order."""
        return self._with_members([part._select(positions) for part in self._split_members])

    # Rows of elements -----------------------------------------------------------------------------

    @property
    def _elements_are_rows(self) -> bool:
        """Whether each element is one row, so that ids of rows are ids of elements."""
        return all(part._elements_are_rows for part in self._split_members)

    @property
    def _members_with_ids(self) -> Sequence[Dataset]:
        """Members whose rows ids refer to: windows and patches, else rows with most sample axes."""
        others = [part for part in self._split_members if not part._elements_are_rows]
        return others or self._multi_axis_members or self._split_members

    def _row_positions(self, at: int) -> Selection:
        """Return the position along a sample axis of each row that ids can refer to."""
        each = [part._row_positions(at) for part in self._members_with_ids]
        lengths = [len(places) for places in each]
        if len(set(lengths)) > 1:
            raise ArgumentError(
                "zipped windows must be of as many rows each to be split by rows; got "
                f"{', '.join(map(str, lengths))}. Split by range, or split the parts."
            )
        return each[0]

    def _rows(self, positions: Selection, *, ids: bool = False) -> Iterator[Rows]:
        """Yield the rows of the elements at positions; with `ids`, those that ids refer to."""
        members = self._members_with_ids if ids else self._split_members
        return chain.from_iterable(part._rows(positions, ids=ids) for part in members)

    def _elements_within(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the elements whose rows are all in a mask of rows, shape (len,)."""
        within = np.ones(len(self), np.bool_)
        for part in stretches(len(self)):
            for rows in self._rows(range(part.start, part.stop), ids=True):
                places = as_index(rows.places)
                for offset in rows.offsets:
                    within[part][places] &= mask[as_index(rows.ids(offset))]
        return within

    @property
    def _split_unit(self) -> int:
        """Number of adjacent positions that a split keeps together: the patches of an element."""
        return lcm(*(part._split_unit for part in self._split_members))

    # Shared rows ----------------------------------------------------------------------------------

    def _arrays(self) -> tuple[Hashable, ...]:
        """Return keys of the arrays that elements have rows of, once per use of an array."""
        return tuple(array for part in self._split_members for array in part._arrays())

    def _stored_rows(self) -> list[StoredRows]:
        """Return the rows of each stored array in all elements."""
        return [stored for rows in self._rows(range(len(self))) for stored in stored_rows(rows)]

    def _sharing_distance(self, each: int = 1) -> int:
        """Return the largest distance of two elements that share a row, in units of `each`.

        0 if each array is read once, at distinct rows: then only windows overlap, which
        `_positions_to_drop` covers.
        """
        arrays = self._arrays()
        if len(set(arrays)) == len(arrays):
            return 0
        all_rows = self._stored_rows()
        if each > 1:
            all_rows = [replace(rows, places=as_numbers(rows.places) // each) for rows in all_rows]
        return sharing_distance(all_rows)

    def _rows_between(self) -> int:
        """Return the number of unused rows needed between parts so that no row is shared."""
        if self._elements_are_rows:
            return self._sharing_distance()
        return max(part._rows_between() for part in self._members_with_ids)

    def _positions_to_drop(self, gap: int) -> int:
        """Return the number of positions to drop so that `gap` unused rows separate two parts.

        Elements that share a row in other ways (see `_sharing_distance`) are not considered.
        """
        return max((part._positions_to_drop(gap) for part in self._split_members), default=gap)

    # Along one of several sample axes -------------------------------------------------------------

    @property
    def _axes_of_rows(self) -> int:
        """Number of sample axes before any selection, of the member with the most."""
        return max(part._axes_of_rows for part in self._split_members)

    def _sample_axis_number(self, axis: int | str) -> int:
        """Return the number of a sample axis among those of the member with the most."""
        members = self._split_members
        member = max(members, key=lambda part: (len(part.sample_shape), part._axes_of_rows))
        return member._sample_axis_number(axis)

    def _select_along(self, at: int, places: range) -> Self:
        """Return the elements in a range of positions along one of several sample axes."""
        if at == len(self.sample_shape) - 1 and not self._elements_are_rows:
            return self._select(as_range(np.flatnonzero(self._in_range(at, places))))
        several = self._multi_axis_members
        chosen: Selection = range(0)  # of members along one axis
        if len(several) < len(self._split_members):
            chosen = as_range(np.flatnonzero(self._in_range(at, places)))
        return self._with_members(
            [
                part._select_along(at, places) if part in several else part._select(chosen)
                for part in self._split_members
            ]
        )

    def _in_range(self, at: int, places: range) -> NDArray[np.bool_]:
        """Return a mask of elements with all rows in a range of positions along a sample axis."""
        rows = as_numbers(self._row_positions(at))
        inside = rows >= places.start
        if places.stop < self.sample_shape[at]:  # if an array is a row longer, the last part has it
            inside &= rows < places.stop
        return self._elements_within(inside)
