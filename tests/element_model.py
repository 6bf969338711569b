"""What elements must be, by NumPy's indexing alone: the model that datasets are compared with.

A model lists every element as arrays, and says of which rows of which array it is made. It knows
nothing of boxes, chunks or orders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Tree = Any
"""An array, or a tuple or dict of trees."""


@dataclass(frozen=True, eq=False)
class Crop:
    """Along some axes of an array, only how long a part of it is known: its place is random.

    Attributes
    ----------
    lengths : dict of int to int
        By axis, counted from the end.
    drawn : object
        Arrays of one element whose crops share this one were cut at the same place.
    """

    lengths: dict[int, int]
    drawn: object = field(default_factory=object)


@dataclass(frozen=True, eq=False)
class Column:
    """One array of all elements.

    Attributes
    ----------
    values : list of ndarray
        Of each element.
    shape : tuple of int
        Of an element as it is delivered.
    dtype : numpy.dtype
    crop : Crop, optional
        If the values are larger than what is delivered.
    known : bool
        Whether values are compared, not only shape and dtype.
    time : int
        Axes, the first ones, that no patch is cut along.
    mask : bool
        Whether it tells of rows, so that it stays whole where patches are cut.
    """

    values: list[np.ndarray]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    crop: Crop | None = None
    known: bool = True
    time: int = 0
    mask: bool = False

    def take(self, positions: Sequence[int]) -> Column:
        return replace(self, values=[self.values[at] for at in positions])

    def apply(self, function: Callable[[np.ndarray], np.ndarray]) -> Column:
        """Return what a function of single numbers makes of it."""
        made = [function(value) for value in self.values]
        return replace(self, values=made, dtype=function(np.zeros(1, self.dtype)).dtype)

    def repeated(self, each: int) -> Column:
        return replace(self, values=[value for value in self.values for _ in range(each)])

    def places_of(self, found: np.ndarray, position: int) -> set[tuple[int, ...]]:
        """Return where an element may have been cut from: none if it is another one."""
        whole = self.values[position]
        if self.crop is None:
            return {()} if np.array_equal(found, whole) else set()
        axes = sorted(self.crop.lengths)
        rooms = [range(whole.shape[axis] - self.crop.lengths[axis] + 1) for axis in axes]
        places = set()
        for place in itertools.product(*rooms):
            cut = [slice(None)] * whole.ndim
            for axis, at in zip(axes, place, strict=True):
                cut[axis] = slice(at, at + self.crop.lengths[axis])
            if np.array_equal(found, whole[tuple(cut)]):
                places.add(place)
        return places


@dataclass(frozen=True, eq=False)
class Model:
    """All elements of a dataset.

    Attributes
    ----------
    form : tree of None
        How an element's arrays are put together; the columns are its leaves.
    columns : list of Column
    rows : list of frozenset
        Of each element: the rows of arrays that it is made of. (Of a zip, with the number of the
        part: each part by itself is split without sharing a row.)
    spans : list of tuple of (int, int)
        Of each element: the first and the last row that it takes of each view under it, as that
        view counts them.
    counted : tuple of bool
        For each of these: whether the rows are elements themselves, and so counted anew when some
        are selected.
    sample_shape : tuple of int
    splits : bool
        Whether it may be split: no row was chosen twice, nor windows in another order than
        ascending or descending, nor some of an element's patches.
    table : bool
        Whether it is a view of which rows were chosen more than once.
    mapped : bool
    each : int
        Patches of a row, which a split leaves together; 0 where there are none.
    outer : ndarray of int, optional
        Of a view: the place of each row on the outer sample axes, which no window leaves.
    by_rule : bool
        Of a view: whether its rows were chosen by slices alone.
    places : list of frozenset
        Of each element: the places on all sample axes of the rows that it is made of.
    is_rows : bool
        Whether each element is a row.
    turned : bool
        Whether all elements were put backwards by a slice: put so again they lie as they did, along
        their sample axes, of which nothing is known here any more.
    """

    form: Tree
    columns: list[Column]
    rows: list[frozenset[Any]]
    spans: list[tuple[tuple[int, int], ...]]
    counted: tuple[bool, ...]
    sample_shape: tuple[int, ...]
    splits: bool = True
    table: bool = False
    mapped: bool = False
    each: int = 0
    outer: np.ndarray | None = None
    by_rule: bool = True
    places: list[frozenset[tuple[int, ...]]] = field(default_factory=list)
    is_rows: bool = False
    turned: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, positions: np.ndarray, *, by_slice: bool = True) -> Model:
        """Return the elements at positions."""
        chosen = positions.tolist()
        alone = bool(self.each) and len(chosen) == 1  # the range of one may be counted backwards
        if by_slice and chosen == list(range(len(self))):
            return replace(self, splits=self.splits and not alone)
        spans = [
            tuple(
                (at, at) if counted else span
                for span, counted in zip(self.spans[position], self.counted, strict=True)
            )
            for at, position in enumerate(chosen)
        ]
        rows = [self.rows[at] for at in chosen]
        changes = np.diff(positions)
        if self.outer is not None:
            table, splits = len(set(rows)) < len(rows), len(set(rows)) == len(rows)
        else:
            table = False
            splits = self.splits and bool(np.all(changes > 0) or np.all(changes < 0))
        if self.each:
            splits = splits and by_slice and bool(np.all(changes == 1)) and not alone
            splits = splits and not any(at % self.each for at in (*chosen[:1], len(chosen)))
        return replace(
            self,
            columns=[column.take(chosen) for column in self.columns],
            rows=rows, spans=spans, sample_shape=(len(chosen),), splits=splits, table=table,
            outer=None if self.outer is None else self.outer[positions],
            by_rule=self.by_rule and by_slice,
            places=[self.places[at] for at in chosen] if self.places else [],
            turned=self.turned or (by_slice and chosen == list(range(len(self)))[::-1]),
        )  # fmt: skip

    @property
    def tells(self) -> bool:
        """Whether elements tell by their values which ones they are."""
        one_row = all(len(rows) == 1 for rows in self.rows)
        return all(np.prod(column.shape) > 0 for column in self.columns) and any(
            column.known and (column.crop is None or one_row) for column in self.columns
        )

    def split_along(self, axis: int, ranges: Sequence[range]) -> list[Model]:
        """Split along one of several sample axes, by its number among them."""
        along_time, parts = axis == len(self.sample_shape) - 1, []
        for chosen in ranges:
            inside = [
                at
                for at, places in enumerate(self.places)
                if all(place[axis] in chosen for place in places)
            ]
            part = replace(self.select(np.array(inside, int)), splits=self.splits)
            if along_time and not self.is_rows:  # chosen one by one
                parts.append(replace(part, splits=self.splits and not self.each))
                continue
            shape = list(self.sample_shape)
            shape[axis] = len(chosen)
            moved = [
                frozenset((*at[:axis], at[axis] - chosen.start, *at[axis + 1 :]) for at in places)
                for places in part.places
            ]
            parts.append(replace(part, sample_shape=tuple(shape), places=moved))
        return parts

    def check_batch(self, batch: Tree, positions: Sequence[int], said: object) -> None:
        """Fail unless a batch holds the elements at these positions, in this order."""
        assert shape_of_tree(batch) == self.form, said
        arrays = list(leaves(batch))
        for array, column in zip(arrays, self.columns, strict=True):
            assert array.shape == (len(positions), *column.shape), said
            assert array.dtype == column.dtype, said
            if column.known and column.crop is None and len(positions):
                expected = np.stack([column.values[at] for at in positions])
                assert np.array_equal(array, expected), (said, array, expected)
        drawn: dict[int, list[tuple[np.ndarray, Column]]] = {}
        for array, column in zip(arrays, self.columns, strict=True):
            if column.crop is not None and column.known:
                drawn.setdefault(id(column.crop.drawn), []).append((array, column))
        for together in drawn.values():
            for place, position in enumerate(positions):
                places = [column.places_of(array[place], position) for array, column in together]
                assert set.intersection(*places), (said, position)

    def check_element(self, element: Tree, position: int, said: object) -> None:
        self.check_batch(map_leaves(lambda one: np.asarray(one)[None], element), [position], said)


def leaves(tree: Tree) -> Iterator[Any]:
    if isinstance(tree, tuple | dict):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(part)
    else:
        yield tree


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, part) for part in tree)
    if isinstance(tree, dict):
        return {name: map_leaves(function, part) for name, part in tree.items()}
    return function(tree)


def filled(tree: Tree, arrays: Sequence[Any]) -> Tree:
    """Return a tree of the same form with other leaves."""
    rest = iter(arrays)
    return map_leaves(lambda _: next(rest), tree)


def shape_of_tree(tree: Tree) -> Tree:
    return map_leaves(lambda _: None, tree)


def of_rows(array: np.ndarray, axes: tuple[int, ...], name: object) -> Model:
    """Return the rows of an array along its sample axes."""
    inner = [axis for axis in range(array.ndim) if axis not in axes]
    ordered = array.astype(array.dtype.newbyteorder("=")).transpose(*axes, *inner)
    lengths = ordered.shape[: len(axes)]
    rows = ordered.reshape(int(np.prod(lengths)), *ordered.shape[len(axes) :])
    count = len(rows)
    return Model(
        form=None,
        columns=[Column(list(rows), rows.shape[1:], rows.dtype)],
        rows=[frozenset({(name, at)}) for at in range(count)],
        spans=[((at, at),) for at in range(count)],
        counted=(True,),
        sample_shape=lengths,
        outer=np.arange(count) // max(1, lengths[-1]),
        places=[frozenset({at}) for at in np.ndindex(*lengths)],
        is_rows=True,
    )


def rows_changed(view: Model, function: Callable[[np.ndarray], np.ndarray]) -> Model:
    """Return a view whose array, rows first, was changed by a function that keeps the rows."""
    (column,) = view.columns
    array = function(stacked(column))
    return replace(view, columns=[Column(list(array), array.shape[1:], array.dtype)])


def stacked(column: Column) -> np.ndarray:
    if not column.values:
        return np.empty((0, *column.shape), column.dtype)
    return np.stack(column.values)


def windows(
    view: Model,
    inputs: int,
    targets: int,
    shift: int,
    stride: int,
    horizon: int,
    borders: Sequence[int] = (),
    *,
    time_axis: bool = True,
) -> Model:
    """Return runs of a view's rows, none over the end of an outer place or a border."""
    of_x = [number * stride for number in range(inputs)]
    of_y = [of_x[-1] + horizon + number * stride for number in range(targets)]
    return windows_at(view, of_x, of_y, shift, borders, time_axis=time_axis)


