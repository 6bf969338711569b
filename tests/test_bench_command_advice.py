"""What `oocdata bench` advises: each rule on figures that call for it, and on ones that don't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import oocdata as ooc
from oocdata.tools.bench import bench
from oocdata.tools.bench.advising import advice
from oocdata.tools.bench.result import Advice, Bench, Limit, Way

ROWS = np.random.default_rng(0).normal(0, 1, (6000, 64)).round(1).astype("f4")
ELEMENT = 256.0


@pytest.fixture(scope="module")
def gzipped(tmp_path_factory: pytest.TempPathFactory) -> ooc.View:
    path = tmp_path_factory.mktemp("bench") / "sim.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=ROWS, chunks=(100, 64), compression="gzip")
    return ooc.open(path)


def measured(view: ooc.View) -> Bench:
    return bench(view, batch_sizes=[32], seconds=0.1)


def told(found: Bench, view: ooc.View) -> dict[str, Advice]:
    return {one.kind: one for one in advice(found, view)}


def ways(**rates: tuple[float, float]) -> tuple[Way, ...]:
    """Ways with a rate and an amplification, by order."""
    return tuple(
        Way(order.replace("_", " "), 32, "NumPy", (rate, rate), again)
        for order, (rate, again) in rates.items()
    )


LIMITS = (Limit("decoder", (100.0 * ELEMENT,), ELEMENT), Limit("memory", (9e9,), ELEMENT))


@pytest.mark.parametrize(("block", "slow"), [(1000.0, True), (120.0, False)])
def test_a_full_shuffle_that_is_slow(gzipped: ooc.View, block: float, slow: bool) -> None:
    found = replace(
        measured(gzipped), ways=ways(full_shuffle=(100.0, 30.0), block_shuffle=(block, 1.0))
    )
    made = told(found, gzipped)
    assert ("order" in made) is slow
    if slow:
        assert "10.0 times as fast" in made["order"].text
        assert "decodes 30 bytes for each byte" in made["order"].text


@pytest.mark.parametrize(("again", "long"), [(30.0, True), (2.0, False)])
def test_chunks_too_long_for_a_full_shuffle(gzipped: ooc.View, again: float, long: bool) -> None:
    found = replace(
        measured(gzipped), ways=ways(full_shuffle=(100.0, again), block_shuffle=(100.0, 1.0))
    )
    made = told(found, gzipped)
    assert ("chunks" in made) is long
    if long:
        assert made["chunks"].text.startswith("Chunks of 100 rows are long for shuffling.")
        assert (made["chunks"].command or "").endswith("sim-new.h5 --key /u --chunks 32")


@pytest.mark.parametrize(("again", "small"), [(3.0, True), (1.1, False)])
def test_a_cache_that_is_too_small(
    gzipped: ooc.View, again: float, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(measured(gzipped), ways=ways(block_shuffle=(100.0, again)))
    usual = ooc.memory_limit()
    ooc.set_memory(1 << 20)
    try:
        made = told(found, gzipped)
    finally:
        ooc.set_memory(usual)
    assert ("memory" in made) is small
    if small:
        assert made["memory"].command == f"OOCDATA_MEMORY={4 << 20}"


@pytest.mark.parametrize(("rate", "bound"), [(90.0, True), (20.0, False)])
def test_a_decoder_that_is_the_limit(gzipped: ooc.View, rate: float, bound: bool) -> None:
    found = replace(measured(gzipped), limits=LIMITS, ways=ways(sequential=(rate, 1.0)))
    made = told(found, gzipped)
    assert ("codec" in made) is bound
    if bound:
        assert "90% of that is used" in made["codec"].text


@pytest.mark.parametrize(("rate", "bound"), [(95.0, True), (30.0, False), (129.0, False)])
def test_a_disk_that_is_the_limit(tmp_path: Path, rate: float, bound: bool) -> None:
    np.save(tmp_path / "ds.npy", ROWS)
    view = ooc.open(tmp_path / "ds.npy")
    disk = Limit("disk in sequence", (100.0 * ELEMENT,), ELEMENT)
    found = replace(
        measured(view), cache="cold", limits=(disk, LIMITS[1]), ways=ways(sequential=(rate, 1.0))
    )
    made = told(found, view)
    assert ("disk" in made) is bound
    if bound:
        assert "uses 95% of it" in made["disk"].text
        assert (made["disk"].command or "").endswith("ds-new.h5 --codec zstd")
        assert "disk" not in told(replace(found, cache="warm"), view)


def test_batches_that_are_too_small() -> None:
    view = ooc.open(np.zeros((1000, 2), "f4"))
    rates = {1: (10.0, 12.0), 256: (90.0, 110.0)}
    some = tuple(Way("sequential", size, "NumPy", rounds) for size, rounds in rates.items())
    made = told(replace(measured(view), ways=some), view)
    assert "batches of 256 give 9.1 times as many elements" in made["batch"].text
    even = tuple(Way("sequential", size, "NumPy", (10.0, 11.0)) for size in rates)
    assert told(replace(measured(view), ways=even), view).keys() == {"nothing"}


def test_rows_whose_bytes_lie_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "fortran.npy", np.asfortranarray(ROWS))
    found = measured(ooc.open(tmp_path / "fortran.npy"))
    (one,) = found.advice
    assert one.kind == "layout"
    assert (one.command or "").endswith("fortran-new.npy")
    np.save(tmp_path / "c.npy", ROWS)
    assert "layout" not in {one.kind for one in measured(ooc.open(tmp_path / "c.npy")).advice}


def test_where_nothing_is_wrong() -> None:
    found = measured(ooc.open(ROWS))
    assert [one.kind for one in found.advice] == ["nothing"]
    assert "of what the memory allows" in found.advice[0].text
