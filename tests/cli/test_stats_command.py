"""`oocdata stats` on the command line: output and exit codes."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

import command
import fork_server
import h5py
import numpy as np
import pytest
import typer
from numpy.testing import assert_allclose

import oocdata as ooc
from oocdata.cli import app
from oocdata.cli.command import with_option_names
from oocdata.tools.stats import stats

RNG = np.random.default_rng(2)
FRAMES = RNG.normal(size=(50, 3, 8, 9)).astype("f4")

run = partial(command.run, "stats")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", FRAMES)
    return tmp_path / "a.npy"


def test_the_output_equals_that_of_python(path: Path) -> None:
    result = run("a.npy")
    assert result.exit_code == 0
    assert result.stdout == f"{stats(ooc.open(path))}\n"
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_split_reads_the_first_part(path: Path) -> None:
    for sizes, rows in (("0.6,0.2,0.2", 30), ("20,10", 20), ("1.0", 50)):
        result = run(path, "--split", sizes, "--json")
        told = json.loads(result.stdout)
        assert_allclose(told["channels"]["mean"], FRAMES[:rows].mean((0, 2, 3), dtype="f8"))
        assert told["shape"] == [rows, 3, 8, 9]
    said = run(path, "--split", "0.6,0.2,0.2").stdout
    assert "30 rows of (3, 8, 9)" in said
    assert "no row of the others was read" in said


def test_the_json_equals_the_result_in_python(path: Path) -> None:
    values = FRAMES.copy()
    values[:, 1] = np.nan
    np.save(path, values)
    result = run(path, "--json")
    assert "NaN" not in result.stdout
    told = json.loads(result.stdout)
    assert told["path"] == str(path)
    assert told["channels"]["mean"][1] is None
    found = stats(ooc.open(path))
    assert told["channels"] == found.channels.to_json()
    assert told["overall"]["mean"] == float(found.overall.mean)


def test_options_for_channels(path: Path) -> None:
    assert json.loads(run(path, "--channels", "none", "--json").stdout)["axis"] is None
    assert json.loads(run(path, "--channels", "-1", "--json").stdout)["axis"] == 3


def test_raw_binary_and_a_key(tmp_path: Path) -> None:
    FRAMES.astype(">f4").tofile(tmp_path / "a.bin")
    result = run(tmp_path / "a.bin", "--dtype", ">f4", "--shape", "-1,3,8,9", "--json")
    assert_allclose(json.loads(result.stdout)["overall"]["mean"], FRAMES.mean(dtype="f8"))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = FRAMES
        packed = file.create_dataset("packed", data=np.arange(12, dtype="i2").reshape(6, 2))
        packed.attrs["scale_factor"] = 0.5
    assert "--key NAME, or FILE::NAME" in " ".join(run(tmp_path / "a.h5").stderr.split())
    assert json.loads(run(f"{tmp_path}/a.h5::u", "--json").stdout)["shape"] == [50, 3, 8, 9]
    said = " ".join(run(f"{tmp_path}/a.h5::packed").stdout.split())
    assert "0.5: statistics are of the numbers as stored; --decode decodes them" in said
    assert "as stored" not in run(f"{tmp_path}/a.h5::packed", "--decode").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--split", "a,b"], 2, "--split"),
        (["--split", ""], 2, "--split"),
        (["--channels", "last"], 2, "--channels"),
        (["--split", "0.9,0.9"], 2, "at most 1"),
        (["--split", "1000"], 2, "at most 50"),
        (["--channels", "7"], 2, "1 to 3"),
        (["--axis", "9"], 2, "--axis"),
    ],
)
def test_errors_are_reported(path: Path, arguments: list[str], code: int, words: str) -> None:
    result = run(path, *arguments)
    assert result.exit_code == code
    assert words in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_rows_of_unlike_shapes_are_filled_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = [np.ones((2, 3, 4)), np.ones((3, 5, 4)), np.ones((1, 5, 6))]
    for number, part in enumerate(parts):
        np.save(f"part{number}.npy", part)
    with h5py.File("rows.h5", "w") as file:
        rows = file.create_dataset("v", (3,), h5py.vlen_dtype("f4"))
        for number in range(3):
            rows[number] = np.ones(number + 2)
    said = " ".join(run("part0.npy", "part1.npy").stderr.split())
    assert said.endswith("Pad them: --pad 0.")
    assert "; or fill rows up to one shape with --pad; or" in run("part*.npy").stderr.replace(
        "\n", " "
    )
    for files, values, kept in (("part*.npy", 6 * 5 * 6, 24 + 60 + 30), ("rows.h5", 12, 9)):
        found = json.loads(run(files, "--pad", "0", "--json").stdout)["overall"]
        assert (found["count"], found["mean"]) == (values, pytest.approx(kept / values))


def test_a_call_in_python_in_a_hint_stays_one() -> None:
    group = typer.main.get_command(app)
    stats_command = group.get_command(typer.Context(group), "stats")  # type: ignore[attr-defined]
    text = "Decode them: ooc.open(path, 'time', decode=True); or pass `decode`: decode=True."
    said = with_option_names(text, typer.Context(stats_command))
    assert said == "Decode them: ooc.open(path, 'time', decode=True); or pass --decode: --decode."


def test_a_file_cut_short_is_an_error(path: Path) -> None:
    os.truncate(path, os.path.getsize(path) - 100)
    result = run(path)
    assert result.exit_code == 1
    assert "a.npy" in result.stderr


def test_an_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    """On a sparse file of 400 GB, which takes minutes to read."""
    made = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", "f4", (100_000, 1000, 1000))
    del made
    code = "import typer; from oocdata.cli.stats import stats; typer.run(stats)"
    with fork_server.start(code, tmp_path / "big.npy") as child:
        counts = Path(f"/proc/{child.pid}/io")
        if not counts.exists():
            pytest.skip("how much a process has read is told by /proc")
        while int(counts.read_text().split()[1]) < 50 * 2**20:
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
    assert (child.returncode, out) == (130, "")
    assert err == "oocdata: stopped.\n"
