"""Define the result of `oocdata.stats`: to print, to convert to JSON, or to scale batches with."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.tools.report import Report, fields_text, rows_text, table
from oocdata.tools.stats.moments import Summary

_MOST_CHANNELS = 16
_MOST_ROWS = 6
_AS_STORED = "statistics are of the numbers as stored; decode=True decodes them"


@dataclass(frozen=True, slots=True)
class NotableRows:
    """Constant rows, and rows that repeat an earlier row."""

    constant: int | None  # count of rows with a single value; None where a row is one number
    constant_shown: tuple[int, ...]  # the first hundred
    repeats: int | None  # count of rows with the bits of an earlier row; None if not looked for
    repeats_shown: tuple[tuple[int, int], ...]  # the first hundred, each with the row it repeats
    not_compared: str = ""  # why repeats were not looked for; empty if they were


@dataclass(frozen=True, slots=True, eq=False)
class Stats(Report):
    """Statistics of an array; the result of `oocdata.stats`.

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
    shape: tuple[int, ...]  #: ``(rows, *element)``
    dtype: str
    axis: int | None  #: the axis of the channels in `shape`
    axis_reason: str  #: why this axis
    channels: Summary  #: of each channel; without an axis of channels, of a single one
    overall: Summary  #: of all values, shape ``()``
    rows: NotableRows  #: constant and repeated rows, by their position in the dataset
    packed: str = ""  #: how the file packs its numbers; the statistics are of the packed numbers

    @property
    def _summary(self) -> Summary:
        return self.overall if self.axis is None else self.channels

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of each channel, shape ``(channels,)``; ``()`` without an axis of channels."""
        return self._summary.mean

    @property
    def variance(self) -> NDArray[np.float64]:
        """The population variance, shaped as `mean`."""
        return self._summary.variance

    @property
    def std(self) -> NDArray[np.float64]:
        """The square root of the variance, shaped as `mean`."""
        return self._summary.std

    @property
    def min(self) -> NDArray[Any]:
        """The least finite value, shaped as `mean`."""
        return self._summary.min

    @property
    def max(self) -> NDArray[Any]:
        """The greatest finite value, shaped as `mean`."""
        return self._summary.max

    # Scaling -------------------------------------------------------------------------------------

    @property
    def standardize(self) -> Scaling:
        """The function ``(x - mean) / std``, for ``map``: float32 of mean 0 and deviation 1.

        A channel of equal values is only shifted to 0, not divided.

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
        return Scaling(mean, scale, np.zeros_like(mean), self.shape[1:], axis)

    def normalization(self) -> dict[str, Any]:
        """Return ``axis``, ``mean`` and ``variance`` for ``keras.layers.Normalization(**…)``.

        The axis counts from the end, so that the layer works on batches of rows and of windows. A
        channel of equal values gets variance 1: with 0, the layer would divide values that differ
        later by 10⁻⁷.

        Raises
        ------
        oocdata.errors.ArgumentError
            If a channel has no finite value.
        """
        self._check()
        axis = self._axis_from_end
        mean, variance = self.mean, np.where(self.variance > 0, self.variance, 1.0)
        if axis is not None and not _keras_takes_one_number_a_channel():
            shape = (-1,) + (1,) * (-axis - 1)
            mean, variance = mean.reshape(shape), variance.reshape(shape)
        return {"axis": axis, "mean": mean, "variance": variance}

    @property
    def _axis_from_end(self) -> int | None:
        return None if self.axis is None else self.axis - len(self.shape)

    def _check(self) -> None:
        not_finite = np.flatnonzero(~np.isfinite(np.atleast_1d(self.variance)))
        if len(not_finite):
            which = "the array" if self.axis is None else f"channel {not_finite[0]}"
            raise ArgumentError(
                f"scaled values must have a finite mean and variance; those of {which} have none. "
                "Leave it out, or fill or scale it in `.map` first."
            )

    # Text ----------------------------------------------------------------------------------------

    def __str__(self) -> str:
        rows = self.rows
        constant = [f"{row:,}" for row in rows.constant_shown]
        pairs = [f"{row:,} (as {earlier:,})" for row, earlier in rows.repeats_shown]
        guessed = len(self.shape) > 1 and self.axis_reason != "as given"
        channels = f"{len(self.channels.count):,}, along axis {self.axis} ({self.axis_reason})"
        channels = f"none: {self.axis_reason}" if self.axis is None else channels
        overall = self.overall
        values = f"{overall.count:,}, all finite" if overall.count else "none"
        if overall.finite < overall.count:
            values = (
                f"{overall.count:,}: {overall.nan:,} NaN, {overall.inf:,} infinite; the "
                f"statistics below are of the other {overall.finite:,}"
            )
        fields = [
            ("array", f"{self.name}: {rows_text(self.shape, self.dtype)}"),
            ("packed", self.packed and f"{self.packed}: {_AS_STORED}"),
            ("channels", channels + ". To change: --channels AXIS (channels= in Python)" * guessed),
            ("values", values),
            ("constant", self._rows_text(rows.constant, "constant", constant)),
            (
                "repeated",
                self._rows_text(rows.repeats, "bit for bit the same as an earlier row", pairs),
            ),
        ]
        divisor = "std is that of the population (divided by n)."
        return "\n\n".join([fields_text(fields), self._table(), divisor])

    def _rows_text(self, count: int | None, property_text: str, rows: list[str]) -> str:
        if count is None:
            return f"not looked for: {self.rows.not_compared}"
        if not count:
            return f"no row is {property_text}"
        some = ", ".join(rows[:_MOST_ROWS]) + (", …" if count > _MOST_ROWS else "")
        return f"{count:,} {'row is' if count == 1 else 'rows are'} {property_text}: {some}"

    def _table(self) -> str:
        damaged = bool(self.overall.finite != self.overall.count)
        shown = 0 if self.axis is None else min(_MOST_CHANNELS, len(self.channels.count))
        rows = [self.channels[number].cells(str(number), damaged) for number in range(shown)]
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


