"""Real processes and SIGKILL: over the whole training, every element exactly once an epoch."""

from __future__ import annotations

import json
import random
import signal
import textwrap
import threading
from pathlib import Path
from typing import Any

import fork_server
import numpy as np
import pytest

import oocdata as ooc

pytest.importorskip("tensorflow")

EPOCHS, EVERY = 4, 4

# Each step notes how many came before it, by the optimizer; its rows; and its loss, to the bit.
TRAIN = (
    textwrap.dedent(
        """
    import os; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import json, signal, sys
    import keras, numpy as np, tensorflow as tf
    import oocdata as ooc

    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(3)
    folder, at, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    log = open(f"{folder}/log", "a", buffering=1)

    def loader():
        rows = ooc.open(f"{folder}/rows.npy")
        return rows.map(lambda x: (x, x[:, 1:2])).batches(8, shuffle=True, seed=5)

    class Noting(keras.Sequential):
        def train_step(self, data):
            before = int(self.optimizer.iterations.numpy())
            logs = super().train_step(data)
            loss = float(logs["loss"])
            log.write(json.dumps([before, data[0][:, 0].numpy().tolist(), loss.hex()]) + "\\n")
            return logs

    layers = [keras.Input((3,)), keras.layers.Dense(64, "relu"), keras.layers.Dropout(0.5)]
    model = Noting([*layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-3), "mse", run_eagerly=True)

    def kill(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    # While something is saved: the archive half written, not yet on the disk, without its name, …
    if at == "writing":
        real = np.lib.format.write_array
        calls = iter(range(10**9))
        np.lib.format.write_array = lambda *a, **k: kill() if next(calls) == 25 else real(*a, **k)
    elif at != "anywhere":
        saves = iter(range(10**9))
        real_call = getattr(os, at)
        setattr(os, at, lambda *a: kill() if next(saves) == 2 else real_call(*a))

    resume = ooc.Resume(f"{folder}/run", loader(), every=EVERY)
    log.write(json.dumps(["start", *resume.start]) + "\\n")
    data = resume.to_tf(**options)
    model.fit(data, epochs=EPOCHS, callbacks=[resume], verbose=0, shuffle=False)
    np.savez(f"{folder}/weights.npz", *model.get_weights())
    """
    )
    .replace("EVERY", str(EVERY))
    .replace("EPOCHS", str(EPOCHS))
)


def folder_with_rows(path: Path) -> Path:
    path.mkdir()
    rows = np.random.default_rng(0).random((101, 3)).astype("f4")
    rows[:, 0] = np.arange(101)
    np.save(path / "rows.npy", rows)
    return path


def start(folder: Path, at: str = "anywhere", **options: Any) -> fork_server.Forked:
    return fork_server.start(TRAIN, folder, at, json.dumps(options), hear="")


def lines(folder: Path) -> list[Any]:
    path = folder / "log"
    whole = path.read_text().split("\n")[:-1] if path.exists() else []  # the last may be cut
    return [json.loads(line) for line in whole]


def weights(folder: Path) -> list[np.ndarray]:
    with np.load(folder / "weights.npz") as found:
        return [found[name] for name in found.files]


@pytest.mark.long
def test_killed_at_any_moment(tmp_path: Path) -> None:
    undisturbed = folder_with_rows(tmp_path / "undisturbed")
    whole = start(undisturbed)

    folder = folder_with_rows(tmp_path / "killed")
    chance = random.Random(0)
    kills = ["anywhere", "writing", "replace", "fsync", "anywhere"]
    for number, at in enumerate(kills):
        options = {"parallel": 1 + number, "prefetch": 2 * number}
        process = start(folder, at, **options)
        if at == "anywhere":
            # This number of steps later, whatever the process is doing then.
            enough = len(lines(folder)) + chance.randrange(2, 10)
            while len(lines(folder)) < enough and process.poll() is None:
                threading.Event().wait(0.01)
            process.send_signal(signal.SIGKILL)
        assert process.wait(200) == -signal.SIGKILL
    assert start(folder).wait(200) == 0
    assert whole.wait(200) == 0
    expected = {line[0]: line for line in lines(undisturbed)[1:]}

    loader = ooc.open(folder / "rows.npy").batches(8, shuffle=True, seed=5)
    steps = len(loader)
    noted = lines(folder)
    runs: list[list[Any]] = []
    for line in noted:
        if line[0] == "start":
            runs.append([line])
        else:
            runs[-1].append(line)
    assert len(runs) == len(kills) + 1
    done = 0
    for (_, epoch, step), *trained in runs:
        begun = epoch * steps + step
        # From the last save: no step is left out, and only later steps are repeated (a kill while
        # a save is written leaves the save before it).
        assert done - 2 * EVERY <= begun <= done
        assert [line[0] for line in trained] == list(range(begun, begun + len(trained)))
        done = max(done, begun + len(trained))
    assert done == EPOCHS * steps

    # The rows of a step, and its loss, are the same each time, with and without kills.
    for before, rows, loss in (line for line in noted if line[0] != "start"):
        assert rows == loader.batch(before % steps, before // steps)[:, 0].tolist()
        assert [before, rows, loss] == expected[before]
    for epoch in range(EPOCHS):
        seen = [row for step in range(steps) for row in expected[epoch * steps + step][1]]
        assert sorted(seen) == list(range(101))
    for one, other in zip(weights(folder), weights(undisturbed), strict=True):
        assert np.array_equal(one, other)
