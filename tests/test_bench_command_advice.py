"""What `oocdata bench` advises: each rule on a file that calls for it, and on one that doesn't.

Rules that go by counts are tried as they come; rules that go by rates with the rates of a real
measurement replaced, for those are the machine's.
"""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import typer.main
import zarr

import oocdata as ooc
from oocdata.amplification import amplification
from oocdata.cli.convert import convert
from oocdata.datasets.view import View
from oocdata.sources.slots import chunk_budget, set_chunk_budget
from oocdata.testing import RecordingSource
from oocdata.tools.bench import advising, bench
from oocdata.tools.bench.advising import advice
from oocdata.tools.bench.codecs import Tried, faster_codec
from oocdata.tools.bench.result import Advice, Bench, Limit, Way
from oocdata.tools.bench.shuffling import again_with

ROWS = np.random.default_rng(0).normal(0, 1, (6000, 64)).round(1).astype("f4")


@pytest.fixture(autouse=True)
def budget() -> Iterator[None]:
    before = chunk_budget()
    set_chunk_budget(300_000)
    yield
    set_chunk_budget(before)


def gzipped(path: Path, chunk_rows: int) -> ooc.View:
    with h5py.File(path / "sim.h5", "w") as file:
        file.create_dataset("u", data=ROWS, chunks=(chunk_rows, 64), compression="gzip")
    return ooc.open(path / "sim.h5")


def kinds(found: Bench) -> dict[str, Advice]:
    return {one.kind: one for one in found.advice}


def measured(view: ooc.View, **options: object) -> Bench:
    return bench(view, batch_sizes=[32], seconds=0.4, **options)  # type: ignore[arg-type]


def with_rates(found: Bench, view: ooc.View, **rates: float) -> dict[str, Advice]:
    """Return the advice for other rates: by order, with _ for a space."""
    ways = tuple(
        Way(order.replace("_", " "), 32, "NumPy", (rate, rate)) for order, rate in rates.items()
    )
    return {one.kind: one for one in advice(replace(found, ways=ways), view)}


def test_chunks_too_long_for_a_full_shuffle(tmp_path: Path) -> None:
    set_chunk_budget(64 << 20)
    chunk = zlib.compress(bytes(64 * 65_536))
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        data = file.create_dataset(
            "u", (8192, 65_536), "u1", chunks=(64, 65_536), compression="gzip"
        )
        for first in range(0, 8192, 64):
            data.id.write_direct_chunk((first, 0), chunk)
    view = ooc.open(tmp_path / "sim.h5")
    found = measured(view)
    one = kinds(found)["chunks"]
    assert "Chunks of 64 rows (4.0 MiB decoded)" in one.text
    assert (one.command or "").endswith("sim-new.h5 --key /u --chunks 2")
    # What is foretold of shorter ones is what reading them would cost.
    again = RecordingSource(np.broadcast_to(np.uint8(0), (8192, 65_536)), chunk_rows=2)
    loader = View.of(again).batches(32, shuffle="global")
    assert again_with(2, view, 32) == pytest.approx(amplification(loader), rel=0.1)


def test_shorter_chunks_that_would_not_help(tmp_path: Path) -> None:
    # Most of so small an array is read at a time, so nearly all chunks are decoded in any case.
    set_chunk_budget(1_400_000)
    found = measured(gzipped(tmp_path, 64))
    look = next(look for look in found.looks if look.order == "full shuffle")
    assert look.amplification is not None
    assert "chunks" not in kinds(found)


def test_long_chunks_that_mix_poorly(tmp_path: Path) -> None:
    one = kinds(measured(gzipped(tmp_path, 500)))["chunks"]
    assert "Chunks of 500 rows (125.0 KiB decoded)" in one.text
    assert "hold neighbours" in one.text
    assert "With chunks of" not in one.text  # a full shuffle decodes as much with them
    assert (one.command or "").endswith("sim-new.h5 --key /u --chunks 32")


def test_short_chunks(tmp_path: Path) -> None:
    assert "chunks" not in kinds(measured(gzipped(tmp_path, 32)))


def test_what_is_kept_needs_no_other_chunks(tmp_path: Path) -> None:
    set_chunk_budget(64 << 20)
    view = gzipped(tmp_path, 500)
    found = bench(view, batch_sizes=[32], seconds=1.0)
    assert found.kept is not None
    assert not {"chunks", "order", "budget"} & kinds(found).keys()


