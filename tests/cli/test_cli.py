"""The command line: standard output, standard error and exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
import zarr
from command import run

import oocdata as ooc

FRAMES = np.random.default_rng(0).random((40, 3, 8, 8), np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one with a file of every format."""
    np.save(tmp_path / "ds.npy", FRAMES)
    np.savez(tmp_path / "two.npz", x=FRAMES, y=np.arange(40))
    FRAMES.astype(">f4").tofile(tmp_path / "ds.bin")
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        file.create_dataset("flow/u", data=FRAMES, chunks=(8, 3, 8, 8), compression="gzip")
        file["flow/v"] = FRAMES[:5]
        file["note"] = "text"
    zarr.create_array(tmp_path / "v2.zarr", data=FRAMES, chunks=(8, 3, 8, 8), zarr_format=2)
    zarr.create_array(tmp_path / "v3.zarr", data=FRAMES, chunks=(8, 3, 8, 8))
    group = zarr.create_group(tmp_path / "group.zarr")
    group.create_array("a/b", data=FRAMES, chunks=(8, 3, 8, 8))
    group.create_array("t", data=np.arange(40))
    monkeypatch.chdir(tmp_path)
    return tmp_path


ONE_ARRAY = [
    (["ds.npy"], ".npy"),
    (["two.npz::x"], ".npz"),
    (["sim.h5", "-k", "flow/u"], "HDF5"),
    (["v2.zarr"], "Zarr v2"),
    (["v3.zarr"], "Zarr v3"),
    (["group.zarr::a/b"], "Zarr v3"),
    (["ds.bin", "--dtype", ">f4", "--shape", "-1,3,8,8"], "raw"),
    (["ds.*npy"], ".npy"),
]


@pytest.mark.parametrize(("arguments", "format_name"), ONE_ARRAY)
def test_info_on_every_format(folder: Path, arguments: list[str], format_name: str) -> None:
    result = run("info", *arguments)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"format     {format_name}")
    assert "40 rows of (3, 8, 8)" in result.output
    assert "    import oocdata as ooc\n    frames = ooc.open(" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    found = json.loads(run("info", *arguments, "--json").stdout)
    assert found["path"] == arguments[0].split("::")[0]
    (one,) = found["datasets"]
    assert one["format"].startswith(format_name)
    assert (one["shape"], one["dtype"]) == ([40, 3, 8, 8], "float32")
    assert one["memory_bytes"] == FRAMES.nbytes
    assert "is a full shuffle" in one["shuffling"]


def test_info_lists_several_datasets(folder: Path) -> None:
    result = run("info", "sim.h5")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "/flow/u 40 × 3 × 8 × 8 float32 8 gzip 4 30.0 KiB" in lines
    assert "/flow/v 5 × 3 × 8 × 8 float32 - none 3.8 KiB" in lines
    assert "got a single number or text" in " ".join(lines)
    assert "Name one to see how it will be read: oocdata info sim.h5::/flow/u" in lines
    found = json.loads(run("info", "sim.h5", "--json").stdout)["datasets"]
    assert [one["key"] for one in found] == ["/flow/u", "/flow/v", "/note"]
    assert found[2]["error"] == "ArgumentError"


def test_info_names_the_options_that_would_open_the_others(folder: Path) -> None:
    with h5py.File("holes.h5", "w") as file:
        file["u"] = np.zeros((6, 20, 16, 24))
        file.create_dataset("none", (4, 3), chunks=(2, 3))
    said = " ".join(run("info", "holes.h5").stdout.split())
    assert "Pass --missing fill to read the fill value" in said
    turned = " ".join(run("info", "holes.h5::/u", "--axis", "1").stdout.split())
    assert "ooc.open('holes.h5', '/u', axis=1)" in turned  # code stays Python
    alone = run("info", "holes.h5::none")
    assert alone.exit_code == 1
    assert "Pass --missing fill to read" in " ".join(alone.stderr.split())
    assert run("info", "holes.h5::none", "--missing", "fill").exit_code == 0
    with h5py.File("links.h5", "w") as file:  # none of them can be opened
        file["a"] = h5py.ExternalLink("other.h5", "/a")
        file["b"] = h5py.ExternalLink("other.h5", "/b")
    said = " ".join(run("info", "links.h5").stdout.split())
    assert said.count("pass --external") == 2


