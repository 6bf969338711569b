"""What an epoch needs of storage, against what is counted while one is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import oocdata as ooc
from oocdata.datasets.dataset import Dataset
from oocdata.tools.bench import bench
from oocdata.tools.bench.shuffling import again_with
from oocdata.tools.profile import needed as module
from oocdata.tools.profile.counts import counted
from oocdata.tools.profile.needed import needed

ROWS = np.random.default_rng(0).integers(0, 9, (600, 8, 8)).astype("f4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.save(tmp_path / "ds.npy", ROWS)
    for name, part in {"one.h5": ROWS[:200], "two.h5": ROWS[200:]}.items():
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("u", data=part, chunks=(20, 8, 8), compression="gzip")
    zarr.create_array(tmp_path / "run.zarr", data=ROWS, chunks=(20, 4, 8))
    monkeypatch.chdir(tmp_path)
    return tmp_path


PARTS: dict[str, Callable[[ooc.View], Dataset]] = {
    "whole": lambda view: view,
    "beginning": lambda view: view[:50],
    "split": lambda view: view.split(0.6, 0.2, 0.2)[1],
    "step": lambda view: view[::50],
    "mask": lambda view: view[np.arange(len(view)) % 7 == 0],
    "permutation": lambda view: view[np.random.default_rng(0).permutation(len(view))[:100]],
    "windows": lambda view: view[5:90].windows(4, 2),
    "cut": lambda view: view[:, :4],
    "shard": lambda view: view.shard(3, 1),
    "converted": lambda view: view[30:70].astype("f8"),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("target", ["*.h5", "two.h5", "run.zarr"])
def test_chunks_that_an_epoch_needs(folder: Path, target: str, part: str) -> None:
    dataset = PARTS[part](ooc.open(target))
    loader, counts = counted(dataset.batches(16))
    for _ in loader.epoch(0):
        pass
    found = needed(dataset)
    assert sum(one.decoded_bytes for one in found) == pytest.approx(counts.decoded_bytes)
    assert sum(20 * one.chunks for one in found) == pytest.approx(counts.chunk_rows)
    assert sum(one.stored_bytes for one in found) == pytest.approx(counts.stored_bytes, rel=0.05)


@pytest.mark.parametrize("part", PARTS)
def test_rows_that_an_epoch_needs(folder: Path, part: str) -> None:
    dataset = PARTS[part](ooc.open("ds.npy"))
    request = dataset.requests(np.arange(len(dataset)))[0]
    rows = {row for each in dataset.requests(np.arange(len(dataset))) for row in each.rows.flat}
    (found,) = needed(dataset)
    assert found.rows == found.chunks == len(rows)
    assert found.decoded_bytes == 0
    assert found.stored_bytes == len(rows) * ROWS[0].nbytes * np.prod(request.source.shape[1:]) / 64


@pytest.mark.parametrize("part", ["whole", "beginning", "step", "windows", "cut"])
def test_many_elements_are_worked_out_from_some(
    folder: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = PARTS[part](ooc.open("two.h5"))
    (exact,) = needed(dataset)
    monkeypatch.setattr(module, "_MOST_ROWS", 320)
    (found,) = needed(dataset)
    assert found.rows == pytest.approx(exact.rows, rel=0.05)
    assert found.chunks == pytest.approx(exact.chunks, rel=0.25)


@pytest.mark.parametrize("part", ["beginning", "split", "step"])
def test_limits_are_those_of_the_part_that_is_measured(folder: Path, part: str) -> None:
    dataset = PARTS[part](ooc.open("two.h5"))
    loader, counts = counted(dataset.batches(16))
    for _ in loader.epoch(0):
        pass
    decoder = bench(dataset, batch_sizes=[16], seconds=0.2).limit("decoder")
    assert decoder is not None
    assert decoder.element_bytes == pytest.approx(counts.decoded_bytes / len(dataset))
    dataset = PARTS[part](ooc.open("ds.npy"))
    disk = bench(dataset, batch_sizes=[16], seconds=0.2).limit("disk in sequence")
    if disk is not None:  # the file may lie in memory
        assert disk.element_bytes == ROWS[0].nbytes


def test_other_chunks_for_a_part(folder: Path) -> None:
    """A tenth of an array has a tenth of its chunks, of which a batch then touches more."""
    view = ooc.open("two.h5")
    small = ooc.chunk_budget()
    ooc.set_chunk_budget(1)
    try:
        assert again_with(4, view[:40], 40) == pytest.approx(1.0)  # a batch has them all
        assert again_with(4, view[::40], 10) == pytest.approx(4, 0.01)  # a chunk each
    finally:
        ooc.set_chunk_budget(small)
