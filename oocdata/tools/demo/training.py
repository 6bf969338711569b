"""The demonstration's model: small, and a copy of the last frame before it has learned anything.

The network gives the change from the last frame to the next one, and its last layer starts with
zero weights. So training begins at the baseline, and whatever is learned is gained over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.axes import row_axes
from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.datasets.zip import zip as zip_datasets
from oocdata.loader import Loader
from oocdata.order import Order
from oocdata.tools.preview import preview

if TYPE_CHECKING:
    import keras

__all__ = ["Subject", "build", "draw", "train"]

_FILTERS = 24
_UNITS = 64
_SMALLEST_FRAME = 8
_LEARNING_RATE = 2e-3
_EVALUATED = 1024
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Subject:
    """An array to read and train on."""

    frames: View
    parts: tuple[Windows, ...]  # to train, validate and test; elements x (inputs, …), y (1, …)
    batch_size: int
    seed: int
    shuffle: Order | bool = True
    scale: Callable[..., Any] | None = None  # makes x and y fit for a model

    def batches(self, part: Windows, **order: Any) -> Loader:
        """Return batches as the model gets them."""
        dataset = part if self.scale is None else part.map(self.scale)
        return dataset.batches(self.batch_size, **order)

    @property
    def loader(self) -> Loader:
        """The training part's batches, shuffled."""
        return self.batches(self.parts[0], shuffle=self.shuffle, seed=self.seed)


def build(inputs: int, element: tuple[int, ...], letters: str, seed: int) -> keras.Model:
    """Return a compiled model from ``(inputs, *element)`` to ``(1, *element)``.

    It is convolutional for images and dense for rows; `letters` are the element's axes as
    `oocdata.axes` tells them.
    """
    import keras

    keras.utils.set_random_seed(seed)
    x = keras.Input((inputs, *element))
    last = x[:, -1:]
    # What it sees is the last frame, and how that came about.
    seen = keras.ops.concatenate([last, x[:, 1:] - x[:, :-1]], axis=1)
    sides = [length for length, letter in zip(element, letters, strict=True) if letter in "HW"]
    if len(sides) == 2 and min(sides) >= _SMALLEST_FRAME:
        found = _convolutional(seen, inputs, element, letters)
    else:
        found = keras.layers.Flatten()(seen)
        for _ in range(2):
            found = keras.layers.Dense(_UNITS, activation="relu")(found)
        found = keras.layers.Dense(prod(element), kernel_initializer="zeros")(found)
    found = keras.layers.Reshape((1, *element))(found)
    model = keras.Model(x, last + found, name="next_frame")
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


def train(
    subject: Subject, epochs: int, seconds: float, advance: Callable[[int], None]
) -> tuple[keras.Model, dict[str, float]]:
    """Train a new model with ``fit`` until the time is up, and evaluate it.

    Returns the model, and of training the steps, the elements a second, and the losses: mean
    squared errors in validation and test, and that of the last frame as a forecast of the next one.
    """
    import keras

    spec: Any = subject.loader.spec
    inputs, *element = spec[0].shape[1:]
    letters = row_axes(subject.frames).letters
    model = build(inputs, tuple(element), letters, subject.seed)
    val, test = (subject.batches(part[:_EVALUATED]).to_tf() for part in subject.parts[1:])
    copy_loss = model.evaluate(test, verbose=0)  # it has learned nothing: it copies
    ends: list[float] = []  # of steps; the first compiles, and is not counted

    def end_step(batch: int, logs: Any) -> None:
        ends.append(perf_counter())
        model.stop_training = ends[-1] - ends[0] > seconds
        advance(1)

    history = model.fit(
        subject.loader.to_tf(),
        validation_data=val,
        epochs=epochs,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=end_step)],
        shuffle=False,
        verbose=0,
    )
    rate = (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 else 0.0
    return model, {
        "steps": len(ends),
        "trained_per_second": rate * subject.batch_size,
        "val_loss": history.history["val_loss"][-1],
        "test_loss": model.evaluate(test, verbose=0),
        "copy_loss": copy_loss,
    }


def draw(path: Path, subject: Subject, model: keras.Model) -> None:
    """Write pictures of test elements: what the model saw last, what came, what it said."""
    places = np.linspace(0, len(subject.parts[2]) - 1, _SHOWN).astype(np.int64)
    batch: Any = subject.batches(subject.parts[2]).dataset.take(np.unique(places))
    x, y = batch
    predicted = model.predict(x, verbose=0)
    shown = {
        "last frame": x[:, -1],
        "next frame": y[:, 0],
        "prediction": predicted[:, 0],
        "its error": predicted[:, 0] - y[:, 0],
    }
    views = {name: open_view(frames) for name, frames in shown.items()}
    preview(zip_datasets(views)).save(path)
