"""Define `Patches`: crops of elements, on a grid or at random positions.

A patch is a smaller box at a shifted origin, so only its bytes or chunks are read. Random positions
are a pure function of (seed, epoch, position), the same for all arrays of an element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from oocdata.blocks import ADDRESSABLE, AnyBlocks, Blocks, blocks_from_ids
from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import ArrayRequest
from oocdata.datasets.spec import ArraySpec, Spec, map_tree
from oocdata.datasets.window_arrays import MaskRequest
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_axes, as_count, as_numbers, is_all, select, take
from oocdata.order.permutation import derive_keys, epoch_key
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.shared_rows import Rows


_CHANNELS_LAST = " Give `axes`, such as (0, 1) where channels are last."


def make_patches(
    dataset: Dataset,
    size: int | Sequence[int],
    step: int | Sequence[int] | None,
    per_row: int | None,
    axes: Sequence[int] | None,
) -> Patches:
    """Check the arguments of `Dataset.patches` and return the patches."""
    if dataset.is_mapped or dataset.is_multi_array or dataset.mixture is not None:
        raise ArgumentError(
            "`patches` must be cut from dense rows, not sparse or ragged ones, before a function "
            f"is mapped, and from the members of a mixture before they are mixed; got {dataset!r}. "
            "Of ragged rows, map ooc.zip(rows.pad(), rows.lengths) by a function that cuts, with "
            "batched=False and rng=True."
        )
    sizes = _counts("size", size, None)
    steps = sizes if step is None else _counts("step", step, len(sizes))
    if step is not None and per_row is not None:
        raise ArgumentError(
            f"`step` and `per_row` must not both be given; got {step!r} and {per_row!r}."
        )
    shapes = _shapes(dataset)
    ndim = min(map(len, shapes))
    counted = as_axes(range(-len(sizes), 0) if axes is None else axes, ndim)
    if counted is None or len(counted) != len(sizes):
        raise ArgumentError(
            f"`size` and `axes` must be of different axes of an element, which has {ndim}; got "
            f"{len(sizes)} numbers in `size`, and `axes`={axes!r}."
        )
    from_front, from_end = tuple(counted), tuple(axis - ndim for axis in counted)
    mixed = axes is not None and min(axes) >= 0 and ndim < max(map(len, shapes))
    for chosen in (from_front, from_end) if mixed else (from_end,):  # pictures (y, x, c), masks
        lengths = {tuple(shape[axis] for axis in chosen) for shape in shapes}
        if len(lengths) == 1:
            break
    else:
        raise ArgumentError(
            f"`axes` must be alike in all arrays of an element to cut the same part of each; axes "
            f"{axes or chosen} have {sorted(lengths)}.{_CHANNELS_LAST} Or cut one of them first."
        )
    (whole,) = lengths
    if any(part > length for length, part in zip(whole, sizes, strict=True)):
        raise ArgumentError(
            f"`size` must fit into an element; got {sizes} where axes {axes or chosen} have "
            f"{whole}." + (_CHANNELS_LAST if len(sizes) < ndim and not axes else "")
        )
    if per_row is None:
        triples = zip(whole, sizes, steps, strict=True)
        count = prod((length - part) // each + 1 for length, part, each in triples)
    else:
        most = (2**63 - 1) // max(1, len(dataset))  # patches are numbered in int64
        count, steps = as_count("per_row", per_row, at_most=most), ()
    patches = Patches(dataset, sizes, steps, count, chosen, range(len(dataset) * count))
    patches.spec  # noqa: B018  # raises for a time axis whose rows are separate boxes
    return patches


def _shapes(dataset: Dataset) -> list[tuple[int, ...]]:
    """Return the shapes of an element's arrays, without masks of windows, which are not cut."""
    requests = dataset.requests(np.zeros(0, np.int64), Draw())
    return [request.shape[1:] for request in requests if not isinstance(request, MaskRequest)]


def _counts(name: str, value: int | Sequence[int], length: int | None) -> tuple[int, ...]:
    counts = list(value) if isinstance(value, Sequence) else [value]
    if length is not None and len(counts) == 1:
        counts *= length
    if not counts or (length is not None and len(counts) != length):
        raise ArgumentError(f"`{name}` must have a number for each axis; got {value!r}.")
    return tuple(as_count(name, count) for count in counts)


