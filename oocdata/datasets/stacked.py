"""Views side by side as one array: a source whose parts each fill their own part of a batch.

Each part is seen along the axes of the whole (`oocdata.engines.placed`): the sample axes, then
those of an element. `oocdata.datasets.stack` makes a `View` of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.datasets.dataset import Described
from oocdata.datasets.view import View
from oocdata.engines.interleaved import Interleaved
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.placed import Line, Placed
from oocdata.engines.source import Boxes, Source, Storage
from oocdata.errors import ArgumentError
from oocdata.index import Selection, compose_ranges, select, take
from oocdata.threads import cached_property

__all__ = ["Constant", "Part", "Stacked", "outer_axes", "said"]


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Described):
    """Numbers that are the same in every row; made by `oocdata.constant`.

    Attributes
    ----------
    values : ndarray or View
        A View is one constant with all its rows. It is read once, when it is first needed.
    """

    values: NDArray[Any] | View

    def __post_init__(self) -> None:
        if not isinstance(self.values, View):  # a description has numbers without axes as scalars
            object.__setattr__(self, "values", np.asarray(self.values))

    def __repr__(self) -> str:
        return f"<Constant: {self.shape} {self.dtype}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an element."""
        values = self.values
        return (*values.sample_shape, *values.element) if isinstance(values, View) else values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.values.dtype.newbyteorder("=")

    def astype(self, dtype: np.dtype[Any]) -> Constant:
        """Return the constant in another dtype."""
        return self if dtype == self.dtype else Constant(self.values.astype(dtype))

    @cached_property
    def _source(self) -> MemoryArray:
        return MemoryArray(np.asarray(self.values).reshape(self.shape))

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self._source.read(origins, extent, out)

    def storage(self) -> Storage:
        """Return where the numbers are: in memory, once they were read."""
        if not isinstance(self.values, View):
            return self._source.storage()
        stored = self.values.storage
        return Storage(
            stored.format,
            stored.path,
            stored.key,
            stored_bytes=stored.stored_bytes,
            reading="once, and kept",
            files=stored.files,
            version=stored.version,
            table_bytes=self.values.nbytes,
        )


Part: TypeAlias = View | Constant


