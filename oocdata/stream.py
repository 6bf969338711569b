"""Batches of elements that Python generators yield, without random access.

Each worker process runs its own generator; their batches come in turn, so the same generators give
the same batches each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from oocdata import registry
from oocdata.datasets.spec import (
    Batch,
    Spec,
    as_leaf,
    as_spec,
    batched_spec,
    leaves,
    map_tree,
    spec_of,
)
from oocdata.engines.dtypes import check_dtype
from oocdata.errors import ArgumentError, EmptyError, without_methods
from oocdata.generator_batches import GeneratorBatches, as_yielded
from oocdata.index import as_count, as_flag, as_whole
from oocdata.runs import MOST_WORKERS, Ahead, Epochs, Pass, Run, plan_ahead
from oocdata.threads import cached_property

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_STEPS = 1 << 31
"""Upper bound on the steps of an epoch, whose number is unknown."""

_without_methods = without_methods(
    dict.fromkeys(
        ("shuffle", "split", "map", "batch", "repeat", "prefetch"),
        ": what generators yield has no numbers, and comes as it is made, in `.batches(size)`. "
        "Make each element of its number instead: ooc.open(numbers).map(make_one, batched=False)",
    )
)


def generate(
    make: Callable[..., Iterable[Any]],
    spec: Any = None,
    workers: int = 2,
    *,
    length: int | None = None,
    batched: bool = False,
    shard: bool = False,
    rng: bool = False,
    seed: int = 0,
) -> Generated:
    """Return the elements that generators yield, with one generator in each worker process.

    Yielded elements are not numbered, so there is no random access, shuffle, split or resuming. If
    an element can be made from its number, use a dataset, which has all of these:
    ``ooc.open(numbers).map(make_one, batched=False).batches(32, shuffle=True, workers=2)``.

    Parameters
    ----------
    make : callable
        A generator function, a method such as ``scenes.generate_data``, or any callable that
        returns an iterable. It is called once in each worker process for each epoch. It yields an
        array or a number, or tuples or dicts of these; text and bytes become ``bytes``.
    spec : tree of objects with shape and dtype, optional
        Shape and dtype of an element: arrays, `ArraySpec`, ``tf.TensorSpec``. Without it, `make` is
        called here once, and its first element is inspected and dropped.
    workers : int
        Worker processes; 0 runs one generator in a thread of this process.
    length : int, optional
        Number of elements that all generators together yield in an epoch. Another number is an
        error. Without it, datasets of ``to_tf`` have no cardinality, and ``fit`` warns at the end
        of its first epoch that the input ran out of data.
    batched : bool
        Whether `make` yields batches, of any length, instead of elements. Their elements are
        batched again.
    shard : bool
        Call ``make(num_shards=…, index=…)`` with the number of generators and the number of this
        one. All that the generators yield is delivered: without `shard` or `rng`, each must differ
        by itself.
    rng : bool
        Call ``make(rng=…)`` with a ``numpy.random.Generator`` that depends only on the seed, the
        epoch and the worker.
    seed : int
        Seed for `rng`.

    Returns
    -------
    Generated
        Call its method `batches`.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule.
    oocdata.errors.EmptyError
        If `spec` is not given and nothing is yielded.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> def steps(num_shards, index):
    ...     for number in range(index, 7, num_shards):
    ...         yield np.full(2, number, "f4"), number % 2
    >>> stream = ooc.generate(steps, workers=2, shard=True).batches(3)
    >>> [labels.tolist() for frames, labels in stream]
    [[0, 0, 0], [1, 1, 1], [0]]
    """
    if not callable(make):
        raise ArgumentError(
            "`make` must be a function that returns a generator, which each worker calls; got "
            f"{type(make).__name__}. Give the function itself, without calling it; or a method of "
            "it, such as `it.generate_data`, or `lambda: iter(it)`."
        )
    seed = as_whole("seed", seed)
    processes = as_count("workers", workers, at_least=0, at_most=MOST_WORKERS)
    count = None if length is None else as_count("length", length)
    given = None if spec is None else as_spec(spec)
    flags = as_flag("batched", batched), as_flag("shard", shard), as_flag("rng", rng)
    generated = Generated(make, given, processes, count, *flags, seed)
    for leaf in leaves(generated.spec):
        if not leaf.dtype.hasobject:
            check_dtype(leaf.dtype)
    return generated


@_without_methods
@without_methods({"to_tf": "; write .batches(size).to_tf()"})
@dataclass(frozen=True, eq=False, repr=False)
class Generated:
    """Elements that generators yield; made by `generate`."""

    make: Callable[..., Iterable[Any]]
    given: Any
    """The spec that was passed to `generate`, or None to inspect the first element."""
    workers: int
    length: int | None
    batched: bool
    shard: bool
    rng: bool
    seed: int

    is_multi_array: ClassVar[bool] = False

    def __repr__(self) -> str:
        name = getattr(self.make, "__qualname__", repr(self.make))
        return f"<Generated by {name}, workers={self.workers}>"

    @cached_property
    def spec(self) -> Spec:
        """Spec of an element; of the first element if no spec was given."""
        if self.given is not None:
            given: Spec = self.given
            return given
        for index in range(max(1, self.workers)):  # a generator may yield nothing
            for value in self.begin(0, index):
                return spec_of(map_tree(as_leaf, as_yielded(value)), axes=int(self.batched))
        raise EmptyError(
            "`make` must yield at least one element; its generator ended without any. Give `spec` "
            "if that may be."
        )

    def begin(self, epoch: int, index: int) -> Iterator[Any]:
        """Start one of the generators for an epoch, and return it."""
        options: dict[str, Any] = {}
        if self.shard:
            options |= {"num_shards": max(1, self.workers), "index": index}
        if self.rng:
            # NumPy's seeds are not negative, so a negative sign adds a word.
            key = (abs(self.seed), epoch, index, *([1] if self.seed < 0 else []))
            options["rng"] = np.random.default_rng(key)
        made = self.make(**options)
        try:
            return iter(made)
        except TypeError as error:
            raise ArgumentError(
                "`make` must return a generator, or anything else to iterate over; it returned "
                f"{type(made).__name__}. Does it `yield` its elements?"
            ) from error

    def batches(self, batch_size: int, *, drop_remainder: bool = False) -> Stream:
        """Return batches of the elements.

        Each batch comes from one generator; the batches of all generators come in turn. The
        elements left over when a generator ends are batched with those of the other generators, at
        the end.

        Parameters
        ----------
        batch_size : int
        drop_remainder : bool
            Leave out the last batch if it is short.

        Raises
        ------
        oocdata.errors.ArgumentError, oocdata.errors.EmptyError
            If an argument breaks its rule, or a dropped remainder leaves no batch of `length`.
        """
        drop = as_flag("drop_remainder", drop_remainder)
        stream = Stream(self, as_count("batch_size", batch_size), drop)
        if stream.steps == 0:
            raise EmptyError(
                f"`batch_size` must be at most the {self.length} elements of an epoch when the "
                f"remainder is dropped; got {batch_size}."
            )
        if self.workers:
            registry.call("check_workers", stream)
        return stream


@_without_methods
@without_methods({"shape": "; `fit` takes .to_tf() or .to_keras()"})
@dataclass(frozen=True, eq=False, repr=False)
class Stream(Epochs):
    """Batches of the elements that generators yield; made by `Generated.batches`.

    Attributes
    ----------
    dataset : Generated
    batch_size : int
    drop_remainder : bool

    Examples
    --------
    >>> import oocdata as ooc
    >>> stream = ooc.generate(lambda: iter(range(5)), workers=0).batches(2)
    >>> [batch.tolist() for batch in stream]
    [[0, 1], [2, 3], [4]]
    """

    dataset: Generated
    batch_size: int
    drop_remainder: bool

    num_shards: ClassVar[int] = 1
    steps_together: ClassVar[int] = 1
    cached: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<Stream: batches of {self.batch_size} from {self.dataset!r}>"

    @property
    def workers(self) -> int:
        """Number of processes that run generators."""
        return self.dataset.workers

    @property
    def steps(self) -> int | None:
        """Number of batches in an epoch, or None if it is unknown."""
        length = self.dataset.length
        if length is None:
            return None
        return length // self.batch_size if self.drop_remainder else -(-length // self.batch_size)

    @property
    def spec(self) -> Spec:
        """Shape and dtype of each array of a batch; the batch axis is None if one may be short."""
        length = self.dataset.length
        full = self.drop_remainder or (length is not None and length % self.batch_size == 0)
        return batched_spec(self.dataset.spec, self.batch_size if full else None)

    @property
    def array_bytes(self) -> list[int]:
        """Bytes of each array of a batch; of Python objects, the bytes of the references."""
        return [self.batch_size * leaf.nbytes for leaf in leaves(self.dataset.spec)]

    def input_bytes(self, steps: int = 1) -> int:
        """Return 0: generators need no intermediate buffers."""
        return 0

    def ahead(self, parallel: int = 1, prefetch: int = 2) -> Ahead:
        """Return how many batches are made ahead; a generator makes one at a time."""
        return plan_ahead(1, self.batch_bytes, 1, prefetch, cached=False)

    def pass_from(self, epoch: int, start: int = 0, epochs: int = 1) -> Pass:
        """Return the pass over an epoch, whose number of steps is unknown."""
        return Pass(epoch * _STEPS, _STEPS, _STEPS, 1)

    def reader(self) -> Callable[[Run], list[Batch]]:
        """Return the function that makes a generator's next batch, to be called in order."""
        return GeneratorBatches(self.dataset, self.batch_size).run

    def epoch(self, epoch: int, *, prefetch: int = 2) -> Iterator[Any]:
        """Iterate over the batches of new generators, one in each worker process.

        Parameters
        ----------
        epoch : int
            Number that `rng` depends on, besides the seed and the worker.
        prefetch : int
            Batches made ahead without worker processes. Each worker process makes two ahead, within
            the memory that `oocdata.set_memory` allows.
        """
        epoch = as_count("epoch", epoch, at_least=0)
        prefetch = as_count("prefetch", prefetch, at_least=0)
        return registry.call("epoch", self, epoch, prefetch=prefetch)

    def to_tf(self, *, prefetch: int = 2) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` of the batches; each iteration over it is the next epoch.

        With generators that never end, pass ``steps_per_epoch`` to ``fit``: then all its epochs
        come from one iteration.

        Parameters
        ----------
        prefetch : int
            As in `epoch`.

        Returns
        -------
        tf.data.Dataset
            With static shapes (except a short last batch), and with known cardinality if `generate`
            was given the length. Its iterators can't be saved.

        Raises
        ------
        oocdata.errors.MissingDependencyError
            If TensorFlow is not installed.
        """
        return registry.call("stream_to_tf", self, prefetch)

    def to_keras(self, steps: int | None = None) -> keras.utils.PyDataset:
        """Return a ``keras.utils.PyDataset`` of the batches, for Keras with any backend.

        Parameters
        ----------
        steps : int, optional
            Steps of an epoch of ``fit``, which takes the first `steps` batches of new generators.
            By default all batches, if `generate` was given the length. With a smaller
            ``steps_per_epoch``, the generators go on in the next epoch of ``fit``; they are kept if
            ``fit`` ends before `steps`.

        Raises
        ------
        oocdata.errors.ArgumentError
            If `steps` is not a positive integer, or is needed and missing; or if the batches hold
            bytes of unequal length.
        oocdata.errors.MissingDependencyError
            If Keras is not installed.
        """
        return registry.call("stream_to_keras", self, steps)
