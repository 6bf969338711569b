"""`oocdata check` on the command line: standard output, standard error and exit codes."""

from __future__ import annotations

import json
import os
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

from oocdata.tools.check import Finding, Health

ROWS = np.random.default_rng(0).random((40, 3, 16, 16), np.float32)

run = partial(command.run, "check")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one with intact and damaged files."""
    np.save(tmp_path / "ds.npy", ROWS)
    wrong = ROWS.copy()
    wrong[[3, 4, 20], 0, 0, 0] = np.nan
    wrong[::2, 1, 1, 1] = np.inf
    np.save(tmp_path / "nan.npy", wrong)
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        made = file.create_dataset("flow/u", data=ROWS, chunks=(8, 3, 16, 16), compression="gzip")
        offset = made.id.get_chunk_info(2).byte_offset
        file["flow/v"] = ROWS[:5]
        file["note"] = "text"
    with (tmp_path / "sim.h5").open("r+b") as opened:
        opened.seek(offset)
        opened.write(bytes(20))
    zarr.create_array(tmp_path / "a.zarr", data=ROWS, chunks=(8, 3, 16, 16))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_healthy_file(folder: Path) -> None:
    result = run("ds.npy")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "ds.npy: 40 rows of (3, 16, 16) float32, 120.0 KiB, healthy",
        "Nothing wrong with 1 dataset.",
    ]


def test_findings(folder: Path) -> None:
    result = run("nan.npy")
    assert result.exit_code == 3
    assert result.stdout.splitlines() == [
        "nan.npy: 40 rows of (3, 16, 16) float32, 120.0 KiB",
        "  nan         3 rows: 3-4, 20",
        "              3 numbers are NaN.",
        "  inf         20 rows: 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, …",
        "              20 numbers are infinite.",
        "2 findings: nan, inf.",
    ]


def test_all_datasets_and_one(folder: Path) -> None:
    result = run("sim.h5")
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert "  damaged     8 rows: 16-23" in lines
    assert "sim.h5 /flow/v: 5 rows of (3, 16, 16) float32, 15.0 KiB, healthy" in lines
    assert any(line.startswith("  unchecked   sim.h5 /note: ") for line in lines)
    assert max(map(len, lines)) <= 80
    assert run("sim.h5::/flow/v").exit_code == 0
    Path("none.bin").write_bytes(b"")
    assert "give --dtype and --shape" in " ".join(run("sim.h5", "none.bin").stdout.split())
    assert run("sim.h5::/note").exit_code == 2  # it has no rows without --axis none
    assert run("sim.h5::/note", "--axis", "none").exit_code == 0


def test_json(folder: Path) -> None:
    found = json.loads(run("sim.h5", "--json").stdout)
    assert (found["name"], found["healthy"]) == ("sim.h5", False)
    finding, unchecked = found["findings"]
    assert (finding["kind"], finding["key"], finding["rows"]) == ("damaged", "/flow/u", [[16, 24]])
    assert [one["key"] for one in found["datasets"]] == ["/flow/u", "/flow/v"]
    assert (unchecked["kind"], unchecked["key"]) == ("unchecked", "/note")
    result = run("nan.npy", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout, parse_constant=pytest.fail)["findings"][0]["values"] == 3


def test_manifests(folder: Path) -> None:
    for name in ("ds.npy", "a.zarr"):
        result = run(name, "--write-manifest")
        assert (result.exit_code, result.stderr) == (0, "")
        assert f"wrote {name}.manifest" in result.stdout
        again = run(name, "--write-manifest")
        assert again.exit_code == 2
        assert "--overwrite" in again.stderr
        assert run(name, "--write-manifest", "-f").exit_code == 0
        assert run(name, "--manifest").exit_code == 0
    (folder / "ds.npy.manifest").rename(folder / "sums")
    assert run("ds.npy", "--manifest").exit_code == 1
    result = run("ds.npy", "--manifest-file", "sums")
    assert result.exit_code == 0
    assert "compared with sums" in result.stdout
    changed = np.load("ds.npy", mmap_mode="r+")
    changed[30] += 1
    changed.flush()
    result = run("ds.npy", "--manifest-file", "sums")
    assert result.exit_code == 3
    assert "  changed     1 row: 30" in result.stdout.splitlines()


def test_no_manifest_of_damaged_data(folder: Path) -> None:
    result = run("sim.h5", "--write-manifest")
    assert result.exit_code == 3
    assert "no manifest was written" in result.stderr
    assert not (folder / "sim.h5.manifest").exists()


def test_errors_exit_with_1(folder: Path) -> None:
    for arguments in (["dt.npy"], ["sim.h5::w"], ["ds.npy", "--manifest"]):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")


def test_many_findings_are_a_few_lines() -> None:
    changed = [Finding("changed", "it is not.", path=f"a.zarr/c/{n}") for n in range(1000)]
    text = str(Health("a.zarr", findings=tuple(changed)))
    assert len(text.splitlines()) == 12
    assert "  … and 990 more." in text


def test_many_healthy_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(30):
        rows = np.zeros((4, 2))
        rows[3] = np.nan if number == 7 else 0
        np.save(tmp_path / f"part{number:02}.npy", rows)
    found = run("part*.npy")
    assert found.exit_code == 3
    assert [line.split(":")[0].strip() for line in found.stdout.splitlines()] == [
        "part07.npy",
        "nan         1 row",
        "2 numbers are NaN.",
        "1 finding",
        "Nothing wrong with 29 datasets.",
    ]


_INTERRUPTED = """
import os, signal, sys
from oocdata.tools.check import rows as check_rows
from oocdata.cli.check import check
import typer

def stop(*arguments):
    os.kill(os.getpid(), signal.SIGINT)

check_rows._not_finite = stop
app = typer.Typer()
app.command()(check)
app()
"""


def test_ctrl_c_ends_it_at_once_and_leaves_nothing(folder: Path) -> None:
    done = fork_server.run(_INTERRUPTED, "ds.npy", "--write-manifest")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "oocdata: stopped.\n"
    assert not [name for name in os.listdir(folder) if "manifest" in name]


def test_loads_nothing_heavy(folder: Path) -> None:
    script = """
import sys
from oocdata.tools.check import check
health = check("ds.npy")
heavy = {"tensorflow", "keras", "h5py", "zarr", "rich"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
