"""Test `Loader.profile`: the verdict, the rates and the advice.

Rates are measured by a clock of the tests, which advances when batches are made or used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from counting import counted
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import fingerprint
from oocdata.errors import ArgumentError, DamagedChunkError
from oocdata.loader import Loader
from oocdata.reading.workers.pool import WorkerPool
from oocdata.tools import profile as module
from oocdata.tools.profile import Profile, pacing
from oocdata.tools.profile.pacing import Epochs, pace, steps_of_a_period

ROWS = np.random.default_rng(0).normal(0, 1, (4000, 256)).astype("f4")


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def epochs(self, *sizes: int, seconds: float) -> Epochs:
        """Return what makes batches of these sizes, each in so many seconds."""

        def epoch(number: int) -> Iterator[np.ndarray]:
            for size in sizes:
                self.now += seconds
                yield np.zeros(size)

        return epoch

    def step(self, seconds: float) -> Any:
        def step(batch: Any) -> None:
            self.now += seconds

        return step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all measuring."""
    clock = Clock()
    for measuring in (module, pacing):
        monkeypatch.setattr(measuring, "perf_counter", clock)
    return clock


@pytest.fixture
def loader() -> Loader:
    return ooc.open(ROWS).batches(32, shuffle=True, seed=3)


@pytest.mark.parametrize(("period", "seconds"), [(1, 10.0), (4, 16.0)])
def test_a_pace_is_clocked_from_period_to_period(period: int, seconds: float, clock: Clock) -> None:
    found = pace(clock.epochs(*[10] * 100, seconds=2.0), 9.0, period=period)
    assert found == (5.0, 1.0)
    assert clock.now == 2.0 + seconds  # the first batch, and so many more


def test_a_pace_tells_waiting_from_work(clock: Clock) -> None:
    epochs = clock.epochs(*[10] * 100, seconds=1.0)
    assert pace(epochs, 80.0, consume=clock.step(3.0)) == (10 / 4, 0.25)


def test_short_epochs_follow_one_another(clock: Clock) -> None:
    seen: list[int] = []

    def epochs(number: int) -> Iterator[np.ndarray]:
        seen.append(number)
        clock.now += 1.0  # in which both are read
        yield np.zeros(3)
        yield np.zeros(2)

    assert pace(epochs, 4.0, first=7, period=2) == (5.0, 1.0)
    assert seen == [7, 8, 9, 10, 11]


def test_a_long_period_has_its_share_of_the_first_wait(clock: Clock) -> None:

    def epochs(number: int) -> Iterator[np.ndarray]:
        clock.now += 500.0  # in which a whole epoch is decoded
        for _ in range(1000):
            yield np.zeros(10)
            clock.now += 0.5

    found = pace(epochs, 10.0, period=1000)
    assert clock.now == 500.0 + 40.5
    assert found == (pytest.approx(10.0), pytest.approx(1.0))


def test_an_epoch_of_cached_chunks_is_one_period() -> None:
    view, _ = counted(np.zeros((1000, 4)), 10, 4)
    assert steps_of_a_period(view.batches(8, shuffle="global")) == 125
    assert steps_of_a_period(view.batches(8)) < 125
    assert steps_of_a_period(ooc.open(np.zeros((1000, 4))).batches(8, shuffle=True)) < 125


VERDICTS = [
    (0.001, 0.014, "model", "data 1.0 ms, model 14.0 ms a batch; the model waited 7% of the time."),
    (0.5, 0.01, "data", "data 500.0 ms, model 10.0 ms a batch; the model waited 98% of the time."),
    (
        2.0,
        2.0,
        "balanced",
        "data 2,000.0 ms, model 2,000.0 ms a batch; the model waited 50% of the time.",
    ),
]


@pytest.mark.parametrize(("data", "model", "verdict", "line"), VERDICTS)
def test_verdicts(data: float, model: float, verdict: str, line: str, clock: Clock) -> None:
    epochs = clock.epochs(*[32] * 1000, seconds=data)
    rates, _ = module._rates(epochs, clock.step(model), 500 * (data + model), 1)
    found = Profile(*rates, mapped=0.0, batch_size=32, reader="NumPy", advice=(), seconds=1.0)
    assert found.verdict == verdict
    assert str(found).splitlines()[0] == line
    assert ("Nothing is to be gained" in str(found)) is (verdict == "model")


def rates(monkeypatch: pytest.MonkeyPatch, *given: float | None) -> None:
    monkeypatch.setattr(module, "_rates", lambda *_: (given, 0.0))


