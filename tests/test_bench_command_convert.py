"""Commands that `oocdata bench` advises: each can be typed as it is, and writes the same rows."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import typer
import typer.testing
import zarr
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.cli.bench import bench as bench_command
from oocdata.tools.bench import bench
from oocdata.tools.bench.command import convert_command
from oocdata.tools.bench.result import Bench
from oocdata.tools.info import Opening

ROWS = np.random.default_rng(0).normal(0, 1, (12, 40, 6)).round(1).astype("f4")

app = typer.Typer(pretty_exceptions_enable=False)
app.command("bench")(bench_command)
app.callback()(lambda: None)


def npy(folder: Path) -> tuple[str, Opening]:
    np.save(folder / "ds.npy", ROWS)
    return "ds.npy", Opening()


def second_axis(folder: Path) -> tuple[str, Opening]:
    np.save(folder / "ds.npy", ROWS)
    return "ds.npy", Opening(axis=1)


def last_axis(folder: Path) -> tuple[str, Opening]:
    zarr.create_array(folder / "run.zarr", data=ROWS, chunks=(4, 4, 2))
    return "run.zarr", Opening(axis=-1)


def raw(folder: Path) -> tuple[str, Opening]:
    (folder / "my field.bin").write_bytes(bytes(16) + ROWS.astype(">f4").tobytes())
    return "my field.bin", Opening(axis=1, dtype=">f4", shape=(-1, 40, 6), offset=16)


def missing(folder: Path) -> tuple[str, Opening]:
    with h5py.File(folder / "sim.h5", "w") as file:
        data = file.create_dataset(
            "flow/u", (12, 40, 6), "f4", chunks=(4, 40, 6), compression="gzip"
        )
        data[:4] = ROWS[:4]
    return "sim.h5", Opening(missing="fill")


def external(folder: Path) -> tuple[str, Opening]:
    with h5py.File(folder / "sim.h5", "w") as file:
        beside = [(str(folder / "beside.bin"), 0, ROWS.nbytes)]
        file.create_dataset("u", data=ROWS, external=beside)
    return "sim.h5", Opening(external=True)


OPENINGS = [npy, second_axis, last_axis, raw, missing, external]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    result = typer.testing.CliRunner(env={"COLUMNS": "80"}).invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def check(command: str | None, expected: object) -> None:
    """Type a command, and compare what it has written."""
    assert command is not None
    program, *words = shlex.split(command)
    assert program == "oocdata"
    # In a process of its own, as it is typed: this one has the file open.
    typed = [sys.executable, "-c", "from oocdata.cli import main; main()", *words, "--overwrite"]
    done = subprocess.run(typed, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_array_equal(np.asarray(ooc.open(words[2])), expected)


@pytest.mark.parametrize("make", OPENINGS)
def test_commands_open_the_file_as_it_was_opened(
    folder: Path, make: Callable[[Path], tuple[str, Opening]]
) -> None:
    path, opening = make(folder)
    view = opening.view(path, None)
    found = bench(view, batch_sizes=[4], seconds=0.1, opening=opening)
    assert found.opening == opening
    for command in (convert_command(found), convert_command(found, chunks=3, codec="gzip")):
        check(command, np.asarray(view))


def test_what_the_command_line_advises(folder: Path) -> None:
    np.save(folder / "mm.npy", np.zeros((20, 300, 4), "f4"))
    found = json.loads(run("bench", "mm.npy", "--axis", "1", "--seconds", "0.2", "--json"))
    (layout,) = [one for one in found["advice"] if one["kind"] == "layout"]
    assert layout["command"] == "oocdata convert mm.npy mm-new.npy --axis 1"
    check(layout["command"], np.zeros((300, 20, 4), "f4"))


@pytest.mark.parametrize("make", OPENINGS)
def test_in_python_the_usual_opening_is_tried(
    folder: Path, make: Callable[[Path], tuple[str, Opening]]
) -> None:
    path, opening = make(folder)
    found = bench(opening.view(path, None), batch_sizes=[4], seconds=0.1)
    assert (convert_command(found) is None) == (opening != Opening())


def test_no_command_where_there_is_no_such_file(folder: Path) -> None:
    for name in ("part1.npy", "part2.npy"):
        np.save(folder / name, ROWS)
    for target in ("part*.npy", ROWS):
        for opening in (None, Opening()):
            found = bench(ooc.open(target), batch_sizes=[4], seconds=0.1, opening=opening)
            assert isinstance(found, Bench)
            assert convert_command(found) is None
    assert convert_command(replace(found, path="ds.npy", opening=None)) is None
