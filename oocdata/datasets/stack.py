"""Combine several arrays of the same rows, e.g. variables as channels of one tensor.

`Stacked` is the source of the combined array. Each part is seen along the axes of that array
(`oocdata.engines.axis_views`): the sample axes, then the axes of an element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.box import Extent, Ints
from oocdata.datasets.dataset import Dataset, Described
from oocdata.datasets.shared_rows import Rows
from oocdata.datasets.view import View
from oocdata.engines.alike import common_names
from oocdata.engines.axis_views import AxisMap, AxisView
from oocdata.engines.dtypes import can_hold, check_dtype
from oocdata.engines.interleaved import Interleaved
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError
from oocdata.index import (
    Selection,
    as_array,
    as_axes,
    as_numbers,
    is_iterable,
    same_selection,
    select,
)
from oocdata.threads import cached_property

Part: TypeAlias = View | NDArray[Any]
"""A View; or an array that is the same in each row, of an element or broadcast to it."""


def stack(parts: Iterable[View | ArrayLike], axis: int = -1) -> View:
    """Stack arrays of the same rows along a new axis of their elements.

    Neighbours that are positions along one axis (``v[..., 0]``, ``v[..., 1]``) are read together.

    Parameters
    ----------
    parts : iterable of View or array_like
        Views of the same rows, with elements of one shape or broadcastable to it. A View with fewer
        sample axes, e.g. (trajectory,) next to (trajectory, time), is repeated along the missing
        ones; its axes are identified by name, or else are the outermost. An array or number is the
        same in each row; read one from a file by ``np.asarray(view)``.
    axis : int
        Position of the new axis among the element's axes; -1: last, i.e. channels last.

    Returns
    -------
    View
        With the sample axes of the parts, as axes 0, 1, … of the combined array.

    Raises
    ------
    oocdata.errors.ArgumentError
        If rows or shapes do not match, or no part's dtype can represent the values of all parts.
    oocdata.errors.MismatchedPartsError
        If the names of axes say that an axis goes together with another one.

    Examples
    --------
    >>> import oocdata as ooc
    >>> u, v = ooc.open(np.zeros((90, 128, 64))), ooc.open(np.ones((90, 128, 64)))
    >>> ooc.stack([u, v, np.zeros((128, 64))])
    <View: 90 rows of (128, 64, 3) float64>
    """
    return _combine("stack", parts, axis, new=True)


def concatenate(parts: Iterable[View | ArrayLike], axis: int = -1) -> View:
    """Concatenate arrays of the same rows along an existing axis of their elements.

    To concatenate rows, open a list or glob of files with `open`, or use `concat`.

    Parameters
    ----------
    parts : iterable of View or array_like
        As for `stack`; element shapes may differ along `axis`.
    axis : int
        Axis of the elements; the row axis is not counted.

    Returns
    -------
    View
        With the same rows.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument is invalid, or the parts do not match.

    Examples
    --------
    >>> import oocdata as ooc
    >>> velocity, pressure = ooc.open(np.zeros((90, 32, 32, 2))), ooc.open(np.ones((90, 32, 32, 1)))
    >>> ooc.concatenate([velocity, pressure])
    <View: 90 rows of (32, 32, 3) float64>
    """
    return _combine("concatenate", parts, axis, new=False)


def _combine(name: str, arguments: Iterable[Any], axis: int, *, new: bool) -> View:
    if isinstance(arguments, Dataset) or not is_iterable(arguments):
        raise ArgumentError(
            f"`{name}` must get Views in a list; got {arguments!r}. Write ooc.{name}([one, other])."
        )
    parts = _with_common_dtype(name, list(arguments))
    views, rows = _without_selection([part for part in parts if isinstance(part, View)])
    ndim = max(len(part.element if isinstance(part, View) else part.shape) for part in parts) + new
    number = None if isinstance(axis, bool) else as_axes([axis], ndim)
    if number is None:
        raise ArgumentError(
            f"`axis` must be one of the {ndim} axes of an element, rows not counted; got {axis!r}."
        )
    unselected = iter(views)
    parts = [next(unselected) if isinstance(part, View) else part for part in parts]
    stacked = Stacked(tuple(parts), number[0], new)
    return replace(View.of(stacked, range(len(stacked.rows.axes))), rows=rows)


def _with_common_dtype(name: str, arguments: list[Any]) -> list[Part]:
    """Return the parts converted to the dtype of a part that can represent the values of all."""
    for part in arguments:
        if isinstance(part, Dataset) and (part.is_multi_array or not isinstance(part, View)):
            raise ArgumentError(
                f"`{name}` must get Views; got {part!r}. Make windows, patches and maps of the "
                f"result: ooc.{name}([…]).windows(…)."
            )
    if not any(isinstance(part, View) for part in arguments):
        raise ArgumentError(
            f"`{name}` must get at least one View, which has rows; got {arguments!r}."
        )
    is_scalar = [type(part) in (int, float) for part in arguments]  # these adopt the others' dtype
    parts = [part if isinstance(part, View) else as_array("values", part) for part in arguments]
    for part in parts:
        check_dtype(part.dtype)
    dtypes = [part.dtype for part, scalar in zip(parts, is_scalar, strict=True) if not scalar]
    scalars = [part for part, scalar in zip(arguments, is_scalar, strict=True) if scalar]
    common = _common_dtype(dtypes, scalars)
    if common is None:
        raise ArgumentError(
            f"`{name}` must get parts of one dtype, or one of theirs must hold the numbers of all; "
            f"got {', '.join(map(str, (*dtypes, *scalars)))}. Convert some with .astype."
        )
    views = [part for part in arguments if isinstance(part, View)]
    decoded = [view for view in views if (view.storage.opened or {}).get("decode")]
    packed = [view for view in views if view.storage.packed]
    if decoded and packed:
        raise ArgumentError(
            f"`{name}` must get parts that are all decoded, or all as stored; {decoded[0]} is "
            f"decoded, {packed[0]} is not ({packed[0].storage.packed}). Open both with decode=True."
        )
    units = dict.fromkeys(view.unit or "none" for view in views)
    if len(units) > 1 and common == np.int64:  # dates as stored
        raise ArgumentError(
            f"`{name}` must get dates of one unit; got {', '.join(units)}. Keep them side by side, "
            "ooc.zip(…), or save them in one unit."
        )
    return [part if part.dtype == common else part.astype(common) for part in parts]


def _common_dtype(dtypes: list[np.dtype[Any]], numbers: list[int | float]) -> np.dtype[Any] | None:
    """Return the one of some dtypes that can represent the values of all, and numbers; or None."""
    try:
        common = np.result_type(*dtypes, *numbers)
    except TypeError:  # such as text and numbers
        return None
    represents_all = all(_can_represent(common, dtype) for dtype in dtypes)
    represents_all &= all(can_hold(common, number) for number in numbers)
    return common if common in dtypes and represents_all else None


def _can_represent(dtype: np.dtype[Any], other: np.dtype[Any]) -> bool:
    rounded = other.kind in "iu" and other.itemsize == 8 and dtype.kind in "fc"
    return np.can_cast(other, dtype, "safe") and not rounded


def _without_selection(views: list[View]) -> tuple[list[View], Selection]:
    """Return views without the selection of rows that they share, and the selection.

    Stored chunks then start at the same rows as in the whole array, so that an order can follow
    them.
    """
    whole = max(views, key=lambda view: len(view.axes))
    with_all_axes = [view for view in views if len(view.axes) == len(whole.axes)]
    rows: Selection = range(prod(whole.sample_shape))
    if all(
        same_selection(view.rows, whole.rows) and _lengths(view) == _lengths(whole)
        for view in with_all_axes
    ):
        rows = whole.rows
        ambiguous = [view for view in views if view not in with_all_axes and len(view) == len(rows)]
        if ambiguous and len(whole.sample_shape) != len(whole.axes):
            raise ArgumentError(
                "parts of fewer sample axes must not have as many rows as were chosen along "
                "several, because they could go together one by one, or be repeated; got "
                f"{_rows_text(ambiguous[0])} beside {len(rows)} of "
                f"{' × '.join(map(str, _lengths(whole)))}. Select after stacking."
            )
        every = range(prod(_lengths(whole)))
        views = [replace(view, rows=every) if view in with_all_axes else view for view in views]
    for view in views:
        if len(view.sample_shape) != len(view.axes):
            raise ArgumentError(
                "parts of several sample axes must have every row, or the same ones; got "
                f"{_rows_text(view)} of {' × '.join(map(str, _lengths(view)))}. Select after "
                "stacking."
            )
    return views, rows


def _lengths(view: View) -> tuple[int, ...]:
    return tuple(map(len, view.grid))


@dataclass(frozen=True, eq=False)
class Stacked(WithStorage, Wrapped, Described):
    """Parts of one dtype combined into one array, sample axes first; a `Source`.

    A View with several sample axes has all its rows. `axis`, at least 0, is of the combined
    elements; if it is `new`, it has one position per part, else parts are concatenated.
    """

    parts: tuple[Part, ...]
    axis: int
    new: bool
    source: Interleaved = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A description contains 0-d arrays as scalars, texts as long as they are.
        dtype = self.views[0].dtype
        parts = [part if isinstance(part, View) else np.asarray(part, dtype) for part in self.parts]
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "source", self._joined())

    @cached_property
    def rows(self) -> View:
        """The first part that has all sample axes."""
        return max(self.views, key=lambda view: len(view.axes))

    @property
    def below(self) -> tuple[Source, ...]:
        """The parts, seen along the axes of the whole array."""
        return self.source.parts

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterator[Boxes]:
        return self.source.read_boxes(origins, extent)

    @cached_property
    def _storage(self) -> Storage:
        each = [part.storage() for part in self.source.parts]
        paths = list(dict.fromkeys(storage.path for storage in each if storage.path is not None))
        keys = list(dict.fromkeys(storage.key for storage in each if storage.key is not None))
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        combined = self.source.storage()
        # Prefer the borders of files along the rows to the borders of channels.
        in_files = next((storage for storage in each if len(storage.parts) > 1), combined)
        _check_episodes(each)
        return replace(
            combined,
            path=paths[0] + more if paths else None,
            key=", ".join(keys) or None,
            parts=in_files.parts,
            parts_axis=in_files.parts_axis,
            part_names=in_files.part_names,
            episodes=in_files.episodes,
            dimensions=common_names([one.dimensions for one in each if one.dimensions]),
            columns=None,
            opened=None,
        )

    @property
    def views(self) -> list[View]:
        """The parts that are Views."""
        return [part for part in self.parts if isinstance(part, View)]

    def rows_of_parts(self, rows: Rows) -> Iterator[Rows]:
        """Yield the rows of each View, from rows of the whole array."""
        shape = self.rows.sample_shape
        for part in self.views:
            axes = outer_axes(part, self.rows)
            if axes == tuple(range(len(shape))):
                yield Rows(part, rows.numbers, rows.places, rows.offsets)
                continue
            for offset in rows.offsets:
                along = np.unravel_index(as_numbers(rows.numbers) + offset, shape)
                own = np.ravel_multi_index([along[axis] for axis in axes], part.sample_shape)
                yield Rows(part, own, rows.places)

    # Positions of the parts in the whole array ---------------------------------------------------

    @cached_property
    def _common_shape(self) -> tuple[int, ...]:
        """Common shape of the parts' elements after broadcasting, without regard to `axis`."""
        shapes = [_element(part) for part in self.parts]
        if not self.new:
            if len({len(shape) for shape in shapes}) > 1 or self.axis >= len(shapes[0]):
                self._refuse_shapes()
            shapes = [(*shape[: self.axis], 1, *shape[self.axis + 1 :]) for shape in shapes]
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            self._refuse_shapes()

    def _refuse_shapes(self) -> NoReturn:
        shapes = ", ".join(str(_element(part)) for part in self.parts)
        besides = "" if self.new else f" besides axis {self.axis}"
        raise ArgumentError(
            f"parts must have elements of one shape{besides}, or of one that repeats to it by "
            f"NumPy's rules; got {shapes}. Cut or transpose them first."
        )

    def _joined(self) -> Interleaved:
        """Return the parts as one array, sample axes first."""
        placed = tuple(map(self._placed, self.parts))
        axis = len(self.rows.axes) + self.axis
        filled = tuple(part for part in placed if part.shape[axis])
        return Interleaved(filled or placed[:1], axis)

    def _placed(self, part: Part) -> AxisView:
        """Return a part, seen along the axes of the whole array."""
        common, axis, shape = self._common_shape, self.axis, _element(part)
        samples = self.rows.sample_shape
        length = 1 if self.new else shape[axis]
        element = (*common[:axis], length, *common[axis + (not self.new) :])
        first_axis = len(common) - len(shape)

        def line_of(at: int, places: range) -> AxisMap:
            """Return the axis of the whole array along which an axis of the part's element runs."""
            along = first_axis + at
            position = along + (self.new and along >= axis)
            repeated = len(places) == 1 and element[position] != 1
            return (None, places[0]) if repeated else (len(samples) + position, places)

        lines: list[AxisMap] = []
        if not isinstance(part, View):
            lines = [line_of(at, range(n)) for at, n in enumerate(shape)]
            values = MemoryArray(part)
            return AxisView(values, tuple(lines), (*samples, *element), values.dtype)
        outer = outer_axes(part, self.rows)
        for at, places in enumerate(part.cuts):
            if isinstance(places, int):
                lines.append((None, places))
            elif at in part.axes:
                number = part.axes.index(at)
                lines.append((outer[number], _places(part, number)))
            else:
                lines.append(line_of(part.order.index(at), places))
        return AxisView(part.source, tuple(lines), (*samples, *element), part.dtype)


