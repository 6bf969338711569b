"""Define `Concat`: datasets one after the other.

Each part reads its elements of a batch directly into their places. Parts with functions make
batches of their elements, which are copied together. Sparse and ragged rows of all parts are joined
as they are read, into one `SparseBatch` or `RaggedBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import ADDRESSABLE, AnyBlocks, Blocks, blocks_from_ids
from oocdata.box import Ints, groups_of
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.multi_array import join_requests
from oocdata.datasets.request import ArrayRequest
from oocdata.datasets.shared_rows import Rows, check_direction
from oocdata.datasets.spec import Batch, Spec, leaves, map_tree
from oocdata.datasets.view import View
from oocdata.engines.alike import check_same_meaning, common_names, different_columns
from oocdata.engines.buffers import empty
from oocdata.engines.columns import chosen_names
from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError
from oocdata.index import Selection, as_numbers, ascends, is_all, select, take, within
from oocdata.threads import cached_property


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Dataset):
    """Datasets one after the other; made by `oocdata.concat`.

    Attributes
    ----------
    parts : tuple of Dataset
        With equal specs; none is empty unless all are.
    chosen : range or ndarray of int64
        Numbers of the selected elements among all elements, in order.
    """

    parts: tuple[Dataset, ...]
    chosen: Selection

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} elements of {len(self.parts)} datasets>"

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def _members(self) -> tuple[Dataset, ...]:
        return self.parts

    @cached_property
    def ends(self) -> Ints:
        """Number of elements up to the end of each part, shape (parts,)."""
        return np.cumsum([len(part) for part in self.parts])

    @property
    def spec(self) -> Spec:
        return self.parts[0].spec

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return (len(self),)

    # Reading -------------------------------------------------------------------------------------

    def _by_part(self, numbers: Ints) -> list[tuple[int, Ints, Ints]]:
        """Return (number of the part, places, positions in the part) of elements by numbers."""
        groups = list(groups_of(self.ends.searchsorted(numbers, side="right")))
        return [
            (owner, places, numbers[places] - (int(self.ends[owner]) - len(self.parts[owner])))
            for owner, places in groups or [(0, np.arange(0))]
        ]

    @cached_property
    def has_requests_by_part(self) -> bool:
        return self.is_mapped

    def requests(self, positions: Ints, draw: Draw) -> tuple[ArrayRequest, ...]:
        """Return one request per array; if parts have functions, the requests of each part."""
        shares = self._by_part(take(self.chosen, positions))
        by_part = [self.parts[owner].requests(own, draw) for owner, _, own in shares]
        where = [places for _, places, _ in shares]
        if not self.is_mapped:
            columns = zip(*by_part, strict=True)
            return tuple(join_requests(requests, where) for requests in columns)
        return tuple(request for requests in by_part for request in requests)

    def assemble(self, arrays: Iterator[NDArray[Any]], positions: Ints, draw: Draw) -> Batch:
        if not self.is_mapped:
            return super().assemble(arrays, positions, draw)
        batch: Batch = map_tree(
            lambda leaf: empty((len(positions), *leaf.shape), leaf.dtype), self.spec
        )
        for owner, places, own in self._by_part(take(self.chosen, positions)):
            part_batch = self.parts[owner].assemble(arrays, own, draw.of(places))
            for array, out in zip(leaves(part_batch), leaves(batch), strict=True):
                out[places] = array
        return batch

    def array_bytes(self, elements: int) -> list[int]:
        if not self.is_multi_array:
            return super().array_bytes(elements)
        # At most the longest rows of all parts, and at most as many rows as long as the longest.
        by_part = [part.array_bytes(min(elements, len(part))) for part in self.parts]
        longest = [part.array_bytes(1) for part in self.parts]
        bounds = [elements * max(sizes) for sizes in zip(*longest, strict=True)]
        return list(map(min, map(sum, zip(*by_part, strict=True)), bounds))

    def input_bytes(self, elements: int) -> int:
        if not self.is_multi_array:
            return super().input_bytes(elements)
        # Twice: sparse rows as they are read, and in their places. A row may be repeated, because
        # members of a mixture start again when they are exhausted.
        repeats = [2 + elements // max(1, len(part)) for part in self.parts]
        pairs = zip(self.parts, repeats, strict=True)
        return 2 * max(times * part.input_bytes(-(-elements // times)) for part, times in pairs)

    def row_lengths(self) -> Ints | None:
        each = [lengths for part in self.parts if (lengths := part.row_lengths()) is not None]
        return np.concatenate(each)[as_numbers(self.chosen)] if each else None

    def _as_sparse(self) -> Dataset | None:
        parts = [sparse for part in self.parts if (sparse := part._as_sparse()) is not None]
        return replace(self, parts=tuple(parts)) if len(parts) == len(self.parts) else None

    @cached_property
    def blocks(self) -> AnyBlocks:
        """Blocks of all parts; no block is shared by two parts.

        If only some parts have blocks, the others are cut into runs of the shortest block length,
        so that all are visited alike.
        """
        blocks = [part.blocks for part in self.parts]
        lengths = [
            -(-len(part) // each.number(len(part)))
            for part, each in zip(self.parts, blocks, strict=True)
            if len(part) and each != ADDRESSABLE
        ]
        if not lengths:
            return ADDRESSABLE
        if len(blocks) == 1 and is_all(self.chosen, int(self.ends[0])):
            return blocks[0]
        run = Blocks(min(lengths), min(lengths))
        blocks = [run if each == ADDRESSABLE else each for each in blocks]

        def ids_of(positions: Ints) -> Ints:
            # The number of a part's first element is at least that of the blocks before the part.
            ids = take(self.chosen, positions)
            for owner, places, own in self._by_part(ids):
                ids[places] += blocks[owner].of(own) - own
            return ids

        return blocks_from_ids(len(self), ids_of)

    # Selections and splits -----------------------------------------------------------------------

    def _shares(self, chosen: Selection) -> Iterator[tuple[int, Selection, Selection]]:
        """Yield each part's number, with the places of its chosen elements and their positions.

        If the elements' numbers ascend, all parts in order.
        """
        if not ascends(chosen):
            yield from self._by_part(as_numbers(chosen))
            return
        start = place = 0
        for owner, end in enumerate(self.ends.tolist()):
            own = within(chosen, start, end)
            yield owner, range(place, place + len(own)), own
            start, place = end, place + len(own)

    def _select(self, positions: Selection) -> Self:
        chosen = select(self.chosen, positions)
        if not ascends(chosen):
            return replace(self, chosen=chosen)
        selected = tuple(
            part if is_all(own, len(part)) else part._select(own)
            for part, (_, _, own) in zip(self.parts, self._shares(chosen), strict=True)
        )
        parts = tuple(part for part in selected if len(part)) or selected[:1]
        return replace(self, parts=parts, chosen=range(len(chosen)))

    _elements_are_rows = False

    @property
    def _first_ids(self) -> Ints:
        """Number of rows that ids refer to, up to each part."""
        return np.cumsum([0, *(len(part._row_positions(0)) for part in self.parts)])

    def _row_positions(self, at: int) -> Selection:
        return range(self._first_ids[-1])

    def _rows(self, positions: Selection, *, ids: bool = False) -> Iterator[Rows]:
        first_ids = self._first_ids if ids else np.zeros(len(self.parts), np.int64)
        for owner, places, own in self._shares(select(self.chosen, positions)):
            for rows in self.parts[owner]._rows(own, ids=ids):
                shift = rows.shift + first_ids[owner]
                yield replace(rows, places=select(places, rows.places), shift=shift)

    def _positions_to_drop(self, gap: int) -> int:
        check_direction("elements", self.chosen)
        return super()._positions_to_drop(gap)

    @property
    def _split_unit(self) -> int:
        each = {part._split_unit for part in self.parts}
        if len(each) > 1 or any(len(part) % min(each) for part in self.parts):
            raise ArgumentError(
                "datasets of patches must be split before they are put one after the other, where "
                f"they have different numbers of patches in an element; these have {sorted(each)}."
            )
        return each.pop()


def concat(*datasets: Dataset | Sequence[Dataset]) -> Concat:
    """Concatenate datasets, one after the other.

    The datasets may be of any kind and storage: views, windows, zips, patches, mapped datasets,
    sparse and ragged rows. To make windows across files, open them as one array: ``ooc.open([path,
    …])``.

    Parameters
    ----------
    *datasets : Dataset
        Or one list of them. With equal specs: elements have the same arrays, in one order of names,
        of equal shape, dtype and form (dense, sparse, ragged, padded).

    Returns
    -------
    Concat
        The elements of the first dataset, then of the second, and so on. ``shuffle=True`` shuffles
        the elements of all datasets together, by the chunks of each.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there are no datasets, one is a mixture, or their specs differ, or categories, or the
        columns (genes); the message names the first that differs.
    oocdata.errors.MismatchedPartsError
        If numbers are packed differently, or have other units (K, degC); or if the names of axes
        say that one goes together with another one.

    Notes
    -----
    A function (`map`) of one dataset is called on its elements of a batch, and the results are
    copied into the batch. Apply a function for all datasets to the result: ``concat(…).map(fn)``.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> both = ooc.concat([ooc.open(np.arange(3)), ooc.open(np.arange(10, 14))])
    >>> len(both), both.take([0, 6, 2, 3])
    (7, array([ 0, 13,  2, 10]))
    """
    given: Any = datasets
    if len(datasets) == 1 and isinstance(datasets[0], Sequence):
        (given,) = datasets
    parts = checked_parts("concat", given)
    filled = tuple(part for part in parts if len(part)) or parts[:1]
    return Concat(filled, range(sum(map(len, filled))))


def checked_parts(caller: str, datasets: Sequence[Dataset]) -> tuple[Dataset, ...]:
    """Return datasets with equal specs, or raise ArgumentError that names the caller."""
    parts = tuple(datasets) if isinstance(datasets, Sequence) else ()
    if not parts or not all(isinstance(part, Dataset) for part in parts):
        raise ArgumentError(
            f"`{caller}` must get datasets; got {datasets!r}. Open arrays with ooc.open."
        )
    for number, part in enumerate(parts):
        if part.mixture is not None:
            raise ArgumentError(
                f"`{caller}` must get datasets that are no mixtures; dataset {number} is one. Mix "
                "all its members at once, with the shares that they should have in all."
            )
        if str(part.spec) != str(parts[0].spec):
            raise ArgumentError(
                f"`{caller}` must get datasets with equal specs, with the names in one order; "
                f"dataset 0 has {parts[0].spec}, dataset {number} has "
                f"{part.spec}. `.astype`, cuts, `.pad` of ragged rows and `.sparse()` "
                "make specs equal; opened as one array, files have texts of one length."
            )
    whole = Concat(parts, range(0))
    if whole.is_mapped and whole.is_multi_array:
        raise ArgumentError(
            f"`{caller}` must get sparse and ragged rows as they are stored, without functions; "
            f"got {parts!r}. Put them together by themselves, and zip: "
            f"ooc.zip(ooc.{caller}(rows), ooc.{caller}(labels)); or make arrays, parse(…, pad=40)."
        )
    _check_same_meaning(caller, parts)
    return parts


def _check_same_meaning(caller: str, parts: Sequence[Dataset]) -> None:
    """Raise if a number that is delivered as stored has another meaning in each of two datasets."""
    known = [part for part in parts if not part.is_mapped]
    for each in zip_longest(*map(storages_of, known), fillvalue=(None, ())):
        storages, of_rows = zip(*(pair for pair in each if pair[0] is not None), strict=True)
        codes = [each.annotations().attributes for each in storages if each.categorical]
        meanings = list(dict.fromkeys(str(each.get("categories")) for each in codes))
        if len(meanings) > 1:
            raise ArgumentError(
                f"`{caller}` must get datasets whose codes mean the same, because they are "
                f"delivered as stored; one has the categories {meanings[0]}, another the "
                f"categories {meanings[1]}. Map them to common ones by .map."
            )
        check_same_meaning(storages)
        if difference := different_columns(storages):
            raise ArgumentError(
                f"`{caller}` must get datasets with the same columns in one order; {difference}"
            )
        # Rows are one after the other, whatever the order and the number of their axes.
        rows = sorted({*chain(*of_rows)})
        common_names([
            (*(name if name in own else "" for name in rows), *storage.dimensions)
            for storage, own in zip(storages, of_rows, strict=True)
        ])  # fmt: skip


def storages_of(dataset: Dataset) -> list[tuple[Storage, tuple[str, ...]]]:
    """Return each array with the names of its element's axes and of its rows' axes.

    Of parts one after the other, those of the first.
    """
    if type(dataset) is Concat:
        return storages_of(dataset.parts[0])
    if dataset._members:
        return [pair for part in dataset._members for pair in storages_of(part)]
    if not isinstance(dataset, View):
        stored = [each.storage() for each in dataset.sources()]
        return [(replace(each, dimensions=(), directions={}), ()) for each in stored]
    names, axes = tuple(name or "" for name in dataset.names), len(dataset.axes)
    columns = None
    if dataset.axes == (0,) and len(dataset.cuts) == 2:
        cut = dataset.cuts[1]
        places = [cut] if isinstance(cut, int) else cut
        columns = chosen_names(dataset.storage.columns, places)
    # Without directions: the user may have turned an axis.
    described = replace(dataset.storage, columns=columns, dimensions=names[axes:], directions={})
    return [(described, names[:axes])]
