"""What `explain` says against what is counted and measured."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import oocdata as ooc
from oocdata.amplification import amplification
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.sources.hdf5.chunked import ChunkedReader
from oocdata.sources.slots import DEFAULT_BUDGET, set_chunk_budget
from oocdata.sources.zarr.readers import TensorStoreReader
from oocdata.testing import RecordingSource

ROWS, ELEMENT, CHUNK = 4000, (25, 10), 16


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Counts chunks as they are decoded, in a budget of 64 of them."""
    counts: Counter[Any] = Counter()
    for reader in (ChunkedReader, TensorStoreReader):

        def counting(self: Any, boxes: Any, outs: Any, real: Any = reader.read_boxes) -> None:
            where = getattr(self, "file", None)
            counts.update((where, box[0].start) for box in boxes)
            real(self, boxes, outs)

        monkeypatch.setattr(reader, "read_boxes", counting)
    set_chunk_budget(64 * (CHUNK * 1000 + 256))
    yield counts
    set_chunk_budget(DEFAULT_BUDGET)


def rows(first: int, last: int) -> np.ndarray:
    return np.arange(first, last, dtype="f4")[:, None, None] * np.ones(ELEMENT, "f4")


def hdf5(folder: Path) -> ooc.View:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("u", data=rows(0, ROWS), chunks=(CHUNK, *ELEMENT), compression="gzip")
    return ooc.open(folder / "a.h5")


def zarr(folder: Path) -> ooc.View:
    library = pytest.importorskip("zarr")
    made = library.create_array(
        folder / "a.zarr", shape=(ROWS, *ELEMENT), chunks=(CHUNK, *ELEMENT), dtype="f4"
    )
    made[...] = rows(0, ROWS)
    return ooc.open(folder / "a.zarr")


def files(folder: Path) -> ooc.View:
    for number, (first, last) in enumerate([(0, 1403), (1403, 1800), (1800, ROWS)]):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            chunks = (CHUNK, *ELEMENT)
            file.create_dataset("u", data=rows(first, last), chunks=chunks, compression="gzip")
    return ooc.open(folder / "*.h5")


@pytest.mark.parametrize("tf", [False, True], ids=["loader", "to_tf"])
@pytest.mark.parametrize("make", [hdf5, zarr])
@pytest.mark.parametrize("part", [slice(None), slice(5, 3001), slice(None, None, -1)], ids=str)
def test_each_chunk_is_decoded_once_an_epoch(
    make: Any, part: slice, tf: bool, tmp_path: Path, decoded: Counter[Any]
) -> None:
    if tf:
        pytest.importorskip("tensorflow")
    view = make(tmp_path)[part]
    loader = view.batches(32, shuffle=True, seed=3)
    assert isinstance(loader.order, ooc.BlockShuffle)
    # One run after the other: where a thread is held up while the next ones read on, in windows as
    # small as these, a chunk that is wanted once more may have made room.
    batches = loader.to_tf(parallel=1) if tf else map(loader.batch, range(len(loader)))
    seen = np.concatenate([np.asarray(batch)[:, 0, 0] for batch in batches])
    assert sorted(seen) == sorted(np.arange(ROWS)[part])
    assert set(decoded.values()) == {1}
    assert loader.explain().amplification == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("kept", [16, 64, 200], ids="{} chunks kept".format)
@pytest.mark.parametrize("batch_size", [8, 32, 512])
def test_a_full_shuffle_that_touches_more_chunks_than_are_kept(
    tmp_path: Path, decoded: Counter[Any], batch_size: int, kept: int
) -> None:
    set_chunk_budget(kept * (CHUNK * 1000 + 256))
    loader = hdf5(tmp_path).batches(batch_size, shuffle="global", seed=3)
    for _ in loader:
        pass
    counted = decoded.total() * CHUNK / ROWS
    said = loader.explain().amplification
    # Where two reads don't keep in step, each decodes what the other one needs too.
    assert counted / 2.2 < said < 1.3 * counted


