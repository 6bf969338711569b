"""Build and train the small next-frame model of the demonstration.

The network predicts the change from the last frame to the next one, and the weights of its last
layer start at zero. So training starts at the baseline, a copy of the last frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.loader import Loader
from oocdata.order import Order

if TYPE_CHECKING:
    import keras

_FILTERS = 24
_UNITS = 64
_SMALLEST_FRAME = 8
_LEARNING_RATE = 2e-3
_EVALUATED = 1024


@dataclass(frozen=True, slots=True)
class Subject:
    """An array to read and train on."""

    frames: View
    parts: Sequence[Dataset]  # to train, validate and test; elements x (inputs, …), y (1, …)
    batch_size: int
    seed: int
    shuffle: Order | bool = True

    @property
    def loader(self) -> Loader:
        """Shuffled batches of the training part."""
        return self.parts[0].batches(self.batch_size, shuffle=self.shuffle, seed=self.seed)


def build(inputs: int, element: tuple[int, ...], seed: int) -> keras.Model:
    """Return a compiled model from ``(inputs, *element)`` to ``(1, *element)``.

    It is convolutional over the last two axes if they are long enough for images, otherwise dense.
    """
    import keras

    keras.utils.set_random_seed(seed)
    x = keras.Input((inputs, *element))
    last = x[:, -1:]
    features = keras.ops.concatenate([last, x[:, 1:] - x[:, :-1]], axis=1)
    if len(element) >= 2 and min(element[-2:]) >= _SMALLEST_FRAME:
        change = _convolutional(features, element[-2], element[-1], prod(element[:-2]))
    else:
        change = keras.layers.Flatten()(features)
        for _ in range(2):
            change = keras.layers.Dense(_UNITS, activation="relu")(change)
        change = keras.layers.Dense(prod(element), kernel_initializer="zeros")(change)
    change = keras.layers.Reshape((1, *element))(change)
    model = keras.Model(x, last + change, name="next_frame")
    model.compile(keras.optimizers.Adam(_LEARNING_RATE), "mse")
    return model


def _convolutional(x: Any, height: int, width: int, channels: int) -> Any:
    from keras import layers, ops

    # Time and all other axes become channels.
    x = ops.moveaxis(layers.Reshape((-1, height, width))(x), 1, -1)
    x = layers.Conv2D(_FILTERS, 4, strides=2, padding="same", activation="relu")(x)
    for _ in range(2):
        x = layers.Conv2D(_FILTERS, 3, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(channels, 4, strides=2, padding="same", kernel_initializer="zeros")(
        x
    )
    return ops.moveaxis(x[:, :height, :width], -1, 1)  # odd sides grew by 1


def train(
    subject: Subject, epochs: int, seconds: float, advance: Callable[[int], None]
) -> dict[str, float]:
    """Train a new model with ``fit`` until time is over, and evaluate it.

    Return the steps, elements a second and mean squared errors: of the model in validation and
    test, and of the last frame as a forecast of the next one.
    """
    import keras

    spec: Any = subject.loader.spec
    inputs, *element = spec[0].shape[1:]
    model, size = build(inputs, tuple(element), subject.seed), subject.batch_size
    val, test = (part[:_EVALUATED].batches(size).to_tf() for part in subject.parts[1:])
    copy_loss = model.evaluate(test, verbose=0)  # the untrained model copies the last frame
    ends: list[float] = []  # of steps; the first step compiles, and is not counted

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
    return {
        "steps": len(ends),
        "trained_per_second": rate * size,
        "val_loss": history.history["val_loss"][-1],
        "test_loss": model.evaluate(test, verbose=0),
        "copy_loss": copy_loss,
    }
