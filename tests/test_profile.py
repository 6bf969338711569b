"""`Loader.profile`: whether it is the model or the data, and what to change.

Verdicts by the clock are tried with factors of ten and more between model and data; where other
programs take all processors they may come out otherwise all the same, so they have no say.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.describe import fingerprint
from oocdata.errors import ArgumentError, DamagedChunkError
from oocdata.loader import Loader
from oocdata.testing import RecordingSource
from oocdata.tools.profile import pacing, profile
from oocdata.tools.profile.pacing import pace
from oocdata.tools.profile.result import Profile

ROWS = np.random.default_rng(0).normal(0, 1, (4000, 256)).astype("f4")


class Busy(RecordingSource):
    """A source that works for a while in Python for each read."""

    def read(self, origins: Any, extent: Extent, out: Any) -> None:
        spin()
        super().read(origins, extent, out)


def spin() -> None:
    for _ in range(200_000):
        pass


def nothing(*batch: Any) -> None:
    pass


def slow_step(*batch: Any) -> None:
    time.sleep(0.05)


@pytest.fixture
def loader() -> Loader:
    return ooc.open(ROWS).batches(32, shuffle=True, seed=3)


@pytest.mark.timing
def test_a_slow_model(loader: Loader) -> None:
    found = loader.profile(slow_step, seconds=1.0)
    assert found.verdict == "model"
    assert found.model_rate is not None
    assert found.data_rate > 10 * found.model_rate
    assert "The model is the bottleneck" in found.sentence
    assert found.waited is not None
    assert found.waited < 0.5


@pytest.mark.timing
def test_slow_data() -> None:
    loader = View.of(Busy(ROWS)).batches(32)
    found = loader.profile(nothing, seconds=1.0)
    assert found.verdict == "data"
    assert found.model_rate is not None
    assert found.model_rate > 10 * found.data_rate
    assert "The data are the bottleneck" in str(found)
    assert found.waited is not None
    assert found.waited > 0.5


def test_without_a_model(loader: Loader) -> None:
    found = loader.profile(seconds=0.2)
    assert found.verdict == "alone"
    assert (found.model_rate, found.both_rate, found.waited) == (None,) * 3
    assert "model" not in str(found)
    json.dumps(found.as_json(), allow_nan=False)


def test_the_loader_is_as_it_was(loader: Loader) -> None:
    before = fingerprint(loader)
    interval = sys.getswitchinterval()
    loader.profile(nothing, seconds=0.2)
    assert fingerprint(loader) == before
    assert sys.getswitchinterval() == interval
    assert_array_equal(next(iter(loader)), loader.batch(0, epoch=0))
    loader.profile(nothing, seconds=0.2)
    assert_array_equal(next(iter(loader)), loader.batch(0, epoch=1))


def test_batches_are_those_of_the_loader(loader: Loader) -> None:
    seen: list[Any] = []
    loader.profile(lambda batch: seen.append(batch.copy()), seconds=0.2)
    rows = {row.tobytes() for row in ROWS}
    assert {row.tobytes() for batch in seen for row in batch} <= rows
    assert_array_equal(seen[0], loader.batch(0, epoch=0))


class Model:
    """What Keras's `train_on_batch` looks like."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None) -> float:
        self.calls.append((type(x), type(y)))
        return 0.0


class Loss:
    """What PyTorch's loss looks like: it has a gradient, so it refuses to be read."""

    def numpy(self) -> None:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


class Promised:
    """What JAX gives before it is there: what failed is told when it is waited for."""

    def block_until_ready(self) -> None:
        raise RuntimeError("out of memory")


def test_a_step_that_returns_its_loss(loader: Loader) -> None:
    assert loader.profile(lambda batch: Loss(), seconds=0.1).model_rate is not None
    with pytest.raises(RuntimeError, match="out of memory"):
        loader.profile(lambda batch: Promised(), seconds=0.1)


def test_a_tuple_is_given_as_arguments() -> None:
    pairs = ooc.open(ROWS).next_frame().batches(32)
    model = Model()
    pairs.profile(model.train_on_batch, seconds=0.1)
    assert set(model.calls) == {(np.ndarray, np.ndarray)}
    whole: list[Any] = []
    pairs.profile(lambda batch: whole.append(type(batch)), seconds=0.1)
    assert set(whole) == {tuple}
    three: list[int] = []
    pairs.profile(lambda *arrays: three.append(len(arrays)), seconds=0.1)
    assert set(three) == {2}


