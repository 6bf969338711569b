"""The demonstration's model: small, and a copy of the last frame before it has learned anything.

The network gives the change from the last frame to the next one, and its last layer starts with
zero weights. So training begins at the baseline, and whatever is learned is gained over it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import keras

__all__ = ["build"]

_FILTERS = 24
_UNITS = 64
_SMALLEST_FRAME = 8
_LEARNING_RATE = 2e-3


def build(
    inputs: int, element: tuple[int, ...], letters: str, seed: int, change: ArrayLike = 1.0
) -> keras.Model:
    """Return a compiled model from ``(inputs, *element)`` to ``(1, *element)``.

    It is convolutional for images and dense for rows; `letters` are the element's axes as
    `oocdata.axes` tells them, `change` is by how much a frame usually differs from the one before.
    """
    import keras

    keras.utils.set_random_seed(seed)
    unit = np.asarray(change, np.float32)
    x = keras.Input((inputs, *element))
    last = x[:, -1:]
    # What it sees is the last frame, and how that came about, in units of the usual change.
    seen = keras.ops.concatenate([last, (x[:, 1:] - x[:, :-1]) / unit], axis=1)
    sides = [length for length, letter in zip(element, letters, strict=True) if letter in "HW"]
    is_image = len(sides) == 2 and min(sides) >= _SMALLEST_FRAME
    network = _convolutional if is_image else _dense
    found = keras.layers.Reshape((1, *element))(network(seen, inputs, element, letters))
    model = keras.Model(x, last + found * unit, name="next_frame")
    model.compile(keras.optimizers.Adam(_LEARNING_RATE), "mse")
    return model


def _convolutional(x: Any, inputs: int, element: tuple[int, ...], letters: str) -> Any:
    from keras import layers, ops

    across = [letters.index("H"), letters.index("W")]
    height, width = (element[axis] for axis in across)
    rest = [length for axis, length in enumerate(element) if axis not in across]
    x = ops.moveaxis(x, [axis + 2 for axis in across], [1, 2])  # behind the batch; time is a rest
    x = layers.Reshape((height, width, inputs * prod(rest)))(x)
    x = layers.Conv2D(_FILTERS, 4, strides=2, padding="same", activation="relu")(x)
    for _ in range(2):
        x = layers.Conv2D(_FILTERS, 3, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(
        prod(rest), 4, strides=2, padding="same", kernel_initializer="zeros"
    )(x)
    x = layers.Reshape((height, width, *rest))(x[:, :height, :width])  # odd sides came out even
    return ops.moveaxis(x, [1, 2], [axis + 1 for axis in across])


def _dense(x: Any, inputs: int, element: tuple[int, ...], letters: str) -> Any:
    from keras import layers

    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dense(_UNITS, activation="relu")(x)
    return layers.Dense(prod(element), kernel_initializer="zeros")(x)