def test_info_describes_the_only_dataset_that_opens(folder: Path) -> None:
    with h5py.File("one.h5", "w") as file:
        file["u"] = FRAMES
        file["note"] = "text"
    result = run("info", "one.h5")
    assert result.output.startswith("format     HDF5, dataset /u")
    assert "/note" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dt.npy"], "No such file. Nearby: ds.npy"),
        (["sim.h5::w"], "'/flow/u', '/flow/v'"),
        (["sim.h5", "/flow/u"], "--key /flow/u, or sim.h5::/flow/u"),
        (["sim.h5", "flow/u"], "--key flow/u, or sim.h5::flow/u"),
        (
            ["ds.bin"],
            "For raw binary give --dtype and --shape; for lines of text give --format text.",
        ),
        (["ds.bin", "--dtype", "f4", "--shape", "7,3,8,8"], "must end after"),
        (["*.none"], "a glob must match at least one file"),
    ],
)
@pytest.mark.parametrize("command", ["info", "preview", "stats"])
def test_errors_are_one_paragraph(
    folder: Path, command: str, arguments: list[str], words: str
) -> None:
    result = run(command, *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("oocdata: ")
    assert "\n\n" not in result.stderr
    assert "Traceback" not in result.stderr
    assert words in " ".join(result.stderr.split())
    assert max(len(line) for line in result.stderr.splitlines() if " " in line) <= 80


def test_verbose_shows_the_traceback(folder: Path) -> None:
    result = run("info", "none.npy", "-v")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("oocdata: No such file. [file 'none.npy']\n")


def test_small_floats_that_npy_keeps_as_raw_bytes(folder: Path) -> None:
    np.save("small.npy", FRAMES.astype(ml_dtypes.bfloat16))
    said = run("info", "small.npy")
    assert said.exit_code == 1
    assert "such as --dtype bfloat16" in " ".join(said.stderr.split())
    given = ["small.npy", "--dtype", "bfloat16"]
    assert "ooc.open('small.npy', dtype='bfloat16')" in run("info", *given).stdout
    assert run("check", *given).exit_code == 0
    assert run("stats", *given).exit_code == 0
    said = run("convert", *given, "to.h5")
    assert said.exit_code == 1
    assert "--to-dtype f4" in " ".join(said.stderr.split())
    assert run("convert", *given, "to.npy", "--to-dtype", "f4").exit_code == 0
    assert np.array_equal(np.load("to.npy"), FRAMES.astype(ml_dtypes.bfloat16).astype("f4"))
    os.truncate("small.npy", os.path.getsize("small.npy") - 5)
    assert "truncated" in run("check", *given).stdout
    wrong = run("info", "ds.bin", "--dtype", "f4")
    assert (wrong.exit_code, "give --dtype and --shape" in wrong.stderr) == (1, True)
    assert run("info", "ds.bin", "--dtype", "O", "--shape", "3").exit_code == 1
    assert run("info", "ds.bin", "--dtype", "f4,(", "--shape", "3").exit_code == 2


def test_a_dataset_that_is_not_named_or_named_twice_is_a_wrong_call(folder: Path) -> None:
    for words, said in (
        (["stats", "sim.h5"], "Name it: --key NAME, or FILE::NAME."),
        (["info", "sim.h5::flow/u", "-k", "flow/v"], "must be one dataset; got 'flow/u', 'flow/v'"),
    ):
        result = run(*words)
        assert result.exit_code == 2
        assert said in " ".join(result.stderr.split())


def _noted(error: Exception, note: str) -> Exception:
    error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            _noted(PermissionError(13, "Permission denied", "ds.npy"), "What was done is kept."),
            1,
            "oocdata: Permission denied: 'ds.npy'. What was done is kept.\n",
        ),
        (ZeroDivisionError("a bug"), 1, "oocdata: unexpected ZeroDivisionError: a bug. "),
        (KeyboardInterrupt(), 130, "oocdata: stopped.\n"),
    ],
    ids=["of the system", "nobody expected", "Ctrl-C"],
)
def test_any_exception_is_one_paragraph(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("oocdata.tools.info.contents", fail)
    result = run("info", "ds.npy")
    assert result.exit_code == code
    assert result.stderr.startswith(said)
    assert "Traceback" not in result.stderr


def test_a_field_of_several_words_is_named_as_it_is_typed(folder: Path) -> None:
    np.save("table.npy", np.zeros(9, [("mean length (cm)", "f8")]))
    told = " ".join(run("stats", "table.npy").stderr.split())
    assert "Give a field of structured rows" in told
    assert run("stats", "table.npy", "--field", "mean length (cm)").exit_code == 0


@pytest.mark.parametrize("names", [["u_1", "u_10", "u_2"], ["u_10", "u_1", "u_2"]])
def test_files_that_a_shell_listed_are_in_the_order_of_a_glob(
    folder: Path, names: list[str]
) -> None:
    """Alphabetically, part 10 comes before part 2, and in some locales before part 1 too."""
    for number in (1, 2, 10):
        np.save(f"u_{number}.npy", np.full((2, 3), number))
    paths = [f"{name}.npy" for name in names]
    assert run("convert", *paths, "all.npy").exit_code == 0
    assert np.load("all.npy")[:, 0].tolist() == [1, 1, 2, 2, 10, 10]
    assert "ooc.open('u_*.npy')" in run("info", *paths).stdout
    assert "ooc.open(['u_1.npy', 'u_2.npy'])" in run("info", "u_1.npy", "u_2.npy").stdout
    for name in names:
        shutil.copy(f"{name}.npy", f"{name}.n2")
    assert "ooc.open('u_*.n2')" in run("info", *(f"{name}.n2" for name in names)).stdout
    assert run("convert", "u_2.npy", "u_1.npy", "own.npy").exit_code == 0
    assert np.load("own.npy")[:, 0].tolist() == [2, 2, 1, 1]


def test_ctrl_c_in_a_finaliser_is_not_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropped:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    went_on = []

    def drop(*_: object) -> None:
        Dropped()
        threading.Event().wait(20)  # until Ctrl-C is delivered; the whole time if it is lost
        went_on.append(True)

    monkeypatch.setattr("oocdata.tools.info.contents", drop)
    before = sys.unraisablehook
    result = run("info", "ds.npy")
    assert (result.exit_code, result.stderr) == (130, "oocdata: stopped.\n")
    assert not went_on
    assert sys.unraisablehook is before


def test_info_suggests_the_largest_dataset(folder: Path) -> None:
    with h5py.File("sizes.h5", "w") as file:
        file["a"] = np.zeros(0)
        file["lat"] = np.zeros(4)
        file["u"] = FRAMES
    assert "be read: oocdata info sizes.h5::/u\n" in run("info", "sizes.h5").stdout
    Path("sizes.h5").rename("-sizes.h5")  # must not be parsed as an option
    said = run("info", "--", "-sizes.h5").stdout
    assert "be read: oocdata info ./-sizes.h5::/u\n" in said


def test_a_file_that_holds_nothing_fails_with_json_too(folder: Path) -> None:
    with h5py.File("nothing.h5", "w") as file:
        file.create_group("empty")
    result = run("info", "nothing.h5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "oocdata: there is no dataset in the file.\n"
    result = run("info", "nothing.h5", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["datasets"] == []
    result = run("check", "nothing.h5")
    assert (result.exit_code, result.stderr) == (1, "oocdata: there is no dataset in the file.\n")


@pytest.mark.parametrize("option", ["--manifest", "--write-manifest"])
def test_a_manifest_of_a_url_needs_a_name(folder: Path, option: str) -> None:
    result = run("check", "http://localhost:1/a.zarr", option)
    assert result.exit_code == 2
    assert "must be given for a URL" in " ".join(result.stderr.split())


@pytest.mark.parametrize("files", [["a.npy", "b.npy"], ["[ab].npy"]])
def test_several_files_are_one_array(folder: Path, files: list[str]) -> None:
    np.save("a.npy", FRAMES[:10])
    np.save("b.npy", FRAMES[10:])
    assert json.loads(run("info", *files, "--json").stdout)["datasets"][0]["shape"][0] == 40
    assert json.loads(run("stats", *files, "--json").stdout)["shape"][0] == 40
    assert run("convert", *files, "c.npy", "-q").exit_code == 0
    assert (np.load("c.npy") == FRAMES).all()
    assert run("preview", *files).stdout.splitlines()[1].startswith("array      40 rows")
    assert "Nothing wrong with 2 datasets" in run("check", *files).stdout


def test_a_dataset_may_be_named_in_three_ways(folder: Path) -> None:
    told = [
        run("check", *words).stdout
        for words in (["sim.h5::flow/v"], ["sim.h5", "--key", "flow/v"], ["-k", "flow/v", "sim.h5"])
    ]
    assert told[0].startswith("sim.h5 /flow/v: 5 rows")
    assert told[0] == told[1] == told[2]
    assert run("convert", "sim.h5::flow/v", "new.h5::a/b").exit_code == 0
    with h5py.File("new.h5") as file:
        assert file["a/b"].shape == (5, 3, 8, 8)


def test_a_file_with_colons_in_its_name_is_a_file(folder: Path) -> None:
    np.save("a::b.npy", FRAMES[:3])
    assert "3 rows of (3, 8, 8)" in run("info", "a::b.npy").stdout


WRONG = {
    "info": ["", "ds.npy --shape 3", "ds.npy --shape x --dtype f4", "ds.npy --missing maybe",
             "ds.npy --shape 3 --dtype nothing", "ds.npy --none", "ds.npy --axis 9"],
    "preview": ["", "ds.npy --rows a:b", "ds.npy --rows 1:2:0", "ds.npy --rows 1.5",
                "ds.npy --count none",
                "ds.npy --count 0", "ds.npy --fps 0", "ds.npy --fps 0.001", "ds.npy --fps nan",
                "ds.npy --fps 51"],
    "check": ["", "ds.npy --allow everything", "ds.npy --manifest --write-manifest",
              "ds.npy --overwrite", "ds.npy --shape 3", "ds.npy --axis 9"],
    "convert": ["ds.npy", *(f"ds.npy b.zarr {option}" for option in (
        "--chunks many", "--rows 5", "--rows a:b", "--rows 5:2",
        "--to-dtype float33"))],
    "bench": ["ds.npy --windows 1,2,3",
              "ds.npy --windows 4 --next-frame", "ds.npy --seconds 0", "ds.npy --seconds nan",
              "ds.npy --dtype f4"],
    "demo": ["--key /u", "--episodes 3", "ds.npy --episodes -3"],
    "none": [""],
}  # fmt: skip


@pytest.mark.parametrize("command", WRONG)
def test_wrong_calls_exit_with_2(folder: Path, command: str) -> None:
    before = sorted(os.listdir())
    for words in WRONG[command]:
        result = run(command, *words.split())
        assert result.exit_code == 2, words
        assert result.stdout == "" or not words
        assert "`" not in result.stderr, words
        assert sorted(os.listdir()) == before, words


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_has_examples(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert "\n    oocdata info ds.npy " in result.output
    assert max(map(len, result.output.splitlines())) <= 80


COMMANDS = ["info", "preview", "stats", "check", "convert", "bench", "demo", "dispatcher", "worker"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples_with_its_options(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    told = result.output
    assert f"Examples:\n    oocdata {command}" in told
    assert max(map(len, told.splitlines())) <= 84  # an example is not wrapped
    assert ("FILE" in told.splitlines()[0]) is (command not in ("dispatcher", "worker"))
    examples = told.split("Examples:\n")[1].split("\n\n")[0]
    options = told.split("Options:\n")[1]
    for option in re.findall(r"(?<= )--?[a-z][a-z-]*", examples):
        assert re.search(rf"(^|[ ,/]){option}\b", options, re.M), option


def test_the_version_and_the_package_as_a_module() -> None:
    command = [sys.executable, "-m", "oocdata", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == run("--version").stdout == f"oocdata {ooc.__version__}\n"


def test_info_loads_nothing_heavy(folder: Path) -> None:
    code = """
import sys
from oocdata.cli import main
for name in ("ds.npy", "group.zarr", "sim.h5"):
    sys.argv = ["oocdata", "info", name]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    heavy = {"tensorflow", "keras", "zarr", "matplotlib", "sklearn"}
    assert not heavy & set(sys.modules), (name, heavy & set(sys.modules))
    assert ("h5py" in sys.modules) == name.endswith(".h5")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith(("format", "dataset"))
