"""Datasets one after the other.

Of a batch, each part reads its own elements straight into their places. Where parts have functions
of their own, or deliver arrays other than they read, each part makes a batch of its elements, and
these are copied together. Sparse and ragged rows pass through no function: those of all parts are
joined as they are read, into one `SparseBatch` or `RaggedBatch`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import ADDRESSABLE, AnyBlocks, joined, numbered
from oocdata.datasets.composed import (
    ComposedRequest,
    composed_requests,
    together,
    without_rows,
)
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import ArrayRequest
from oocdata.datasets.rows import StoredRows
from oocdata.datasets.spec import Batch, Spec, align, leaves, map_tree, spec_text
from oocdata.engines.buffers import empty
from oocdata.errors import ArgumentError
from oocdata.index import Selection, is_all, select, take
from oocdata.threads import cached_property

__all__ = ["Concat", "checked_parts", "concat"]


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Dataset):
    """Datasets one after the other; made by `oocdata.concat`.

    Attributes
    ----------
    parts : tuple of Dataset
        Of one spec, none empty unless all are.
    chosen : range or ndarray of int64
        Which of all their elements, in order.
    """

    parts: tuple[Dataset, ...]
    chosen: Selection

    _public: ClassVar[Sequence[str]] = ("lengths", "longest", "mask", "pad")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} elements of {len(self.parts)} datasets>"

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def _members(self) -> tuple[Dataset, ...]:
        return self.parts

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Elements up to the end of each part, shape (parts,)."""
        return np.cumsum([len(part) for part in self.parts])

    @property
    def spec(self) -> Spec:
        """That of every part."""
        return self.parts[0].spec

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """``(len,)``."""
        return (len(self),)

    # Which boxes ---------------------------------------------------------------------------------

    @cached_property
    def is_mapped(self) -> bool:
        """Whether the parts' batches are made one by one and copied together."""
        return not all(_delivers_what_it_reads(part, self.spec) for part in self.parts)

    def _shares(
        self, positions: NDArray[np.int64]
    ) -> list[tuple[Dataset, NDArray[np.int64], NDArray[np.int64]]]:
        """Return each part that elements are of, their places, and their positions in the part."""
        numbers = take(self.chosen, positions)
        owners = np.searchsorted(self.ends, numbers, side="right")
        order = np.argsort(owners, kind="stable")
        ordered = owners[order]
        firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
        shares = []
        for places in np.split(order, firsts[1:]):
            owner = int(owners[places[0]]) if len(places) else 0
            part = self.parts[owner]
            shares.append((part, places, numbers[places] - (int(self.ends[owner]) - len(part))))
        return shares

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[ArrayRequest, ...]:
        """Return what each array is made of; with functions, what those of each part are."""
        shares = self._shares(positions)
        asked = [part.requests(own, draw) for part, _, own in shares]
        where = [places for _, places, _ in shares]
        if not self.is_mapped:
            return tuple(together(requests, where) for requests in zip(*asked, strict=True))
        each = zip([part for part, _, _ in shares], asked, strict=True)
        composed = [composed_requests(part, requests, self.spec) for part, requests in each]
        joined = [together(requests, where) for requests in zip(*composed, strict=True)]
        return (*joined, *[without_rows(one) for requests in asked for one in requests])

    def assemble(
        self, arrays: Iterator[NDArray[Any]], positions: NDArray[np.int64], draw: Draw
    ) -> Batch:
        """Return the arrays as an element's; or the parts' batches, copied together."""
        if not self.is_mapped:
            return super().assemble(arrays, positions, draw)

        def room(leaf: Any) -> Any:
            dense = leaf.form == "dense"
            return empty((len(positions), *leaf.shape), leaf.dtype) if dense else next(arrays)

        made: Batch = map_tree(room, self.spec)
        for part, places, own in self._shares(positions):
            batch = align(part.assemble(arrays, own, draw.of(places)), self.spec)
            for one, out, leaf in zip(*map(leaves, (batch, made, self.spec)), strict=True):
                if leaf.form == "dense":
                    out[places] = one
        return made

    def array_bytes(self, elements: int) -> list[int]:
        """Return the bytes of each array of a batch; see `Dataset.array_bytes`."""
        if not self.is_composed:
            return super().array_bytes(elements)
        # At most the longest rows of every part; and no more than if all were as the longest is.
        each = [part.array_bytes(min(elements, len(part))) for part in self.parts]
        longest = [part.array_bytes(1) for part in self.parts]
        most = [elements * max(sizes) for sizes in zip(*longest, strict=True)]
        return list(map(min, map(sum, zip(*each, strict=True)), most))

    def input_bytes(self, elements: int) -> int:
        """Return the bytes that so many elements are read into first; see `Dataset.input_bytes`."""
        if not self.is_composed:
            return super().input_bytes(elements)
        # Twice: sparse rows as they are read, and in their places. A member of a mixture begins
        # anew, so that a row may come several times.
        times = [2 + elements // max(1, len(part)) for part in self.parts]
        each = zip(self.parts, times, strict=True)
        return 2 * max(most * part.input_bytes(-(-elements // most)) for part, most in each)

    def row_lengths(self) -> NDArray[np.int64] | None:
        """Return the length of each element; see `Dataset.row_lengths`."""
        found = [lengths for part in self.parts if (lengths := part.row_lengths()) is not None]
        return np.concatenate(found)[np.asarray(self.chosen, np.int64)] if found else None

    # Rows of unequal length ----------------------------------------------------------------------

    def pad(
        self, to: int | Sequence[int] | None = None, *, value: float = 0, cut: bool = False
    ) -> Self:
        """Return ragged rows at one length, filled at their ends; see `oocdata.Ragged.pad`.

        By default at the length of the longest row of all. Pad before rows are zipped with others.

        Raises
        ------
        oocdata.errors.ArgumentError
            If these are no ragged rows, rows are longer, or the dtype can't hold the value.

        Examples
        --------
        >>> import oocdata as ooc
        >>> one, other = ooc.ragged([1, 2, 3], lengths=[1, 2]), ooc.ragged([4, 5, 6], lengths=[3])
        >>> ooc.concat([one, other]).pad(value=-1).take([0, 2, 1]).tolist()
        [[1, -1, -1], [4, 5, 6], [2, 3, -1]]
        """
        length = self.longest if to is None else to
        return self._each(lambda rows: rows.pad(length, value=value, cut=cut))

    def mask(self, to: int | Sequence[int] | None = None, *, cut: bool = False) -> Self:
        """Return where the rows that `pad` gives hold values: bool, of shape ``(to,)`` a row."""
        length = self.longest if to is None else to
        return self._each(lambda rows: rows.mask(length, cut=cut))

    @property
    def lengths(self) -> Self:
        """How long each of ragged rows is, int64."""
        return self._each(lambda rows: rows.lengths)

    @property
    def longest(self) -> int:
        """The length of the longest of ragged rows."""
        return max(int(rows.longest) for rows in self._ragged())

    def _each(self, made: Callable[[Any], Dataset]) -> Self:
        """Return the same elements, of which something is made in each part."""
        return replace(self, parts=tuple(map(made, self._ragged())))

    def _ragged(self) -> tuple[Any, ...]:
        """Return the parts, or raise if their elements are no ragged rows."""
        if getattr(self.spec, "form", None) != "ragged":
            raise ArgumentError(
                "rows must be ragged, and not yet zipped with others, to be padded or to have "
                f"lengths; got {spec_text(self.spec)}. Pad first: "
                "ooc.zip(ooc.concat([one, other]).pad(40), labels)."
            )
        return self.parts

    def _as_sparse(self) -> Dataset | None:
        found = [sparse for part in self.parts if (sparse := part._as_sparse()) is not None]
        return replace(self, parts=tuple(found)) if len(found) == len(self.parts) else None

    @cached_property
    def blocks(self) -> AnyBlocks:
        """Those of the parts: chunks of unlike parts are unlike."""
        filled = [(part.blocks, len(part)) for part in self.parts if len(part)] or [
            (self.parts[0].blocks, 0)
        ]
        whole = joined(filled)
        if whole == ADDRESSABLE or is_all(self.chosen, int(self.ends[-1])):
            return whole
        return numbered(len(self), lambda positions: whole.of(take(self.chosen, positions)))

    # Other selections ----------------------------------------------------------------------------

    def _select(self, positions: Selection) -> Self:
        chosen = select(self.chosen, positions)
        found = self._by_parts(chosen)
        if found is None:
            return replace(self, chosen=chosen)
        parts = tuple(part for part in found if len(part)) or found[:1]
        return replace(self, parts=parts, chosen=range(len(chosen)))

    def _by_parts(self, chosen: Selection) -> tuple[Dataset, ...] | None:
        """Return what is chosen of each part; None where that is in another order."""
        if not _ascends(chosen):
            return None
        if isinstance(chosen, range) and len(chosen) < 2:  # whatever its step is
            chosen = range(chosen.start, chosen.start + len(chosen))
        found, start = [], 0
        for part, end in zip(self.parts, self.ends.tolist(), strict=True):
            own = _within(chosen, start, end)
            whole = isinstance(own, range) and own == range(len(part))
            found.append(part if whole else part._select(own))
            start = end
        return tuple(found)

    @property
    def _can_cut(self) -> list[bool]:
        return self.parts[0]._can_cut

    def _row_places(self, at: int) -> NDArray[np.int64]:
        return np.arange(sum(self._rows))

    @property
    def _rows(self) -> list[int]:
        """Rows of each part that have ids, where elements are split by them."""
        return [len(part._row_places(0)) for part in self.parts]

    def _made_of(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        own = np.split(rows, np.cumsum(self._rows)[:-1])
        made = [part._made_of(some) for part, some in zip(self.parts, own, strict=True)]
        return np.concatenate(made)[np.asarray(self.chosen, np.int64)]

    def _all_rows(self) -> list[StoredRows]:
        chosen, found = np.asarray(self.chosen, np.int64), []
        for part, end in zip(self.parts, self.ends.tolist(), strict=True):
            found += [one.at(chosen - (end - len(part))) for one in part._all_rows()]
        return found

    def _gap_positions(self, gap: int) -> int:
        if not _ascends(self.chosen) and not _ascends(self.chosen[::-1]):
            raise ArgumentError(
                "elements must be in ascending or descending order to be split without sharing a "
                "row; these were selected in another order. Split first, then select."
            )
        return super()._gap_positions(gap)

    @property
    def _together(self) -> int:
        each = {part._together for part in self.parts}
        if len(each) > 1 or any(len(part) % min(each) for part in self.parts):
            raise ArgumentError(
                "datasets of patches must be split before they are put one after the other, where "
                f"they have unlike numbers of patches in an element; these have {sorted(each)}."
            )
        return each.pop()


def concat(datasets: Sequence[Dataset]) -> Concat:
    """Put datasets one after the other.

    The datasets may be of any kind and storage: views, windows, zips, patches, functions, sparse
    and ragged rows. Arrays of one shape that lie in several files are also one array for
    ``ooc.open([path, …])``, of which windows can be made.

    Parameters
    ----------
    datasets : sequence of Dataset
        Of one spec: the same arrays in an element, each of one shape, dtype and form (dense,
        sparse, ragged, padded).

    Returns
    -------
    Concat
        Elements of the first dataset, then those of the second, … With ``shuffle=True`` they are
        shuffled all together, and chunks of each are decoded together.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there is no dataset, or one is a mixture; or if the specs differ, or what rows are
        padded with: the message names the first dataset that does.

    Notes
    -----
    Where a dataset has functions (`map`), its function gets its own elements of a batch, and the
    results are copied into the batch. One function for all belongs behind: ``concat(…).map(fn)``.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> both = ooc.concat([ooc.open(np.arange(3)), ooc.open(np.arange(10, 14))])
    >>> len(both), both.take([0, 6, 2, 3])
    (7, array([ 0, 13,  2, 10]))
    """
    parts = checked_parts("concat", datasets)
    filled = tuple(part for part in parts if len(part)) or parts[:1]
    return Concat(filled, range(sum(map(len, filled))))


def checked_parts(caller: str, datasets: Sequence[Dataset]) -> tuple[Dataset, ...]:
    """Return datasets of one spec, or raise what a caller's are not."""
    parts = tuple(datasets) if isinstance(datasets, Sequence) else ()
    if not parts or not all(isinstance(part, Dataset) for part in parts):
        raise ArgumentError(
            f"`{caller}` must get datasets; got {datasets!r}. Open arrays with ooc.open."
        )
    for number, part in enumerate(parts):
        if part.shares is not None:
            raise ArgumentError(
                f"`{caller}` must get datasets that are no mixtures; dataset {number} is one. Mix "
                "all its members at once, with the shares that they should have in all."
            )
        if part.spec != parts[0].spec:
            raise ArgumentError(
                f"`{caller}` must get datasets whose elements are alike; dataset 0 has "
                f"{spec_text(parts[0].spec)}, dataset {number} has "
                f"{spec_text(part.spec)}. {_to_make_alike(parts[0], part)}"
            )
        fillings = [_fillings(one) for one in (parts[0], part)]
        if fillings[0] != fillings[1]:
            raise ArgumentError(
                f"`{caller}` must get rows that are padded alike, because a batch has one length; "
                f"those of dataset 0 are padded with {fillings[0]}, those of dataset {number} with "
                f"{fillings[1]}. Give each `.pad` the same lengths and value."
            )
    return parts


def _delivers_what_it_reads(part: Dataset, spec: Spec) -> bool:
    """Return whether a part's requests are the arrays of a spec, in this order."""
    if part.is_mapped:
        return False
    asked = [
        None if isinstance(one, ComposedRequest) else (one.shape[1:], one.dtype)
        for one in part.requests(np.zeros(0, np.int64), Draw())
    ]
    delivered = [
        (leaf.shape, leaf.dtype) if leaf.form == "dense" else None for leaf in leaves(spec)
    ]
    # Dicts are equal in any order; their arrays are asked for in the order of the part's own.
    return spec_text(part.spec) == spec_text(spec) and asked == delivered


def _to_make_alike(one: Dataset, other: Dataset) -> str:
    """Return in words what makes the elements of two datasets alike."""
    forms = {leaf.form for part in (one, other) for leaf in leaves(part.spec)}
    if forms == {"ragged"}:
        return "`.astype` makes the dtypes of ragged rows alike; `.pad` makes dense rows of them."
    if "ragged" in forms:
        return "`.pad` makes dense rows of ragged ones."
    if forms == {"sparse"}:
        return "Use `.astype`, or cut the rows."
    if "sparse" in forms:
        return "`.sparse()` makes rows of a sparse matrix sparse: call it on all, or on none."
    return "Use `.astype`, cut the rows, or `.map` to make them alike."


def _fillings(part: Dataset) -> str:
    """Return in words how rows of unequal length are filled up; empty where none are."""
    asked = part.requests(np.zeros(0, np.int64), Draw()) if part.is_composed else ()
    filled = [one.filling for one in asked if isinstance(one, ComposedRequest)]
    return " and ".join(filter(None, filled))


def _ascends(chosen: Selection) -> bool:
    if isinstance(chosen, range):
        return chosen.step > 0 or len(chosen) < 2
    return bool((chosen[1:] > chosen[:-1]).all())


def _within(chosen: Selection, start: int, stop: int) -> Selection:
    """Return the ascending numbers that lie in a range, counted from its start."""
    some = chosen[bisect_left(chosen, start) : bisect_left(chosen, stop)]
    if isinstance(some, range):
        return range(some.start - start, some.stop - start, some.step)
    return some - start
