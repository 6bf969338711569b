"""What the demonstration measures of one array: reading, the usual way, training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.axes import row_axes
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import Request
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import SourceError
from oocdata.formats.opening import format_of
from oocdata.loader import Loader
from oocdata.order import Order
from oocdata.tools.demo.data import checksums
from oocdata.tools.demo.memory import growth
from oocdata.tools.demo.model import build

if TYPE_CHECKING:
    import keras

__all__ = ["Advance", "Model", "Subject", "Training", "Usual", "check_frames", "read", "usual_way"]

Advance = Callable[[int], None]

_COMPARED = 8
_MOST_USUAL = 4096
_EVALUATED = 1024


@dataclass(frozen=True, slots=True)
class Subject:
    """An array to read and train on.

    Attributes
    ----------
    frames : View
    parts : tuple of Windows
        For training, validation and testing: elements of frames ``x (inputs, …)``, ``y (1, …)``.
    batch_size, seed, shuffle
        As `batches` takes them.
    scale : callable or None
        What makes ``x`` and ``y`` fit for a model.
    """

    frames: View
    parts: tuple[Windows, ...]
    batch_size: int
    seed: int
    shuffle: Order | bool = True
    scale: Callable[..., Any] | None = None

    @property
    def loader(self) -> Loader:
        """The training part's batches, shuffled."""
        train = self.scaled(self.parts[0])
        return train.batches(self.batch_size, shuffle=self.shuffle, seed=self.seed)

    def scaled(self, part: Windows) -> Dataset:
        """Return a part as the model gets it."""
        return part if self.scale is None else part.map(self.scale)

    def evaluated(self, part: Windows) -> Any:
        """Return the first elements of a part as a ``tf.data.Dataset``."""
        return self.scaled(part[:_EVALUATED]).batches(self.batch_size).to_tf()


def read(loader: Loader, seconds: float) -> float:
    """Read epochs by tf.data, one after the other, until the time is up; return elements/s."""
    dataset, elements, begun = loader.to_tf(), 0, perf_counter()
    while perf_counter() - begun < seconds:
        for x, _ in dataset:
            elements += int(x.shape[0])
            if perf_counter() - begun > seconds:
                break
    return elements / (perf_counter() - begun)


def check_frames(subject: Subject, sums: NDArray[np.uint32], advance: Advance) -> int:
    """Check that an epoch is each element once, each frame of it as it was written.

    ``sums[clip, frame]`` are checksums from before the clips were written. Returns how many
    elements there are; a frame that differs, or an element that came twice, is a `SourceError`.
    """
    loader, length = subject.loader, subject.parts[0].span
    seen = np.zeros(len(loader.dataset), np.int64)
    for step, (x, y) in enumerate(loader.to_tf()):
        positions = loader.positions(step)
        # Element 0 of a clip is its frames 0, 1, 2; element 1 is 1, 2, 3; and so on.
        clip, first = np.divmod(positions[:, np.newaxis], sums.shape[1] - length + 1)
        frames = first + np.arange(length)
        wrong = checksums(np.concatenate([x, y], axis=1)) != sums[clip, frames]
        if wrong.any():
            rows = (clip * sums.shape[1] + frames)[wrong]
            raise SourceError("frames must come back as they were written.", rows=rows)
        np.add.at(seen, positions, 1)
        advance(1)
    if np.any(seen != 1):
        raise SourceError(f"an epoch must be each element once; {np.sum(seen != 1)} were not.")
    return len(seen)


@dataclass(frozen=True, slots=True)
class Usual:
    """What the usual way came to: a generator that reads by the format's own library.

    Attributes
    ----------
    library : str
    elements_per_second : float
    compared : int
        Elements that are bit for bit the same as oocdata's.
    """

    library: str
    elements_per_second: float
    compared: int


def usual_way(subject: Subject, seconds: float) -> Usual | None:
    """Read shuffled elements by ``from_generator``, and compare some of them with ours.

    None for what no library opens in one call: several files, URLs, raw binary.
    """
    found = _by_library(subject.frames)
    if found is None:
        return None
    library, *opened = found
    try:
        train, rng = subject.parts[0], np.random.default_rng(subject.seed)
        places = rng.choice(len(train), min(len(train), _MOST_USUAL), replace=False)
        elements = _Elements(train.requests(places, Draw()), subject.frames.axes[-1], opened)
        compared = min(_COMPARED, len(places))
        _compare(subject, places[:compared], elements, library)
        return Usual(library, _rate(subject, elements, seconds), compared)
    finally:
        opened.clear()  # TensorFlow keeps generators for ever: not the file


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements as a user's generator reads them: boxes of an array, with time first."""

    requests: tuple[Request, ...]
    time: int
    opened: list[Any]

    def element(self, number: int) -> tuple[NDArray[Any], ...]:
        """Read one element."""
        parts = []
        for one in self.requests:
            box = zip(one.origins[number], one.extent.lengths, strict=True)
            kept = tuple(slice(int(start), int(start + length)) for start, length in box)
            block = np.moveaxis(self.opened[0][kept], self.time, 0)
            parts.append(block.reshape(one.shape[1:]))
        return tuple(parts)

    def __call__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        while self.opened:
            yield from map(self.element, range(len(self.requests[0].origins)))