def windows_at(
    view: Model,
    of_x: list[int],
    of_y: list[int],
    shift: int,
    borders: Sequence[int] = (),
    *,
    pad: bool = False,
    mask: bool = False,
    time_axis: bool = True,
) -> Model:
    """Return rows at offsets from anchors: around which all rows lie within borders, or padded."""
    rows, outer = stacked(view.columns[0]), view.outer
    assert outer is not None
    ends = {0, len(rows), *(np.flatnonzero(np.diff(outer)) + 1).tolist(), *borders}
    first, last = min(of_x + of_y), max(of_x + of_y)
    anchors = [
        (at, start, stop)
        for start, stop in itertools.pairwise(sorted(ends))
        for at in (range(start, stop) if pad else range(start - first, stop - last))[::shift]
    ]
    columns, used = [], []
    for offsets in [of_x, of_y][: 2 if of_y else 1]:
        steps = set(np.diff(offsets).tolist())
        time = (len(offsets),) if time_axis else ()
        each = [np.clip(np.array(offsets) + at, a, b - 1) for at, a, b in anchors]
        values = [rows[places].reshape((*time, *rows.shape[1:])) for places in each]
        shape = (*time, *rows.shape[1:])
        boxes = view.by_rule and len(steps) == 1 and not pad
        columns.append(Column(values, shape, rows.dtype, time=0 if boxes else len(time)))
        used.append(each)
    if pad and mask and offsets != [0]:
        flags = [(np.array(offsets) + at >= a) & (np.array(offsets) + at < b)
                 for at, a, b in anchors]  # fmt: skip
        columns.append(Column(flags, time, np.dtype(bool), mask=True))
    together = [np.concatenate(each).tolist() for each in zip(*used, strict=True)]
    several = len(view.sample_shape) > 1 and not len(borders)
    return Model(
        form=(None,) * len(columns) if len(columns) > 1 else None,
        columns=columns,
        rows=[frozenset().union(*(view.rows[at] for at in each)) for each in together],
        spans=[((min(each), max(each)),) for each in together],
        counted=(False,),
        sample_shape=view.sample_shape if several else (len(anchors),),
        splits=view.splits,
        places=[frozenset().union(*(view.places[at] for at in each)) for each in together],
    )


