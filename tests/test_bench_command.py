"""`oocdata bench`: what it prints, what it counts, its limits and its bounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import typer
import typer.testing
import zarr

import oocdata as ooc
from oocdata.cli.bench import bench as command
from oocdata.errors import ArgumentError, DamagedChunkError, EmptyError
from oocdata.tools.bench import bench, limits
from oocdata.tools.bench import files as bench_files
from oocdata.tools.bench.files import Files, files_of
from oocdata.tools.bench.limits import copying, decoding, disk_at_random, disk_in_sequence
from oocdata.tools.bench.picture import draw
from oocdata.tools.bench.result import Bench, Limit, Way

FRAMES = np.random.default_rng(0).integers(0, 9, (600, 3, 8, 8)).astype("f4")

app = typer.Typer(pretty_exceptions_enable=False)
app.command("bench")(command)
app.callback()(lambda: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files that oocdata did not write, the current one."""
    np.save(tmp_path / "ds.npy", FRAMES)
    np.save(tmp_path / "part1.npy", FRAMES[:100])
    np.save(tmp_path / "part2.npy", FRAMES[100:])
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        file.create_dataset("u", data=FRAMES, chunks=(50, 3, 8, 8), compression="gzip")
        file["v"] = FRAMES
    zarr.create_array(
        tmp_path / "run.zarr", data=FRAMES, chunks=(10, 3, 8, 8), shards=(100, 3, 8, 8)
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> typer.testing.Result:
    return typer.testing.CliRunner(env={"COLUMNS": "80"}).invoke(app, ["bench", *arguments])


FILES = [
    (["ds.npy"], {"memory"}),
    (["part*.npy"], {"memory"}),
    (["sim.h5::v"], {"memory"}),
    (["sim.h5::u", "--next-frame"], {"memory", "decoder"}),
    (["run.zarr", "--windows", "4,2"], {"memory", "decoder"}),
]


@pytest.mark.parametrize(("arguments", "limits"), FILES)
def test_text_and_json(folder: Path, arguments: list[str], limits: set[str]) -> None:
    result = run(*arguments, "--seconds", "0.3", "--batch-sizes", "8,32")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    commands = [line for line in lines if line.startswith("    oocdata")]
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert lines[0].startswith(arguments[0].replace("*", "1").split("::")[0])
    assert "what to change" in lines
    result = run(*arguments, "--seconds", "0.3", "--batch-sizes", "8,32", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {(way["order"], way["batch_size"]) for way in found["ways"]} >= {
        (order, size) for order in ("sequential", "full shuffle") for size in (8, 32)
    }
    assert {limit["name"] for limit in found["limits"]} == limits
    assert all(way["elements_per_second"] > 0 for way in found["ways"])
    assert found["cache"] == "warm"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch-sizes", "x"],
        ["--batch-sizes", "0"],
        ["--windows", "1,2,3"],
        ["--windows", "4", "--next-frame"],
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--output", "a.txt"],
        ["--output", "nowhere/a.png"],
        ["--dtype", "f4"],
    ],
    ids=" ".join,
)
def test_wrong_calls_exit_with_2(folder: Path, arguments: list[str]) -> None:
    assert run("ds.npy", *arguments).exit_code == 2


