"""`oocdata bench`: its output, its counts, its limits and its bounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import command
import fork_server
import h5py
import numpy as np
import pytest
import zarr

FRAMES = np.random.default_rng(0).integers(0, 9, (600, 3, 8, 8)).astype("f4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one with files that oocdata did not write."""
    np.save(tmp_path / "ds.npy", FRAMES)
    np.save(tmp_path / "part1.npy", FRAMES[:100])
    np.save(tmp_path / "part2.npy", FRAMES[100:])
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        file.create_dataset("u", data=FRAMES, chunks=(50, 3, 8, 8), compression="gzip")
    zarr.create_array(
        tmp_path / "run.zarr", data=FRAMES, chunks=(10, 3, 8, 8), shards=(100, 3, 8, 8)
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


run = partial(command.run, "bench")


FILES = [
    (["part*.npy"], set()),
    (["sim.h5::u", "--next-frame"], {"decoder"}),
    (["run.zarr", "--windows", "4,2"], {"decoder"}),
]


@pytest.mark.parametrize(("arguments", "limits"), FILES)
def test_text_and_json(folder: Path, arguments: list[str], limits: set[str]) -> None:
    result = run(*arguments, "--seconds", "0.1")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    commands = [line for line in lines if line.startswith("    oocdata")]
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert lines[0].startswith(arguments[0].replace("*", "1").split("::")[0])
    assert "what to change" in lines
    result = run(*arguments, "--seconds", "0.1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {(way["order"], way["batch_size"]) for way in found["ways"]} >= {
        ("sequential", 32),
        ("sequential", 256),
        ("full shuffle", 32),
    }
    assert {limit["name"] for limit in found["limits"]} == limits
    assert all(way["elements_per_second"] > 0 for way in found["ways"])
    assert found["cache"] == "warm"


def test_ctrl_c_ends_it_with_130(folder: Path) -> None:
    code = (
        "import sys, typer\n"
        "from oocdata.tools import bench as module\n"
        "rounds = module.take_turns\n"
        "def tell(*arguments):\n"
        "    print('rounds', flush=True)\n"
        "    return rounds(*arguments)\n"
        "module.take_turns = tell\n"
        "from oocdata.cli.bench import bench\n"
        "typer.run(bench)\n"
    )
    process = fork_server.start(code, "ds.npy", "--seconds", "60")
    assert process.stdout is not None
    assert process.stdout.readline() == "rounds\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert (process.returncode, out, error) == (130, "", "oocdata: stopped.\n")


def test_nothing_is_written_or_changed(folder: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}

    before = state()
    assert run("ds.npy", "--seconds", "0.2", "--cold").exit_code == 0
    assert state() == before


def test_an_argument_of_another_function_is_not_named_as_an_option(folder: Path) -> None:
    """``--pad NUMBER`` fills up rows of unlike shapes; windows have another `pad`."""
    result = run("ds.npy", "--windows", "100000")
    assert result.exit_code == 1
    assert "or repeat rows at the edges, `pad=True`." in " ".join(result.stderr.split())


def test_rows_of_fields_are_answered_with_the_option_for_one(folder: Path) -> None:
    np.save(folder / "fields.npy", np.zeros(50, [("day", "i4"), ("price", "f8")]))
    assert "or --field day;" in " ".join(run("fields.npy").stderr.split())
    assert run("fields.npy", "--field", "day", "--seconds", "0.1").exit_code == 0


@pytest.mark.long
def test_tensorflow_writes_nothing(folder: Path) -> None:
    code = "from oocdata.cli import main; main()"
    words = ["bench", "ds.npy", "--to-tf", "--seconds", "0.2"]
    # Log levels that other tests have set for TensorFlow would persist.
    environment = {name: value for name, value in os.environ.items() if name[:3] != "TF_"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