def test_advice_where_the_model_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((600, 8, 8), "f4")))
    loader = ooc.open(tmp_path / "f.npy").batches(32)
    rates(monkeypatch, 100.0, 1000.0, 0.9)
    found = loader.profile(lambda batch: None)
    assert [one.kind for one in found.advice] == ["layout"]
    assert "- The bytes of a row are not contiguous" in str(found)
    json.dumps(found.to_json(), allow_nan=False)
    rates(monkeypatch, 1000.0, 100.0, 0.05)
    assert loader.profile(lambda batch: None).advice == ()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_map_function(workers: int, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:

    def slow(x: Any) -> Any:
        clock.now += 1.0
        return x * 2

    rates(monkeypatch, 100.0, 1000.0, 0.9)
    loader = ooc.open(ROWS).map(slow).batches(32, workers=workers)
    found = module.profile(loader, lambda batch: None)
    assert found.mapped == 1.0
    assert found.advice[0].kind == "map"
    assert "workers" in found.advice[0].text


@pytest.mark.parametrize("to_tf", [False, True])
def test_worker_processes_are_started_once(to_tf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `fit`, whose epochs share them."""
    started: list[WorkerPool] = []
    make = WorkerPool.__init__

    def counting(pool: WorkerPool, *arguments: Any, **named: Any) -> None:
        started.append(pool)
        make(pool, *arguments, **named)

    monkeypatch.setattr(WorkerPool, "__init__", counting)
    loader = ooc.open(ROWS[:64]).map(np.negative).batches(32, workers=1)
    loader.profile(lambda batch: None, seconds=0.1, to_tf=to_tf)
    assert len(started) == 1


def test_without_a_model(loader: Loader) -> None:
    found = loader.profile(seconds=0.1)
    assert found.verdict == "alone"
    assert (found.model_rate, found.waited, found.advice) == (None, None, ())
    assert str(found) == f"The loader alone gives {found.data_rate:,.0f} elements/s."


def test_the_loader_is_as_it_was(loader: Loader) -> None:
    before = fingerprint(loader)
    loader.profile(lambda batch: None, seconds=0.1)
    assert fingerprint(loader) == before
    assert_array_equal(next(iter(loader)), loader.batch(0, epoch=0))
    loader.profile(lambda batch: None, seconds=0.1)
    assert_array_equal(next(iter(loader)), loader.batch(0, epoch=1))


def test_batches_are_those_of_the_loader(loader: Loader) -> None:
    seen: list[Any] = []
    loader.profile(lambda batch: seen.append(batch.copy()), seconds=0.1)
    rows = {row.tobytes() for row in ROWS}
    assert {row.tobytes() for batch in seen for row in batch} <= rows
    assert_array_equal(seen[0], loader.batch(0, epoch=0))


class Model:
    """A step like Keras's `train_on_batch`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None) -> float:
        self.calls.append((type(x), type(y)))
        return 0.0


class Loss:
    """A result like PyTorch's loss, which can't be converted to NumPy because it has a gradient."""

    def numpy(self) -> None:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


class Promised:
    """A result like JAX's, which is computed later; an error is raised when it is awaited."""

    def block_until_ready(self) -> None:
        raise RuntimeError("out of memory")


def test_a_step_that_returns_its_loss(loader: Loader) -> None:
    assert loader.profile(lambda batch: Loss(), seconds=0.1).model_rate is not None
    with pytest.raises(RuntimeError, match="out of memory"):
        loader.profile(lambda batch: Promised(), seconds=0.1)


def test_what_a_step_is_given() -> None:
    view = ooc.open(ROWS)
    pairs = view.next_frame().batches(32)
    model = Model()
    pairs.profile(model.train_on_batch, seconds=0.1)
    assert set(model.calls) == {(np.ndarray, np.ndarray)}
    seen: list[Any] = []
    pairs.profile(lambda *arrays: seen.append(len(arrays)), seconds=0.1)
    assert set(seen) == {2}
    named = ooc.zip({"past": view[:-1].windows(4), "now": view[4:]}).batches(16)
    named.profile(lambda batch: seen.append(sorted(batch)), seconds=0.1)
    assert seen[-1] == ["now", "past"]
    assert view[:1].batches(32).profile(lambda batch: None, seconds=0.1).data_rate > 0


def test_to_tf(loader: Loader) -> None:
    import tensorflow as tf

    traced = []

    @tf.function
    def step(x: Any) -> Any:
        traced.append(x.shape)
        return tf.reduce_sum(x)

    found = loader.profile(step, seconds=0.3, to_tf=True)
    assert found.reader == "to_tf"
    assert found.model_rate is not None
    assert found.model_rate > 0
    assert traced  # before anything was timed: a graph is built once for a shape
    assert len(traced) <= 2
    assert_array_equal(next(iter(loader)), loader.batch(0, epoch=0))


def test_wrong_arguments(loader: Loader) -> None:
    with pytest.raises(ArgumentError, match="`model_step`"):
        loader.profile(3)  # type: ignore[arg-type]
    for wrong in (0, -1, float("nan"), True, "5"):
        with pytest.raises(ArgumentError, match="`seconds`"):
            loader.profile(seconds=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [KeyError("my own"), KeyboardInterrupt()])
def test_what_the_model_raises_comes_out(loader: Loader, error: BaseException) -> None:
    calls = []

    def step(batch: Any) -> None:
        calls.append(1)
        if len(calls) > 20:
            raise error

    with pytest.raises(type(error)):
        loader.profile(step, seconds=5.0)


def test_a_damaged_chunk_is_an_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=ROWS, chunks=(500, 256), compression="gzip", shuffle=True)
        place = file["u"].id.get_chunk_info(0)
    with open(tmp_path / "a.h5", "r+b") as raw:
        raw.seek(place.byte_offset + place.size // 2)
        raw.write(b"\xff" * 40)
    with pytest.raises(DamagedChunkError):
        ooc.open(tmp_path / "a.h5").batches(32).profile(seconds=0.2)