@dataclass(frozen=True, eq=False, repr=False)
class Patches(Dataset):
    """Crops of elements as elements; made by `Dataset.patches`.

    Attributes
    ----------
    dataset : Dataset
    size, step : tuple of int
        Length of a patch, and distance between patches, along each of `axes`; `step` is empty for
        random patches.
    per_row : int
        Number of patches of each element; they are adjacent.
    axes : tuple of int
        Negative, counted from the element's end; or all counted from the front of each array, if
        these have different numbers of axes.
    chosen : range or ndarray of int64
        Numbers of the selected patches, in order.
    """

    dataset: Dataset
    size: tuple[int, ...]
    step: tuple[int, ...]
    per_row: int
    axes: tuple[int, ...]
    chosen: Selection

    def __repr__(self) -> str:
        return f"<Patches: {len(self)} of {self.size}, {self.per_row} of each of {self.dataset!r}>"

    def __len__(self) -> int:
        return len(self.chosen)

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        """Length of an element along each axis."""
        shape = _shapes(self.dataset)[0]
        return tuple(shape[axis] for axis in self.axes)

    @cached_property
    def _largest_starts(self) -> list[int]:
        """Largest start of a patch along each axis."""
        return [length - size for length, size in zip(self._lengths, self.size, strict=True)]

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of patches along each axis; of random ones, the lengths of an element.

        Patches of the same size and grid are of the same places.
        """
        if not self.step:
            return self._lengths
        rooms = zip(self._largest_starts, self.step, strict=True)
        return tuple(room // step + 1 for room, step in rooms)

    @cached_property
    def spec(self) -> Spec:
        requests = self.requests(np.zeros(0, np.int64), Draw())
        specs = iter([ArraySpec(request.shape[1:], request.dtype) for request in requests])
        return map_tree(lambda _: next(specs), self.dataset.spec)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The sample shape of the elements; ``(len,)`` after a selection of patches."""
        inner, whole = self.dataset.sample_shape, len(self.dataset) * self.per_row
        return inner if len(inner) > 1 and is_all(self.chosen, whole) else (len(self),)

    def places(self, patches: Ints, draw: Draw) -> Ints:
        """Return the start of each patch along each axis, shape (patches, axes)."""
        if self.step:
            numbers = np.unravel_index(patches % self.per_row, self.grid)
            columns = [each * step for each, step in zip(numbers, self.step, strict=True)]
        else:
            free = enumerate(self._largest_starts)
            columns = [_uniform(draw, patches, axis, room + 1) for axis, room in free]
        return np.array(columns).T

    def requests(self, positions: Ints, draw: Draw) -> tuple[ArrayRequest, ...]:
        patches = take(self.chosen, positions)
        places = self.places(patches, draw)
        inner = self.dataset.requests(patches // self.per_row, draw)
        return tuple([request.crop(self.axes, self.size, places) for request in inner])

    @cached_property
    def blocks(self) -> AnyBlocks:
        if all(source.storage().chunks is None for source in self.sources()):
            return ADDRESSABLE
        chosen, per = self.chosen, self.per_row
        if isinstance(chosen, range) and chosen.step == 1 and chosen.start % per == 0:
            elements = range(chosen.start // per, -(-chosen.stop // per))
            inner = self.dataset._select(elements).blocks
            if isinstance(inner, Blocks):
                return Blocks(inner.length * per, inner.first * per)
        block_of = self.dataset.blocks.of
        return blocks_from_ids(
            len(self), lambda positions: block_of(take(chosen, positions) // per)
        )

    def _select(self, positions: Selection) -> Self:
        return replace(self, chosen=select(self.chosen, positions))

    @property
    def _split_unit(self) -> int:
        chosen, per = self.chosen, self.per_row
        if (
            isinstance(chosen, range)
            and chosen.step == 1
            and chosen.start % per == chosen.stop % per == 0
        ):
            return per * self.dataset._split_unit
        raise ArgumentError(
            "patches must be split before some of them are selected, so that no two parts share an "
            "element; these were selected. Split first, then select."
        )

    @property
    def _members(self) -> tuple[Dataset]:
        return (self.dataset,)

    def _with_members(self, members: Sequence[Any]) -> Self:
        (dataset,) = members
        return replace(self, dataset=dataset, chosen=range(len(dataset) * self.per_row))

    _elements_are_rows = False

    def _rows(self, positions: Selection, *, ids: bool = False) -> Iterator[Rows]:
        elements = as_numbers(select(self.chosen, positions)) // self.per_row
        return self.dataset._rows(elements, ids=ids)

    def _positions_to_drop(self, gap: int) -> int:
        return self.dataset._positions_to_drop(gap) * self.per_row


def _uniform(draw: Draw, patches: Ints, axis: int, count: int) -> Ints:
    """Return a random integer in ``[0, count)`` for each patch, from (seed, epoch, patch, axis).

    SplitMix64 of a counter, reduced by multiplication with `count` (Lemire 2019, without rejection:
    the bias is below ``count / 2**32``). Streams of NumPy's generators may change between versions
    (NEP 19).
    """
    key = epoch_key(draw.seed, draw.epoch, f"patches {axis}")
    numbers = derive_keys(key, patches.astype(np.uint64))
    if count > 2**32:  # the product would not fit; the bias is below ``count / 2**64``
        return (numbers % np.uint64(count)).astype(np.int64)
    return ((numbers >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)
