"""What `oocdata stats` found: to print, to keep as JSON, to scale with."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.tools.lines import Report, labelled, table
from oocdata.tools.stats.moments import Summary
from oocdata.tools.stats.scaling import Scaling

__all__ = ["Stats"]

_MOST_CHANNELS = 16
_MOST_ROWS = 6


@dataclass(frozen=True, slots=True)
class RowsFound:
    """Rows with something to tell."""

    constant: int | None  # how many hold one value only; None where a row is a single number
    constant_shown: tuple[int, ...]  # the first hundred of them
    repeats: int | None  # how many are bit for bit like an earlier one; None if not looked for
    repeats_shown: tuple[tuple[int, int], ...]  # a hundred, each with the earliest row like it
    not_compared: str = ""  # why repeats were not looked for; empty if they were


@dataclass(frozen=True, slots=True, eq=False)
class Stats(Report):
    """Statistics of an array; what `oocdata.stats` returns.

    Examples
    --------
    >>> import oocdata as ooc
    >>> from oocdata.tools.stats import stats
    >>> found = stats(ooc.open(np.arange(24.0).reshape(4, 2, 3)), channels=1)
    >>> found.mean.tolist(), float(found.overall.mean)
    ([10.0, 13.0], 11.5)
    >>> found.normalization()["axis"]
    -2
    """

    name: str  #: the file and the dataset in it
    read: str  #: which rows, in words
    shape: tuple[int, ...]  #: ``(rows, *element)``
    dtype: str
    #: The axis of the channels in `shape`; the last one and one more for the real and the imaginary
    #: parts of complex numbers.
    axis: int | None
    axis_reason: str  #: why this one
    channels: Summary  #: of each channel; of a single one if there is no axis of channels
    overall: Summary  #: of all values, shape ``()``
    rows: RowsFound  #: rows that are constant or repeated, by their position in what was read
    packed: str = ""  #: how the file packs its numbers; the statistics are of those as stored

    @property
    def is_complex(self) -> bool:
        """Whether the channels are the real and the imaginary parts."""
        return self.axis == len(self.shape)

    @property
    def _each(self) -> Summary:
        return self.overall if self.axis is None else self.channels

    @property
    def mean(self) -> NDArray[np.float64]:
        """Of each channel, shape ``(channels,)``; ``()`` if there is no axis of channels."""
        return self._each.mean

    @property
    def variance(self) -> NDArray[np.float64]:
        """Of the population, shaped as `mean`."""
        return self._each.variance

    @property
    def std(self) -> NDArray[np.float64]:
        """The root of the variance, shaped as `mean`."""
        return self._each.std

    @property
    def min(self) -> NDArray[Any]:
        """The least finite value, shaped as `mean`."""
        return self._each.min

    @property
    def max(self) -> NDArray[Any]:
        """The greatest finite value, shaped as `mean`."""
        return self._each.max

    # Scaling -------------------------------------------------------------------------------------

    @property
    def standardize(self) -> Scaling:
        """The function ``(x - mean) / std``, for ``map``: float32 of mean 0 and deviation 1.

        A channel whose values are all equal is only moved to 0, not divided.

        Raises
        ------
        oocdata.errors.ArgumentError
            If a channel has no finite value.
        """
        self._check()
        axis, std = self._axis_from_end, self.std
        shape = () if axis is None else (-1,) + (1,) * (-axis - 1)
        mean = self.mean.reshape(shape)
        scale = (1.0 / np.where(std > np.finfo(np.float64).tiny, std, 1.0)).reshape(shape)
        return Scaling(mean, scale, np.zeros_like(mean), self._element, axis)

    def normalization(self) -> dict[str, Any]:
        """Return ``axis``, ``mean`` and ``variance`` for ``keras.layers.Normalization(**…)``.

        The axis counts from the end, so that the layer takes batches of rows and of windows. The
        variance of a channel whose values are all equal is given as 1: the layer would divide what
        differs from them later by 10⁻⁷.

        Raises
        ------
        oocdata.errors.ArgumentError
            If a channel has no finite value.
        """
        self._check()
        axis = self._axis_from_end
        mean, variance = self.mean, np.where(self.variance > 0, self.variance, 1.0)
        if axis is not None and not _keras_takes_one_number_a_channel():
            mean, variance = (one.reshape((-1,) + (1,) * (-axis - 1)) for one in (mean, variance))
        return {"axis": axis, "mean": mean, "variance": variance}

    @property
    def _element(self) -> tuple[int, ...]:
        """The shape of a row, of complex numbers taken apart."""
        return (*self.shape[1:], 2) if self.is_complex else self.shape[1:]

    @property
    def _axis_from_end(self) -> int | None:
        return None if self.axis is None else self.axis - 1 - len(self._element)

    def _check(self) -> None:
        wrong = np.flatnonzero(~np.isfinite(np.atleast_1d(self.variance)))
        if len(wrong):
            which = "the array" if self.axis is None else f"channel {wrong[0]}"
            raise ArgumentError(
                f"values that are scaled must have a finite mean and variance; those of {which} "
                "have none. Leave it out, or fill or scale it in `.map` first."
            )

    # Text ----------------------------------------------------------------------------------------

    def __str__(self) -> str:
        element = self.shape[1:]
        rows = self.rows
        constant = [f"{row:,}" for row in rows.constant_shown]
        pairs = [f"{row:,} (as {earlier:,})" for row, earlier in rows.repeats_shown]
        many = "s" * (self.shape[0] != 1)
        of = f"{self.shape[0]:,} " + (f"row{many} of {element}" if element else f"number{many}")
        guessed = len(self.shape) > 1 and self.axis_reason != "as asked" and not self.is_complex
        channels = f"{len(self.channels.count):,}, along axis {self.axis} ({self.axis_reason})"
        channels = f"none: {self.axis_reason}" if self.axis is None else channels
        found = self.overall
        values = f"{found.count:,}, all finite" if found.count else "none"
        if found.finite < found.count:
            values = (
                f"{found.count:,}: {found.nan:,} NaN, {found.inf:,} infinite; all that follows is "
                f"of the other {found.finite:,}"
            )
        fields = [
            ("array", f"{self.name}: {of} {self.dtype}"),
            ("read", self.read),
            ("packed", self.packed and f"{self.packed}: all here is of the numbers as stored"),
            ("channels", channels + ". Others: --channels AXIS, channels= in Python" * guessed),
            ("values", values),
            ("constant", self._rows_said(rows.constant, "of one value only", constant)),
            ("repeated", self._rows_said(rows.repeats, "bit for bit like an earlier one", pairs)),
        ]
        lines = [labelled(label, words) for label, words in fields if words]
        return "\n".join([*lines, "", self._table(), "", "std: of the population, divided by n."])

    def _rows_said(self, count: int | None, words: str, shown: list[str]) -> str:
        if count is None:
            return f"not looked for: {self.rows.not_compared}"
        if not count:
            return f"no row is {words}"
        some = ", ".join(shown[:_MOST_ROWS]) + (", …" if count > _MOST_ROWS else "")
        return f"{count:,} {'row is' if count == 1 else 'rows are'} {words}: {some}"

    def _table(self) -> str:
        damaged = bool(self.overall.finite != self.overall.count)
        rows = []
        if self.axis is not None:
            some = self.channels[:_MOST_CHANNELS]
            for place in range(len(some.count)):
                name = ("real", "imaginary")[place] if self.is_complex else str(place)
                rows.append(some[place].cells(name, damaged))
        rows.append(self.overall.cells("all", damaged))
        header = ["", "mean", "std", "min", "max", *(["not finite"] if damaged else [])]
        left = len(self.channels.count) - _MOST_CHANNELS
        more = f"\n… {left:,} more channels: --json, in Python .channels" if left > 0 else ""
        return table(header, rows) + more


def _keras_takes_one_number_a_channel() -> bool:
    """Return False before Keras 3.14, which broadcasts the mean from the last axis."""
    try:
        major, minor = version("keras").split(".")[:2]
    except PackageNotFoundError:
        return True
    return (int(major), int(minor)) >= (3, 14)
