"""Test `bench`: rates, counts, limits, and bounds on memory and time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import PIL.Image
import pytest
import zarr

import oocdata as ooc
from oocdata.engines.cache import cache
from oocdata.errors import ArgumentError, DamagedChunkError, EmptyError
from oocdata.tools import bench as module
from oocdata.tools.bench import limits
from oocdata.tools.bench.limits import decoding, disk_reading, files_of
from oocdata.tools.bench.result import Bench, Limit, Way
from oocdata.tools.profile import pacing
from oocdata.tools.profile.pacing import take_turns

FRAMES = np.random.default_rng(0).integers(0, 9, (600, 3, 8, 8)).astype("f4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with files that were written by NumPy, h5py and others."""
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


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_measures_take_turns_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = Clock(), []
    monkeypatch.setattr(pacing, "perf_counter", clock)

    def measure(name: str, lasts: float) -> limits.Measure:
        def once(seconds: float, number: int) -> float:
            calls.append((name, seconds, number))
            clock.now += lasts
            return lasts * number

        return once

    measures = {"a": (measure("a", 1.0), 0.5), "b": (measure("b", 2.0), 0.25)}
    advanced: list[int] = []
    rates = take_turns(measures, 100.0, advanced.append)
    assert rates == {"a": (0.0, 1.0, 2.0), "b": (0.0, 2.0, 4.0)}
    assert calls == [
        (name, seconds, number)
        for number in range(3)
        for name, seconds in (("a", 0.5), ("b", 0.25))
    ]
    assert sum(advanced) == 6
    # Where time is short, what took too long has no further round.
    measures = {"slow": (measure("slow", 8.0), 0.5), "fast": (measure("fast", 0.5), 0.5)}
    rates = take_turns(measures, 10.0, advanced.append)
    assert rates == {"slow": (0.0,), "fast": (0.0, 0.5, 1.0)}


def test_a_path_or_a_dataset(folder: Path) -> None:
    for found in (
        ooc.bench("sim.h5", seconds=0.1),
        ooc.bench(ooc.open("sim.h5"), seconds=0.1),
    ):
        assert (found.name, found.elements, found.cache) == ("sim.h5 /u", 600, "warm")
        assert [limit.name for limit in found.limits] == ["decoder"]
        assert {way.order for way in found.ways} == {"sequential", "full shuffle", "block shuffle"}
        assert all(way.rate > 0 for way in found.ways)
    assert ooc.bench(ooc.open("ds.npy", axis=2), seconds=0.1).elements == 8
    windows = ooc.bench(ooc.open("ds.npy").windows(4, 2), seconds=0.1)
    assert windows.element_bytes == 6 * FRAMES[0].nbytes
    with pytest.raises(ArgumentError, match="got a Loader"):
        ooc.bench(ooc.open(FRAMES).batches(3))


def test_to_tf_beside_numpy(folder: Path) -> None:
    found = ooc.bench("ds.npy", seconds=0.2, to_tf=True)
    assert {way.reader for way in found.ways} == {"NumPy", "to_tf"}


def test_a_mixture_whose_epoch_is_shorter() -> None:
    mixed = ooc.mix({ooc.open(np.zeros((n, 4))): 0.5 for n in (50, 2)})
    assert {way.batch_size for way in ooc.bench(mixed, seconds=0.01).ways} == {4}


def test_an_array_in_memory_has_no_disk() -> None:
    found = ooc.bench(FRAMES, seconds=0.1, cold=True)
    assert (found.cache, found.elements) == ("memory", 600)
    assert found.limits == ()
    assert found.element_bytes == FRAMES[0].nbytes
    assert str(ooc.bench(FRAMES[:1], seconds=0.1)).startswith(
        "an array in memory: 1 element of (3, 8, 8) float32"
    )


def test_arguments_are_checked() -> None:
    for wrong in (0, -1.0, float("nan"), True, "3", None):
        with pytest.raises(ArgumentError, match="`seconds`"):
            ooc.bench(FRAMES, seconds=wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="must hold numbers"):
        ooc.bench(np.zeros((10, 0)))
    with pytest.raises(EmptyError):
        ooc.bench(FRAMES[:0])


def test_batches_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_memory", lambda: 4 * 100 * FRAMES[0].nbytes)
    assert {way.batch_size for way in ooc.bench(FRAMES, seconds=0.1).ways} == {32, 100}


def test_a_way_that_takes_too_long_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DECODED_BYTES", 1 << 10)
    found = ooc.bench("sim.h5", seconds=0.1)
    assert {way.order for way in found.ways} == {"sequential"}
    assert found.notes[0].startswith("Left out: full shuffle, batches of 32.")
    assert "Left out: block shuffle" in str(found)