def test_the_command_is_one_that_convert_takes(tmp_path: Path) -> None:
    view = gzipped(tmp_path, 500)
    command = kinds(measured(view))["chunks"].command
    assert command is not None
    words = shlex.split(command)
    assert words[:2] == ["oocdata", "convert"]
    app = typer.Typer()
    app.command()(convert)
    context = typer.main.get_command(app).make_context("convert", words[2:])
    assert context.params["chunks"] == "32"
    assert context.params["key"] == "/u"


@pytest.mark.parametrize(("block", "told"), [(1000.0, True), (120.0, False)])
def test_a_full_shuffle_that_is_slow(tmp_path: Path, block: float, told: bool) -> None:
    view = gzipped(tmp_path, 100)
    found = with_rates(measured(view), view, full_shuffle=100.0, block_shuffle=block)
    assert ("order" in found) is told
    if told:
        assert "10.0 times as fast" in found["order"].text
        assert "shuffle=True" in found["order"].text


@pytest.mark.parametrize(("cache", "told"), [("cold", True), ("warm", False)])
def test_runs_of_rows_from_a_slow_disk(tmp_path: Path, cache: str, told: bool) -> None:
    np.save(tmp_path / "ds.npy", ROWS)
    view = ooc.open(tmp_path / "ds.npy")
    base = replace(measured(view), cache=cache)
    found = with_rates(base, view, full_shuffle=100.0, block_shuffle=1000.0)
    assert ("order" in found) is told
    if told:
        assert "ooc.BlockShuffle(93, 64)" in found["order"].text


def test_a_budget_that_holds_few_chunks(tmp_path: Path) -> None:
    one = kinds(measured(gzipped(tmp_path, 500)))["budget"]
    # All 12 chunks, and not the 64 that a longer array would have mixed.
    assert one.command == f"OOCDATA_CHUNK_BYTES={2 << 20}"
    assert one.text.endswith("With 2.0 MiB, all are kept.")


def test_a_budget_that_mixes_more_of_many_chunks(tmp_path: Path) -> None:
    set_chunk_budget(20_000)
    one = kinds(measured(gzipped(tmp_path, 16)))["budget"]
    assert one.text.endswith("With 512.0 KiB, 64 are mixed at a time.")


def test_a_budget_that_is_enough(tmp_path: Path) -> None:
    set_chunk_budget(1_200_000)
    assert "budget" not in kinds(measured(gzipped(tmp_path, 16)))