_PIECE = 2**15
"""Values processed at a time: a quarter of a MiB as float64, which stays in the cache."""


_HINT = "Scale the array that has these statistics: `.map(lambda x, y: (scaling(x), y))`."


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """``(x - before) * scale + after``, in float64 and rounded once; made by `Stats`.

    Call it on a batch, or give it to `map`. It can be pickled, and sent to workers. Any axes may
    precede the axes of a row: a batch, or a batch of windows.

    Examples
    --------
    >>> import oocdata as ooc
    >>> from oocdata.tools.stats import stats
    >>> frames = ooc.open(np.arange(24).reshape(4, 2, 3))
    >>> found = stats(frames, channels=1)
    >>> scaled = frames.map(found.standardize)
    >>> scaled[0]
    array([[-1.4797909, -1.3318118, -1.1838326],
           [-1.4797909, -1.3318118, -1.1838326]], dtype=float32)
    >>> found.standardize.inverse(scaled.take([3])).round()
    array([[[18., 19., 20.],
            [21., 22., 23.]]], dtype=float32)
    """

    # One number per channel, followed by axes of length 1, so that they broadcast against a row.
    before: NDArray[np.float64]
    scale: NDArray[np.float64]
    after: NDArray[np.float64]
    element: tuple[int, ...]  # the shape of a row
    axis: int | None  # of the channels, counted from the end
    dtype: str = "float32"  # of the result; change it with dataclasses.replace

    @property
    def inverse(self) -> Scaling:
        """The scaling that undoes this one."""
        return Scaling(
            self.after, 1.0 / self.scale, self.before, self.element, self.axis, self.dtype
        )

    def __call__(self, *arrays: Any) -> Any:
        """Scale a batch, or each of several batches of the same rows (pairs, windows).

        Parameters
        ----------
        *arrays : array_like, shape (…, *element)
            Axes of a row other than the channels may have other lengths, as in a crop.

        Returns
        -------
        ndarray, or tuple of ndarray
            New arrays of the same shapes.

        Raises
        ------
        oocdata.errors.ArgumentError
            If an array does not consist of such rows; or if several arrays differ in dtype or in
            the shape of rows, as images and labels do (scale the images only).
        """
        checked = [self._checked(array) for array in arrays]
        rows = [(array.dtype, array.shape[array.ndim - len(self.element) :]) for array in checked]
        if len(set(rows)) > 1:
            kinds = " and ".join(f"{dtype} of shape {shape}" for dtype, shape in rows)
            raise ArgumentError(
                f"arrays scaled in one call must be of the same rows; got {kinds}. {_HINT}"
            )
        scaled = tuple(self._scaled(array) for array in checked)
        return scaled if len(scaled) != 1 else scaled[0]

    def _checked(self, array: Any) -> NDArray[Any]:
        values = np.asarray(array)
        unlike = values.dtype.kind not in "biuf" or values.ndim < len(self.element)
        if unlike or (self.axis and values.shape[self.axis] != self.element[self.axis]):
            channels = "" if self.axis is None else f" with channels on axis {self.axis}"
            raise ArgumentError(
                f"a scaled batch must consist of rows of {self.element} real numbers{channels}; "
                f"got {values.dtype} of shape {values.shape}. {_HINT}"
            )
        return values

    def _scaled(self, values: NDArray[Any]) -> NDArray[Any]:
        before, scale, after = self.before, self.scale, self.after
        shape = values.shape
        if self.axis == -1 and len(self.element) > 1:
            # A row of pixels at a time: NumPy is slow where the last axis has three values.
            values = values.reshape(*shape[:-2], shape[-2] * shape[-1])
            before, scale, after = (np.tile(term, shape[-2]) for term in (before, scale, after))
        out = np.empty(values.shape, self.dtype)
        step = max(1, _PIECE * shape[0] // max(1, values.size)) if shape else 1
        with np.errstate(invalid="ignore"):  # inf stays inf, and NaN stays NaN
            for start in range(0, shape[0] if shape else 1, step):
                rows = slice(start, start + step) if shape else ()
                part = np.subtract(values[rows], before, dtype=np.float64)
                part *= scale
                part += after
                out[rows] = part
        return out.reshape(shape)
