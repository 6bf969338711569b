"""Data-parallel training: the same global batches for any number of ranks, and nothing read twice.

What needs several devices or several processes runs in processes of its own.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from pathlib import Path
from typing import Any

import fork_server
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from ports import lasting_ports
from recording import RecordingSource

import oocdata as ooc

EPOCHS = 2

COMMON = (
    f"import sys; sys.path.append({str(Path(__file__).parents[1])!r})\n"
    """
import os; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import json, sys
import numpy as np, tensorflow as tf, oocdata as ooc
from recording import RecordingSource

def loader_of(count):
    source = RecordingSource(np.arange(count * 2, dtype="f4").reshape(count, 2) // 2)
    return source, ooc.View.of(source).batches(8, shuffle="global", seed=1)

def shares(strategy, loader):
    # As in the README.
    def dataset(context):
        replicas = strategy.num_replicas_in_sync
        here = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * here
        parts = [loader.shard(replicas, first + number).to_tf() for number in range(here)]
        turns = tf.data.Dataset.range(here).repeat()
        return tf.data.Dataset.choose_from_datasets(parts, turns) if here > 1 else parts[0]
    return strategy.distribute_datasets_from_function(dataset)

def rows_read(source):
    return [int(row) for rows in source.rows for row in rows]
"""
)

MIRRORED = (
    COMMON
    + """
import keras

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
folder, told = sys.argv[1], {}

for count in (40, 37, 33):
    source, loader = loader_of(count)
    step = tf.function(lambda batch: strategy.run(lambda x: x[:, 0], args=(batch,)))
    distributed = shares(strategy, loader)
    source.forget()  # reads for the fingerprint
    told[f"loop {count}"] = [
        [[part.numpy().tolist() for part in strategy.experimental_local_results(step(batch))]
         for batch in distributed]
        for _ in range(2)
    ]
    told[f"rows {count}"] = rows_read(source)

seen = []
class Noting(keras.Sequential):
    def train_step(self, data):
        tf.py_function(lambda x: seen.append(x.numpy()[:, 0].tolist()), [data[0]], [])
        return super().train_step(data)

for name in ("fit", "resume", "resumed"):
    # (A short last batch leaves a replica without elements: its loss must not be NaN.)
    _, loader = loader_of(33)
    loader = ooc.zip(loader.dataset, loader.dataset).batches(8, shuffle="global", seed=1)
    seen.clear()
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = Noting([keras.Input((2,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
        model.compile(keras.optimizers.Adam(1e-3), "mse")
    if name == "fit":
        history = model.fit(loader.to_tf(), epochs=2, verbose=0, shuffle=False)
    else:
        class Stop(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if name == "resume" and self.model.optimizer.iterations.numpy() == 7:
                    self.model.stop_training = True
        resume = ooc.Resume(os.path.join(folder, "fit"), loader, every=1)
        history = model.fit(
            resume.to_tf(), epochs=2, verbose=0, shuffle=False, callbacks=[Stop(), resume]
        )
        told[f"start {name}"] = resume.start
    told[name] = list(seen)
    told[f"loss {name}"] = history.history["loss"]

# Replicas have moving averages of their own, and sums of metrics.
for name, after in (("whole", 0), ("parts", 7), ("parts", 0)):
    _, loader = loader_of(40)
    loader = ooc.zip(loader.dataset, loader.dataset).batches(8, shuffle="global", seed=1)
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
        model.compile(keras.optimizers.SGD(1e-3), "mse", metrics=["mae"])
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == after:
                self.model.stop_training = True
    resume = ooc.Resume(os.path.join(folder, name), loader, every=1)
    history = model.fit(
        resume.to_tf(), epochs=2, verbose=0, shuffle=False, callbacks=[Stop(), resume]
    )
    told[f"end of {name}"] = [
        history.history["mae"][-1], *(variable.numpy().tolist() for variable in model.variables)
    ]
print("told", json.dumps(told))
"""
)

WORKER = (
    COMMON
    + """
rank, ports, count = int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
    "task": {"type": "worker", "index": rank},
})
strategy = tf.distribute.MultiWorkerMirroredStrategy()
source, loader = loader_of(count)

@tf.function
def step(batch):
    def one(x):
        total = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(x[:, 0]))
        return x[:, 0], total
    return strategy.run(one, args=(batch,))

told = []
distributed = shares(strategy, loader)
source.forget()  # reads for the fingerprint
for epoch in range(2):
    for batch in distributed:
        x, total = step(batch)
        told.append([x.numpy().tolist(), float(total)])
print("told", json.dumps({"steps": told, "rows": rows_read(source)}))
"""
)


def global_batches(count: int, replicas: int) -> list[list[int]]:
    """Return the rows of each step of two epochs, without rows that can't be divided evenly."""
    loader = ooc.open(np.arange(count)).batches(8, shuffle="global", seed=1)
    batches = [
        loader.positions(step, epoch) for epoch in range(EPOCHS) for step in range(len(loader))
    ]
    dealt = [batch[: len(batch) // replicas * replicas].tolist() for batch in batches]
    return [batch for batch in dealt if batch]


def flat(lists: Any) -> list[Any]:
    return list(itertools.chain.from_iterable(lists))


def told(process: fork_server.Forked) -> Any:
    """Return the output of a process; fail if it hangs."""
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    return json.loads(next(line[5:] for line in out.splitlines() if line.startswith("told ")))


def start(script: str, *arguments: str) -> fork_server.Forked:
    return fork_server.start(textwrap.dedent(script), *arguments)


@pytest.mark.parametrize("count", [640, 637, 633])
@pytest.mark.parametrize("options", [{"shuffle": "global"}, {"shuffle": False}], ids=str)
def test_global_batches_are_the_same_for_any_number_of_ranks(count: int, options: Any) -> None:
    whole = ooc.open(np.arange(count)).batches(16, seed=3, **options)
    for shards in (1, 2, 4, 8, 16):
        sources = [RecordingSource(np.arange(count)) for _ in range(shards)]
        parts = [
            ooc.View.of(source).batches(16, seed=3, **options).shard(shards, index)
            for index, source in enumerate(sources)
        ]
        (steps,) = {len(part) for part in parts}
        for step in range(steps):
            expected = whole.batch(step, 1)
            found = np.concatenate([part.batch(step, 1) for part in parts])
            assert_array_equal(found, expected[: len(expected) // shards * shards])
        # Every rank takes the same steps with the same sizes, and reads only its own rows.
        reads = [{int(row) for rows in source.rows for row in rows} for source in sources]
        assert (
            sum(map(len, reads))
            == len(set().union(*reads))
            == count // 16 * 16 + (count % 16 // shards * shards)
        )


def test_the_remainder_is_dropped_for_any_number_of_ranks() -> None:
    whole = ooc.open(np.arange(637)).batches(16, drop_remainder=True)
    for shards in (1, 2, 16):
        parts = [whole.shard(shards, index) for index in range(shards)]
        assert {len(part) for part in parts} == {39}
        assert {part.batch(38).shape for part in parts} == {(16 // shards,)}


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("tensorflow")
    return told(start(MIRRORED, str(tmp_path_factory.mktemp("mirrored"))))


@pytest.mark.long
class TestMirrored:
    @pytest.mark.parametrize("count", [40, 37, 33])
    def test_a_custom_loop(self, mirrored: Any, count: int) -> None:
        expected = global_batches(count, 2)
        found = [step for epoch in mirrored[f"loop {count}"] for step in epoch]
        assert [flat(step) for step in found] == expected
        assert all(len(one) == len(other) for one, other in found)
        # Both replicas are of one process; together they read what they use, once.
        assert sorted(mirrored[f"rows {count}"]) == sorted(flat(expected))

    def test_fit_trains_on_every_element_once_an_epoch(self, mirrored: Any) -> None:
        rows = [int(row) for part in mirrored["fit"] for row in part]
        assert len(rows) == 33 * EPOCHS
        for epoch in range(EPOCHS):
            assert sorted(rows[33 * epoch : 33 * (epoch + 1)]) == list(range(33))
        assert np.isfinite(mirrored["loss fit"]).all()

    def test_fit_continues(self, mirrored: Any) -> None:
        assert mirrored["start resume"] == [1, 2]
        assert mirrored["start resumed"] == [2, 0]
        loader = ooc.open(np.arange(33)).batches(8, shuffle="global", seed=1)
        # Two parts a step, in any order of the two replicas.
        parts = [*mirrored["resume"][:14], *mirrored["resumed"]]
        steps = [sorted(map(int, flat(parts[at : at + 2]))) for at in range(0, len(parts), 2)]
        expected = [
            sorted(loader.positions(step, epoch).tolist())
            for epoch in range(EPOCHS)
            for step in range(len(loader))
        ]
        assert steps == expected

    def test_sums_and_averages_over_replicas_continue(self, mirrored: Any) -> None:
        """Each replica goes on with the common average, which stays that of all."""
        for parts, whole in zip(mirrored["end of parts"], mirrored["end of whole"], strict=True):
            assert parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.long
def test_two_processes_with_an_uneven_end() -> None:
    """MultiWorkerMirroredStrategy on loopback: no hang in the last, short step of an epoch."""
    pytest.importorskip("tensorflow")
    ports = json.dumps(lasting_ports(2))
    workers = [start(WORKER, str(rank), ports, "37") for rank in range(2)]
    ranks = [told(worker) for worker in workers]
    expected = global_batches(37, 2)
    for number, (one, other) in enumerate(zip(ranks[0]["steps"], ranks[1]["steps"], strict=True)):
        assert one[0] + other[0] == expected[number]
        assert one[1] == other[1] == sum(expected[number])
    assert len(ranks[0]["steps"]) == len(expected)
    # No rank reads rows that it does not use.
    for rank in ranks:
        assert sorted(rank["rows"]) == sorted(flat(step[0] for step in rank["steps"]))
