"""Split datasets by range, groups, classes, borders of a coordinate, or into folds.

A split by range keeps no positions in memory. All other splits, and those of windows along the last
of several sample axes, select rows, and then the elements whose rows are all selected; so a window
with rows in two parts is in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.box import Ints
from oocdata.datasets.element_rows import ElementRows
from oocdata.datasets.ids import as_ids
from oocdata.datasets.shared_rows import parts_share_rows
from oocdata.datasets.splits import class_parts, group_parts, shares, split_ranges
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, as_numbers, as_range, as_whole
from oocdata.stretches import first_places, looked_up, numbered

Ids = ArrayLike | Any  # anything that numpy.asarray takes: a View, a DataArray


class Splitting(ElementRows):
    """Methods of a dataset that split it."""

    def split(
        self,
        *sizes: float,
        gap: int = 0,
        axis: int | str | None = None,
        by: Ids | None = None,
        stratify: Ids | None = None,
        seed: int | None = None,
    ) -> tuple[Self, ...]:
        """Split into parts that share no row, without copying.

        Parts are ranges of elements, unless `by` or `stratify` is given.

        Parameters
        ----------
        *sizes : float or int
            Size of each part: all fractions (each > 0, sum ≤ 1) or all counts. They are shares of
            the elements (not of their patches); with several sample axes, of positions along
            `axis`; with `by` or `stratify`, of rows.
        gap : int
            Number of rows left unused between neighbouring parts; with several sample axes, of
            positions along `axis`. Windows across a border are dropped in addition, so that no row
            is shared even with 0.
        axis : int or str, optional
            Sample axis to split along, by its number in the array or its name. By default the
            outermost, so that trajectories stay whole.
        by : array_like, shape (rows,), optional
            Group of each row (for windows: of each row of their View), or of each position along
            `axis`: numbers, dates or strings, none of them missing. Groups are not divided. In
            order of first appearance they are cut at the group borders nearest to the requested
            ends, with at least one group per part. Windows with rows in two parts are dropped.
        stratify : array_like, shape (rows,), optional
            Class of each row. Parts are drawn at random with equal shares of each class, rounded by
            the method of largest remainders. Elements stay in order. With `by`, whole groups are
            drawn, by the class of each group.
        seed : int, optional
            Seed of `stratify`, 0 by default. With `by` alone, shuffles the groups.

        Returns
        -------
        tuple of Dataset
            One part for each size, in order.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the sizes are invalid, e.g. fractions that sum to more than 1; or if parts would
            share a row, because a row is at several positions or windows were reordered.
        oocdata.errors.EmptyError
            If a part would be empty.

        Examples
        --------
        >>> import oocdata as ooc
        >>> frames = ooc.open(np.zeros((10, 2)))
        >>> [len(part) for part in frames.split(0.6, 0.2, 0.2)]
        [6, 2, 2]
        >>> [len(part) for part in frames.next_frame().split(0.5, 0.5)]
        [4, 4]
        >>> runs = ooc.open(np.zeros((4, 10, 2)), axis=(0, 1))
        >>> [part.sample_shape for part in runs.split(0.5, 0.5, axis=1)]
        [(4, 5), (4, 5)]
        >>> patients = ["ann"] * 4 + ["bob"] * 3 + ["eve"] * 3
        >>> [len(part) for part in frames.split(0.6, 0.4, by=patients)]
        [7, 3]
        >>> [part.rows.tolist() for part in frames.split(6, 4, stratify=[0, 1] * 5)]
        [[0, 1, 2, 3, 7, 8], [4, 5, 6, 9]]
        """
        rows = as_count("gap", gap, at_least=0)
        if by is not None or stratify is not None:
            part_of_row = self._row_parts(sizes, rows, axis, by, stratify, seed)
            return self._select_by_masks(part_of_row == part for part in range(len(sizes)))
        if seed is not None:
            raise ArgumentError(
                f"`seed` must come with `by` or `stratify`; got {seed!r}. A split is by range; for "
                "a random one give each row the same class: stratify=numpy.zeros(rows, int)."
            )
        at, shape = self._split_axis(axis), self.sample_shape
        if len(shape) > 1:
            ranges = split_ranges(shape[at], sizes, rows)
            return self._checked_parts([self._select_along(at, part) for part in ranges])
        unit = self._split_unit
        more = self._sharing_distance(unit) * unit - self._positions_to_drop(0)
        dropped = -(-(self._positions_to_drop(rows) + max(0, more)) // unit)
        parts = split_ranges(len(self) // unit, sizes, dropped)
        return tuple(self._select(range(part.start * unit, part.stop * unit)) for part in parts)

    def split_at(
        self, *borders: Any, coordinate: Ids, gap: int = 0, axis: int | str | None = None
    ) -> tuple[Self, ...]:
        """Split at values of a coordinate, e.g. at dates; see `split`.

        Parameters
        ----------
        *borders : date, str or number
            Ascending. The first part has the rows below the first border, the second the rows from
            the first border (inclusive) to the next, and so on.
        coordinate : array_like or View of datetime64 or numbers, shape (rows,)
            Value of each row (for windows: of each row of their View), or of each position along
            `axis`. Times of a netCDF file are numbers as stored;
            ``open(path, "time", decode=True)`` gives dates.
        gap : int
            Number of rows left unused before each border; requires an ascending coordinate.
        axis : int or str, optional
            As for `split`.

        Returns
        -------
        tuple of Dataset
            One part more than there are borders.

        Raises
        ------
        oocdata.errors.ArgumentError
            If borders or coordinate are invalid.
        oocdata.errors.EmptyError
            If a part would be empty.

        Examples
        --------
        >>> import oocdata as ooc
        >>> days = np.arange("2015-12-29", "2016-01-08", dtype="M8[D]")
        >>> frames = ooc.open(np.zeros((10, 2)))
        >>> [len(part) for part in frames.split_at("2016", "2016-01-04", coordinate=days)]
        [3, 3, 4]
        """
        places = self._row_positions(self._split_axis(axis))
        (values,), level = _checked_ids({"coordinate": coordinate}, places, len(self), "iufM")
        ends = np.array([_first_from(border, values.dtype) for border in borders])
        if not len(ends) or not (ends[1:] > ends[:-1]).all() or (ends != ends).any():  # NaN, NaT
            raise ArgumentError(f"borders must be at least one, and ascend; got {borders}.")
        parts = np.searchsorted(ends, values, side="right")
        rows = as_count("gap", gap, at_least=0) + self._rows_between()
        if rows:
            if (values[1:] < values[:-1]).any():
                raise ArgumentError(
                    f"`coordinate` must ascend for a gap of {rows} rows between parts. Drop what "
                    "lies between two borders instead."
                )
            for border in np.searchsorted(values, ends):
                parts[max(0, border - rows) : border] = -1
        masks = (parts[level] == part for part in range(len(ends) + 1))
        return self._select_by_masks(masks)

    def folds(
        self,
        k: int,
        *,
        gap: int = 0,
        axis: int | str | None = None,
        by: Ids | None = None,
        stratify: Ids | None = None,
        seed: int | None = None,
    ) -> list[tuple[Self, Self]]:
        """Return `k` pairs (training, validation) for cross-validation.

        Each row is in one validation part. These are ranges, as suits time series, unless `by` or
        `stratify` is given. Training parts have all other rows, except for a gap on both sides;
        windows with rows in both parts are dropped. Training parts take 8 bytes per element.

        Parameters
        ----------
        k : int
            Number of folds, at least 2.
        gap, axis, by, stratify, seed
            As for `split`.

        Returns
        -------
        list of tuple of Dataset
            Length `k`.

        Raises
        ------
        oocdata.errors.ArgumentError, oocdata.errors.EmptyError
            As for `split`.

        Examples
        --------
        >>> import oocdata as ooc
        >>> pairs = ooc.open(np.zeros((9, 2))).next_frame()
        >>> [(len(training), len(validation)) for training, validation in pairs.folds(3)]
        [(5, 2), (4, 2), (5, 2)]
        """
        if as_count("k", k, at_least=2) > len(self):
            raise EmptyError(f"`k` must be at most the {len(self)} elements; got {k}.")
        sizes = [1 / k] * k
        rows = as_count("gap", gap, at_least=0)
        if by is not None or stratify is not None:
            parts = self._row_parts(sizes, rows, axis, by, stratify, seed)
            masks = ((parts != fold, parts == fold) for fold in range(k))
        else:
            places = as_numbers(self._row_positions(self._split_axis(axis)))
            rows += self._rows_between()
            masks = (
                (
                    (places < fold.start - rows) | (places >= fold.stop + rows),
                    (places >= fold.start) & (places < fold.stop),
                )
                for fold in split_ranges(int(places.max(initial=-1)) + 1, sizes)
            )
        pairs = map(self._select_by_masks, masks)
        return [(training, validation) for training, validation in pairs]

    def _split_axis(self, axis: int | str | None) -> int:
        """Return the number of the sample axis to split along; 0 (outermost) for None."""
        if self.mixture is not None:
            raise ArgumentError(
                f"a mixture must be made of datasets that are split; got {self!r}. Split the "
                "members, then mix their parts."
            )
        place = 0 if axis is None else self._sample_axis_number(axis)
        if axis is not None and self._axes_of_rows != len(self.sample_shape):
            raise ArgumentError(
                "`axis` must be None for elements along one sample axis: a selection from several, "
                "a concatenation, or windows with `episodes` or split along the last; got "
                f"{axis!r}. Split first, then select, and into all parts at once: "
                ".split(0.6, 0.2, 0.2, axis=…)."
            )
        return place

    def _row_parts(
        self,
        sizes: Sequence[float],
        gap: int,
        axis: int | str | None,
        by: Ids | None,
        stratify: Ids | None,
        seed: int | None,
    ) -> Ints:
        """Return the part of each row, by groups, by classes, or by classes of groups."""
        if gap:
            raise ArgumentError(
                f"`gap` must be 0 with `by` or `stratify`, whose parts are not ranges; got {gap}."
            )
        seed = None if seed is None else as_whole("seed", seed)
        arguments = {"by": by, "stratify": stratify}
        named_ids = {name: ids for name, ids in arguments.items() if ids is not None}
        places = self._row_positions(self._split_axis(axis))
        ids, level = _checked_ids(named_ids, places, len(self))
        fractions = shares(sizes, len(ids[0]))
        if by is None:
            parts = class_parts(ids[0], fractions, seed or 0)[level]
            lost = int(self._elements_within(parts >= 0).sum()) - sum(
                int(self._elements_within(parts == part).sum()) for part in range(len(fractions))
            )
            if lost:
                raise ArgumentError(
                    f"`stratify` must come with `by` for windows, because it deals out single "
                    f"rows; {lost} of them would have rows in two parts. Give the episode of each "
                    "row as `by`, which then stays whole."
                )
            return parts
        if stratify is None:
            return group_parts(ids[0], fractions, seed)[level]
        found, groups = numbered(ids[0])
        classes = ids[1][first_places(groups, len(found))]
        mixed = np.flatnonzero(looked_up(classes, groups) != ids[1])
        if len(mixed):
            raise ArgumentError(
                f"`stratify` must be one class for each group of `by`; group "
                f"{ids[0][mixed[0]]!s} has {classes[groups[mixed[0]]]!s} and "
                f"{ids[1][mixed[0]]!s}."
            )
        return looked_up(class_parts(classes, fractions, seed or 0), groups)[level]

    def _select_by_masks(self, masks: Iterable[NDArray[np.bool_]]) -> tuple[Self, ...]:
        """Return, for each mask of rows, the elements whose rows are all in the mask."""
        chosen = (np.flatnonzero(self._elements_within(mask)) for mask in masks)
        return self._checked_parts([self._select(as_range(part)) for part in chosen])

    def _checked_parts(self, parts: Sequence[Self]) -> tuple[Self, ...]:
        """Return parts; raise EmptyError if one is empty, ArgumentError if two share a row."""
        lengths = list(map(len, parts))
        if not all(lengths):
            raise EmptyError(
                "every part must hold at least one element; they would hold "
                f"{', '.join(map(str, lengths))}, of {len(self)}."
            )
        if self._sharing_distance() and parts_share_rows([part._stored_rows() for part in parts]):
            raise ArgumentError(
                "parts of a split must be of elements that share no row with another part; here "
                "one row lies at several positions, in two parts. Split first, then choose, zip or "
                "mix rows of the parts; or make windows of the rows."
            )
        return tuple(parts)


def _checked_ids(
    named_ids: dict[str, Any], places: Selection, elements: int, kinds: str = "biumMU"
) -> tuple[list[NDArray[Any]], Ints | slice]:
    """Return ids per row or per position along the axis, and the index that makes them per row."""
    checked = {name: as_ids(name, ids, kinds) for name, ids in named_ids.items()}
    names = getattr(named_ids.get("by"), "categories", ())
    if names and isinstance(names, tuple) and (missing := checked["by"] < 0).any():
        at = int(missing.argmax())
        raise ArgumentError(
            f"`by` must name a group for each row; row {at} has code {checked['by'][at]}, of no "
            "category. Leave such rows out of the dataset and of `by` first: .filter(codes >= 0)."
        )
    level = slice(None) if isinstance(places, range) else places
    length = len(places) if isinstance(places, range) else int(places.max(initial=-1)) + 1
    for name, ids in checked.items():
        if len(ids) not in (len(places), length):
            along = "" if length == len(places) else f", or of the {length} places along the axis"
            hint = (
                " Parts share no row, so the windows or patches of a row are in one part. Choose "
                "elements by themselves, which may overlap, by .filter(mask)."
            )
            raise ArgumentError(
                f"`{name}` must have one value for each of the {len(places)} rows{along}; got "
                f"{len(ids)}.{hint if len(ids) == elements else ''}"
            )
    if all(len(ids) == length for ids in checked.values()):
        return list(checked.values()), level
    each_row = [ids if len(ids) == len(places) else ids[places] for ids in checked.values()]
    return each_row, slice(None)


def _first_from(border: Any, dtype: np.dtype[Any]) -> Any:
    """Return the lowest value of a coordinate's dtype that is not below a border.

    NumPy would compare the two in a dtype that may represent neither: int64 and uint64 as float64,
    dates in the finer unit of the two, where years overflow.
    """
    try:
        if dtype.kind == "M":
            date = np.datetime64(border)
            value, unit = date.astype(dtype), np.ones(1, dtype.str.replace("M", "m"))[0]
            if value.astype(date.dtype) < date:
                value += unit
            before = (value - unit).astype(date.dtype)
            if np.isnat(date) or before < date <= value.astype(date.dtype):
                return value
        elif isinstance(border, int | float | np.number) and not isinstance(
            border, bool | np.timedelta64
        ):
            number = border.item() if isinstance(border, np.generic) else border
            return np.float64(number) if dtype.kind == "f" else np.array(ceil(number), dtype)[()]
    except (TypeError, ValueError, OverflowError):
        pass
    kind = "dates, e.g. '2016-01-01'" if dtype.kind == "M" else "numbers"
    raise ArgumentError(
        f"borders must be {kind}, that the coordinate, {dtype}, can hold; got {border!r}. Of a "
        "netCDF file's time numbers, ooc.open(path, 'time', decode=True) makes dates."
    )
