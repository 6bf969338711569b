"""tf.data: exact epochs, static shapes, memory that never changes, and a clean exit."""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import textwrap
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fork_server
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.engines import buffers
from oocdata.errors import ArgumentError, DamagedChunkError, DatasetGoneError, PositionError
from oocdata.frontends.batching import without_aliases
from oocdata.memory import account
from oocdata.reading import ahead
from oocdata.runs import Pass

tf = pytest.importorskip("tensorflow")
tfdata = pytest.importorskip("oocdata.frontends.tfdata")
feeds = pytest.importorskip("oocdata.frontends.feeds")
originals = pytest.importorskip("oocdata.frontends.originals")
calls = feeds.calls


def drawn(dataset: Any) -> np.ndarray:
    return np.concatenate([np.asarray(batch) for batch in dataset])


def epoch(loader: ooc.Loader, number: int) -> np.ndarray:
    return np.concatenate(list(loader.epoch(number)))


@pytest.fixture
def loader() -> ooc.Loader:
    return ooc.open(np.arange(103)).batches(10, shuffle=True, seed=7)


def test_an_array_that_a_function_returns_twice_is_copied() -> None:
    one, other = np.arange(3), np.ones(2)
    first, second, third = without_aliases([one, one, other])
    assert first is one
    assert third is other
    assert not np.shares_memory(first, second)
    assert_array_equal(first, second)


