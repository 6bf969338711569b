"""Generators in worker processes: every yielded element once, in the same order."""

from __future__ import annotations

import copy
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.errors import ArgumentError, EmptyError, MapError, UnknownFormatError, WorkerError
from oocdata.generator_batches import Merged
from oocdata.memory import account
from oocdata.reading.workers.pool import TASKS
from oocdata.runs import Run

pytestmark = pytest.mark.usefixtures("own_account")

NUMBER = ooc.ArraySpec((), np.dtype(np.int64))


def numbers(length: int) -> Callable[..., Iterator[int]]:
    def make(num_shards: int, index: int) -> Iterator[int]:
        yield from range(index, length, num_shards)

    return make


class InProcess:
    """The runs of a stream's generators, made in this process; has the interface of `ReadAhead`."""

    pass_ = None

    def __init__(self, stream: ooc.Stream, epoch: int = 0) -> None:
        self.number = 0
        self.closed = False
        self._epoch = epoch
        self._readers = [stream.reader() for _ in range(stream.workers)]

    def read(self) -> list[Any]:
        at, self.number = self.number, self.number + 1
        return self._readers[at % len(self._readers)](Run(self._epoch, at, at + 1))

    def close(self) -> None:
        self.closed = True


def in_turn(parts: list[list[int]], size: int, drop: bool) -> list[list[int]]:
    """Return the expected batches, by a simple model."""
    full = [[part[at : at + size] for at in range(0, len(part), size)] for part in parts]
    rest = [part[len(part) // size * size :] for part in parts]
    most = max(map(len, full), default=0)
    batches = [
        part[at] for at in range(most) for part in full if at < len(part) and len(part[at]) == size
    ]
    # Leftovers come in the order in which generators end.
    ended = sorted(range(len(parts)), key=lambda at: (len(parts[at]) // size, at))
    left = [number for at in ended for number in rest[at]]
    batches += [left[at : at + size] for at in range(0, len(left), size)]
    return [batch for batch in batches if len(batch) == size or not drop]


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    size=st.integers(1, 7),
    drop=st.booleans(),
)
def test_each_element_is_delivered_once_in_turn(lengths: list[int], size: int, drop: bool) -> None:
    parts = [[100 * at + number for number in range(n)] for at, n in enumerate(lengths)]
    generated = ooc.Generated(
        lambda num_shards, index: iter(parts[index]),
        NUMBER,
        len(parts),
        None,
        False,
        True,
        False,
        0,
    )
    stream = generated.batches(size, drop_remainder=drop)
    runs = InProcess(stream)
    merged = Merged(runs, stream, list)  # type: ignore[arg-type]
    found = []
    while batches := merged.read():
        found += [batch.tolist() for batch in batches]
    assert found == in_turn(parts, size, drop)
    assert runs.closed
    assert merged.read() is None


@given(
    pieces=st.lists(st.integers(0, 9), max_size=12),
    size=st.integers(1, 7),
    reuse=st.booleans(),
)
def test_yielded_batches_are_batched_again(pieces: list[int], size: int, reuse: bool) -> None:
    made: list[np.ndarray[Any, Any]] = []

    def make() -> Iterator[Any]:
        same, start = np.empty((9, 2)), 0
        for length in pieces:
            values = np.arange(start, start + 2 * length, dtype=float).reshape(length, 2)
            start += 2 * length
            made.append(values)
            if reuse:  # one array, again and again
                same[:length] = values
                values = same[:length]
            yield values

    spec = ooc.ArraySpec((2,), np.dtype(float))
    batches = list(ooc.generate(make, spec, workers=0, batched=True).batches(size))
    whole = np.concatenate([np.empty((0, 2)), *made])
    assert_array_equal(np.concatenate([np.empty((0, 2)), *batches]), whole)
    assert [len(batch) for batch in batches] == [
        min(size, len(whole) - at) for at in range(0, len(whole), size)
    ]


def test_worker_processes_give_the_same_batches() -> None:
    lengths = (0, 5, 100)

    # Inside a function, so that it is pickled by value and workers need not import this module.
    def of_part(num_shards: int, index: int) -> Iterator[tuple[Any, int]]:
        for number in range(lengths[index]):
            yield np.full((2, 3), number, "f4"), 1000 * index + number

    found = list(ooc.generate(of_part, workers=3, shard=True).batches(8))
    expected = in_turn([[1000 * at + n for n in range(lengths[at])] for at in range(3)], 8, False)
    assert [labels.tolist() for _, labels in found] == expected
    for frames, labels in found:
        assert_array_equal(frames[:, 1, 2], labels % 1000)
    gc.collect()
    assert account().nbytes == 0


def test_an_abandoned_pass_can_be_restarted() -> None:
    stream = ooc.generate(numbers(1 << 40), workers=2, shard=True).batches(4)
    for _ in range(2):
        batches = iter(stream)
        assert next(batches).tolist() == [0, 2, 4, 6]
        assert next(batches).tolist() == [1, 3, 5, 7]
        batches.close()  # type: ignore[attr-defined]
    del stream, batches
    gc.collect()
    assert account().nbytes == 0


def test_a_copy_begins_with_epoch_0() -> None:
    stream = ooc.generate(lambda: iter(range(5)), workers=0).batches(2)
    next(iter(stream))
    for one in (copy.copy(stream), cloudpickle.loads(cloudpickle.dumps(stream))):
        assert [batch.tolist() for batch in one] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("workers", [0, 2])
def test_generators_run_a_limited_distance_ahead(workers: int, tmp_path: Path) -> None:
    made = np.memmap(tmp_path / "made", np.int64, "w+", shape=(2,))

    def make(num_shards: int, index: int) -> Iterator[int]:
        own = np.memmap(tmp_path / "made", np.int64, "r+")
        for number in range(1 << 40):
            own[index] += 1
            yield number * num_shards + index

    stream = ooc.generate(make, NUMBER, workers=workers, shard=True).batches(8)
    batches = iter(stream)
    each = 1 if not workers else TASKS
    for taken in range(1, 60):
        next(batches)
        begun = taken + workers * each if workers else taken + 1 + 2
        assert made.sum() <= 8 * (begun + max(1, workers))
    batches.close()  # type: ignore[attr-defined]


def test_draws_depend_on_seed_epoch_and_worker() -> None:
    def make(rng: np.random.Generator) -> Iterator[Any]:
        for _ in range(8):
            yield rng.random(2)

    def stream(seed: int) -> ooc.Stream:
        return ooc.generate(make, workers=2, rng=True, seed=seed).batches(8)

    def drawn(seed: int, epoch: int) -> Any:
        runs = InProcess(stream(seed), epoch)
        return np.concatenate([runs.read()[0] for _ in range(2)])

    first = np.concatenate(list(stream(0).epoch(0)))
    assert first.shape == (16, 2)
    assert len(np.unique(first)) == 32
    assert_array_equal(first, drawn(0, 0))
    for seed, epoch in ((1, 0), (0, 1), (-1, 0)):
        assert not np.isin(first, drawn(seed, epoch)).any()
    assert not np.isin(drawn(1, 0), drawn(-1, 0)).any()
    truth = np.random.default_rng((0, 0, 1)).random((8, 2))
    assert_array_equal(first[8:], truth)


def test_generators_with_equal_beginnings_are_an_error() -> None:
    alike = ooc.generate(lambda: iter(range(100)), workers=2).batches(4)
    with pytest.raises(ArgumentError, match="two of the 2 began with the same 4 elements"):
        list(alike)


@pytest.mark.parametrize(
    ("length", "found", "workers"), [(15, "more", 0), (17, "16", 0), (17, "16", 2)]
)
def test_another_length_is_an_error(length: int, found: str, workers: int) -> None:
    make = numbers(16)
    stream = ooc.generate(make, workers=workers, shard=True, length=length).batches(4)
    with pytest.raises(MapError, match=f"the {length} elements of `length`.*there were {found}"):
        list(stream)
    assert len(list(ooc.generate(make, workers=workers, shard=True, length=16).batches(4))) == 4


def test_constant_elements_are_allowed() -> None:
    zeros = ooc.generate(lambda: (np.zeros(3) for _ in range(10)), workers=2).batches(4)
    assert [len(batch) for batch in zeros] == [4, 4, 4, 4, 4]


def test_an_exception_has_its_traceback() -> None:
    def make(num_shards: int, index: int) -> Iterator[int]:
        yield from range(index, 9, 2)
        if index:
            raise KeyError("no scene")

    stream = ooc.generate(make, workers=2, shard=True).batches(2)
    batches = iter(stream)
    assert [next(batches).tolist() for _ in range(4)] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    with pytest.raises(KeyError, match="no scene") as caught:
        list(batches)
    assert "in make" in "".join(caught.value.__notes__)
    assert "In worker process" in caught.value.__notes__[0]


def test_a_killed_worker_is_named() -> None:
    def make(num_shards: int, index: int) -> Iterator[int]:
        yield from range(8)
        os.kill(os.getpid(), 9)

    batches = iter(ooc.generate(make, NUMBER, workers=1, shard=True).batches(4))
    next(batches), next(batches)
    with pytest.raises(WorkerError, match="was ended by SIGKILL") as caught:
        next(batches)
    assert caught.value.signal == "SIGKILL"
    assert caught.value.pid not in (None, os.getpid())


def test_a_bound_method_and_text() -> None:
    class Scenes:
        def __init__(self, side: int) -> None:
            self.side = side

        def generate_data(self, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
            for number in range(3):
                image = rng.random((self.side, self.side))
                yield {"label": number, "image": image, "text": "ö" * number}

    stream = ooc.generate(Scenes(5).generate_data, workers=2, rng=True).batches(6)
    (batch,) = stream
    assert batch["image"].shape == (6, 5, 5)
    assert batch["label"].tolist() == [0, 1, 2, 0, 1, 2]
    assert batch["text"].tolist() == ["ö".encode() * number for number in (0, 1, 2, 0, 1, 2)]


def test_python_numbers_take_the_dtype_of_the_spec() -> None:
    spec = (ooc.ArraySpec((2,), np.dtype("f4")), ooc.ArraySpec((), np.dtype("u1")))
    make = lambda: iter([([1, 2.5], 7), [[3, 4], True]])  # noqa: E731
    (batch,) = ooc.generate(make, spec, workers=0).batches(2)
    assert [array.dtype.name for array in batch] == ["float32", "uint8"]
    assert [array.tolist() for array in batch] == [[[1, 2.5], [3, 4]], [7, 1]]


@pytest.mark.parametrize(
    ("yielded", "message"),
    [
        (np.zeros(3), r"\(2,\) float32; it yielded \(3,\) float64"),
        (np.zeros(2), r"it yielded \(2,\) float64"),
        (np.zeros((2, 1), "f4"), r"it yielded \(2, 1\) float32"),
        ((np.zeros(2, "f4"),), r"it yielded \(\(2,\) float32,\)"),
        ({"a": np.zeros(2, "f4")}, r"it yielded \{'a': \(2,\) float32\}"),
        (None, "one made object"),
    ],
)
def test_elements_that_differ_from_the_spec(yielded: Any, message: str) -> None:
    spec = ooc.ArraySpec((2,), np.dtype("f4"))
    with pytest.raises(MapError, match=message):
        list(ooc.generate(lambda: iter([yielded]), spec, workers=0).batches(1))


def test_a_number_that_the_dtype_does_not_hold() -> None:
    spec = ooc.ArraySpec((), np.dtype("u1"))
    with pytest.raises(MapError, match=r"spec says, \(\) uint8; it yielded \(\) int64"):
        list(ooc.generate(lambda: iter([7, -1]), spec, workers=0).batches(1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ooc.generate(iter([1])), "`make` must be a function .* without calling it"),
        (lambda: ooc.generate([1, 2]), "`make` must be a function .*; got list"),
        (lambda: ooc.generate(lambda: iter([]), workers=0), "`make` must yield at least one"),
        (lambda: ooc.generate(lambda: iter([1]), workers=-1), "`workers`"),
        (lambda: ooc.generate(lambda: iter([1]), seed=1.5), "`seed`"),
        (lambda: ooc.generate(lambda: iter([1]), workers=0).batches(0), "`batch_size`"),
        (lambda: ooc.generate(lambda: iter([1]), spec="f4"), "`spec` must hold things"),
        (lambda: ooc.generate(lambda: None, workers=0), "generator.*; it returned NoneType.*yield"),
        (lambda: ooc.generate(lambda: iter([1]), shard="no"), "`shard` must be True or False"),
        (lambda: ooc.generate(lambda: iter([1]), rng=0), "`rng` must be True or False"),
        (lambda: ooc.generate(lambda: iter([1]), batched="no"), "`batched` must be True or False"),
        (
            lambda: ooc.generate(lambda: iter([1]), workers=0).batches(1, drop_remainder="no"),
            "`drop_remainder` must be True or False",
        ),
    ],
)
def test_wrong_calls(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
    assert issubclass(EmptyError, ArgumentError)


@pytest.mark.parametrize("name", ["shuffle", "split", "map", "batch"])
def test_methods_that_need_numbered_elements(name: str) -> None:
    made = ooc.generate(lambda: iter([1]), workers=0)
    for one in (made, made.batches(1)):
        with pytest.raises(AttributeError, match=rf"has no `{name}`.*ooc\.open\(numbers\)\.map"):
            getattr(one, name)
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = one.nothing  # type: ignore[union-attr]
    with pytest.raises(AttributeError, match=r"write \.batches\(size\)\.to_tf\(\)"):
        _ = made.to_tf  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"`fit` takes \.to_tf\(\) or \.to_keras\(\)"):
        _ = made.batches(1).shape  # type: ignore[attr-defined]  # `fit` asks for it


def test_single_numbers_where_batches_are_expected() -> None:
    with pytest.raises(MapError, match=r"with batched=True, .*; it yielded \(\) int64"):
        list(ooc.generate(lambda: iter([7, 8]), batched=True, workers=0).batches(2))
    with pytest.raises(UnknownFormatError, match=r"ooc\.generate reads"):
        ooc.open(lambda: iter([7, 8]))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_attribute_error_of_a_generator_is_raised_as_it_is(workers: int) -> None:
    def make() -> Iterator[Any]:
        yield np.zeros(3).numpy()  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="no attribute 'numpy'"):
        ooc.generate(make, workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_function_that_yields_nothing_later(workers: int) -> None:
    stream = ooc.generate(lambda: None, NUMBER, workers=workers).batches(1)
    with pytest.raises(ArgumentError, match="must return a generator"):
        list(stream)


def test_an_object_that_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(
        ArgumentError, match=r"`workers` must be 0 .*something in .*<lambda> can't be"
    ):
        ooc.generate(lambda: iter([int(lock.locked())]), workers=1).batches(1)


def test_a_finished_pass_closes_its_generator() -> None:
    closed = []

    def make() -> Iterator[int]:
        try:
            yield from range(1 << 40)
        finally:
            closed.append(True)

    read = ooc.generate(make, NUMBER, workers=0).batches(2).reader()
    assert read(Run(0, 0, 1))[0].tolist() == [0, 1]
    assert read(Run(1, 0, 1))[0].tolist() == [0, 1]
    assert closed == [True]
