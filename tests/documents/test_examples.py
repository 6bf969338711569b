"""Each example runs unchanged, on a small file, with `to_tf` and `fit`."""

from __future__ import annotations

import ast
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import oocdata as ooc

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = ["next_frame", "patches", "ranks", "resume", "trajectories", "workers"]


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> dict[str, Any]:
    """Run an example in this process; return its global variables."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    before = signal.getsignal(signal.SIGTERM)
    try:
        return runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def waves(tmp_path: Path) -> Path:
    """Return a file of waves that move from row to row, so that the next row can be learned."""
    time, y, x = np.ogrid[:400, :12, :10]
    np.save(tmp_path / "ds.npy", np.sin((time + y + x) / 3).astype("f4"))
    return tmp_path / "ds.npy"


def test_all_are_tested_and_say_when_to_use_them() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == NAMES
    for path in FOLDER.glob("*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert "Use this" in docstring
        assert f"python {path.name}" in docstring


def test_next_frame(
    waves: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "next_frame", waves)
    said = capsys.readouterr().out
    copy, model = (
        float(line.split(":")[1])
        for line in said.splitlines()
        if line.startswith(("copying", "the model"))
    )
    assert model < copy
    assert "239 elements of" in said


@pytest.mark.long
def test_resume_goes_on_where_it_was_stopped(
    waves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(monkeypatch, "resume", waves, tmp_path / "whole")
    fit = whole["keras"].Model.fit
    with monkeypatch.context() as stopped:
        # As SIGTERM does, in the middle of the second epoch.
        def fit_a_part(model: Any, *arguments: Any, callbacks: list[Any], **options: Any) -> Any:
            keras, (resume,) = whole["keras"], callbacks
            steps: list[int] = []

            def stop(batch: int, logs: Any) -> None:
                steps.append(batch)
                if len(steps) == 20:
                    resume.stop()

            stopper = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
            return fit(model, *arguments, callbacks=[stopper, resume], **options)

        stopped.setattr(whole["keras"].Model, "fit", fit_a_part)
        run(monkeypatch, "resume", waves, tmp_path / "part")
    again = run(monkeypatch, "resume", waves, tmp_path / "part")
    assert again["resume"].start != (0, 0)
    for ours, theirs in zip(
        again["model"].get_weights(), whole["model"].get_weights(), strict=True
    ):
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_trajectories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(tmp_path / "well.h5", "w") as file:
        values = np.random.default_rng(0).random((10, 9, 12, 8), np.float32)
        file.create_dataset("density", data=values, chunks=(1, 9, 12, 8), compression="gzip")
    made = run(monkeypatch, "trajectories", tmp_path / "well.h5", "/density")
    assert "(10, 9) trajectories and steps" in capsys.readouterr().out
    assert (len(made["train"]), len(made["val"])) == (8 * 5, 2 * 5)


def test_patches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.random.default_rng(0).integers(0, 255, (20, 96, 80), np.uint8)
    with ooc.create(tmp_path / "plate.zarr", element_shape=images.shape[1:], dtype="u1") as writer:
        writer.append(images)
    made = run(monkeypatch, "patches", tmp_path / "plate.zarr")
    assert len(made["crops"]) == 160
    assert "in 3 batches of 64" in capsys.readouterr().out


def test_workers(
    waves: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "workers", waves, 1)
    alone, helped = capsys.readouterr().out.splitlines()
    assert alone.startswith("0 workers")
    assert helped.startswith("1 workers")
    assert alone.split("sum")[1] == helped.split("sum")[1]


def test_ranks(waves: Path) -> None:
    done = subprocess.run(  # needs its own main module, which its processes import again
        [sys.executable, str(FOLDER / "ranks.py"), str(waves), "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "13 steps by 2 ranks: sums equal one rank's: True\n"