def grid_patches(
    model: Model, axes: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...]
) -> Model:
    """Return the parts of each element on a grid, those of an element after one another."""
    shape_of = next(column.shape for column in model.columns if not column.mask)
    whole = [shape_of[axis] for axis in axes]
    ranges = [range(0, n - part + 1, by) for n, part, by in zip(whole, size, step, strict=True)]
    places = list(itertools.product(*ranges))
    columns = []
    for column in model.columns:
        if column.mask:
            columns.append(column.repeated(len(places)))
            continue
        free = {} if column.crop is None else dict(column.crop.lengths)
        shape = list(column.shape)
        for axis, part in zip(axes, size, strict=True):
            shape[axis] = part
        values = []
        for value in column.values:
            for place in places:
                cut = [slice(None)] * value.ndim
                for axis, at, part in zip(axes, place, size, strict=True):
                    if axis not in free:  # else the part lies anywhere in a part that does
                        cut[axis] = slice(at, at + part)
                values.append(value[tuple(cut)])
        free |= {axis: part for axis, part in zip(axes, size, strict=True) if axis in free}
        crop = None if column.crop is None else replace(column.crop, lengths=free)
        columns.append(replace(column, values=values, shape=tuple(shape), crop=crop))
    return _repeated(model, columns, len(places))


