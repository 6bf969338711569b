"""`oocdata bench`: what it prints, what it counts, its limits and its bounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import typer
import typer.testing
import zarr

import oocdata as ooc
from oocdata.amplification import amplification
from oocdata.cli.bench import bench as command
from oocdata.errors import ArgumentError, DamagedChunkError, EmptyError
from oocdata.sources.leases import Lease, Slots
from oocdata.sources.slots import chunk_budget, set_chunk_budget
from oocdata.tools.bench import bench, ways
from oocdata.tools.bench import disk as bench_disk
from oocdata.tools.bench import files as bench_files
from oocdata.tools.bench import session as bench_session
from oocdata.tools.bench.advising import advice
from oocdata.tools.bench.disk import disk_at_random, disk_in_sequence, stored_unit
from oocdata.tools.bench.files import files_of
from oocdata.tools.bench.limits import decoding
from oocdata.tools.bench.picture import draw
from oocdata.tools.bench.result import Bench, Limit
from oocdata.tools.bench.ways import Candidate, candidates, loader_of
from oocdata.tools.profile.counts import counted
from oocdata.tools.profile.pacing import Pace
from oocdata.tools.profile.sampling import Spent

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


@pytest.fixture
def small_budget() -> Iterator[None]:
    before = chunk_budget()
    set_chunk_budget(100_000)
    yield
    set_chunk_budget(before)


def run(*arguments: str) -> typer.testing.Result:
    return typer.testing.CliRunner(env={"COLUMNS": "80"}).invoke(app, ["bench", *arguments])


FILES = [
    (["ds.npy"], {"memory"}),
    (["part*.npy"], {"memory"}),
    (["sim.h5", "v"], {"memory"}),
    (["sim.h5", "u", "--next-frame"], {"memory", "decoder"}),
    (["run.zarr", "--windows", "4,2"], {"memory", "decoder"}),
]


@pytest.mark.parametrize(("arguments", "limits"), FILES)
def test_text_and_json(folder: Path, arguments: list[str], limits: set[str]) -> None:
    result = run(*arguments, "--seconds", "0.3", "--batch", "8,32")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    commands = [line for line in lines if line.startswith("    oocdata")]
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert lines[0].startswith(arguments[0].replace("*", "1"))
    assert "what to change" in lines
    result = run(*arguments, "--seconds", "0.3", "--batch", "8,32", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {(way["order"], way["batch_size"]) for way in found["ways"]} >= {
        (order, size) for order in ("sequential", "full shuffle") for size in (8, 32)
    }
    assert {limit["name"] for limit in found["limits"]} - {
        "disk in sequence",
        "disk at random",
    } == limits
    assert all(way["elements_per_second"] > 0 for way in found["ways"])
    assert found["cache"] in ("warm", "cold")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch", "x"],
        ["--batch", "0"],
        ["--windows", "1,2,3"],
        ["--windows", "4", "--next-frame"],
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--plot", "a.txt"],
        ["--plot", "nowhere/a.png"],
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
        "from oocdata.tools.bench import session\n"
        "rounds = session.Session.rounds\n"
        "def tell(self):\n"
        "    print('rounds', flush=True)\n"
        "    rounds(self)\n"
        "session.Session.rounds = tell\n"
        "from oocdata.cli.bench import bench\n"
        "typer.run(bench)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "ds.npy", "--seconds", "600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    # The disk takes its share of ten minutes, but no file is read twice: so this comes soon.
    assert process.stdout.readline() == "rounds\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert (process.returncode, out, error) == (130, "", "oocdata: stopped.\n")


def test_a_picture(folder: Path) -> None:
    result = run("sim.h5", "u", "--seconds", "0.3", "--plot", "bench.png")
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
    result = run("ds.npy", "--seconds", "0.1", "--plot", "bench.png")
    assert result.exit_code == 1
    assert "what to change" in result.stdout
    assert "Permission denied" in result.stderr
    result = run("ds.npy", "--seconds", "0.1", "--plot", "bench.png", "--json")
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
    assert any("No disk" in note for note in found.notes)
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
    found = bench(ooc.open(path), seconds=0.3, cold=False)
    assert any("sparse" in note for note in found.notes)
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


@pytest.mark.parametrize("target", ["ds.npy", "run.zarr", "part*.npy"])
def test_the_disk_is_read_once_from_end_to_end(
    folder: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(ooc.open(target))
    read: list[tuple[str, int, int]] = []
    preadv, read_runs = os.preadv, bench_disk.read_runs

    def noting(number: int, buffers: Any, offset: int) -> int:
        got = preadv(number, buffers, offset)
        read.append((os.readlink(f"/proc/self/fd/{number}"), offset, got))
        return got

    monkeypatch.setattr(bench_disk, "_BLOCK", 5000)
    monkeypatch.setattr(os, "preadv", noting)
    assert disk_in_sequence(files).once(60.0) > 0
    assert _covered(read) == dict(zip(files.paths, files.sizes, strict=True))

    def noting_runs(file: Any, offsets: Any, places: Any, lengths: Any, out: Any) -> None:
        names = [os.readlink(f"/proc/self/fd/{number}") for number in file.tolist()]
        read.extend(zip(names, offsets.tolist(), lengths.tolist(), strict=True))
        read_runs(file, offsets, places, lengths, out)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(bench_disk, "read_runs", noting_runs)
    read.clear()
    assert disk_at_random(files, 4096).once(60.0) > 0
    assert _covered(read) == dict(zip(files.paths, files.sizes, strict=True))


def _covered(read: list[tuple[str, int, int]]) -> dict[str, int]:
    """Return the length of each file, if what was read is all of it and nothing twice."""
    ends: dict[str, int] = {}
    for name, offset, length in sorted(read):
        assert ends.get(name, 0) == offset
        ends[name] = offset + length
    return ends


def test_the_unit_of_random_reads(folder: Path) -> None:
    assert stored_unit(ooc.open("ds.npy")) == FRAMES[0].nbytes
    with h5py.File("sim.h5") as file:
        sizes = [file["u"].id.get_chunk_info(place).size for place in range(12)]
    assert stored_unit(ooc.open("sim.h5", "u")) == pytest.approx(np.mean(sizes), rel=0.01)


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


def test_cold_empties_the_cache_before_each_epoch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file has many epochs in a stretch, of which only the first would be cold."""
    files = files_of(ooc.open("ds.npy"))
    if not files.evict():
        pytest.skip("this file system lies in memory")
    events: list[str] = []
    drop = bench_files.Files.drop
    monkeypatch.setattr(
        bench_files.Files, "drop", lambda self: (events.append("dropped"), drop(self))[1]
    )

    def three_epochs(epochs: Any, seconds: float, **_: object) -> Pace:
        for number in range(3):
            assert sum(map(len, epochs(number))) == len(FRAMES)
            events.append("read")
        return Pace(3 * len(FRAMES), 3, 1.0, 0.0)

    monkeypatch.setattr(ways, "pace", three_epochs)
    found = bench(ooc.open("ds.npy"), batch_sizes=[32], seconds=60.0, cold=True)
    assert found.cache == "cold"
    warming_up = 3
    stretches = sum(len(way.rounds) for way in found.ways) + len(found.looks)
    first = events.index("read") + warming_up
    assert events[first:][: 6 * stretches] == ["dropped", "read"] * 3 * stretches