def _compare(
    subject: Subject, places: NDArray[np.int64], elements: _Elements, library: str
) -> None:
    """Raise a `SourceError` if what a library reads is not bit for bit what we read."""
    train, storage = subject.parts[0], subject.frames.storage
    usual = zip(*map(elements.element, range(len(places))), strict=True)
    for ours, theirs in zip(train.take(places), usual, strict=True):
        if ours.tobytes() != np.stack(theirs).astype(ours.dtype).tobytes():
            raise SourceError(
                f"elements must be what {library} reads; some of these differ.",
                path=storage.path,
                key=storage.key,
                rows=train.starts(np.asarray(train.chosen)[places]),
            )


def _rate(subject: Subject, elements: _Elements, seconds: float) -> float:
    """Return the elements/s of a generator in tf.data."""
    import tensorflow as tf

    spec: Any = subject.parts[0].spec
    signature = tuple(tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in spec)
    dataset = tf.data.Dataset.from_generator(elements, output_signature=signature)
    count, begun = 0, perf_counter()
    for x, _ in dataset.batch(subject.batch_size).prefetch(2):
        count += int(x.shape[0])
        if perf_counter() - begun > seconds:
            break
    return count / (perf_counter() - begun)


def _by_library(view: View) -> tuple[str, Any] | None:
    """Return a format's own library, and what it opens the array as."""
    path, key, several = view.storage.path, view.storage.key, view.storage.episodes
    if path is None or not os.path.exists(path) or view.storage.format == "raw" or several:
        return None
    kind = format_of(path)
    if kind in ("npy", "npz"):
        found: Any = np.load(path, mmap_mode="r" if kind == "npy" else None)
        return "NumPy", found[key] if kind == "npz" else found
    if kind == "hdf5":
        import h5py

        return "h5py", h5py.File(path, "r")[key]
    import zarr

    found = zarr.open(path, mode="r")
    return "zarr-python", found[key] if key else found


@dataclass(frozen=True, slots=True)
class Training:
    """What training came to.

    Attributes
    ----------
    steps : int
    elements_per_second : float
    memory : int or None
        Bytes by which the process grew at most.
    val_loss, test_loss : float
        Mean squared errors.
    copy_loss : float
        That of the last frame as a forecast of the next one, on the test part.
    """

    steps: int
    elements_per_second: float
    memory: int | None
    val_loss: float
    test_loss: float
    copy_loss: float

    @property
    def is_better(self) -> bool:
        """Whether the model beats copying the last frame."""
        return self.test_loss < self.copy_loss


class Model:
    """The model that is trained on each format in turn, from the same weights.

    TensorFlow compiles it once, on zeros, so that this is no part of what is measured.
    """

    def __init__(self, subject: Subject, change: ArrayLike = 1.0) -> None:
        import tensorflow as tf

        spec: Any = subject.loader.spec
        inputs, *element = spec[0].shape[1:]
        letters = row_axes(subject.frames).letters
        self.keras: keras.Model = build(inputs, tuple(element), letters, subject.seed, change)
        self.keras.optimizer.build(self.keras.trainable_variables)
        self._variables = [*self.keras.variables, *self.keras.optimizer.variables]
        self._begin = [variable.numpy() for variable in self._variables]
        zeros = tuple(np.zeros((1, *leaf.shape[1:]), leaf.dtype) for leaf in spec)
        dataset = tf.data.Dataset.from_tensor_slices(zeros).repeat(4 * subject.batch_size)
        batches = dataset.batch(subject.batch_size, drop_remainder=spec[0].shape[0] is not None)
        self.keras.fit(batches, validation_data=batches, verbose=0, shuffle=False)

    def train(self, subject: Subject, epochs: int, seconds: float, advance: Advance) -> Training:
        """Train with ``fit`` from the first weights until the time is up, and evaluate."""
        import keras

        for variable, value in zip(self._variables, self._begin, strict=True):
            variable.assign(value)
        _, val, test = subject.parts
        # A model that has learned nothing copies the last frame.
        copy_loss = self.keras.evaluate(subject.evaluated(test), verbose=0)
        begun, ends = perf_counter(), list[float]()

        def end_step(batch: int, logs: Any) -> None:
            ends.append(perf_counter())
            self.keras.stop_training = ends[-1] - begun > seconds
            advance(1)

        with growth() as grown:
            history = self.keras.fit(
                subject.loader.to_tf(),
                validation_data=subject.evaluated(val),
                epochs=epochs,
                callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=end_step)],
                shuffle=False,
                verbose=0,
            )
        rate = (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 else 0.0
        return Training(
            steps=len(ends),
            elements_per_second=rate * subject.batch_size,
            memory=grown.nbytes,
            val_loss=history.history["val_loss"][-1],
            test_loss=self.keras.evaluate(subject.evaluated(test), verbose=0),
            copy_loss=copy_loss,
        )
