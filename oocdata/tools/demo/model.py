"""The demonstration's models: small, and no worse than copying the last frame before they learn.

What a model adds to the last frame is its last layer's output, whose weights start at zero.
Training then begins at the baseline, and whatever is learned is gained over it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import MissingDependencyError

if TYPE_CHECKING:
    import keras

__all__ = ["build", "copy_last", "import_tensorflow", "is_frame", "make_progress"]

_FILTERS = 24
_UNITS = 64
_SMALLEST_FRAME = 8
_LEARNING_RATE = 2e-3


def import_tensorflow(needed: str = "the demonstration trains") -> Any:
    """Import TensorFlow on the CPU, without the lines it writes to standard error.

    Parameters
    ----------
    needed : str
        What it is needed for, should it be missing.

    Returns
    -------
    module
        ``tensorflow``

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If it can't be imported.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    # What C++ code writes before its log level is set can only be caught at the descriptor.
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow as tf

            tf.constant(0)  # the devices are looked for, and complained about, only now
        except ImportError as error:
            raise MissingDependencyError(
                f"{needed} with TensorFlow; {error}. Install it: pip install tensorflow."
            ) from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    return tf


def is_frame(element: tuple[int, ...]) -> bool:
    """Return whether an element is taken as an image or several, not as a row of numbers.

    Examples
    --------
    >>> is_frame((64, 64)), is_frame((3, 50, 50)), is_frame((7, 3)), is_frame((100,))
    (True, True, False, False)
    """
    return len(element) >= 2 and min(sorted(element)[-2:]) >= _SMALLEST_FRAME


def channels_last(element: tuple[int, ...]) -> bool:
    """Return whether an image's channels come last: (height, width, few).

    Examples
    --------
    >>> channels_last((64, 48, 3)), channels_last((3, 64, 48)), channels_last((64, 48))
    (True, False, False)
    """
    return len(element) == 3 and element[-1] < min(element[:2])


def build(inputs: int, element: tuple[int, ...], seed: int) -> keras.Model:
    """Return a compiled model from ``(inputs, *element)`` to ``(1, *element)``.

    Parameters
    ----------
    inputs : int
        Frames that it sees.
    element : tuple of int
        Shape of a frame: ``(height, width)``, ``(channels, height, width)``,
        ``(height, width, channels)``, or a row of numbers.
    seed : int

    Returns
    -------
    keras.Model
        Convolutional for images, dense for rows. The loss is the mean squared error.
    """
    import keras

    keras.utils.set_random_seed(seed)
    x = keras.Input((inputs, *element))
    last = keras.layers.Cropping1D((inputs - 1, 0))(keras.layers.Reshape((inputs, -1))(x))
    change = (_convolutional if is_frame(element) else _dense)(x, inputs, element)
    flat = keras.layers.Reshape((1, prod(element)))(change)
    y = keras.layers.Reshape((1, *element))(keras.layers.Add()([last, flat]))
    model = keras.Model(x, y, name="next_frame")
    model.compile(keras.optimizers.Adam(_LEARNING_RATE), "mse")
    return model


def _convolutional(x: Any, inputs: int, element: tuple[int, ...]) -> Any:
    from keras import layers

    last = channels_last(element)
    height, width = element[:2] if last else element[-2:]
    channels = element[-1] if last else prod(element[:-2])
    if last:
        x = layers.Permute((2, 3, 1, 4))(x)
        x = layers.Reshape((height, width, inputs * channels))(x)
    else:
        x = layers.Reshape((inputs * channels, height, width))(x)
        x = layers.Permute((2, 3, 1))(x)
    odd = ((0, height % 2), (0, width % 2))
    x = layers.ZeroPadding2D(odd)(x)
    x = layers.Conv2D(_FILTERS, 4, strides=2, padding="same", activation="relu")(x)
    for _ in range(2):
        x = layers.Conv2D(_FILTERS, 3, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(channels, 4, strides=2, padding="same", kernel_initializer="zeros")(
        x
    )
    x = layers.Cropping2D(odd)(x)
    return x if last else layers.Permute((3, 1, 2))(x)


def _dense(x: Any, inputs: int, element: tuple[int, ...]) -> Any:
    from keras import layers

    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dense(_UNITS, activation="relu")(x)
    return layers.Dense(prod(element), kernel_initializer="zeros")(x)


def copy_last(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the mean squared error of the last input frame as a forecast of the target.

    Examples
    --------
    >>> copy_last(np.array([[[0.0], [1.0]]]), np.array([[[3.0]]]))
    4.0
    """
    return float(np.mean((y[:, -1].astype(np.float64) - x[:, -1].astype(np.float64)) ** 2))


def make_progress(seconds: float, advance: Callable[[int], None]) -> Any:
    """Return a Keras callback that counts steps and ends training after a time.

    Parameters
    ----------
    seconds : float
        Training ends after the step in which this much time has gone by.
    advance : callable
        Called with 1 after each step.

    Returns
    -------
    keras.callbacks.Callback
        With ``steps``, and ``rate`` in steps a second: of all but the first few, in which
        TensorFlow compiles.
    """
    import keras

    class Progress(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        """Counts steps; ends training in time."""

        warm_up = 3

        def __init__(self) -> None:
            super().__init__()
            self.steps = 0
            self.stopped_early = False
            self._begun = self._warm = self._last = perf_counter()

        @property
        def rate(self) -> float:
            """Steps a second."""
            return max(0, self.steps - self.warm_up) / max(self._last - self._warm, 1e-9)

        def on_train_begin(self, logs: Any = None) -> None:
            """Start the clock."""
            self._begun = self._warm = self._last = perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Count the step."""
            self.steps += 1
            self._last = perf_counter()
            if self.steps <= self.warm_up:
                self._warm = self._last
            if self._last - self._begun > seconds:
                self.stopped_early = True
                self.model.stop_training = True
            advance(1)

    return Progress()