@pytest.mark.parametrize(
    ("make", "choose"),
    [
        (hdf5, lambda view: view.next_frame()),
        (hdf5, lambda view: view.windows(4, 2)),
        (hdf5, lambda view: view[::3]),
        (hdf5, lambda view: view.windows(3, 1, horizon=100)),
        (files, lambda view: view),
        (files, lambda view: view.next_frame(episodes="files")),
    ],
    ids=["next_frame", "windows", "a step of 3", "a far horizon", "files", "pairs within files"],
)
def test_where_blocks_share_chunks(
    make: Any, choose: Any, tmp_path: Path, decoded: Counter[Any]
) -> None:
    dataset = choose(make(tmp_path))
    loader = dataset.batches(32, shuffle=True, seed=3)
    for _ in loader:
        pass
    requests = dataset.requests(np.arange(len(dataset)))
    used = len(np.unique(np.concatenate([request.rows.ravel() for request in requests])))
    counted = decoded.total() * CHUNK / used
    said = loader.explain().amplification
    assert said == pytest.approx(counted, rel=0.1)
    inherent = 3 if len(dataset) == -(-ROWS // 3) else 1  # every chunk, for a third of its rows
    assert counted < 2.1 * inherent


@pytest.mark.parametrize(
    "choose",
    [
        lambda view: view,
        lambda view: view[1234:-777],
        lambda view: view.windows(12, 3, horizon=150),
        lambda view: ooc.zip(view.next_frame(), ooc.open(np.zeros(len(view) - 1))),
    ],
    ids=["rows", "a part", "windows", "with labels in memory"],
)
@pytest.mark.usefixtures("decoded")  # which puts the budget back
@pytest.mark.parametrize("kept", [1, 3, 90], ids="{} chunks kept".format)
def test_windows_of_many_rows_are_not_followed_row_by_row(
    choose: Any, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ooc.open(RecordingSource(np.zeros(60_000, "f4"), chunk_rows=300))
    dataset = choose(view)
    order = ooc.BlockShuffle(1200, 8, dataset.blocks.first)
    set_chunk_budget(kept * 1200)
    looked_at = 0
    real = Windows.requests, View.requests

    def counting(self: Any, positions: np.ndarray) -> Any:
        nonlocal looked_at
        looked_at += len(positions)
        return real[isinstance(self, View)](self, positions)

    monkeypatch.setattr(Windows, "requests", counting)
    monkeypatch.setattr(View, "requests", counting)
    loader = dataset.batches(16, shuffle=order)
    said = []
    for most in (1 << 10, 1 << 20):
        monkeypatch.setattr("oocdata.amplification._MOST_POSITIONS", most)
        looked_at = 0
        said.append(amplification(loader))
        assert (looked_at < 60_000) == (most == 1 << 10)
    assert said[0] == pytest.approx(said[1], rel=0.1)


def test_blocks_of_rows_that_are_addressable_are_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A window of a shuffle by blocks of one row holds millions."""
    view = ooc.open(RecordingSource(np.zeros((300_000, 2), "f4"), chunk_rows=1))
    looked_at = 0
    real = View.requests

    def counting(self: Any, positions: np.ndarray) -> Any:
        nonlocal looked_at
        looked_at += len(positions)
        return real(self, positions)

    monkeypatch.setattr(View, "requests", counting)
    assert view.batches(32, shuffle="block").explain().amplification == 1
    assert looked_at < 10_000


def test_two_sizes_of_chunks_are_kept_side_by_side(tmp_path: Path) -> None:
    one = hdf5(tmp_path)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("u", data=rows(0, ROWS), chunks=(20, *ELEMENT), compression="gzip")
    both = ooc.zip(one, ooc.open(tmp_path / "b.h5")).batches(8).explain().resident_bytes
    alone = one.batches(8).explain().resident_bytes
    assert both - alone > 0.9 * ROWS * 1000


def test_chunks_larger_than_the_budget_are_counted(tmp_path: Path) -> None:
    view = hdf5(tmp_path)
    try:
        set_chunk_budget(1)
        assert view.batches(8).explain().resident_bytes > 8 * CHUNK * 1000
    finally:
        set_chunk_budget(DEFAULT_BUDGET)


MEASURED = """
import sys
import numpy as np, h5py, imagecodecs, zarr, tensorstore
import oocdata as ooc

def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) << 10

for batch in ooc.open(np.zeros((64, 4))).batches(4):
    pass
view = ooc.open(sys.argv[1])
loader = eval(sys.argv[2])(view).batches(int(sys.argv[3]), shuffle=True)
bound = loader.explain().resident_bytes
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
for batch in loader:
    pass
peak = status("VmHWM") - before
assert peak <= bound, (peak >> 20, bound >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
@pytest.mark.parametrize("size", [8, 256])
@pytest.mark.parametrize(
    "made", ["lambda v: v", "lambda v: v.windows(8, 2)", "lambda v: v.map(lambda x: x * 2)",
             "lambda v: v[:, 3:9, 5]", "lambda v: v.astype('f8')"],
)  # fmt: skip
@pytest.mark.parametrize("make", [hdf5, zarr, files])
def test_the_stated_bound_is_kept(make: Any, made: str, size: int, tmp_path: Path) -> None:
    make(tmp_path)
    target = {"hdf5": "a.h5", "zarr": "a.zarr", "files": "*.h5"}[make.__name__]
    arguments = [str(tmp_path / target), made, str(size)]
    code = textwrap.dedent(MEASURED)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_stated_bound_counts_small_rows_that_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "small.npy"
    array = np.zeros((60_000, 784), np.uint8)
    np.save(path, array)
    code = textwrap.dedent(MEASURED)
    arguments = [str(path), "lambda v: v", "256"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = ooc.open(path).batches(256, shuffle=True).explain()
    twice = ooc.zip(ooc.open(path), ooc.open(path)).batches(256, shuffle=True).explain()
    assert said.resident_bytes > array.nbytes
    # Both read the same memory; what is more is the batches.
    assert twice.resident_bytes - said.resident_bytes < array.nbytes


def test_worker_processes_are_counted(tmp_path: Path) -> None:
    view = hdf5(tmp_path)
    alone = view.batches(32, shuffle=True).explain().resident_bytes
    together = [view.batches(32, shuffle=True, workers=n).explain().resident_bytes for n in (1, 2)]
    # Each keeps chunks of its own.
    decoded = ROWS * 1000
    assert together[0] > alone + (30 << 20)
    assert together[1] - together[0] > decoded + (30 << 20)
