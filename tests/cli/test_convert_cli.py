"""`oocdata convert` on the command line."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import command
import fork_server
import h5py
import numpy as np
import pytest
import zarr
from worker_scripts import wait_for_line

import oocdata as ooc
from oocdata.tools import convert as convert_execution

run = partial(command.run, "convert")


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(20_000, dtype="f8").reshape(1000, 20))
    return tmp_path / "a.npy"


def test_the_plan_is_printed(array: Path) -> None:
    result = run(array, array.with_name("b.h5"), "--verify", "--chunks", 10)
    assert result.exit_code == 0
    assert "every bit is the same" in result.stdout
    assert "chunks     chunks of (10, 20)" in result.stdout
    assert result.stderr == ""
    with h5py.File(array.with_name("b.h5")) as file:
        assert file["data"].chunks == (10, 20)


def test_json_is_one_object(array: Path) -> None:
    result = run(array, array.with_name("b.zarr"), "--json", "--rows", "5:10", "--to-dtype", "f4")
    found = json.loads(result.stdout)
    assert (found["shape"], found["dtype"], found["verified"]) == ([5, 20], "float32", False)
    assert found["chunks_why"]


def test_a_dry_run_writes_nothing(array: Path) -> None:
    result = run(array, array.with_name("b.zarr"), "--dry-run")
    assert result.exit_code == 0
    assert "chunks     chunks of" in result.stdout
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80 + len(str(array.parent))
    assert json.loads(run(array, array.with_name("b.zarr"), "--dry-run", "--json").stdout)
    assert os.listdir(array.parent) == ["a.npy"]


def test_force(array: Path) -> None:
    target = array.with_name("b.npy")
    target.write_bytes(b"mine")
    result = run(array, target)
    assert result.exit_code == 2
    assert "--overwrite" in result.stderr
    assert result.stdout == ""
    assert target.read_bytes() == b"mine"
    assert run(array, target, "--overwrite").exit_code == 0
    assert np.load(target).shape == (1000, 20)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("b.txt", ()), ("b.npy", ("--codec", "gzip")), ("b.npy", ("--chunks", "2")),
        ("b.zarr", ("--chunks", "2,2,2")), ("b.h5", ("--codec", "gzip:1")),
        ("b.h5::a//b", ()),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_the_format(
    array: Path, name: str, options: tuple[str, ...]
) -> None:
    result = run(array, f"{array.parent}/{name}", *options)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert os.listdir(array.parent) == ["a.npy"]


def test_rows_that_differ_are_exit_code_3(array: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = convert_execution.read_rows

    def damaged(view: ooc.View, rows: range) -> Any:
        values = read(view, rows)
        values[4] += 1
        return values

    monkeypatch.setattr(convert_execution, "read_rows", damaged)
    result = run(array, array.with_name("b.npy"), "--verify")
    assert result.exit_code == 3
    assert "some rows differ" in result.stderr
    assert os.listdir(array.parent) == ["a.npy"]


@pytest.mark.filterwarnings("always::oocdata.errors.MissingChunkWarning")
def test_absent_chunks_are_reported_and_can_be_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(30, 4), chunks=(10, 4), dtype="i4", fill_value=7)[:10] = 1
    target = tmp_path / "b.npy"
    result = run(path, target)
    assert result.exit_code == 0
    said = " ".join(result.stderr.split())
    assert said.startswith("oocdata: 2 of 3 stored objects")
    assert "--missing fill" in said
    assert np.load(target)[:, 0].tolist() == [1] * 10 + [7] * 20
    assert run(path, target, "--overwrite", "--missing", "fill").stderr == ""
    assert run(path, target, "--overwrite", "--missing", "error").exit_code == 1


def test_several_sample_axes(tmp_path: Path) -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    np.save(tmp_path / "a.npy", values)
    assert run(tmp_path / "a.npy", tmp_path / "b.npy", "--axis", "1,0").exit_code == 0
    assert (np.load(tmp_path / "b.npy") == values.swapaxes(0, 1).reshape(6, 4)).all()


SCRIPT = """
import typer
from oocdata.cli.convert import convert
from oocdata.writers import output
note = output.Output.note
def told(self, *given):
    note(self, *given)
    print("saved", flush=True)
    while True:
        import time; time.sleep(0.01)
output.Output.note = told
app = typer.Typer()
app.command()(convert)
app()
"""


def test_ctrl_c(array: Path) -> None:
    target = array.with_name("b.npy")
    child = fork_server.start(SCRIPT, array, target)
    wait_for_line(child, "saved")
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "stopped." in said
    assert "the same command continues" in " ".join(said.split())
    assert not target.exists()
    result = run(array, target)
    assert "continued an earlier run" in result.stdout
    assert np.load(target).shape == (1000, 20)


EARLY = """
import signal, os, sys
import typer
from oocdata.cli.convert import convert
from oocdata.tools import convert as execution
cast = execution.cast
def late(*given):
    if os.path.isdir(sys.argv[2] + ".oocdata-partial"):
        os.kill(os.getpid(), signal.SIGINT)
    return cast(*given)
execution.cast = late
app = typer.Typer()
app.command()(convert)
app()
"""


def test_ctrl_c_before_anything_is_saved(array: Path) -> None:
    done = fork_server.run(EARLY, array, array.with_name("b.npy"))
    assert done.returncode == 130
    assert "stopped" in done.stderr
    # If the signal came after the save, a part is kept.
    is_kept = os.listdir(array.parent) != ["a.npy"]
    assert ("the same command continues" in " ".join(done.stderr.split())) == is_kept


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
import typer
from oocdata.cli.convert import convert
app = typer.Typer()
app.command()(convert)
app()
"""


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".zarr"])
def test_a_file_that_can_not_grow(tmp_path: Path, suffix: str) -> None:
    values = np.random.default_rng(0).integers(0, 50, (4000, 32, 16)).astype("i2")
    np.save(tmp_path / "a.npy", values)
    result = fork_server.run(FULL, tmp_path / "a.npy", tmp_path / f"b{suffix}")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "unexpected" not in result.stderr
    assert "full?" in result.stderr
    assert f"b{suffix}" in "".join(result.stderr.split())
    assert os.listdir(tmp_path) == ["a.npy"]


def test_lines_of_text_are_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("1,a\n22,b\n")
    result = run(tmp_path / "lines.csv", tmp_path / "a.npy")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "must be of one length" in result.stderr


def test_a_lacking_destination_is_named(array: Path) -> None:
    result = run(array)
    assert result.exit_code == 2
    assert result.stderr.startswith("oocdata: DST must be given")


def test_a_wrong_dtype_to_write_is_named(array: Path) -> None:
    result = run(array, array.with_name("b.npy"), "--to-dtype", "S3")
    assert result.exit_code == 1
    assert result.stderr == "oocdata: --to-dtype must be one of numbers; got |S3.\n"