class TestEpochs:
    def test_each_pass_is_the_next_epoch(self, loader: ooc.Loader) -> None:
        dataset = loader.to_tf()
        for number in range(3):
            assert_array_equal(drawn(dataset), epoch(loader, number))

    def test_an_unused_iterator_does_not_count(self, loader: ooc.Loader) -> None:
        dataset = loader.to_tf()
        iterators = [iter(dataset) for _ in range(4)]
        assert_array_equal(drawn(iterators[2]), epoch(loader, 0))
        assert_array_equal(drawn(iterators[0]), epoch(loader, 1))

    def test_two_simultaneous_iterators_are_independent(self, loader: ooc.Loader) -> None:
        dataset = loader.to_tf()
        one, two = iter(dataset), iter(dataset)
        pairs = [(next(one), next(two)) for _ in range(len(loader))]
        assert_array_equal(np.concatenate([a for a, _ in pairs]), epoch(loader, 0))
        assert_array_equal(np.concatenate([b for _, b in pairs]), epoch(loader, 1))

    def test_repeat_continues(self, loader: ooc.Loader) -> None:
        got = drawn(loader.to_tf().repeat(3))
        assert_array_equal(got, np.concatenate([epoch(loader, number) for number in range(3)]))

    def test_only_the_first_pass_begins_in_the_middle(self, loader: ooc.Loader) -> None:
        dataset = loader.to_tf(start=(2, 4), epochs=3)
        first, second = drawn(dataset), drawn(dataset)
        assert_array_equal(first, np.concatenate([epoch(loader, n) for n in (2, 3, 4)])[40:])
        assert_array_equal(second, np.concatenate([epoch(loader, n) for n in (5, 6, 7)]))
        # Of every pass but the first, also to datasets derived from it.
        assert dataset.cardinality() == dataset.prefetch(2).cardinality() == 3 * 11

    def test_transformations_appended_by_the_user_are_tuned(self, loader: ooc.Loader) -> None:
        assert loader.to_tf().options().autotune.enabled in (None, True)
        assert "__iter__" not in vars(type(loader.to_tf().repeat(2)))

    def test_its_own_iterators_are_not_tuned(
        self, loader: ooc.Loader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # TensorFlow's tuner may delay the end of an iterator by as long as its pass took.
        begun: list[bool | None] = []
        kind = type(loader.to_tf().with_options(tf.data.Options()))

        def noted(dataset: Any, of: Any = kind.__iter__) -> Any:
            begun.append(dataset.options().autotune.enabled)
            return of(dataset)

        monkeypatch.setattr(kind, "__iter__", noted)
        assert_array_equal(drawn(loader.to_tf()), epoch(loader, 0))
        assert begun == [False]

    def test_it_is_reduced_untuned(
        self, loader: ooc.Loader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[bool | None] = []
        kind = type(loader.to_tf().with_options(tf.data.Options()))

        def noted(dataset: Any, *arguments: Any, of: Any = kind.reduce, **names: Any) -> Any:
            begun.append(dataset.options().autotune.enabled)
            return of(dataset, *arguments, **names)

        monkeypatch.setattr(kind, "reduce", noted)
        dataset, zero = loader.to_tf(), tf.constant(0, tf.int64)
        total = dataset.reduce(zero, reduce_func=lambda so_far, x: so_far + tf.reduce_sum(x))
        assert total == 103 * 102 // 2
        assert begun == [False]

    @pytest.mark.parametrize(("parallel", "prefetch"), [(1, 0), (1, 1), (4, 8)])
    def test_parallel_reading_keeps_the_order(
        self, loader: ooc.Loader, parallel: int, prefetch: int
    ) -> None:
        dataset = loader.to_tf(parallel=parallel, prefetch=prefetch)
        assert_array_equal(drawn(dataset), epoch(loader, 0))

    def test_inside_a_graph(self, loader: ooc.Loader) -> None:
        @tf.function
        def total(dataset: Any) -> Any:
            return dataset.reduce(
                tf.constant(0, tf.int64), lambda so_far, x: so_far + tf.reduce_sum(x)
            )

        assert total(loader.to_tf()) == 103 * 102 // 2


class TestShapes:
    @pytest.mark.parametrize(
        ("count", "drop", "length"), [(100, False, 10), (103, True, 10), (103, False, None)]
    )
    def test_static(self, count: int, drop: bool, length: int | None) -> None:
        view = ooc.open(np.zeros((count, 4, 5), "f4"))
        dataset = view.batches(10, drop_remainder=drop).to_tf()
        assert dataset.element_spec == tf.TensorSpec((length, 4, 5), tf.float32)
        assert dataset.cardinality() == len(list(dataset))

    def test_trees(self) -> None:
        view = ooc.open(np.arange(12.0).reshape(6, 2))
        both = ooc.zip({"pair": view.next_frame(), "row": view[:5]}).batches(5)
        batch = next(iter(both.to_tf()))
        expected = both.batch(0)
        assert_array_equal(batch["pair"][1], expected["pair"][1])
        assert_array_equal(batch["row"], expected["row"])

    def test_every_dtype_arrives_as_numbers(self) -> None:
        # TensorFlow takes a big-endian array for a native one, silently.
        dtypes = [
            "?",
            "i1",
            "u1",
            "<i2",
            ">i2",
            ">u2",
            ">i4",
            "<u4",
            ">i8",
            "u8",
            "f2",
            ">f4",
            "f8",
            ">c8",
            "c16",
        ]
        arrays = {name: (np.arange(24).reshape(6, 4) % 120).astype(name) for name in dtypes}
        both = ooc.zip({name: ooc.open(array) for name, array in arrays.items()})
        (batch,) = both.batches(6).to_tf()
        for name, array in arrays.items():
            assert batch[name].dtype.as_numpy_dtype == array.dtype.newbyteorder("=").type
            assert_array_equal(batch[name], array)


class TestMemory:
    @pytest.mark.parametrize(("rows", "together"), [(64, 1), (640, 10)])
    def test_a_batch_is_passed_on_without_a_copy(
        self, monkeypatch: pytest.MonkeyPatch, rows: int, together: int
    ) -> None:
        addresses = []
        real = tfdata.stack_batches

        def spy(batches: list[np.ndarray], loader: ooc.Loader) -> list[np.ndarray]:
            addresses.extend(batch.ctypes.data for batch in batches)
            return real(batches, loader)

        monkeypatch.setattr(tfdata, "stack_batches", spy)
        loader = ooc.open(np.zeros((rows, 100))).batches(8)
        assert loader.steps_together == together
        taken = [np.asarray(memoryview(batch)).ctypes.data for batch in loader.to_tf(parallel=1)]
        assert len(taken) == rows // 8
        assert taken == addresses  # the addresses to which the source wrote

    def test_results_of_functions_are_copied_once_and_aligned(self) -> None:
        mine = np.arange(101.0)  # the user continues to change it

        def changing(x: np.ndarray) -> np.ndarray:
            mine[: len(x)] = x
            return mine[: len(x)]

        mapped = ooc.open(np.arange(100.0)).map(changing, spec=ooc.ArraySpec((), np.dtype("f8")))
        batches = list(mapped.batches(10).to_tf(parallel=1))
        assert_array_equal(np.concatenate(batches), np.arange(100.0))

    @pytest.mark.parametrize("size", [32, 200])
    def test_an_array_returned_twice_is_copied(self, size: int) -> None:
        """An autoencoder's data, say. TensorFlow would compute in place in one of the tensors."""
        rows = np.random.default_rng(0).random((400, 64), np.float32)
        loader = ooc.open(rows).map(lambda x: (x, x.reshape(-1, 8, 8))).batches(size)
        dataset = loader.to_tf().map(lambda x, y: (x * 2, y))
        for _ in range(5):
            for (x, y), (_, wanted) in zip(dataset, loader.epoch(0), strict=True):
                assert_array_equal(y, wanted)
                assert_array_equal(x, wanted.reshape(-1, 64) * 2)

    def test_blocks_are_reused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = []
        real = buffers._Block

        def counted(nbytes: int) -> Any:
            made.append(nbytes)
            return real(nbytes)

        monkeypatch.setattr(buffers, "_Block", counted)
        loader = ooc.open(np.zeros((2000, 999))).batches(4)
        runs = 3 * -(-500 // loader.steps_together)
        for _ in range(3):
            for _ in loader.to_tf():
                pass
        # On a busy machine, more are in use at a time; without reuse, there is a block a run.
        assert len(made) <= 2 * runs // 3


def test_a_pass_prepares_two_functions_that_run_on_one_device(loader: ooc.Loader) -> None:
    """TensorFlow would place and optimise any others anew in each pass."""
    variant = tf.data.experimental.to_variant(loader.to_tf())
    serialized = tf.raw_ops.DatasetToGraphV2(input_dataset=variant)
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    functions = graph.library.function
    assert len(functions) == 2
    assert all(each.attr["experimental_ints_on_device"].b for each in functions)


class TestLifetimes:
    def test_the_loader_is_deleted_with_its_dataset(self) -> None:
        array = np.zeros((10, 3))
        source = ooc.open(array).source
        gone = weakref.ref(source)
        dataset = ooc.View.of(source).batches(2).to_tf()
        list(dataset)
        del source, dataset
        gc.collect()
        assert gone() is None

    def test_a_derived_dataset_or_iterator_keeps_the_loader(self, loader: ooc.Loader) -> None:
        # AutoGraph fails on Python 3.13, and keeps the error, and so all objects in this frame.
        doubled = tf.autograph.experimental.do_not_convert(lambda x: x * 2)
        derived = loader.to_tf().map(doubled).unbatch().batch(103)
        iterator = iter(loader.to_tf())
        gc.collect()
        assert_array_equal(np.asarray(next(iter(derived))), epoch(loader, 0) * 2)
        assert_array_equal(next(iterator), loader.batch(0))

    def test_made_inside_a_function(
        self, loader: ooc.Loader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """There the dataset is a node of the graph; the Python object is deleted after tracing."""
        real, callers = tfdata.passes, []

        def spy(*arguments: Any) -> Any:
            callers.append(sys._getframe(1).f_code.co_filename)
            return real(*arguments)

        monkeypatch.setattr(tfdata, "passes", spy)

        @tf.function
        def total() -> Any:
            # Not a Python loop, which never ends if AutoGraph can't convert it.
            zero = tf.constant(0, tf.int64)
            return loader.to_tf().reduce(zero, lambda found, x: found + tf.reduce_sum(x))

        for _ in range(2):
            assert total() == 103 * 51
            gc.collect()
        nested = tf.data.Dataset.range(2).flat_map(lambda _: loader.to_tf())
        gc.collect()
        assert sorted(drawn(nested)) == sorted([*range(103)] * 2)
        assert callers == [tfdata.__file__] * 2  # not code that AutoGraph has generated

    def test_made_in_a_graph_of_tensorflow_1(self, loader: ooc.Loader) -> None:
        loader.to_tf()  # makes the function that reads, which is kept, outside of the graphs
        gc.collect()
        before, graphs = len(feeds._feeds), []
        for _ in range(2):
            with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
                iterator = tf.compat.v1.data.make_initializable_iterator(loader.to_tf())
                session.run(iterator.initializer)
                batch = iterator.get_next()
                got = [session.run(batch) for _ in range(len(loader))]
                with pytest.raises(tf.errors.OutOfRangeError):
                    session.run(batch)
            assert_array_equal(np.concatenate(got), epoch(loader, 0))
            graphs.append(weakref.ref(graph))
        del iterator, batch, graph, session
        gc.collect()
        assert ([graph() for graph in graphs], len(feeds._feeds)) == ([None, None], before)

    def test_autograph_does_not_warn_of_a_dataset_made_inside_a_function(
        self, loader: ooc.Loader, caplog: pytest.LogCaptureFixture
    ) -> None:
        logger = logging.getLogger("tensorflow")
        logger.addHandler(caplog.handler)
        try:
            nested = tf.data.Dataset.range(2).interleave(lambda _: loader.to_tf())
            found = drawn(nested)
        finally:
            logger.removeHandler(caplog.handler)
        assert sorted(found) == sorted([*range(103)] * 2)
        assert "AutoGraph" not in caplog.text

    def test_a_deleted_feed_is_a_clear_error(self) -> None:
        with pytest.raises(DatasetGoneError, match="Keep a reference"):
            feeds.call(np.int64(10**9), feeds.Feed.read)


def fails_with(error: BaseException) -> Callable[[np.ndarray], np.ndarray]:
    def fail(x: np.ndarray) -> np.ndarray:
        if (x >= 50).any():
            raise error
        return x

    return fail


class TestReadingAhead:
    """An iterator reads ahead once, and no longer than it lives: counted."""

    @pytest.fixture
    def begun(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
        """First step and run number of each `ReadAhead` that begins."""
        found = []
        real = ahead.Reader.begin

        def spy(reader: ahead.Reader, pass_: Pass, number: int = 0) -> ahead.ReadAhead:
            found.append((pass_.first, number))
            return real(reader, pass_, number)

        monkeypatch.setattr(ahead.Reader, "begin", spy)
        return found

    def test_once_a_pass(self, loader: ooc.Loader, begun: list[tuple[int, int]]) -> None:
        dataset = loader.to_tf()
        for _ in range(2):
            assert len(list(dataset)) == len(loader)
        assert begun == [(0, 0), (len(loader), 0)]

    @pytest.mark.parametrize("workers", [0, 1])
    def test_it_ends_with_the_iterator(self, workers: int) -> None:
        loader = ooc.open(np.arange(4000)).batches(10, workers=workers)
        dataset = loader.to_tf(prefetch=30)
        idle = 0
        for _ in range(3):
            list(dataset.take(2))
            drawn(ooc.open(np.arange(5)).batches(1).to_tf())  # releases what the last iterator held
            gc.collect()
            idle = idle or account().nbytes  # workers keep their memory for the next pass
            assert account().nbytes == idle
            assert bool(idle) == bool(workers)
        del dataset
        gc.collect()
        assert account().nbytes == 0

    def test_no_more_batches_than_stated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """TensorFlow's automatic prefetch at the end of a pipeline grew to 1,300 batches."""
        read = [0]
        real = tfdata.stack_batches

        def counting(batches: list[np.ndarray], loader: ooc.Loader) -> list[np.ndarray]:
            read[0] += len(batches)
            return real(batches, loader)

        monkeypatch.setattr(tfdata, "stack_batches", counting)
        loader = ooc.open(np.zeros((20_000, 10))).batches(10)
        most = []
        for taken, _ in enumerate(loader.to_tf(epochs=4), start=1):
            most.append(read[0] - taken)
            if taken % 1000 == 0:
                with calls.changed:
                    assert calls.changed.wait_for(lambda: calls.running == 0, timeout=60)
        assert read[0] == 4 * len(loader)
        assert max(most) <= loader.ahead().batches

    def test_simultaneous_iterators(self, begun: list[tuple[int, int]]) -> None:
        loader = ooc.open(np.arange(400)).batches(10, shuffle=True, seed=2)
        dataset = loader.to_tf()
        got = list(tf.data.Dataset.zip(dataset, dataset, dataset))
        assert sorted(begun) == [(epoch * len(loader), 0) for epoch in range(3)]
        for epoch, found in enumerate(zip(*got, strict=True)):
            assert_array_equal(found, list(loader.epoch(epoch)))

    def test_simultaneously_restored_iterators(
        self, tmp_path: Path, begun: list[tuple[int, int]]
    ) -> None:
        """Three iterators continue from one position: the one saved there, and two others."""
        loader = ooc.open(np.arange(400)).batches(10, shuffle=True, seed=2)
        dataset = loader.to_tf(parallel=1, prefetch=0)
        first = iter(dataset)
        expected = list(loader.epoch(0))
        begun.clear()
        for step in range(7):
            assert_array_equal(next(first), expected[step])
        path = tf.train.Checkpoint(first).write(str(tmp_path / "saved"))
        others = [iter(dataset), iter(dataset)]
        for other in others:
            tf.train.Checkpoint(other).read(path).assert_consumed()
        for step in range(7, 40):
            for iterator in (first, *others):
                assert_array_equal(next(iterator), expected[step])
        assert begun == [(0, 0), (0, 2), (0, 2)]  # one each; steps 0, 1 to 4, and from 5 on

    def test_after_an_error(self, begun: list[tuple[int, int]]) -> None:
        def refuse(x: np.ndarray) -> np.ndarray:
            if x[0] == 30:
                raise KeyError("no")
            return x

        spec = ooc.ArraySpec((), np.dtype("i8"))
        iterator = iter(ooc.open(np.arange(100)).map(refuse, spec=spec).batches(10).to_tf())
        for step in range(10):
            if step == 3:
                with pytest.raises(KeyError):
                    next(iterator)
            else:
                assert_array_equal(next(iterator), np.arange(step * 10, step * 10 + 10))
        assert begun == [(0, 0), (0, 4)]


class TestErrors:
    @pytest.fixture(autouse=True)
    def let_go_of_what_failed(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """A parameter's traceback holds a dataset, which TensorFlow may go on to read ahead."""
        error = request.getfixturevalue("error") if "error" in request.fixturenames else None
        yield
        if error is not None:
            error.__traceback__ = None

    @pytest.mark.parametrize(
        "error",
        [
            DamagedChunkError("chunks must decode.", path="a.h5", key="/u", rows=[55]),
            ValueError("a value"), TypeError("a type"), MemoryError("big"), OSError("disk"),
            KeyError("key"), ZeroDivisionError("zero"), NotImplementedError("later"),
        ],
        ids=lambda error: type(error).__name__,
    )  # fmt: skip
    def test_the_original_is_raised(self, error: BaseException) -> None:
        spec = ooc.ArraySpec((), np.dtype("i8"))
        dataset = ooc.open(np.arange(100)).map(fails_with(error), spec=spec).batches(10).to_tf()
        with pytest.raises(type(error)) as caught:
            list(dataset)
        assert caught.value is error

    @pytest.mark.parametrize("error", [KeyError("key"), MemoryError("big")], ids=repr)
    def test_the_original_is_raised_out_of_a_graph(self, error: BaseException) -> None:
        spec = ooc.ArraySpec((), np.dtype("i8"))
        dataset = ooc.open(np.arange(100)).map(fails_with(error), spec=spec).batches(10).to_tf()

        @tf.function
        def consume() -> Any:
            return dataset.reduce(tf.constant(0, tf.int64), lambda n, x: n + tf.reduce_sum(x))

        with pytest.raises(type(error)) as caught:
            consume()
        assert caught.value is error
        # Also where Python 3.11 replaces the traceback.
        line = fails_with.__code__.co_firstlineno + 3
        assert f"line {line}, in fail" in "".join(traceback.format_exception(error))

    def test_stop_iteration_does_not_end_the_epoch_silently(self) -> None:
        spec = ooc.ArraySpec((), np.dtype("i8"))
        loader = ooc.open(np.arange(100)).map(fails_with(StopIteration("no")), spec=spec).batches(9)
        for batches in (loader, loader.to_tf()):
            with pytest.raises(RuntimeError, match="StopIteration"):
                list(batches)

    def test_ignored_errors_skip_a_run_and_end_the_pass(self) -> None:
        """TensorFlow's `assert_cardinality` raised at the end, again and again."""

        def refuse(x: np.ndarray) -> np.ndarray:
            if 30 in x:
                raise KeyError("no")
            return x

        mapped = ooc.open(np.arange(100)).map(refuse, spec=ooc.ArraySpec((), np.dtype("i8")))
        dataset = mapped.batches(10).to_tf(epochs=2)
        expected = np.tile([*range(0, 100, 10)], 2).tolist()
        expected = [first for first in expected if first != 30]
        for ignoring in (dataset.ignore_errors(), dataset.prefetch(1).ignore_errors()):
            for _ in range(2):
                batches = itertools.islice(ignoring.as_numpy_iterator(), 30)
                assert [int(batch[0]) for batch in batches] == expected

    def test_a_file_cut_short_while_it_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.npy"
        np.save(path, np.zeros((100, 100)))
        loader = ooc.open(path).batches(10)
        iterator = iter(loader.to_tf(prefetch=0, parallel=1))
        next(iterator)
        with open(path, "r+b") as file:
            file.truncate(128 + 50 * 800)
        with pytest.raises(ooc.errors.TruncatedFileError, match="cut short") as caught:
            list(iterator)
        assert caught.value.path == str(path)
        assert caught.value.rows

    @pytest.mark.parametrize(
        ("arguments", "kind"),
        [
            ({"epochs": 0}, ArgumentError),
            ({"parallel": 0}, ArgumentError),
            ({"prefetch": -1}, ArgumentError),
            ({"start": 3}, ArgumentError),
            ({"start": (0.7, 0)}, ArgumentError),
            ({"start": (0, 11)}, PositionError),
            ({"start": (-1, 0)}, PositionError),
        ],
        ids=str,
    )
    def test_a_wrong_call_fails_where_it_is_made(
        self, loader: ooc.Loader, arguments: dict[str, Any], kind: type[Exception]
    ) -> None:
        with pytest.raises(kind):
            loader.to_tf(**arguments)

    def test_other_failed_reads_are_not_kept(self) -> None:
        """The traceback of an exception refers to the batch and to all buffers of its read."""
        gone = []

        def fail(x: np.ndarray) -> np.ndarray:
            gone.append(weakref.ref(x))
            raise KeyError("no")

        spec = ooc.ArraySpec((), np.dtype("i8"))
        dataset = ooc.open(np.arange(400)).map(fail, spec=spec).batches(10).to_tf(parallel=4)
        with pytest.raises(KeyError):
            list(dataset)
        del dataset
        gc.collect()
        # Reads ahead fail too, and TensorFlow's thread releases their memory afterwards.
        for _ in range(100):
            with calls.changed:
                assert calls.changed.wait_for(lambda: calls.running == 0, timeout=60)
            if all(ref() is None for ref in gone):
                break
            threading.Event().wait(0.05)
            gc.collect()
        assert [ref() for ref in gone if ref() is not None] == []

    def test_tensorflow_still_makes_its_own_errors(self, loader: ooc.Loader) -> None:
        loader.to_tf()
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.reshape(tf.range(3), (2, 2))
        made = tf.errors.UnknownError(None, None, "something else")
        assert type(made) is tf.errors.UnknownError
        assert made.message == "something else"

    @pytest.mark.parametrize("error", [ValueError(""), KeyError("k"), OSError("on fire")], ids=str)
    def test_a_foreign_error_with_the_same_text_is_unchanged(self, error: Exception) -> None:
        """While an error of this package, with the same type and text, is raised elsewhere."""

        def broken(_: Any) -> Any:
            raise type(error)(*error.args)

        spec = ooc.ArraySpec((), np.dtype("i8"))
        ours = ooc.open(np.arange(100)).map(fails_with(error), spec=spec).batches(10).to_tf()
        iterator = iter(ours.prefetch(4))
        for _ in range(4):
            next(iterator)
        with calls.changed:  # until the read ahead has failed
            assert calls.changed.wait_for(lambda: originals._kept, timeout=60)
        theirs = tf.data.Dataset.range(1).map(
            lambda n: tf.numpy_function(broken, [n], tf.int64, stateful=False)
        )
        for _ in range(2):
            with pytest.raises(tf.errors.OpError, match=type(error).__name__):
                list(theirs)
        next(iterator)
        with pytest.raises(type(error)) as caught:
            next(iterator)
        assert caught.value is error

    def test_tensorflow_is_unchanged_if_nothing_fails(self, loader: ooc.Loader) -> None:
        gc.collect()
        for number in range(int(feeds.add(None))):
            feeds.forget(number)  # datasets that other tests left
        spec = ooc.ArraySpec((), np.dtype("i8"))
        broken = ooc.open(np.arange(60)).map(fails_with(KeyError("no")), spec=spec).batches(10)
        dataset = broken.to_tf(parallel=1, prefetch=0)
        with pytest.raises(KeyError):
            list(dataset)
        del dataset
        gc.collect()
        list(loader.to_tf())
        assert "__new__" not in vars(tf.errors.UnknownError)


EXITS = {
    "a live iterator": "it = iter(loader.to_tf(parallel=4, prefetch=8)); next(it)",
    "an iterator in a global cycle": "a = []; a.append((a, iter(loader.to_tf()))); next(a[0][1])",
    "batches that are being read": """
def slow(x):
    np.random.default_rng(0).random(300_000)
    return x
spec = ooc.ArraySpec((3,), np.dtype("f8"))
it = iter(view.map(slow, spec=spec).batches(4).to_tf(parallel=8, prefetch=64))
next(it)
""",
}


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS.keys())
def test_the_process_exits(code: str) -> None:
    script = textwrap.dedent(
        """
        import numpy as np, oocdata as ooc
        view = ooc.open(np.zeros((400_000, 3)))
        loader = view.batches(4)
        """
    )
    # The timeout detects a hang; it is not a measure of speed.
    process = fork_server.start(script + code, finalize=True)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Fatal" not in err


@pytest.mark.parametrize("size", [8, 16, 20])
def test_rows_zipped_with_mapped_rows(size: int) -> None:
    """Whose steps are read one by one, each into memory of its own."""
    numbers = ooc.open(np.arange(400))
    loader = ooc.zip(numbers, numbers.map(np.negative)).batches(size, shuffle=True, seed=1)
    for given, (x, y) in zip(loader.epoch(0), loader.to_tf(), strict=True):
        assert_array_equal(x, given[0])
        assert_array_equal(y, -given[0])