def test_windows_and_dicts() -> None:
    view = ooc.open(ROWS)
    seen: list[Any] = []
    loader = ooc.zip({"past": view[:-1].windows(4), "now": view[4:]}).batches(16)
    loader.profile(lambda batch: seen.append(sorted(batch)), seconds=0.1)
    assert seen[0] == ["now", "past"]


def test_to_tf(loader: Loader) -> None:
    import tensorflow as tf

    traced = []

    @tf.function
    def step(x: Any) -> Any:
        traced.append(x.shape)
        return tf.reduce_sum(x)

    found = loader.profile(step, seconds=0.5, to_tf=True)
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


def test_what_the_model_raises_comes_out(loader: Loader) -> None:
    def fail(batch: Any) -> None:
        raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        loader.profile(fail, seconds=0.1)


def test_an_interrupt_leaves_nothing_behind(loader: Loader) -> None:
    calls = []

    def step(batch: Any) -> None:
        calls.append(1)
        if len(calls) > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
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


def test_one_batch_and_one_element() -> None:
    assert ooc.open(ROWS[:1]).batches(32).profile(nothing, seconds=0.1).data_rate > 0


def test_a_pace_counts_what_came_between_two_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs: list[int] = []

    def epoch(number: int) -> Any:
        epochs.append(number)
        return iter([np.zeros(size) for size in (3, 3, 3, 2)])

    found = pace(epoch, seconds=1e-9, period=1, first=5)
    assert (found.elements, found.batches) == (3, 1)
    assert epochs == [5]
    ticks = iter(range(1000))
    monkeypatch.setattr(pacing, "perf_counter", lambda: next(ticks))
    found = pace(epoch, seconds=3.0, period=2)  # by a clock that ticks when it is looked at
    assert (found.elements, found.batches) == (6, 2)
    found = pace(lambda number: iter([np.zeros(7)]), seconds=0.0)
    assert (found.elements, found.batches) == (7, 1)  # from end to end


def test_an_epoch_that_is_all_read_ahead_is_clocked_from_end_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]

    def epoch(number: int) -> Any:
        clock[0] += 1.0  # in which both are read
        yield np.zeros(3)
        yield np.zeros(2)

    monkeypatch.setattr(pacing, "perf_counter", lambda: clock[0])
    assert pace(epoch, seconds=5.0).rate == pytest.approx(5.0)


BASE = Profile(100.0, 1000.0, 100.0, 0.9, 0.0, False, 1.0, "Shuffle", 32, 0, "NumPy", 1.0)

REMEDIES = [
    ({"mapped": 0.9}, "90% of a batch's time is your map function: .batches(…, workers=2)"),
    ({"mapped": 0.9, "workers": 2}, "take more than workers=2"),
    ({"amplification": 30.0}, 'decodes 30.0: shuffle=True or "block"'),
    ({"amplification": 3.0, "order": "BlockShuffle"}, "ooc.set_memory"),
    ({"decodes": True}, "a faster codec or more cores"),
    ({}, "larger batches"),
    ({"batch_size": 4096}, "as fast as bytes are copied"),
    ({"model_rate": 10.0, "waited": 0.0}, "nothing is to be gained"),
    ({"model_rate": 10.0, "waited": 0.4}, "larger batches"),
    ({"model_rate": None}, ""),
]


@pytest.mark.parametrize(("fields", "words"), REMEDIES, ids=str)
def test_remedies(fields: dict[str, Any], words: str) -> None:
    found = replace(BASE, **fields)
    assert words in found.remedy
    assert words in str(found).replace("\n", " ")
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_map_function(workers: int) -> None:
    def double(x: Any) -> Any:
        spin()
        return x * 2

    loader = ooc.open(ROWS).map(double).batches(32, workers=workers)
    found = loader.profile(nothing, seconds=0.5)
    assert found.mapped > 0.5
    assert "workers" in found.remedy


def test_the_function_is_the_method(loader: Loader) -> None:
    assert profile(loader, seconds=0.1).batch_size == 32
