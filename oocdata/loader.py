"""The narrow waist: (step, epoch) → batch, a pure function of the loader's description.

NumPy iteration, tf.data and Keras all come through `Loader.batch`; resuming is two integers, and
sharding never changes what a global batch holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.above import above
from oocdata.choice import choose_order
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.spec import ArraySpec, Batch, Spec, leaves, map_tree
from oocdata.errors import ArgumentError, EmptyError, PositionError
from oocdata.explain import Explanation, explain
from oocdata.index import as_count
from oocdata.order import BlockShuffle, Order, Sequential
from oocdata.order.order import visited
from oocdata.read_ahead import READ_AHEAD, read_ahead
from oocdata.runs import Run, steps_together
from oocdata.sources.buffers import ALIGNMENT

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from oocdata.tools.profile.result import Profile

__all__ = ["Loader", "make_loader"]

_RUNS_IN_A_WINDOW = 2 * READ_AHEAD
"""Of a block shuffle."""


def make_loader(
    dataset: Dataset,
    batch_size: int,
    shuffle: bool | str | Order,
    seed: int,
    drop_remainder: bool,
    workers: int,
) -> Loader:
    """Check the arguments of `Dataset.batches` and return the loader."""
    size = as_count("batch_size", batch_size)
    processes = as_count("workers", workers, at_least=0)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ArgumentError(f"`seed` must be a whole number; got {seed!r}.")
    if len(dataset) == 0:
        raise EmptyError("a dataset must hold at least one element to make batches; it holds none.")
    if drop_remainder and len(dataset) < size:
        raise EmptyError(
            f"`batch_size` must be at most the {len(dataset)} elements when the remainder is "
            f"dropped; got {size}."
        )
    order, reason = choose_order(dataset, shuffle)
    loader = Loader(dataset, size, order, int(seed), bool(drop_remainder), reason, processes)
    if processes:
        from oocdata.workers.description import check_workers  # not for `import oocdata`

        check_workers(loader)
    return loader


def _whole(*numbers: object) -> bool:
    return all(isinstance(number, int | np.integer) for number in numbers)


@dataclass(frozen=True, eq=False, repr=False)
class Loader:
    """Batches of a dataset by (step, epoch); made by `Dataset.batches`.

    Attributes
    ----------
    dataset : Dataset
    batch_size : int
    order : Order
    seed : int
    drop_remainder : bool
    reason : str
        Why this order.
    workers : int
        Processes that iteration reads with; 0: this one.
    num_shards, index : int
        Which part of every global batch this loader reads.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.arange(10)).batches(4)
    >>> [batch.tolist() for batch in loader]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    dataset: Dataset
    batch_size: int
    order: Order
    seed: int
    drop_remainder: bool
    reason: str = ""
    workers: int = 0
    num_shards: int = 1
    index: int = 0
    _epochs: Iterator[int] = field(default_factory=itertools.count, init=False)

    def __getstate__(self) -> dict[str, Any]:
        # Which epoch comes next belongs to whoever iterates, not to the description.
        return {name: value for name, value in self.__dict__.items() if name != "_epochs"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _epochs=itertools.count())

    def __repr__(self) -> str:
        return f"<Loader: {len(self)} batches of {self.batch_size} from {self.dataset!r}>"

    def __len__(self) -> int:
        """Return the steps in an epoch."""
        return -(-self._used // self.batch_size)

    @property
    def _used(self) -> int:
        """Elements visited in an epoch."""
        length = len(self.dataset)
        remainder = length % self.batch_size
        # Every shard gets as many elements of the last batch: what can't be dealt out is dropped.
        return length - (remainder if self.drop_remainder else remainder % self.num_shards)

    @property
    def spec(self) -> Spec:
        """Shape and dtype of a batch's arrays; the batch axis is None where the last is short."""
        full = self.batch_size // self.num_shards
        length = None if self._used % self.batch_size else full
        spec: Spec = map_tree(
            lambda leaf: ArraySpec((length, *leaf.shape), leaf.dtype), self.dataset.spec
        )
        return spec

    @property
    def steps_together(self) -> int:
        """Steps that iteration reads at once; `oocdata.runs` says why."""
        share = self.batch_size // self.num_shards
        nbytes = [leaf.nbytes * share for leaf in leaves(self.dataset.spec)]
        # A function gets its batches one by one. And each batch of a run must be aligned.
        if self.dataset.is_mapped or any(each % ALIGNMENT for each in nbytes):
            return 1
        in_runs = isinstance(self.order, Sequential | BlockShuffle)
        scattered = not in_runs and self.dataset.blocks.length > 1
        together = steps_together(len(self), sum(nbytes), share_chunks=scattered)
        if isinstance(self.order, BlockShuffle):
            # What is decoded is kept for two windows: the one being read, and the one before it
            # until its chunks are those used longest ago. With several runs in a window they are,
            # by the time that the next one begins.
            window = self.order.block * self.order.window
            together = max(1, min(together, window // (_RUNS_IN_A_WINDOW * self.batch_size)))
        return together

    def positions(self, step: int, epoch: int = 0) -> NDArray[np.int64]:
        """Return the dataset's positions that a batch is made of, shape (batch,).

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step.
        """
        steps = len(self)
        if not _whole(step, epoch) or not 0 <= step < steps or epoch < 0:
            raise PositionError(
                f"`step` must lie within [0, {steps}) and `epoch` must not be negative; got step "
                f"{step} of epoch {epoch}."
            )
        step, epoch = int(step), int(epoch)  # NumPy's own would overflow
        return self._positions(Run(epoch, step, step + 1))

    def _positions(self, run: Run) -> NDArray[np.int64]:
        """Return the positions of a run of steps, one batch after the other."""
        if self.num_shards == 1:
            spans = [(run.start * self.batch_size, min(run.stop * self.batch_size, self._used))]
        else:
            spans = [self._share(step) for step in range(run.start, run.stop)]
        parts = [
            visited(self.order, len(self.dataset), *span, seed=self.seed, epoch=run.epoch)
            for span in spans
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _share(self, step: int) -> tuple[int, int]:
        """Return the places of an epoch that this shard's part of a batch stands at."""
        start = step * self.batch_size
        share = (min(start + self.batch_size, self._used) - start) // self.num_shards
        return start + self.index * share, start + (self.index + 1) * share

    def batch(self, step: int, epoch: int = 0) -> Batch:
        """Read one batch: a pure function of (step, epoch).

        Parameters
        ----------
        step : int
            0 ≤ step < len(self).
        epoch : int
            From 0.

        Returns
        -------
        ndarray, tuple or dict of ndarray
            Each with a leading batch axis, 64-byte aligned, and yours to keep or change.

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step.
        oocdata.errors.SourceError
            If storage can't deliver a row: with file, dataset and rows.
        """
        positions = self.positions(step, epoch)
        return self.dataset.read(positions, Draw(self.seed, int(epoch), int(step)))

    def run(self, run: Run) -> Batch:
        """Read a run of steps at once: their batches one after the other, in the same arrays.

        Parameters
        ----------
        run : Run
            Of at least one step, and at most `steps_together`.

        Returns
        -------
        ndarray, tuple or dict of ndarray
            Of shape (elements of all its steps, …).

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.arange(10)).batches(4).run(Run(epoch=0, start=1, stop=3))
        array([4, 5, 6, 7, 8, 9])
        """
        return self.dataset.read(self._positions(run), Draw(self.seed, run.epoch, run.start))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Iterate over one epoch from step `start`, without reading what came before.

        A few MiB of batches are read ahead, in threads or in worker processes; never more.

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step (`start` may be one past the last).

        Examples
        --------
        >>> import oocdata as ooc
        >>> loader = ooc.open(np.arange(10)).batches(4)
        >>> [batch.tolist() for batch in loader.epoch(0, start=1)]
        [[4, 5, 6, 7], [8, 9]]
        """
        if not _whole(start, epoch) or not 0 <= start <= len(self) or epoch < 0:
            raise PositionError(
                f"`start` must lie within [0, {len(self)}] and `epoch` must not be negative; got "
                f"step {start} of epoch {epoch}."
            )
        return read_ahead(self, int(epoch), int(start))

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the next epoch: 0 first, then 1, … An epoch counts once it is begun."""
        yield from self.epoch(next(self._epochs))

    def shard(self, num_shards: int, index: int) -> Loader:
        """Return the loader of one part of every global batch, for data-parallel training.

        The global batches are those of this loader, whatever `num_shards` is; a shard reads only
        its own part. Of a short last batch, the elements that can't be dealt out evenly are
        dropped, so that all shards take the same steps with the same sizes.

        Parameters
        ----------
        num_shards : int
            Must divide the batch size.
        index : int
            0 ≤ index < num_shards.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the batch can't be dealt out evenly, or this loader is a shard already.

        Examples
        --------
        >>> import oocdata as ooc
        >>> loader = ooc.open(np.arange(8)).batches(4)
        >>> [loader.shard(2, i).batch(1).tolist() for i in range(2)]
        [[4, 5], [6, 7]]
        """
        shards = as_count("num_shards", num_shards)
        place = as_count("index", index, at_least=0)
        if place >= shards:
            raise ArgumentError(f"`index` must be less than `num_shards` ({shards}); got {place}.")
        if self.num_shards != 1:
            raise ArgumentError("`shard` must be called on a whole loader; this one is a shard.")
        if self.batch_size % shards:
            raise ArgumentError(
                f"`num_shards` must divide the batch size, {self.batch_size}; got {shards}."
            )
        sharded = replace(self, num_shards=shards, index=place)
        if len(sharded) == 0:
            raise EmptyError(
                f"`num_shards` must be at most the {len(self.dataset)} elements; got {shards}."
            )
        return sharded

    def explain(self) -> Explanation:
        """Return what is read and how, the order and why, and the memory it takes; print it."""
        return explain(self)

    def profile(
        self,
        model_step: Callable[..., object] | None = None,
        *,
        seconds: float = 5.0,
        to_tf: bool = False,
    ) -> Profile:
        """Say whether the model or the data is the bottleneck, and what to change; print it.

        Times the data alone, the model alone on one batch again and again, and both together, in
        rounds that take turns; and looks at where the time of reading goes. Reads batches by
        (step, epoch): the epoch that iteration gives next stays the next. The model is called for
        real, so with a step that trains, weights change: profile a copy, or before you train.

        Parameters
        ----------
        model_step : callable, optional
            What a training loop does with a batch, e.g. ``model.train_on_batch``. Gets a tuple as
            arguments where it takes as many, as functions of `map` do; anything else as one. It is
            called a few times before anything is timed, so that tracing is not counted.
        seconds : float
            About how long it may take; a read or a step is not interrupted.
        to_tf : bool
            Give the batches of ``to_tf()``, not of plain iteration.

        Returns
        -------
        Profile

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument breaks its rule.
        oocdata.errors.SourceError
            If storage can't deliver a row; and what `model_step` itself raises.

        Examples
        --------
        >>> import oocdata as ooc
        >>> found = ooc.open(np.zeros((1000, 8))).batches(10).profile(seconds=0.1)
        >>> found.verdict, found.data_rate > 0
        ('alone', True)
        """
        found: Profile = above("tools.profile", "profile")(
            self, model_step, seconds=seconds, to_tf=to_tf
        )
        return found

    def to_tf(
        self,
        *,
        start: tuple[int, int] = (0, 0),
        epochs: int = 1,
        parallel: int = 2,
        prefetch: int = 2,
        service: str | None = None,
        job_name: str | None = None,
    ) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` of batches, for ``model.fit`` or any loop.

        Iterating over it again goes on with the epochs that follow, so each epoch of ``fit`` sees
        every element once, in an order of its own. With ``steps_per_epoch``, ``fit`` draws all its
        epochs from one pass: give ``epochs`` here too.

        Parameters
        ----------
        start : (epoch, step)
            Where the first pass begins; nothing before it is read.
        epochs : int
            Epochs in one pass: up to the end of epoch ``start[0] + epochs - 1``.
        parallel : int
            Batches read at a time; or runs of them, where they are so small that several share a
            read (up to 64 batches, up to 32 MiB). With worker processes, at least two for each.
        prefetch : int
            Batches kept ready besides, in whole runs: none where a run has more.
        service : str, optional
            ``"HOST:PORT"`` of an ``oocdata dispatcher``: its workers read, from the same paths.
            The batches of an epoch are the same; which comes first depends on who was quicker.
            `parallel` is what each worker reads at a time.
        job_name : str, optional
            Several trainers that give the same name share each epoch: every batch goes to one of
            them. A name is for one run of them: give the next run another.

        Returns
        -------
        tf.data.Dataset
            With static shapes (except a short last batch) and cardinality (except with
            `job_name`: nobody knows who gets how many).

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument breaks its rule.
        oocdata.errors.MissingDependencyError
            If TensorFlow is not installed.
        oocdata.errors.DescriptionError
            If workers can't be told what to read; see `oocdata.description.describe`.
        oocdata.errors.ServiceError
            If no dispatcher answers.
        """
        dataset: tf.data.Dataset = above("frontends.tfdata", "to_tf")(
            self, start=start, epochs=epochs, parallel=parallel, prefetch=prefetch,
            service=service, job_name=job_name,
        )  # fmt: skip
        return dataset

    def to_keras(self) -> keras.utils.PyDataset:
        """Return a ``keras.utils.PyDataset`` of batches, for Keras on any backend.

        Raises
        ------
        oocdata.errors.MissingDependencyError
            If Keras is not installed.
        """
        dataset: keras.utils.PyDataset = above("frontends.keras", "to_keras")(self)
        return dataset
