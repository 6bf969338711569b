"""Scale batches by known statistics, with a function for `map` that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError

__all__ = ["Scaling"]

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
        kinds = {(array.dtype, array.shape[array.ndim - len(self.element) :]) for array in checked}
        if len(kinds) > 1:
            raise ArgumentError(
                f"arrays scaled in one call must be of the same rows; got {_describe(checked)}. "
                f"{_HINT}"
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
                f"got {_describe([values])}. {_HINT}"
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


def _describe(arrays: list[NDArray[Any]]) -> str:
    return " and ".join(f"{array.dtype} of shape {array.shape}" for array in arrays)