def test_decoding_decodes_every_chunk_that_it_says(folder: Path) -> None:
    loader, counts = counted(ooc.open("sim.h5", "u").batches(8))
    source = loader.dataset.requests(np.zeros(1, np.int64))[0].source.source
    measure = decoding(ooc.View.of(source))
    assert measure is not None
    first = counts.decoded_bytes
    assert first == measure.nbytes  # once, so that the page cache has them
    assert measure.once(0.0) > 0
    assert counts.decoded_bytes > first
    assert counts.decoded_bytes == counts.chunks * 50 * FRAMES[0].nbytes


def test_a_full_shuffle_that_takes_too_long_is_worked_out(
    folder: Path, small_budget: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ooc.open("sim.h5", "u")
    loader = loader_of(view, "full shuffle", 32)
    assert loader is not None
    element = float(FRAMES[0].nbytes)
    slow = [Limit("decoder", (1e3 * element,), element)]
    elements, seconds = Candidate("full shuffle", "NumPy", loader).period_seconds(slow, cold=False)
    positions = np.concatenate([loader.positions(step) for step in range(loader.steps_together)])
    assert elements == len(positions)
    assert seconds == pytest.approx(50 * len(np.unique(positions // 50)) / 1e3)
    # And so it is for a whole measurement, if the decoder is as slow as that.
    rates = bench_session.Measure(lambda seconds: 1e3 * element, 0)
    monkeypatch.setattr(bench_session, "decoding", lambda dataset: rates)
    found = bench(view, batch_sizes=[32], seconds=0.1)
    full = found.best("full shuffle")
    assert full is not None
    assert full.estimated
    assert full.rate == pytest.approx(elements / seconds, rel=0.05)  # and copying
    assert "≈" in str(found)


def test_what_is_worked_out_is_no_faster_than_what_was_measured(folder: Path) -> None:
    view = ooc.open("sim.h5", "u")
    ways = candidates(view, [8], ["NumPy"])
    session = bench_session.Session(view, ways, files_of(view), 1.0, lambda _: None)
    session._measured = {0: [90.0, 100.0, 110.0]}
    session._guessed = {1: 40.0, 2: 1000.0}
    rates = [(way.order, way.rate, way.estimated) for way in session.ways]
    assert rates == [
        ("sequential", 100.0, False),
        ("full shuffle", 40.0, True),
        ("block shuffle", 100.0, True),
    ]


def test_copying_is_a_part_of_what_is_worked_out(folder: Path) -> None:
    loader = loader_of(ooc.open("sim.h5", "u"), "sequential", 32)
    assert loader is not None
    limits = [Limit("decoder", (100.0,), 1.0), Limit("memory", (300.0,), 1.0)]
    elements, seconds = Candidate("sequential", "NumPy", loader).period_seconds(limits, cold=False)
    assert elements / seconds == pytest.approx(75.0)


def test_what_is_kept_is_measured_where_all_of_it_is(folder: Path) -> None:
    found = bench(ooc.open("sim.h5", "u"), batch_sizes=[32], seconds=1.0)
    assert found.kept is not None
    assert "2nd epoch, kept" in str(found)
    assert found.as_json()["kept"]["limit"] == "memory"


def test_nothing_is_kept_where_it_would_not_fit(folder: Path, small_budget: None) -> None:
    found = bench(ooc.open("sim.h5", "u"), batch_sizes=[32], seconds=0.3)
    assert found.kept is None
    look = next(look for look in found.looks if look.order == "full shuffle")
    assert look.amplification is not None
    assert look.amplification > 2


@pytest.mark.parametrize("whole", [2, 0])
def test_rows_decoded_are_counted_where_a_whole_epoch_was_read(
    folder: Path, small_budget: None, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    decoded: list[int] = []
    decode = Slots.decode

    def counting(self: Slots, lease: Lease, into: Any) -> None:
        decoded.extend(lease.mine)
        decode(self, lease, into)

    def some_epochs(epochs: Any, seconds: float, **_: object) -> Pace:
        for number in range(whole):
            assert sum(map(len, epochs(number))) == len(FRAMES)
        expected.append(50 * len(decoded) / max(1, whole) / len(FRAMES))
        part = epochs(whole)
        next(part)
        part.close()
        return Pace(1, 1, 1.0, 0.0)

    expected: list[float] = []
    monkeypatch.setattr(Slots, "decode", counting)
    monkeypatch.setattr(ways, "pace", some_epochs)
    loader = loader_of(ooc.open("sim.h5", "u"), "full shuffle", 8)
    assert loader is not None
    look = Candidate("full shuffle", "NumPy", loader).look(1.0, 0)
    assert look.counted == (whole > 0)
    told = amplification(loader)
    assert look.amplification == pytest.approx(expected[0] if whole else told)


def test_functions_given_to_map_have_a_column() -> None:
    found = bench(ooc.open(FRAMES), batch_sizes=[32], seconds=0.1)
    spent = Spent(map=0.98, copy=0.02, threads=1.0, samples=100)
    look = replace(found.looks[0], order="full shuffle", spent=spent)
    found = replace(found, looks=(look,), limits=(Limit("memory", (1e18,), 1.0),))
    head, line = str(found).split("where the time goes")[1].splitlines()[:2]
    assert head.split() == ["copy", "map", "threads", "rows", "decoded"]
    assert "98%" in line
    (one,) = advice(found, ooc.open(FRAMES))
    assert one.text.endswith("most of the time goes to functions given to map (98%).")


def test_one_element() -> None:
    found = bench(ooc.open(FRAMES[:1]), seconds=0.1)
    assert str(found).startswith("memory: 1 element of (3, 8, 8) float32")


def test_tensorflow_writes_nothing(folder: Path) -> None:
    code = "from oocdata.cli import main; main()"
    words = ["bench", "ds.npy", "--tf", "--seconds", "0.2", "--batch", "32"]
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