def outer_axes(part: View, whole: View) -> tuple[int, ...]:
    """Return which sample axes of the whole the part has: by name, or else the outermost."""
    names, own = whole.names[: len(whole.axes)], part.names[: len(part.axes)]
    by_name = bool(own) and all(name is not None and names.count(name) == 1 for name in own)
    outer = tuple(map(names.index, own)) if by_name else tuple(range(len(part.axes)))
    if part.sample_shape != tuple(whole.sample_shape[axis] for axis in outer):
        raise ArgumentError(
            "parts must have the same rows, or only the outer of their sample axes; got "
            f"{_rows_text(part)} beside {_rows_text(whole)}. Select the rows that go together "
            "first; give what is the same in every row as an array: np.asarray(view)."
        )
    return outer


def _check_episodes(storages: list[Storage]) -> None:
    with_episodes = [storage for storage in storages if storage.episodes]
    for storage in with_episodes:
        first = with_episodes[0]
        if storage.parts != first.parts:
            raise ArgumentError(
                "parts must have episodes of the same lengths, because row i of each goes "
                f"together; those of {storage.key} differ from those of {first.key}. Arrays that "
                "are one row longer go together in ooc.windows."
            )


def _element(part: Part) -> tuple[int, ...]:
    return part.element if isinstance(part, View) else part.shape


def _places(view: View, number: int) -> Selection:
    """Return the stored positions of a view's rows along one sample axis."""
    places = view.grid[number]
    return places if len(view.axes) > 1 else select(places, view.rows)


def _rows_text(view: View) -> str:
    return f"{' × '.join(map(str, view.sample_shape))} rows"
