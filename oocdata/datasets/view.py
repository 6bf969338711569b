"""Views: chosen rows of a source, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from oocdata.datasets.dataset import Blocks, Dataset, Draw, Request
from oocdata.datasets.spec import ArraySpec, Batch
from oocdata.datasets.windows import Runs, Windows, episode_runs, part_runs
from oocdata.errors import ArgumentError
from oocdata.index import Selection, check_distinct, compose_cuts, expand_key, select, take
from oocdata.sources.adapt import Converted, Rows, as_dtype, cut_source, layout_of, part_starts
from oocdata.sources.source import Source

__all__ = ["View"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class View(Dataset):
    """Chosen rows of one source: what `oocdata.open` gives. Slicing makes Views and reads nothing.

    Attributes
    ----------
    source : Source
    rows : range or ndarray of int64
        The rows in storage, in order.

    Examples
    --------
    >>> import oocdata as ooc
    >>> view = ooc.open(np.arange(60).reshape(10, 2, 3))
    >>> view
    <View: 10 rows of (2, 3) int64>
    >>> view[7]
    array([[42, 43, 44],
           [45, 46, 47]])
    >>> view[::2, 0, ::-1].take([1])
    array([[14, 13, 12]])
    """

    source: Source
    rows: Selection

    @classmethod
    def of(cls, source: Source) -> View:
        """Return the view of every row."""
        if isinstance(source, Rows):
            return cls(source.source, source.rows)
        return cls(source, range(source.shape[0]))

    def __repr__(self) -> str:
        return f"<View: {len(self)} rows of {self.element} {self.dtype}>"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def element(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.source.shape[1:]

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return (len(self), *self.element)

    @property
    def ndim(self) -> int:
        """How many axes, with the row axis."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """In native byte order."""
        return self.source.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that all rows would take in memory."""
        return len(self) * self.spec.nbytes

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype of one row."""
        return ArraySpec(self.element, self.dtype)

    @property
    def blocks(self) -> Blocks:
        """Positions of one storage chunk."""
        chunk = self.source.chunk_rows
        if chunk <= 1 or len(self) == 0:
            return Blocks(1, 1)
        if not isinstance(self.rows, range):
            # Neighbours of a sorted selection are mostly in one chunk; of an unsorted one they are
            # not.
            ascending = bool(np.all(np.diff(self.rows) > 0))
            return Blocks(chunk, chunk) if ascending else Blocks(1, 1)
        step = self.rows.step
        within = self.rows.start % chunk
        left = (within if step < 0 else chunk - 1 - within) // abs(step) + 1
        length = max(1, chunk // abs(step))
        return Blocks(length, min(left, length))

    def requests(self, positions: NDArray[np.int64]) -> tuple[Request, ...]:
        """Return the rows at positions."""
        return (Request(self.source, take(self.rows, positions)),)

    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        """Return the one array."""
        return next(arrays)

    def gap_positions(self, gap: int) -> int:
        """Return `gap`, where no row is chosen twice."""
        check_distinct(self.rows)
        return gap

    def select(self, positions: Selection) -> Self:
        """Return the view of the rows at checked positions."""
        return replace(self, rows=select(self.rows, positions))

    def take(self, positions: ArrayLike) -> NDArray[Any]:
        """Read the rows at positions, shape ``(n, *element)``; see `Dataset.take`."""
        # Not super(): a slotted dataclass is a second class, which the name here does not mean.
        rows: NDArray[Any] = Dataset.take(self, positions)  # type: ignore[assignment]
        return rows

    def __getitem__(self, key: Any) -> Any:
        """Read one row (an int first), or select and cut without reading; see `Dataset`."""
        row, cuts = expand_key(key, self.ndim)
        view = self._cut(cuts)
        return Dataset.__getitem__(view, row)

    def _cut(self, cuts: Sequence[int | slice]) -> View:
        if all(isinstance(cut, slice) and cut == slice(None) for cut in cuts):
            return self
        full = tuple(range(length) for length in self.element)
        return replace(self, source=cut_source(self.source, compose_cuts(full, cuts)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Read every row; ``np.asarray(view)``."""
        if copy is False:
            raise ArgumentError(
                "an array of a view must be a copy, because it is read; got copy=False."
            )
        view = self if dtype is None else self.astype(dtype)
        return view.take(np.arange(len(view)))

    def astype(self, dtype: DTypeLike) -> View:
        """Return the view in another dtype, converted in the one write that fills the batch.

        Raises
        ------
        oocdata.errors.UnsupportedDtypeError
            If batches can't hold the dtype.
        oocdata.errors.ArgumentError
            For complex to real, which would lose the imaginary part.
        """
        wanted = as_dtype(dtype).newbyteorder("=")
        if self.dtype.kind == "c" and wanted.kind != "c":
            raise ArgumentError(
                f"`dtype` must be complex for complex rows; got {wanted}. Choose a part in `.map`."
            )
        if wanted == self.dtype:
            return self
        return replace(self, source=Converted(self.source, wanted))

    def windows(
        self,
        inputs: int,
        targets: int = 0,
        *,
        shift: int = 1,
        dilation: int = 1,
        horizon: int = 1,
        episodes: ArrayLike | str | None = None,
    ) -> Windows:
        """Return runs of rows as elements: ``x``, or ``(x, y)`` with targets.

        Parameters
        ----------
        inputs : int
            Rows in ``x``, shape ``(inputs, *element)``.
        targets : int
            Rows in ``y``, shape ``(targets, *element)``; 0 for elements of ``x`` alone.
        shift : int
            Rows from one element's start to the next.
        dilation : int
            Rows from one row of a window to the next.
        horizon : int
            Rows from the last input to the first target.
        episodes : array_like of int, shape (n,), or "files", optional
            Lengths of the episodes, which sum to the number of rows, or an id for each row (ids
            that repeat only side by side); "files": each file of a list or glob is one. No window
            crosses.

        Returns
        -------
        Windows

        Raises
        ------
        oocdata.errors.EmptyError
            If no window fits.
        oocdata.errors.ArgumentError
            If the episodes don't add up to the rows.

        Examples
        --------
        >>> import oocdata as ooc
        >>> x, y = ooc.open(np.arange(10)).windows(3, 1, horizon=2)[0]
        >>> x, y
        (array([0, 1, 2]), array([4]))
        """
        return self._windows(inputs, targets, shift, dilation, horizon, episodes, time_axis=True)

    def next_frame(self, horizon: int = 1, episodes: ArrayLike | str | None = None) -> Windows:
        """Return pairs ``(row i, row i + horizon)`` without a time axis: what a CNN wants.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.arange(10)).next_frame()[3]
        (np.int64(3), np.int64(4))
        """
        return self._windows(1, 1, 1, 1, horizon, episodes, time_axis=False)

    def _windows(
        self,
        inputs: int,
        targets: int,
        shift: int,
        dilation: int,
        horizon: int,
        episodes: ArrayLike | str | None,
        *,
        time_axis: bool,
    ) -> Windows:
        runs = self._runs(episodes)
        return Windows.of(
            self, inputs, targets, shift, dilation, horizon, runs, time_axis=time_axis
        )

    def _runs(self, episodes: ArrayLike | str | None) -> Runs:
        if not isinstance(episodes, str):
            return episode_runs(episodes, len(self))
        if episodes != "files":
            raise ArgumentError(
                f"`episodes` must be lengths, ids or the word 'files'; got {episodes!r}."
            )
        return part_runs(part_starts(self.source), self.rows)

    def __str__(self) -> str:
        return f"{self!r} from {layout_of(self.source).path or 'memory'}"
