"""Define `Stacked`, a source that combines Views along an axis of their elements.

Each part is seen along the axes of the whole array (`oocdata.engines.axis_views`): the sample axes,
then the axes of an element. `oocdata.datasets.stack` makes a `View` of the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.datasets.dataset import Described
from oocdata.datasets.view import View
from oocdata.engines.alike import common_names
from oocdata.engines.axis_views import AxisMap, AxisView
from oocdata.engines.interleaved import Interleaved
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError
from oocdata.index import Selection, select
from oocdata.threads import cached_property

Part: TypeAlias = View | NDArray[Any]
"""A View; or an array that is the same in each row, of an element or broadcast to it."""


@dataclass(frozen=True, eq=False)
class Stacked(WithStorage, Wrapped, Described):
    """Several parts combined into one array, sample axes first; a `oocdata.engines.source.Source`.

    Attributes
    ----------
    parts : tuple of View or ndarray
        With equal dtypes. A View with several sample axes has all its rows.
    axis : int
        Axis of the combined elements, at least 0.
    new : bool
        Whether `axis` is a new axis with one position per part; if not, parts are concatenated.
    """

    parts: tuple[Part, ...]
    axis: int
    new: bool
    source: Interleaved = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A description contains 0-d arrays as scalars.
        arrays = [part if isinstance(part, View) else np.asarray(part) for part in self.parts]
        object.__setattr__(self, "parts", tuple(arrays))
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
        """Yield the boxes that are read of each part; see `oocdata.engines.prefetch.fetches`."""
        return self.source.read_boxes(origins, extent)

    @cached_property
    def _storage(self) -> Storage:
        """Combined storage of the parts."""
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

    def parts_at(self, places: Sequence[Selection]) -> Iterator[tuple[View, Selection]]:
        """Yield each View with its rows at positions along the sample axes."""
        for part in self.views:
            own = [places[axis] for axis in outer_axes(part, self.rows)]
            yield part, own[0] if len(own) == 1 else np.ravel_multi_index(own, part.sample_shape)

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
            f"{rows_text(part)} beside {rows_text(whole)}. Select the rows that go together first; "
            "give what is the same in every row as an array: np.asarray(view)."
        )
    return outer


def _check_episodes(storages: list[Storage]) -> None:
    """Raise ArgumentError if the parts have episodes of different lengths."""
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


def rows_text(view: View) -> str:
    """Return the number of a view's rows in words, for messages."""
    return f"{' × '.join(map(str, view.sample_shape))} rows"
