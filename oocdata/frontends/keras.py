"""Make a `keras.utils.PyDataset` of a loader or a stream, for any Keras backend."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oocdata.datasets.spec import Batch, leaves, map_tree
from oocdata.errors import ArgumentError, EmptyError, needed
from oocdata.frontends.batching import checked_start, without_aliases
from oocdata.frontends.originals import error_for_tensorflow, forget_originals
from oocdata.index import as_count

with needed("`to_keras` needs Keras", "keras"):
    import keras

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset
    from oocdata.loader import Loader
    from oocdata.stream import Generated, Stream


class _OrderedBatches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches that one thread requests in order; they are read ahead here, not by Keras's pool.

    Each epoch is read by a loader of its own, with which the worker processes end: TensorFlow never
    frees this object.
    """

    def __init__(self, dataset: Dataset | Generated, steps: int) -> None:
        if dataset.is_multi_array or any(leaf.dtype.hasobject for leaf in leaves(dataset.spec)):
            raise ArgumentError(
                "`to_keras` must be given arrays of numbers; these are sparse or ragged, or hold "
                "bytes of unequal length. `to_tf` takes them."
            )
        super().__init__()
        self._steps = steps
        self._lock = threading.Lock()
        self._ahead: Iterator[Batch] | None = None
        self._begun = self._in_epoch = False
        self._opened = self._built = False
        """Whether Keras has made an iterator and neither begun nor ended an epoch since; whether it
        is in an epoch that it began before it ended one."""
        weakref.finalize(self, forget_originals, id(self)).atexit = False

    def _refuse(self, value: object) -> None:
        if value not in (1, False):
            raise ArgumentError(
                "Keras's `workers` must be 1 and its `use_multiprocessing` False for these "
                f"batches, which are read ahead anyway; got {value!r}. To read in worker "
                "processes: `batches(…, workers=4)`, or `generate(…, workers=4)`."
            )

    def _open(self) -> int:
        """Note that Keras makes an iterator, for `fit` or `predict`: only then does it ask this."""
        with self._lock:
            self._opened, self._built = True, False
            self._in_epoch = False  # Keras does not end an epoch that a callback stops
            self._begin_anew()
        return 1

    workers = property(_open, _refuse)
    use_multiprocessing = property(lambda self: False, _refuse)

    def __len__(self) -> int:
        return self._steps

    def on_epoch_begin(self) -> None:
        """Note that Keras begins an epoch; called by Keras."""
        with self._lock:
            # Keras ends an epoch before `fit` begins the first one. So if it began one, that was to
            # build a model, with any number of steps, which come again.
            if self._built:
                self._begin_anew()
            self._built, self._opened = self._opened, False
            self._begun = self._in_epoch = True

    def on_epoch_end(self) -> None:
        """Note that Keras has ended its epoch, maybe to continue; called by Keras."""
        with self._lock:
            self._opened = self._in_epoch = False

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of a step of the current epoch."""
        try:
            with self._lock:
                batch = self._batch(step)
            arrays = iter(without_aliases(leaves(batch)))
            return map_tree(lambda _: next(arrays), batch)
        except BaseException as error:
            # Keras ends no epoch in which a read failed, and the exception may keep this object.
            self._ahead, self._in_epoch = None, False
            in_graph = self._begun and threading.current_thread() is not threading.main_thread()
            if in_graph and keras.backend.backend() == "tensorflow":
                raise error_for_tensorflow(error, id(self)) from error
            raise

    def _batch(self, step: int) -> Batch:
        raise NotImplementedError

    def _begin_anew(self) -> None:
        """Begin a pass for the iterator that Keras makes, or for the epoch after a build."""
        raise NotImplementedError


class Batches(_OrderedBatches):
    """A loader's batches by step, epoch after epoch.

    Keras looks at the first batches before it trains, asks for steps ahead that it may not use, and
    with ``steps_per_epoch`` it continues in the middle of an epoch. So the next epoch of the loader
    begins when Keras requests the first step within an epoch of its own, however many steps of the
    epoch before it has requested. The exception is an epoch that it began to build a model.
    """

    def __init__(self, loader: Loader, start: tuple[int, int]) -> None:
        super().__init__(loader.dataset, len(loader))
        self.loader = loader
        self.epoch, step, _ = checked_start(loader, start, 1)
        """The epoch that begins next."""
        if step:
            raise ArgumentError(
                "`start` must have step 0, because each epoch of a PyDataset has equally many "
                f"steps; got {start!r}. `to_tf` begins within an epoch."
            )
        self._next_step: int | None = None
        self._first = self.epoch
        """The epoch that came next when Keras made its iterator."""

    def _begin_anew(self) -> None:
        if self._built:
            self.epoch = self._first
        self._first = self.epoch

    def on_epoch_end(self) -> None:
        """Note that Keras has ended its epoch; called by Keras."""
        super().on_epoch_end()
        with self._lock:
            self._ahead = None

    def _batch(self, step: int) -> Any:
        if step == 0:
            self._next_step, self._ahead = 0 if self._in_epoch else None, None
            self.epoch += self._in_epoch
        if step != self._next_step:
            if not self._in_epoch:
                return self.loader.batch(step, self.epoch)
            raise ArgumentError(
                "`shuffle` must be False in `fit` on a loader's batches: Keras asked for step "
                f"{step} after {self._next_step or 0} others, and the loader's own order, which is "
                "cheap to read, would be lost. Pass fit(…, shuffle=False); the loader shuffles: "
                "`batches(…, shuffle=True)`."
            )
        if self._in_epoch:
            self._ahead = self._ahead or replace(self.loader).epoch(self.epoch - 1, start=step)
            batch = next(self._ahead)
        else:  # Keras's threads may request steps after an epoch, which must not read ahead
            batch = self.loader.batch(step, self.epoch - 1)
        self._next_step += 1
        if self._next_step == len(self):
            self._next_step = self._ahead = None
        return batch


class StreamBatches(_OrderedBatches):
    """A stream's batches in order, whatever step Keras requests; new generators for each epoch.

    Batches that Keras looks at before it trains are returned again when it does. With
    ``steps_per_epoch``, the generators go on in the next epoch of Keras, until they have made as
    many batches as there are steps here.
    """

    def __init__(self, stream: Stream, steps: int | None) -> None:
        if steps is None and stream.steps is None:
            raise ArgumentError(
                "`steps` must be given, as nobody knows how many batches the generators make; or "
                "tell `generate` the `length` of all together."
            )
        count = as_count("steps", stream.steps if steps is None else steps)
        super().__init__(stream.dataset, count)
        self.stream = stream
        self._seen: dict[int, Batch] = {}
        self._asked: set[int] = set()
        """Steps of the current pass that Keras has asked for."""

    def _batch(self, step: int) -> Batch:
        if step in self._asked:  # Keras has broken off that pass
            self._end_pass()
        batch = self._seen.pop(step, None)
        if batch is None:
            self._ahead = self._ahead or iter(replace(self.stream))
            batch = next(self._ahead, None)
        if batch is None:
            raise EmptyError(
                f"`steps` must be at most the batches that the generators make; they ended before "
                f"step {step} of {len(self)}"
                f"{', and the remainder is dropped' * self.stream.drop_remainder}."
            )
        if self._in_epoch or self._asked:
            self._asked.add(step)
        else:
            self._seen[step] = batch
        if len(self._asked) == len(self):
            self._end_pass()
        return batch

    def _begin_anew(self) -> None:
        if self._asked:
            self._end_pass()

    def _end_pass(self) -> None:
        self._ahead, self._seen, self._asked = None, {}, set()
