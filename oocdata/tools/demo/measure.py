"""What the demonstration does with one array: reads and checks it, trains, and measures that."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.axes import row_axes
from oocdata.datasets.dataset import Draw
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.engines.cache import cache
from oocdata.errors import SourceError
from oocdata.formats.opening import format_of
from oocdata.loader import Loader
from oocdata.order import Order
from oocdata.tools.demo.data import checksums
from oocdata.tools.demo.model import build
from oocdata.tools.profile.pacing import pace, steps_of_a_period

if TYPE_CHECKING:
    import keras

__all__ = [
    "Growth", "Subject", "Training", "Usual", "check_frames", "compiled", "growth", "read", "train",
    "usual_way",
]  # fmt: skip


@dataclass(slots=True)
class Growth:
    """By how many bytes the process grew at most; None where the system doesn't tell."""

    nbytes: int | None = None


@contextmanager
def growth() -> Iterator[Growth]:
    """Measure by how much the process grows at its peak while a block runs.

    The kernel records the peak and misses nothing (``VmHWM`` in proc(5), on Linux).
    """
    # The reuse of memory that was freed before would hide growth.
    cache.forget()
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
    found = Growth()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the record
        before = _status("VmRSS")
    except OSError:
        yield found
        return
    yield found
    found.nbytes = max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))


_COMPARED = 8
_MOST_USUAL = 4096
_EVALUATED = 1024


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


def read(loader: Loader, seconds: float) -> float:
    """Read epochs by tf.data for some seconds; return elements a second."""

    def epoch(number: int) -> Iterator[Any]:
        return iter(loader.to_tf(start=(number, 0)))

    return pace(epoch, seconds, period=steps_of_a_period(loader)).rate


def check_frames(subject: Subject, sums: NDArray[np.uint32], advance: Callable[[int], None]) -> int:
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
    """What the usual way came to: a generator that reads by the format's own library."""

    library: str
    elements_per_second: float
    compared: int  # elements that are bit for bit the same as ours


def usual_way(subject: Subject, seconds: float) -> Usual | None:
    """Read shuffled elements by ``from_generator``, and compare some of them with ours.

    None for what no library opens in one call: several files, URLs, raw binary.
    """
    import tensorflow as tf

    found = _by_library(subject.frames)
    if found is None:
        return None
    library, *opened = found
    train, time = subject.parts[0], subject.frames.axes[-1]
    rng = np.random.default_rng(subject.seed)
    places = rng.choice(len(train), min(len(train), _MOST_USUAL), replace=False)
    requests = train.requests(places, Draw())

    def element(number: int) -> tuple[NDArray[Any], ...]:
        parts = []
        for one in requests:
            ends = zip(one.origins[number], one.extent.lengths, strict=True)
            box = tuple(slice(int(start), int(start + length)) for start, length in ends)
            parts.append(np.moveaxis(opened[0][box], time, 0).reshape(one.shape[1:]))
        return tuple(parts)

    def elements() -> Iterator[tuple[NDArray[Any], ...]]:
        while opened:
            yield from map(element, range(len(places)))

    compared = min(_COMPARED, len(places))
    usual = zip(*map(element, range(compared)), strict=True)
    for ours, theirs in zip(train.take(places[:compared]), usual, strict=True):
        if ours.tobytes() != np.stack(theirs).astype(ours.dtype).tobytes():
            storage = subject.frames.storage
            raise SourceError(
                f"elements must be what {library} reads; some of these differ.",
                path=storage.path,
                key=storage.key,
                rows=train.starts(np.asarray(train.chosen)[places[:compared]]),
            )
    spec: Any = train.spec
    signature = tuple(tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in spec)
    dataset = tf.data.Dataset.from_generator(elements, output_signature=signature)
    batches = dataset.batch(subject.batch_size).prefetch(2)
    try:
        return Usual(library, pace(lambda epoch: iter(batches), seconds).rate, compared)
    finally:
        opened.clear()  # TensorFlow keeps generators for ever: not the file


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
    """What training came to; losses are mean squared errors."""

    steps: int
    elements_per_second: float
    memory: int | None  # bytes by which the process grew at most
    val_loss: float
    test_loss: float
    copy_loss: float  # of the last frame as a forecast of the next one, on the test part

    @property
    def is_better(self) -> bool:
        """Whether the model beats copying the last frame."""
        return self.test_loss < self.copy_loss


def train(
    subject: Subject,
    epochs: int,
    seconds: float,
    change: ArrayLike,
    advance: Callable[[int], None],
) -> tuple[keras.Model, Training]:
    """Train a new model with ``fit`` until the time is up, and evaluate it."""
    import keras

    model = compiled(subject, change)
    val, test = (subject.batches(part[:_EVALUATED]).to_tf() for part in subject.parts[1:])
    # A model that has learned nothing copies the last frame.
    copy_loss = model.evaluate(test, verbose=0)
    begun, ends = perf_counter(), list[float]()

    def end_step(batch: int, logs: Any) -> None:
        ends.append(perf_counter())
        model.stop_training = ends[-1] - begun > seconds
        advance(1)

    with growth() as grown:
        history = model.fit(
            subject.loader.to_tf(),
            validation_data=val,
            epochs=epochs,
            callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=end_step)],
            shuffle=False,
            verbose=0,
        )
    rate = (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 else 0.0
    return model, Training(
        steps=len(ends),
        elements_per_second=rate * subject.batch_size,
        memory=grown.nbytes,
        val_loss=history.history["val_loss"][-1],
        test_loss=model.evaluate(test, verbose=0),
        copy_loss=copy_loss,
    )


def compiled(subject: Subject, change: ArrayLike = 1.0) -> keras.Model:
    """Return a new model that was compiled on zeros, from which it learns nothing.

    So what compiling takes is not counted as memory of training.
    """
    import tensorflow as tf

    spec: Any = subject.loader.spec
    inputs, *element = spec[0].shape[1:]
    letters = row_axes(subject.frames).letters
    model = build(inputs, tuple(element), letters, subject.seed, change)
    zeros = tuple(np.zeros((1, *leaf.shape[1:]), leaf.dtype) for leaf in spec)
    dataset = tf.data.Dataset.from_tensor_slices(zeros).repeat(4 * subject.batch_size)
    batches = dataset.batch(subject.batch_size, drop_remainder=spec[0].shape[0] is not None)
    model.fit(batches, validation_data=batches, verbose=0, shuffle=False)
    return model