def test_a_damaged_chunk_is_an_error(folder: Path) -> None:
    with h5py.File("sim.h5") as file:
        place = file["u"].id.get_chunk_info(3)
    with open("sim.h5", "r+b") as raw:
        raw.seek(place.byte_offset + place.size // 2)
        raw.write(b"\xff" * 40)
    with pytest.raises(DamagedChunkError) as caught:
        ooc.bench("sim.h5", seconds=0.2)
    assert caught.value.rows == tuple(range(150, 200))


@pytest.mark.parametrize("shape", [(1_280_000, 8192), (1_000_000_000,), (3, 1 << 25)])
def test_sparse_files_of_any_size(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.lib.format.open_memmap(tmp_path / "sparse.npy", "w+", "u1", shape)
    found = ooc.bench(tmp_path / "sparse.npy", seconds=0.1)
    assert not any(limit.name.startswith("disk") for limit in found.limits)
    assert all(way.rate > 0 for way in found.ways)


def test_files_behind_a_dataset(folder: Path) -> None:
    assert len(files_of(ooc.open("part*.npy"))) == 2
    assert files_of(ooc.open("part*.npy").next_frame(episodes="none")) == [
        str(folder / name) for name in ("part1.npy", "part2.npy")
    ]
    assert {Path(path) for path in files_of(ooc.open("run.zarr"))} == {
        path for path in (folder / "run.zarr").rglob("*") if path.is_file()
    }
    for number in range(2):
        PIL.Image.new("RGB", (6, 4)).save(f"{number}.png")
    assert len(files_of(ooc.open("*.png"))) == 2
    cut = ooc.open("sim.h5", "u")[:10, :, 2:4].astype("f8")
    assert files_of(cut) == [str(folder / "sim.h5")]


def test_the_page_cache_is_left_alone_unless_cold(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    drop: Any = lambda paths: dropped.extend(["drop"] * bool(paths))  # noqa: E731
    monkeypatch.setattr(limits, "drop", drop)
    monkeypatch.setattr(module, "drop", drop)
    found = ooc.bench("ds.npy", seconds=0.1)
    assert (found.cache, dropped) == ("warm", [])
    found = ooc.bench("ds.npy", seconds=0.1, cold=True)
    assert found.cache == "cold"
    assert [limit.name for limit in found.limits] == ["disk"]
    assert len(dropped) > sum(len(way.rounds) for way in found.ways)


def test_the_disk_is_read_once_from_end_to_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_BLOCK", 5000)
    frames = ooc.open("part*.npy")
    epochs, stored = disk_reading(files_of(frames), frames)
    whole = b"".join((folder / name).read_bytes() for name in ("part1.npy", "part2.npy"))
    assert b"".join(block.tobytes() for block in epochs(0)) == whole
    assert stored == FRAMES[0].nbytes


def test_the_decoder_is_measured_without_a_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = []
    forget = cache.forget
    monkeypatch.setattr(cache, "forget", lambda: (forgotten.append(1), forget()))
    found = decoding(ooc.open("sim.h5", "u"))
    assert found is not None
    epochs, nbytes = found
    (decoded,) = epochs(0)
    assert len(decoded) == FRAMES.nbytes
    assert nbytes == FRAMES[0].nbytes
    assert forgotten == [1]
    assert decoding(ooc.open("ds.npy")) is None


LIMITS = tuple(
    Limit(name, (50.0, 100.0), size) for name, size in (("decoder", 4.0), ("disk", 50.0))
)
MADE = Bench(
    name="sim.h5 /u", format="HDF5", storage="chunks of (8, 3)", codec="gzip 4", stored_bytes=1536,
    elements=10, element="(3,) float32", element_bytes=12, cache="cold", limits=LIMITS,
    ways=(
        Way("sequential", 32, "NumPy", (20.0, 10.0, 5.0)),
        Way("full shuffle", 256, "to_tf", (1.0, 2.0), 7.0),
    ),
    advice=(), notes=("A note.",), memory_bytes=1 << 20, seconds=3.0,
)  # fmt: skip


def test_the_text_and_the_json() -> None:
    assert str(MADE).splitlines() == [
        "sim.h5 /u: 10 elements of (3,) float32",
        "HDF5, chunks of (8, 3), codec gzip 4, 1.5 KiB stored",
        "The system was asked to drop the file from the page cache before each epoch.",
        "A note.",
        "Measured in 3 s, within 1.0 MiB of memory.",
        "",
        "limit of the machine  MB/s  elements/s",
        "decoder                  0          25",
        "disk                     0           2",
        "",
        "order         batch  reader  elements/s  decoded  of the limit",
        "sequential       32  NumPy           10     1.0×  500% disk",
        "full shuffle    256  to_tf            2     7.0×  75% disk",
        "",
        "what to change",
        "- Nothing stands out: sequential reaches 100% of its limit (disk).",
    ]

    found = json.loads(json.dumps(MADE.to_json(), allow_nan=False))
    assert found["limits"][0]["elements_per_second"] == 25.0
    way = found["ways"][0]
    assert (way["elements_per_second"], way["limit"], way["share_of_limit"]) == (10, "disk", 5.0)
    assert replace(MADE, limits=LIMITS[:1]).bound == LIMITS[0]


def test_a_file_without_a_limit_has_no_share_of_it() -> None:
    found = replace(MADE, limits=(), ways=MADE.ways[:1])
    assert str(found).splitlines()[-6:] == [
        "",
        "order       batch  reader  elements/s  decoded",
        "sequential     32  NumPy           10     1.0×",
        "",
        "what to change",
        "- Nothing stands out: sequential is the fastest.",
    ]
    way = json.loads(json.dumps(found.to_json(), allow_nan=False))["ways"][0]
    assert (way["limit"], way["share_of_limit"]) == (None, None)
