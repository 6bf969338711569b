"""Splits of a dataset: by range, groups, classes, borders of a coordinate, and k-fold.

A range of positions costs nothing. All other ways choose rows, and then the elements whose rows are
all chosen: so a window that lies in two parts is in none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, lcm
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.datasets.ids import as_ids
from oocdata.datasets.rows import StoredRows, apart, shared
from oocdata.datasets.splits import class_parts, group_parts, shares, split_ranges
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, as_run, as_shard, as_whole

if TYPE_CHECKING:
    from fractions import Fraction

    from oocdata.datasets.dataset import Dataset
    from oocdata.datasets.mix import Mix

__all__ = ["Splitting"]

Ids = ArrayLike | Any  # anything that numpy.asarray takes: a View, a DataArray


class Splitting(ABC):
    """A dataset's methods that split it, and what they must know of it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Lengths of the sample axes whose places number the elements; ``(len,)`` for one."""
        shapes = {part.sample_shape for part in self._followed}
        return shapes.pop() if len(shapes) == 1 else (len(self),)

    @property
    def _members(self) -> Sequence[Dataset]:
        """The datasets that it reads, if their elements make its own, in order."""
        return () if self._inner is None else (self._inner,)

    @property
    def _inner(self) -> Dataset | None:
        """The dataset whose elements these are made of one by one, as functions and patches are."""
        return None

    @property
    def _followed(self) -> Sequence[Dataset]:
        """The datasets as which it is selected and split: those that it reads, but for a cache."""
        return self._members if self._inner is None else (self._inner,)

    def _of(self, members: Sequence[Any]) -> Self:
        """Return the same, made of other members, in their order."""
        raise NotImplementedError

    @property
    def shares(self) -> Mix | None:
        """The mixture that gives elements by its shares, if one does."""
        found = [shares for part in self._followed if (shares := part.shares) is not None]
        if any(one.alike != found[0].alike for one in found):
            raise ArgumentError(
                "mixtures that are zipped must be mixed alike, because element i of each goes "
                "together; these differ. Zip the members first, and mix the zips."
            )
        return found[0] if found else None

    def _select(self, positions: Selection) -> Self:
        """Return the dataset of the elements at checked positions, in that order."""
        return self._of([part._select(positions) for part in self._followed])

    def split(
        self,
        *sizes: float,
        gap: int = 0,
        axis: int | str | None = None,
        by: Ids | None = None,
        stratify: Ids | None = None,
        seed: int | None = None,
    ) -> tuple[Self, ...]:
        """Split: no copy, and no two parts share a row. By range, unless rows have ids or labels.

        Parameters
        ----------
        *sizes : float or int
            Fractions (each > 0, sum ≤ 1) or counts: of elements (not of their patches), or with
            several sample axes of places along `axis`. With `by` or `stratify` of rows.
        gap : int
            Rows left unused between neighbouring parts; with several sample axes, places along
            `axis`. Windows that would reach across the border are dropped besides, so even 0 never
            leaks a row.
        axis : int or str, optional
            The sample axis to split along, by its number in the array or its name; by default the
            outermost, so that trajectories stay whole.
        by : array_like, shape (rows,), optional
            A group for each row (of windows: each row of their view), or for each place along
            `axis`: numbers, dates or texts. Groups stay whole. In order of first appearance, laid
            end to end, they are cut at the borders between groups that are nearest to the ends
            asked for, at least one group a part. Windows with rows of two parts are dropped.
        stratify : array_like, shape (rows,), optional
            A class for each row. Parts are drawn at random with the same shares of each class: the
            exact share rounded up or down, by the method of largest remainders. Elements stay in
            order. With `by`, the class of each group, and the shares are of groups.
        seed : int, optional
            Of `stratify`, 0 by default. With `by` alone, the groups come in a random order.

        Returns
        -------
        tuple of Dataset
            One for each size, in order.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the sizes don't fit, e.g. fractions over 1; or if parts would share a row, because
            one lies at several positions, or windows were in another order.
        oocdata.errors.EmptyError
            If a part would hold no element.

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
        mixture = self._mixture("split")
        if mixture is not None:
            options: Any = {"gap": gap, "axis": axis, "by": by, "stratify": stratify, "seed": seed}
            return tuple(self._of([part]) for part in mixture.split(*sizes, **options))
        if by is not None or stratify is not None:
            found = self._row_parts(sizes, rows, axis, by, stratify, seed)
            return self._chosen_by([found == part for part in range(len(sizes))])
        if seed is not None:
            raise ArgumentError(
                f"`seed` must come with `by` or `stratify`; got {seed!r}. A split is by range; for "
                "a random one give each row the same class: stratify=numpy.zeros(rows, int)."
            )
        at, shape = self._place_of(axis), self.sample_shape
        if len(shape) > 1:
            made = tuple(self._along(at, part) for part in split_ranges(shape[at], sizes, rows))
            self._check_filled(list(map(len, made)))
            self._check_shared(lambda: [part._all_rows() for part in made])
            return made
        each = self._together
        apart = self._apart(each) * each - self._gap_positions(0)
        dropped = -(-(self._gap_positions(rows) + max(0, apart)) // each)
        parts = split_ranges(len(self) // each, sizes, dropped)
        return tuple(self._select(range(part.start * each, part.stop * each)) for part in parts)

    def split_at(
        self, *borders: Any, coordinate: Ids, gap: int = 0, axis: int | str | None = None
    ) -> tuple[Self, ...]:
        """Split where a coordinate, e.g. the time of each row, reaches borders; see `split`.

        Parameters
        ----------
        *borders : date, text of a date, or number
            Ascending. The first part has the rows before the first border, the second those from
            it on, up to the next, and so on.
        coordinate : array_like or View of datetime64 or numbers, shape (rows,)
            A value for each row (of windows: each row of their view), or for each place along
            `axis`. Numbers in a netCDF file are as stored; ``open(path, "time", decode=True)``
            makes dates of them.
        gap : int
            Rows left unused before each border; then the coordinate must ascend.
        axis : int or str, optional
            As for `split`.

        Returns
        -------
        tuple of Dataset
            One more than there are borders.

        Raises
        ------
        oocdata.errors.ArgumentError
            If borders or coordinate don't fit.
        oocdata.errors.EmptyError
            If a part would hold no element.

        Examples
        --------
        >>> import oocdata as ooc
        >>> days = np.arange("2015-12-29", "2016-01-08", dtype="M8[D]")
        >>> frames = ooc.open(np.zeros((10, 2)))
        >>> [len(part) for part in frames.split_at("2016", "2016-01-04", coordinate=days)]
        [3, 3, 4]
        """
        places = self._row_places(self._place_of(axis))
        (values,), level = _given({"coordinate": coordinate}, places, "iufM")
        given = [(_date if values.dtype.kind == "M" else _number)(border) for border in borders]
        ascend = all(low < high for low, high in pairwise(given))
        if not given or not ascend or any(border != border for border in given):  # NaN, NaT
            raise ArgumentError(f"borders must be at least one, and ascend; got {borders}.")
        ends = np.array([_first_from(border, values.dtype) for border in given])
        parts = np.searchsorted(ends, values, side="right")
        rows = as_count("gap", gap, at_least=0) + self._rows_apart()
        if rows:
            if (values[1:] < values[:-1]).any():
                raise ArgumentError(
                    f"`coordinate` must ascend for a gap of {rows} rows between parts. Drop what "
                    "lies between two borders instead."
                )
            for border in np.searchsorted(values, ends):
                parts[max(0, border - rows) : border] = -1
        masks = [parts[level] == part for part in range(len(ends) + 1)]
        return self._chosen_by(masks)

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
        """Return `k` pairs (training, validation); each row is for validation once.

        By range unless rows have ids or labels, so that time series are not mixed. Training has all
        other rows, but for a gap on both sides, and the windows that lie in both are in none.
        Training parts keep the number of each element, 8 bytes.

        Parameters
        ----------
        k : int
            At least 2.
        gap, axis, by, stratify, seed
            As for `split`.

        Returns
        -------
        list of (Dataset, Dataset)

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
        from fractions import Fraction  # with decimal behind it, only here

        if as_count("k", k, at_least=2) > len(self):
            raise EmptyError(f"`k` must be at most the {len(self)} elements; got {k}.")
        sizes = [Fraction(1, int(k))] * k
        rows = as_count("gap", gap, at_least=0)
        if by is not None or stratify is not None:
            parts = self._row_parts(sizes, rows, axis, by, stratify, seed)
            masks = [(parts != fold, parts == fold) for fold in range(k)]
        else:
            places, rows = self._row_places(self._place_of(axis)), rows + self._rows_apart()
            masks = [
                (
                    (places < fold.start - rows) | (places >= fold.stop + rows),
                    (places >= fold.start) & (places < fold.stop),
                )
                for fold in split_ranges(int(places.max(initial=-1)) + 1, sizes)
            ]
        pairs = [self._chosen_by(pair) for pair in masks]
        return [(training, validation) for training, validation in pairs]

    def shard(self, num_shards: int, index: int) -> Self:
        """Return one of `num_shards` contiguous parts whose union is everything.

        Parameters
        ----------
        num_shards, index : int
            0 ≤ index < num_shards. Lengths of parts differ by at most 1.

        Examples
        --------
        >>> import oocdata as ooc
        >>> [len(ooc.open(np.zeros((10, 2))).shard(3, i)) for i in range(3)]
        [3, 3, 4]
        """
        shards, place = as_shard(num_shards, index)
        mixture = self._mixture("shard")
        if mixture is not None:
            return self._of([mixture.shard(shards, place)])
        length = len(self)
        if length < shards:
            raise EmptyError(f"`num_shards` must be at most the length, {length}; got {shards}.")
        return self._select(range(length * place // shards, length * (place + 1) // shards))

    # Parts of rows -------------------------------------------------------------------------------

    def _row_parts(
        self,
        sizes: Sequence[float | Fraction],
        gap: int,
        axis: int | str | None,
        by: Ids | None,
        stratify: Ids | None,
        seed: int | None,
    ) -> NDArray[np.int64]:
        """Return the part of each row, by groups, classes, or classes of groups."""
        if gap:
            raise ArgumentError(
                f"`gap` must be 0 with `by` or `stratify`, whose parts lie anywhere; got {gap}."
            )
        seed = None if seed is None else as_whole("seed", seed)
        names = {"by": by, "stratify": stratify}
        known = {name: ids for name, ids in names.items() if ids is not None}
        given, level = _given(known, self._row_places(self._place_of(axis)))
        wanted = shares(sizes, len(given[0]))
        if by is None:
            parts = class_parts(given[0], wanted, seed or 0)[level]
            lost = int(self._made_of(parts >= 0).sum()) - sum(
                int(self._made_of(parts == part).sum()) for part in range(len(wanted))
            )
            if lost:
                raise ArgumentError(
                    f"`stratify` must come with `by` for windows, because it deals out single "
                    f"rows; {lost} of them would have rows in two parts. Give the episode of each "
                    "row as `by`, which then stays whole."
                )
            return parts
        if stratify is None:
            return group_parts(given[0], wanted, seed)[level]
        _, first, groups = np.unique(given[0], return_index=True, return_inverse=True)
        classes = given[1][first]
        mixed = np.flatnonzero(classes[groups] != given[1])
        if len(mixed):
            raise ArgumentError(
                f"`stratify` must be one class for each group of `by`; group "
                f"{given[0][mixed[0]]!s} has {classes[groups[mixed[0]]]!s} and "
                f"{given[1][mixed[0]]!s}."
            )
        return class_parts(classes, wanted, seed or 0)[groups][level]

    def _chosen_by(self, masks: Sequence[NDArray[np.bool_]]) -> tuple[Self, ...]:
        """Return the elements whose rows are all in a mask, for each."""
        chosen = [np.flatnonzero(self._made_of(mask)) for mask in masks]
        self._check_filled(list(map(len, chosen)))
        every = self._all_rows
        self._check_shared(lambda: [[one.at(some) for one in every()] for some in chosen])
        return tuple(self._select(as_run(one)) for one in chosen)

    def _check_filled(self, lengths: list[int]) -> None:
        """Raise if a part would hold no element."""
        if not all(lengths):
            raise EmptyError(
                "every part must hold at least one element; they would hold "
                f"{', '.join(map(str, lengths))}, of {len(self)}."
            )

    @property
    def _leading(self) -> Sequence[Dataset]:
        """The datasets whose rows a caller can give ids for."""
        return self._followed

    def _row_places(self, at: int) -> NDArray[np.int64]:
        """Return the place along a sample axis of each row that a caller can give an id for."""
        found = [part._row_places(at) for part in self._leading]
        lengths = [len(places) for places in found]
        if len(set(lengths)) > 1:
            raise ArgumentError(
                "zipped windows must be of as many rows each to be split by rows; got "
                f"{', '.join(map(str, lengths))}. Split by range, or split the parts."
            )
        return found[0]

    def _made_of(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which elements are made of such rows alone, shape (len(self),)."""
        made: NDArray[np.bool_] = np.all([part._made_of(rows) for part in self._leading], axis=0)
        return made

    @property
    def _is_rows(self) -> bool:
        """Whether each element is one row, so that ids of rows are ids of elements."""
        return self._inner is not None and self._inner._is_rows

    # Which rows of which arrays ------------------------------------------------------------------

    def _arrays(self) -> list[Hashable]:
        """Return the arrays whose rows elements hold, once for each way in which they do."""
        return [array for part in self._followed for array in part._arrays()]

    def _all_rows(self) -> list[StoredRows]:
        """Return the rows that elements hold, of each array; see `StoredRows`."""
        return [rows for part in self._followed for rows in part._all_rows()]

    def _apart(self, each: int = 1) -> int:
        """Return how far from each other two elements lie, at most, that share a row.

        Windows of one view do so all along: `_gap_positions` knows. Elements side by side may be
        counted as one.
        """
        arrays = self._arrays()
        if len(set(arrays)) == len(arrays):
            return 0
        found = self._all_rows()
        if each > 1:
            found = [replace(one, places=np.asarray(one.places) // each) for one in found]
        return apart(found)

    def _check_shared(self, parts: Callable[[], Iterable[Sequence[StoredRows]]]) -> None:
        """Raise if two parts that were chosen by rows share one."""
        if self._apart() and shared(parts()):
            raise ArgumentError(
                "parts of a split must be of elements that share no row with another part; here "
                "one row lies at several positions, in two parts. Split first, then choose, zip or "
                "mix rows of the parts; or make windows of the rows."
            )

    # Ranges of positions -------------------------------------------------------------------------

    def _gap_positions(self, gap: int) -> int:
        """Return how many positions to drop so that `gap` rows lie between neighbours, unused.

        Besides what elements share that hold one row of an array, which `_apart` tells.
        """
        return max((part._gap_positions(gap) for part in self._followed), default=gap)

    def _rows_apart(self) -> int:
        """Return how many rows must lie between parts so that they share none."""
        return self._apart() if self._is_rows else max(part._rows_apart() for part in self._leading)

    @property
    def _together(self) -> int:
        """Positions side by side that a split leaves together: patches of one element."""
        return lcm(*(part._together for part in self._followed))

    def _mixture(self, method: str) -> Dataset | None:
        """Return the mixture whose members are cut, where parts by range would be of some alone."""
        if self.shares is not None and self._inner is None:
            raise ArgumentError(
                f"a mixture must be cut before it is zipped or enumerated; got {self!r}. Call "
                f"`{method}` on the mixture: it does so to each member."
            )
        return None if self.shares is None else self._inner

    # Along one of several sample axes -------------------------------------------------------------

    def _place_of(self, axis: int | str | None) -> int:
        """Return which of the sample axes an axis is; the outermost, if none is named."""
        place = 0 if axis is None else self._axis_place(axis)
        if place >= len(self.sample_shape):
            raise ArgumentError(
                "`axis` must be None for elements along one sample axis, as they are once rows of "
                f"several were chosen; got {axis!r}. Split first, then select."
            )
        return place

    def _axis_place(self, axis: int | str) -> int:
        """Return which of the sample axes an axis is, of the first array that has several."""
        first = max(self._followed, key=lambda part: len(part.sample_shape))
        return first._axis_place(axis)

    def _along(self, at: int, places: range) -> Self:
        """Return the elements of a range of places along one of several sample axes."""
        if self._inner is not None:
            return self._of([self._inner._along(at, places)])
        return self._select(as_run(np.flatnonzero(self._lies_in(at, places))))

    def _lies_in(self, at: int, places: range) -> NDArray[np.bool_]:
        """Return which elements have all rows in a range of places along one of several axes."""
        rows = self._row_places(at)
        inside = rows >= places.start
        if places.stop < self.sample_shape[at]:  # the last part has what one array is longer by
            inside &= rows < places.stop
        return self._made_of(inside)

    @property
    def _paces(self) -> frozenset[tuple[int, int] | None]:
        """Rows from an element to the next one along time, and those of one; None if padded.

        Of each dataset that it is made of. Where there is one pace, a part along time is made of
        parts along time.
        """
        return frozenset().union(*(part._paces for part in self._followed)) or frozenset({(1, 1)})


def _given(
    known: dict[str, Any], places: NDArray[np.int64], kinds: str = "biumMU"
) -> tuple[list[NDArray[Any]], NDArray[np.int64] | slice]:
    """Return ids of rows, or of places along the axis, and which of them each row has."""
    found = {name: as_ids(name, ids, kinds) for name, ids in known.items()}
    length = int(places.max(initial=-1)) + 1
    for name, ids in found.items():
        if len(ids) not in (len(places), length):
            along = "" if length == len(places) else f", or of the {length} places along the axis"
            raise ArgumentError(
                f"`{name}` must have one value for each of the {len(places)} rows{along}; got "
                f"{len(ids)}."
            )
    if all(len(ids) == length for ids in found.values()):
        return list(found.values()), places
    each = [ids if len(ids) == len(places) else ids[places] for ids in found.values()]
    return each, slice(None)


def _first_from(border: Any, dtype: np.dtype[Any]) -> Any:
    """Return the first value of a coordinate's dtype that is not before a border.

    NumPy would compare both in a dtype that may hold neither: int64 and uint64 as floats, dates in
    the finer unit of the two, in which years wrap around.
    """
    try:
        if dtype.kind == "f":
            return np.float64(border)
        if dtype.kind == "M":
            found, one = border.astype(dtype), np.ones(1, dtype.str.replace("M", "m"))[0]
            if found.astype(border.dtype) < border:
                found += one
            held = (found - one).astype(border.dtype) < border <= found.astype(border.dtype)
        else:
            found = np.array(ceil(border), dtype)[()]
            held = True
    except OverflowError:
        held = False
    if not held:
        raise ArgumentError(
            f"borders must lie among what the coordinate, {dtype}, can hold; got {border!r}. What "
            "is beyond has no rows."
        )
    return found


def _date(border: Any) -> np.datetime64:
    try:
        return np.datetime64(border)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"borders must be dates, as the coordinate is, e.g. '2016-01-01'; got {border!r}."
        ) from error


def _number(border: Any) -> Any:
    if isinstance(border, int | float | np.number) and not isinstance(
        border, bool | np.timedelta64
    ):
        return border.item() if isinstance(border, np.generic) else border
    raise ArgumentError(
        f"borders must be numbers, as the coordinate is; got {border!r}. Of a netCDF file's time "
        "numbers, ooc.open(path, 'time', decode=True) makes dates."
    )
