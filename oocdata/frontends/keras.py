"""Keras: a `keras.utils.PyDataset` over a loader or a stream, for any backend."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oocdata.datasets.spec import Batch, Spec, leaves
from oocdata.errors import ArgumentError, DatasetGoneError, EmptyError, MissingDependencyError
from oocdata.frontends.originals import forget_originals, passed_on
from oocdata.index import as_count

try:
    import keras
except ImportError as error:
    raise MissingDependencyError(
        "`to_keras` needs Keras, which can't be imported here. Install it: pip install keras."
    ) from error

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = ["Batches", "StreamBatches"]


class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """A loader's batches by step, epoch after epoch.

    Keras looks at the first batches before it trains, and says that an epoch ends also where none
    was trained on. So an epoch counts once Keras, within an epoch of its own, has asked for each
    of its steps; until then the same steps are of the same epoch.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> batches = ooc.open(np.arange(10)).batches(4).to_keras()
    >>> len(batches), batches[2]
    (3, array([8, 9]))
    """

    def __init__(self, loader: Loader) -> None:
        if loader.dataset.is_composed:
            raise ArgumentError(
                "`to_keras` must be given dense batches; these are sparse or ragged. `to_tf` takes "
                "them."
            )
        _check_leaves(loader.dataset.spec)
        super().__init__()
        self.loader = loader
        self.epoch = 0
        self._lock = threading.Lock()
        self._asked = bytearray(len(loader))
        self._count = 0
        self._begun = self._within = False
        self._ahead: Iterator[Batch] | None = None
        self._next = (0, 0)
        """What `_ahead` gives next: epoch and step."""
        self._process = os.getpid()
        weakref.finalize(self, forget_originals, id(self)).atexit = False

    def __len__(self) -> int:
        return len(self.loader)

    def on_epoch_begin(self) -> None:
        """Note that Keras trains or evaluates from here on; called by Keras."""
        self._begun = self._within = True

    def on_epoch_end(self) -> None:
        """Note that Keras does no more; called by Keras."""
        with self._lock:
            if self.workers > 1:  # whose threads have ended: they ask for steps in any order
                self.epoch += self._within and self._count == len(self.loader)
                self._forget()
            self._within, self._ahead = False, None

    def __getitem__(self, step: int) -> Batch:
        """Read the batch of a step of the current epoch.

        Raises
        ------
        oocdata.errors.ArgumentError
            If ``fit`` shuffles the steps.
        oocdata.errors.DatasetGoneError
            In another process, which can't know the epoch.
        """
        try:
            with self._lock:
                epoch = self._entered(step)
                # What Keras's threads still ask for after an epoch must not begin to read ahead.
                if self._within and self.workers <= 1:
                    return self._read_ahead(step, epoch)
            return self.loader.batch(step, epoch)
        except BaseException as error:
            # Keras ends no epoch in which a read failed, and the exception may keep this object.
            self._ahead = None
            if (passed := _passed_on(error, self, self._begun)) is not error:
                raise passed from error
            raise

    def _entered(self, step: int) -> int:
        """Return the epoch that a step is of, and note that it was asked for."""
        if os.getpid() != self._process:
            raise DatasetGoneError(
                "`use_multiprocessing` must be False for a loader's batches, which are read in the "
                "process that trains. To read in worker processes: `batches(…, workers=4)`."
            )
        if not 0 <= step < len(self.loader):
            self.loader.positions(step, self.epoch)  # says what steps there are
        if self._asked[step] and self.workers <= 1:
            self._forget()  # it begins once more, before it came to its end
        if self._within and step >= self._count + max(1, self.workers):
            raise ArgumentError(
                "`shuffle` must be False in `fit` on a loader's batches: Keras asked for step "
                f"{step} after {self._count} others, and the loader's own order, which is cheap to "
                "read, would be lost. Pass fit(…, shuffle=False); the loader shuffles: "
                "`batches(…, shuffle=True)`."
            )
        epoch = self.epoch
        self._count += not self._asked[step]
        self._asked[step] = 1
        if self._begun and self._count == len(self.loader) and self.workers <= 1:
            self._forget()
            self.epoch += 1
        return epoch

    def _forget(self) -> None:
        self._asked, self._count = bytearray(len(self.loader)), 0

    def _read_ahead(self, step: int, epoch: int) -> Batch:
        """Return a batch, and have those after it read ahead as `Loader.epoch` does."""
        ahead, self._ahead = self._ahead, None  # an iterator that has failed is over
        if ahead is None or self._next != (epoch, step):
            ahead = self.loader.epoch(epoch, start=step)
        batch = next(ahead)
        if step + 1 < len(self.loader):
            self._ahead, self._next = ahead, (epoch, step + 1)
        return batch


class StreamBatches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """A stream's batches in order, whatever step Keras asks for; new generators for each epoch.

    Keras looks at the first batches before it trains; those are given to it again when it does.

    Examples
    --------
    >>> import oocdata as ooc
    >>> stream = ooc.generate(lambda: iter(range(6)), workers=0).batches(2)
    >>> batches = stream.to_keras(steps=2)
    >>> len(batches), batches[0], batches[0]
    (2, array([0, 1]), array([0, 1]))
    """

    def __init__(self, stream: Stream, steps: int | None) -> None:
        _check_leaves(stream.dataset.spec)
        if steps is None and stream.steps is None:
            raise ArgumentError(
                "`steps` must be given, as nobody knows how many batches the generators make; or "
                "tell `generate` the `length` of all together."
            )
        super().__init__()
        self.stream = stream
        self._steps = as_count("steps", stream.steps if steps is None else steps)
        self._lock = threading.Lock()
        self._batches: Iterator[Batch] | None = None
        self._seen: dict[int, Batch] = {}
        self._within = self._taken = False
        weakref.finalize(self, forget_originals, id(self)).atexit = False

    def __len__(self) -> int:
        return self._steps

    def on_epoch_begin(self) -> None:
        """Note that Keras trains or evaluates from here on; called by Keras."""
        self._within = True

    def on_epoch_end(self) -> None:
        """Note that Keras does no more; called by Keras."""
        with self._lock:
            self._within = False
            if self._taken:
                # TensorFlow keeps this object for good; it must not keep generators.
                self._batches, self._seen, self._taken = None, {}, False

    def __getitem__(self, step: int) -> Batch:
        """Return the next batch; before Keras trains, the same one for the same step.

        Raises
        ------
        oocdata.errors.EmptyError
            If the generators end before the steps of an epoch.
        """
        try:
            with self._lock:
                batch = self._seen.pop(step, None)
                if batch is None:
                    batch = self._next(step)
                if self._within:
                    self._taken = True
                else:
                    self._seen[step] = batch
                return batch
        except BaseException as error:
            self._batches = None
            if (passed := _passed_on(error, self, self._within)) is not error:
                raise passed from error
            raise

    def _next(self, step: int) -> Batch:
        if self._batches is None:
            self._batches = iter(self.stream)
        for batch in self._batches:
            return batch
        raise EmptyError(
            f"`steps` must be at most the batches that the generators make; they ended before "
            f"step {step} of {self._steps}."
        )


def _check_leaves(spec: Spec) -> None:
    if any(leaf.dtype.hasobject for leaf in leaves(spec)):
        raise ArgumentError(
            "`to_keras` must be given arrays of numbers; these hold bytes of unequal length. "
            "`to_tf` takes them; or make numbers of them first."
        )


def _passed_on(error: BaseException, owner: object, begun: bool) -> BaseException:
    """Return what to raise: what Keras's generator in a graph turns into the original, or that."""
    reader = threading.current_thread() is not threading.main_thread()
    if begun and reader and keras.backend.backend() == "tensorflow":
        return passed_on(error, id(owner))
    return error