def test_errors_are_a_paragraph(folder: Path) -> None:
    for arguments in (["gone.npy"], ["sim.h5"], ["ds.npy", "--windows", "601"]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("oocdata: ")
        assert "Traceback" not in result.stderr


def test_ctrl_c_ends_it_with_130(folder: Path) -> None:
    code = (
        "import sys, typer\n"
        "from oocdata.tools import bench as module\n"
        "rounds = module._rounds\n"
        "def tell(*arguments):\n"
        "    print('rounds', flush=True)\n"
        "    return rounds(*arguments)\n"
        "module._rounds = tell\n"
        "from oocdata.cli.bench import bench\n"
        "typer.run(bench)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "ds.npy", "--seconds", "600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "rounds\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert (process.returncode, out, error) == (130, "", "oocdata: stopped.\n")


def test_a_picture(folder: Path) -> None:
    result = run("sim.h5::u", "--seconds", "0.3", "--output", "bench.png")
    assert result.exit_code == 0, result.output
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")
    found = bench(ooc.open(FRAMES), seconds=0.1)
    with pytest.raises(ArgumentError, match="folder must exist"):
        draw(found, "nowhere/bench.png")
    with pytest.raises(ArgumentError, match="must end in"):
        draw(found, "bench.bmp")
    draw(replace(found, path="/x$^$y.npy"), "formula.svg")
    assert "x$^$y.npy" in (folder / "formula.svg").read_text()


def test_a_picture_that_fails_loses_no_figures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "bench.png")

    monkeypatch.setattr("oocdata.tools.bench.picture.draw", fail)
    result = run("ds.npy", "--seconds", "0.1", "--output", "bench.png")
    assert result.exit_code == 1
    assert "what to change" in result.stdout
    assert "Permission denied" in result.stderr
    result = run("ds.npy", "--seconds", "0.1", "--output", "bench.png", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ways"]


def test_to_tf_beside_numpy(folder: Path) -> None:
    found = bench(ooc.open("ds.npy"), batch_sizes=[32], seconds=0.3, to_tf=True)
    assert {way.reader for way in found.ways} == {"NumPy", "to_tf"}
    assert all(way.rate > 0 for way in found.ways)


def test_an_array_in_memory_has_no_disk() -> None:
    found = bench(ooc.open(FRAMES), seconds=0.2)
    assert found.cache == "memory"
    assert [limit.name for limit in found.limits] == ["memory"]
    assert found.elements == 600
    assert found.element_bytes == FRAMES[0].nbytes


def test_arguments_are_checked() -> None:
    view = ooc.open(FRAMES)
    for wrong in (0, -1.0, float("nan"), True, "3", None):
        with pytest.raises(ArgumentError, match="`seconds`"):
            bench(view, seconds=wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="must be a Dataset; got str"):
        bench("ds.npy")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="got Loader"):
        bench(view.batches(3))  # type: ignore[arg-type]
    for batch_sizes in ([], [0], [1 << 50]):
        with pytest.raises(ArgumentError, match="batch"):
            bench(view, batch_sizes=batch_sizes)
    with pytest.raises(ArgumentError, match="must hold numbers"):
        bench(ooc.open(np.zeros((10, 0))))
    with pytest.raises(EmptyError):
        bench(view[:0])


def test_batches_that_would_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import oocdata.tools.bench as module

    monkeypatch.setattr(module, "available_memory", lambda: 8 * 100 * FRAMES[0].nbytes)
    found = bench(ooc.open(FRAMES), seconds=0.1)
    assert {way.batch_size for way in found.ways} == {32}
    assert "Batches of 256 are left out" in found.notes[0]


def test_nothing_is_written_or_changed(folder: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}

    before = state()
    assert run("ds.npy", "--seconds", "0.2", "--cold").exit_code == 0
    assert state() == before


def test_a_damaged_chunk_is_an_error(folder: Path) -> None:
    with h5py.File("sim.h5") as file:
        place = file["u"].id.get_chunk_info(3)
    with open("sim.h5", "r+b") as raw:
        raw.seek(place.byte_offset + place.size // 2)
        raw.write(b"\xff" * 40)
    with pytest.raises(DamagedChunkError) as caught:
        bench(ooc.open("sim.h5", "u"), seconds=0.2)
    assert caught.value.rows == tuple(range(150, 200))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((1_280_000, 8192), "u1"), ((1_000_000_000,), "u1"), ((3, 1 << 25), "u1")]
)
def test_sparse_files_of_any_size(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    path = tmp_path / "sparse.npy"
    np.lib.format.open_memmap(path, "w+", dtype, shape)
    found = bench(ooc.open(path), seconds=0.3)
    assert not any(limit.name.startswith("disk") for limit in found.limits)
    assert all(way.rate > 0 for way in found.ways)


def test_files_behind_a_dataset(folder: Path) -> None:
    assert len(files_of(ooc.open("part*.npy")).paths) == 2
    assert files_of(ooc.open("part*.npy").next_frame()).nbytes == sum(
        os.path.getsize(name) for name in ("part1.npy", "part2.npy")
    )
    shards = files_of(ooc.open("run.zarr")).paths
    assert {Path(path) for path in shards} == {
        path for path in (folder / "run.zarr").rglob("*") if path.is_file()
    }
    assert files_of(ooc.open("sim.h5", "u")[:10, :, 2:4].astype("f8")).paths == (
        str(folder / "sim.h5"),
    )


def test_pages_are_dropped_and_come_back(folder: Path) -> None:
    files = files_of(ooc.open("ds.npy"))
    if not files.evict():
        pytest.skip("this file system lies in memory")
    assert bench_files._resident_share(files.paths[0]) < 0.1
    assert files.warm(60.0)
    assert bench_files._resident_share(files.paths[0]) == 1.0
    assert not files.warm(-1.0)


def test_an_interrupt_while_pages_are_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def mincore(self, *_: object) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr("ctypes.CDLL", lambda _: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        files_of(ooc.open("ds.npy")).evict()


def test_one_element() -> None:
    found = bench(ooc.open(FRAMES[:1]), seconds=0.1)
    assert str(found).startswith("memory: 1 element of (3, 8, 8) float32")


def test_tensorflow_writes_nothing(folder: Path) -> None:
    code = "from oocdata.cli import main; main()"
    words = ["bench", "ds.npy", "--to-tf", "--seconds", "0.2", "--batch-sizes", "32"]
    # The levels that other tests have set for TensorFlow would be kept.
    environment = {name: value for name, value in os.environ.items() if name[:3] != "TF_"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_result_is_plain_data() -> None:
    found = bench(ooc.open(FRAMES), seconds=0.1)
    assert isinstance(found, Bench)
    json.dumps(found.as_json(), allow_nan=False)
    assert found.limit("disk in sequence") is None


def test_the_page_cache_is_left_alone_unless_cold(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(Files, "drop", lambda self: dropped.append("drop"))
    found = bench(ooc.open("ds.npy"), batch_sizes=[32], seconds=0.2)
    assert (found.cache, dropped) == ("warm", [])
    monkeypatch.setattr(Files, "evict", lambda self: not dropped.append("evict"))
    found = bench(ooc.open("ds.npy"), batch_sizes=[32], seconds=0.2, cold=True)
    assert found.cache == "cold"
    assert dropped.count("drop") >= sum(len(way.rounds) for way in found.ways)
    assert {limit.name for limit in found.limits} == {
        "memory", "disk in sequence", "disk at random",
    }  # fmt: skip


def test_the_disk_is_read_once_from_end_to_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(ooc.open("part*.npy"))
    read: list[tuple[str, int, int]] = []
    once = limits._read

    def noting(path: str, buffer: bytearray, offset: int, **how: bool) -> int:
        got = once(path, buffer, offset, **how)
        read.append((path, offset, got))
        return got

    monkeypatch.setattr(limits, "_BLOCK", 5000)
    monkeypatch.setattr(limits, "_read", noting)
    for measure in (disk_in_sequence(files), disk_at_random(files, 4096)):
        read.clear()
        assert measure.once(60.0) > 0
        ends: dict[str, int] = {}
        for path, offset, length in sorted(read):
            assert ends.get(path, 0) == offset
            ends[path] = offset + length
        assert ends == dict(zip(files.paths, files.sizes, strict=True))


def test_the_decoder_and_memory_are_measured_without_a_cache(folder: Path) -> None:
    view = ooc.open("sim.h5", "u")
    measure = decoding(view)
    assert measure is not None
    assert measure.nbytes == FRAMES.nbytes
    assert measure.once(0.0) > 0
    assert decoding(ooc.open("ds.npy")) is None
    assert copying(view, 32).nbytes > 100 << 20  # larger than a processor's cache


def test_a_way_that_takes_too_long_is_worked_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = limits.Measure(lambda seconds: 1e3, 0)
    monkeypatch.setattr("oocdata.tools.bench.decoding", lambda dataset: slow)
    found = bench(ooc.open("sim.h5", "u"), batch_sizes=[32], seconds=0.2)
    assert all(way.estimated for way in found.ways)
    one = found.best("sequential")
    assert one is not None
    assert one.rate == pytest.approx(1e3 / FRAMES[0].nbytes / one.amplification)
    assert "≈" in str(found)


def test_the_limit_that_counts() -> None:
    found = bench(ooc.open(FRAMES), seconds=0.1)
    made = tuple(Limit(name, (100.0,), size) for name, size in
                 (("memory", 1.0), ("decoder", 4.0), ("disk at random", 50.0)))  # fmt: skip
    full = Way("full shuffle", 32, "NumPy", (1.0, 3.0))
    assert full.rate == 2.0
    assert full.spread == 1.0
    cold = replace(found, limits=made, cache="cold")
    assert cold.bound(full) == made[2]
    assert replace(cold, cache="warm").bound(full) == made[1]