def random_patches(
    model: Model, axes: tuple[int, ...], size: tuple[int, ...], per_row: int
) -> Model:
    """Return parts of each element at any place, the same one in all of its arrays."""
    columns, drawn = [], object()
    for column in model.columns:
        if column.mask:
            columns.append(column.repeated(per_row))
            continue
        lengths = {} if column.crop is None else dict(column.crop.lengths)
        lengths |= dict(zip(axes, size, strict=True))
        shape = list(column.shape)
        for axis, part in zip(axes, size, strict=True):
            shape[axis] = part
        values = column.repeated(per_row).values
        # After a crop of their own, arrays need not have been cut at one place.
        mine = drawn if column.crop is None else object()
        crop = Crop(lengths, mine)
        columns.append(replace(column, values=values, shape=tuple(shape), crop=crop))
    return _repeated(model, columns, per_row)


def _repeated(model: Model, columns: list[Column], each: int) -> Model:
    several = len(model.sample_shape) > 1
    return replace(
        model,
        columns=columns,
        rows=[rows for rows in model.rows for _ in range(each)],
        spans=[spans for spans in model.spans for _ in range(each)],
        counted=(False,) * len(model.counted),
        is_rows=False,
        sample_shape=model.sample_shape if several else (len(model) * each,),
        each=each * max(1, model.each),
        outer=None,
        table=False,
        places=[places for places in model.places for _ in range(each)],
        turned=False,
    )


def side_by_side(*parts: Model, form: Tree) -> Model:
    """Return the zip of models; `form` has their numbers as leaves.

    Rows in one dimension follow those along several sample axes.
    """
    several = [part for part in parts if len(part.sample_shape) > 1]
    follow = all(part.is_rows for part in parts if len(part.sample_shape) == 1)
    if len({part.sample_shape for part in several}) != 1 or not follow:
        several = []
    count = len(parts[0])
    # Rows that come more than once follow what lies beside them.
    own = [part for part in parts if not part.table] or parts
    return Model(
        form=map_leaves(lambda number: parts[number].form, form),
        columns=[column for number in leaves(form) for column in parts[number].columns],
        rows=[
            frozenset((number, row) for number, part in enumerate(parts) for row in part.rows[at])
            for at in range(count)
        ],
        spans=[tuple(span for part in own for span in part.spans[at]) for at in range(count)],
        counted=tuple(counted for part in own for counted in part.counted),
        sample_shape=several[0].sample_shape if several else (count,),
        splits=all(part.splits for part in parts),
        mapped=any(part.mapped for part in parts),
        each=math.lcm(*(part.each or 1 for part in parts))
        if any(part.each for part in parts)
        else 0,
        places=[frozenset().union(*(part.places[at] for part in several)) for at in range(count)]
        if several
        else [],
        is_rows=all(part.is_rows for part in parts),
        turned=any(part.turned for part in parts),
    )


def one_after_other(*parts: Model) -> Model:
    """Return the elements of models of one form, those of the first ones first."""
    columns = []
    for alike in zip(*(part.columns for part in parts), strict=True):
        crops = {id(column.crop) for column in alike}
        columns.append(
            replace(
                alike[0],
                values=[value for column in alike for value in column.values],
                # Crops of several random patches are compared by their shape alone.
                known=all(column.known for column in alike) and crops == {id(None)},
                crop=None,
                time=max(column.time for column in alike),
                mask=any(column.mask for column in alike),
            )
        )
    each = {part.each for part in parts}
    return Model(
        form=parts[0].form,
        columns=columns,
        rows=[row for part in parts for row in part.rows],
        spans=[() for part in parts for _ in part.rows],
        counted=(),
        sample_shape=(sum(map(len, parts)),),
        splits=False,
        mapped=any(part.mapped for part in parts),
        each=each.pop() if len(each) == 1 else math.lcm(*(n or 1 for n in each)),
    )


def numbers(count: int) -> Model:
    """Return the numbers from 0, made of no rows."""
    values = [np.array(at) for at in range(count)]
    return Model(
        form=None,
        columns=[Column(values, (), np.dtype(np.int64))],
        rows=[frozenset()] * count,
        spans=[()] * count,
        counted=(),
        sample_shape=(count,),
        is_rows=True,
    )


def cached(model: Model) -> Model:
    """Return the same elements in arrays of their own."""
    return replace(
        model,
        columns=[replace(column, time=0, mask=False) for column in model.columns],
        mapped=False,
        outer=None,
    )


def mapped(model: Model, change: Callable[[Model], Model]) -> Model:
    """Return what a function makes of each element, of which `change` gives form and columns."""
    return replace(change(model), mapped=True, outer=None, table=False)