@dataclass(frozen=True, eq=False)
class Stacked(Described):
    """Parts side by side as one array, sample axes first; a `oocdata.engines.source.Source`.

    Attributes
    ----------
    parts : tuple of View or Constant
        All of one dtype; of a View with several sample axes, every row.
    axis : int
        Of the whole's elements, at least 0.
    new : bool
        Whether each part is one place along `axis`; else they lie end to end.
    """

    parts: tuple[Part, ...]
    axis: int
    new: bool

    @cached_property
    def rows(self) -> View:
        """The first part that has all sample axes."""
        return max(self.views, key=lambda view: len(view.axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the sample axes, then of an element's."""
        return self._joined.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of every part."""
        return self._joined.dtype

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``: each part its own, of all boxes at once."""
        self._joined.read(origins, extent, out)

    @property
    def below(self) -> tuple[Source, ...]:
        """The parts, seen along the axes of the whole."""
        return self._joined.parts

    def read_boxes(self, origins: NDArray[np.int64], extent: Extent) -> Iterator[Boxes]:
        """Yield the boxes of each part that are read; see `oocdata.engines.soon.soon`."""
        return self._joined.read_boxes(origins, extent)

    def storage(self) -> Storage:
        """Return what the parts' storages have together."""
        return self._storage

    @cached_property
    def _storage(self) -> Storage:
        each = [part.storage() for part in self._joined.parts]
        paths = list(dict.fromkeys(one.path for one in each if one.path is not None))
        keys = list(dict.fromkeys(one.key for one in each if one.key is not None))
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        found = self._joined.storage()
        # Where files end along the rows matters more than where channels do.
        along = next((one for one in each if len(one.parts) > 1), found)
        _check_episodes(each)
        named = [one.dimensions for one in each if one.dimensions]
        names = [set(same) - {""} for same in zip(*named, strict=True)]
        return replace(
            found,
            path=paths[0] + more if paths else None,
            key=", ".join(keys) or None,
            parts=along.parts,
            parts_axis=along.parts_axis,
            part_names=along.part_names,
            episodes=along.episodes,
            dimensions=tuple(one.pop() if len(one) == 1 else "" for one in names),
            opened=None,
        )

    @property
    def views(self) -> list[View]:
        """The parts that are not the same in every row."""
        return [part for part in self.parts if isinstance(part, View)]

    def parts_at(self, places: Sequence[Selection]) -> Iterator[tuple[View, Selection]]:
        """Yield each of `views`, with its row at each place along the sample axes."""
        for part in self.views:
            own = [places[axis] for axis in outer_axes(part, self.rows)]
            at = own[0] if len(own) == 1 else np.ravel_multi_index(own, part.sample_shape)
            yield part, select(part.rows, at)

    # Where each part lies in the whole.

    @cached_property
    def _common(self) -> tuple[int, ...]:
        """The shape of an element that each part has or is repeated to, but for `axis`."""
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

    @cached_property
    def _joined(self) -> Interleaved:
        placed = tuple(map(self._placed, self.parts))
        axis = len(self.rows.axes) + self.axis
        filled = tuple(part for part in placed if part.shape[axis])
        return Interleaved(filled or placed[:1], axis)

    def _placed(self, part: Part) -> Placed:
        """Return a part, seen along the axes of the whole."""
        common, axis, own = self._common, self.axis, _element(part)
        samples = self.rows.sample_shape
        length = 1 if self.new else own[axis]
        element = (*common[:axis], length, *common[axis + (not self.new) :])
        begin = len(common) - len(own)

        def line(at: int, places: range) -> Line:
            """Return where one of the axes of the part's element runs."""
            along = begin + at
            here = along + (self.new and along >= axis)
            repeated = len(places) == 1 and element[here] != 1
            return (None, places[0]) if repeated else (len(samples) + here, places)

        lines: list[Line] = []
        if isinstance(part, Constant):
            lines = [line(at, range(n)) for at, n in enumerate(own)]
            return Placed(part, tuple(lines), (*samples, *element), part.dtype)
        outer = outer_axes(part, self.rows)
        for at, kept in enumerate(part.cuts):
            if isinstance(kept, int):
                lines.append((None, kept))
            elif at in part.axes:
                number = part.axes.index(at)
                lines.append((outer[number], _places(part, number)))
            else:
                lines.append(line(part.order.index(at), kept))
        return Placed(part.source, tuple(lines), (*samples, *element), part.dtype)


def outer_axes(part: View, whole: View) -> tuple[int, ...]:
    """Return which sample axes of the whole those of a part are: by their names, else the first."""
    names, own = whole.names[: len(whole.axes)], part.names[: len(part.axes)]
    by_name = bool(own) and all(name is not None and names.count(name) == 1 for name in own)
    outer = tuple(map(names.index, own)) if by_name else tuple(range(len(part.axes)))
    if part.sample_shape != tuple(whole.sample_shape[axis] for axis in outer):
        raise ArgumentError(
            "parts must have the same rows, or only the outer of their sample axes; got "
            f"{said(part)} beside {said(whole)}. Select the rows that go together first; what is "
            "the same in every row is ooc.constant(…)."
        )
    return outer


def _check_episodes(storages: list[Storage]) -> None:
    """Raise if episodes of parts end at different rows: row i of each goes together."""
    own = [one for one in storages if one.episodes]
    for one in own:
        if one.parts != own[0].parts:
            raise ArgumentError(
                "parts must have episodes of the same lengths, because row i of each goes "
                f"together; those of {one.key} differ from those of {own[0].key}. Arrays that are "
                "one row longer go together in ooc.windows."
            )


def _element(part: Part) -> tuple[int, ...]:
    return part.element if isinstance(part, View) else part.shape


def _places(view: View, number: int) -> Selection:
    """Return the places of storage along one of a view's sample axes, in the order of its rows."""
    places, rows = view.grid[number], view.rows
    if len(view.axes) > 1:
        return places
    return compose_ranges(places, rows) if isinstance(rows, range) else take(places, rows)


def said(view: View) -> str:
    """Return a view's rows in words."""
    return f"{' × '.join(map(str, view.sample_shape))} rows"