@pytest.mark.parametrize(("rate", "told"), [(90.0, True), (20.0, False)])
def test_a_decoder_that_is_the_limit(
    tmp_path: Path, rate: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = gzipped(tmp_path, 32)
    found = replace(
        measured(view),
        limits=(Limit("decoder", (100.0 * 256,), 256.0), Limit("memory", (1000.0 * 256,), 256.0)),
    )
    monkeypatch.setattr(
        advising, "faster_codec", lambda part, rate: Tried("zstd", 3.0, 1.25, 1 << 20)
    )
    made = with_rates(found, view, sequential=rate)
    assert ("codec" in made) is told
    if told:
        assert (
            "90% of that is used. zstd decodes these data 3.0 times as fast" in made["codec"].text
        )
        assert (made["codec"].command or "").endswith("--codec zstd")
    monkeypatch.setattr(advising, "faster_codec", lambda part, rate: None)
    made = with_rates(found, view, sequential=rate)
    assert not told or made["codec"].command is None


def test_codecs_are_tried_on_the_data(tmp_path: Path) -> None:
    view = gzipped(tmp_path, 100)
    slow = faster_codec(view.source, 1.0)  # type: ignore[arg-type]
    fast = faster_codec(view.source, 1e15)  # type: ignore[arg-type]
    assert slow is not None
    assert fast is not None
    assert slow.gain > 1e3
    assert fast.gain < 1
    assert slow.codec in ("zstd", "lz4")
    assert slow.nbytes == 4 * 100 * 64 * 4
    assert 0.2 < slow.ratio < 5
    array = zarr.create_array(tmp_path / "z.zarr", data=ROWS, chunks=(100, 64))
    view = ooc.open(tmp_path / "z.zarr")
    assert array.shape == view.shape
    assert faster_codec(view.source, 1.0).codec in ("zstd", "blosc-lz4")  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize(("rate", "told"), [(95.0, True), (30.0, False), (129.0, False)])
def test_a_disk_that_is_the_limit(tmp_path: Path, rate: float, told: bool) -> None:
    np.save(tmp_path / "ds.npy", ROWS)
    view = ooc.open(tmp_path / "ds.npy")
    found = replace(
        measured(view),
        cache="cold",
        limits=(
            Limit("disk in sequence", (100.0 * 256,), 256.0),
            Limit("memory", (9000.0 * 256,), 256.0),
        ),
    )
    made = with_rates(found, view, sequential=rate)
    assert ("disk" in made) is told
    if told:
        assert "uses 95% of it" in made["disk"].text
        assert (made["disk"].command or "").endswith("ds-new.h5 --codec zstd")
        warm = advice(replace(found, cache="warm"), view)
        assert "disk" not in {one.kind for one in warm}


def test_a_disk_that_is_outrun_is_no_limit(tmp_path: Path) -> None:
    np.save(tmp_path / "ds.npy", ROWS)
    view = ooc.open(tmp_path / "ds.npy")
    disk = Limit("disk in sequence", (100.0 * 256,), 256.0)
    found = replace(measured(view), cache="cold", limits=(disk,))
    assert "disk" not in with_rates(found, view, sequential=216.0, block_shuffle=88.0)
    assert "disk" in with_rates(found, view, sequential=95.0, block_shuffle=88.0)
    made = with_rates(found, view, sequential=511.0)
    assert "disk" not in made
    assert "Nothing stands out: sequential is read 5.1 times as fast as the disk" in (
        made["nothing"].text
    )


def test_small_rows_that_are_kept_are_not_read_at_random(tmp_path: Path) -> None:
    np.save(tmp_path / "ds.npy", ROWS)
    disks = (
        Limit("disk in sequence", (100.0 * 256,), 256.0),
        Limit("disk at random", (20.0 * 256,), 256.0),
    )
    full = Way("full shuffle", 32, "NumPy", (40.0, 40.0))
    found = measured(ooc.open(tmp_path / "ds.npy"))
    found = replace(found, cache="cold", limits=disks, ways=(full,))
    assert replace(found, kept=None).bound(full) == disks[1]
    assert replace(found, kept=replace(full, rounds=(900.0,))).bound(full) == disks[0]


def test_batches_that_are_too_small() -> None:
    view = ooc.open(np.zeros((1000, 2), "f4"))
    rates = {1: (10.0, 12.0), 256: (90.0, 110.0)}
    ways = tuple(Way("sequential", size, "NumPy", rounds) for size, rounds in rates.items())
    made = {one.kind: one for one in advice(replace(measured(view), ways=ways), view)}
    assert made["batch"].text.startswith("Batches of 1 are bound by what each batch costs")
    assert "batches of 256 give 9.1 times as many elements" in made["batch"].text


def test_batches_that_are_large_enough() -> None:
    view = ooc.open(np.zeros((2000, 50_000), "u1"))
    found = bench(view, batch_sizes=[64, 80], seconds=0.5)
    equal = tuple(replace(way, rounds=(10.0, 11.0)) for way in found.ways)
    assert [one.kind for one in advice(replace(found, ways=equal), view)] == ["nothing"]


def test_rows_whose_bytes_lie_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "fortran.npy", np.asfortranarray(ROWS))
    one = kinds(measured(ooc.open(tmp_path / "fortran.npy")))["layout"]
    assert "64 pieces of 4 bytes" in one.text
    assert (one.command or "").endswith("fortran-new.npy")
    np.save(tmp_path / "c.npy", ROWS)
    assert "layout" not in kinds(measured(ooc.open(tmp_path / "c.npy")))


def test_no_command_for_several_files(tmp_path: Path) -> None:
    for part in (1, 2):
        np.save(tmp_path / f"part{part}.npy", np.asfortranarray(ROWS))
    one = kinds(measured(ooc.open(str(tmp_path / "part*.npy"))))["layout"]
    assert one.command is None


def test_where_nothing_is_wrong() -> None:
    view = ooc.open(ROWS)
    found = measured(view)
    assert kinds(found).keys() == {"nothing"}
    assert "of what the memory allows" in found.advice[0].text


def test_a_verdict_is_of_what_was_measured(tmp_path: Path) -> None:
    set_chunk_budget(1_200_000)
    view = gzipped(tmp_path, 16)
    limits = (Limit("decoder", (100.0 * 256,), 256.0), Limit("memory", (1000.0 * 256,), 256.0))
    ways = (
        Way("sequential", 32, "NumPy", (30.0, 30.0)),
        Way("full shuffle", 32, "NumPy", (25.0,), estimated=True),
        Way("block shuffle", 32, "NumPy", (30.0,), estimated=True),
    )
    found = replace(measured(view), limits=limits, ways=ways, looks=())
    (one,) = advice(found, view)
    assert one.text == "Nothing stands out: sequential reaches 30% of what the decoder allows."
    (one,) = advice(replace(found, ways=ways[1:]), view)
    assert one.text == "Nothing stands out."
