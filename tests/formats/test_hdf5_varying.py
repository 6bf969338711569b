"""Test rows of varying length in HDF5 against lists of NumPy arrays, and count the reads."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.errors import ArgumentError, MissingChunkError, SourceError, UnsupportedDtypeError
from oocdata.formats.hdf5 import library, varying

LENGTHS = np.random.default_rng(0).integers(0, 50, 300)

LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunks as they are": {"chunks": (37,)},
    "filtered chunks": {"chunks": (37,), "compression": "gzip", "shuffle": True},
}


def rows_of(dtype: str) -> list[np.ndarray]:
    values = np.arange(LENGTHS.sum()).astype(dtype)
    return np.split(values, np.cumsum(LENGTHS)[:-1])


def write(path: Path, key: str, rows: list[np.ndarray], **options: Any) -> None:
    with h5py.File(path, "a") as file:
        kind = h5py.vlen_dtype(rows[0].dtype)
        made = file.create_dataset(key, (len(rows),), kind, **options)
        for number, row in enumerate(rows):
            made[number] = row


def same(view: ooc.Ragged, positions: Any, rows: list[np.ndarray]) -> None:
    batch = view.take(positions)
    assert_array_equal(batch.row_lengths, [len(rows[at]) for at in positions])
    assert batch.values.dtype == rows[0].dtype.newbyteorder("=")
    for row, at in zip(batch, positions, strict=True):
        assert_array_equal(row, rows[at])


@pytest.mark.parametrize("dtype", ["<f4", "<i2", "u2", "<f8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_rows(tmp_path: Path, layout: str, dtype: str) -> None:
    rows = rows_of(dtype)
    write(tmp_path / "a.h5", "events", rows, **LAYOUTS[layout])
    view = ooc.open(tmp_path / "a.h5", "events")
    assert isinstance(view, ooc.Ragged)
    assert (len(view), view.longest) == (300, LENGTHS.max())
    rng = np.random.default_rng(1)
    for positions in ([], [0], [299, 299, 3], range(300), rng.permutation(300)[:64]):
        same(view, list(positions), rows)
    assert_array_equal(view[7], rows[7])
    assert_array_equal(view[::-3].lengths.take(np.arange(100)), LENGTHS[::-3])
    padded = view.pad(50, value=7)
    assert_array_equal(padded[5][: LENGTHS[5]], rows[5])
    assert (padded[5][LENGTHS[5] :] == 7).all()
    cut = view.pad(9, cut=True)[:, ::2].take([3, 250])
    assert_array_equal(cut[0][: len(rows[3][:9:2])], rows[3][:9:2])


def test_an_epoch_has_each_row_once(tmp_path: Path) -> None:
    rows = rows_of("f4")
    write(tmp_path / "a.h5", "events", rows, **LAYOUTS["filtered chunks"])
    view = ooc.open(tmp_path / "a.h5", "events")
    np.save(tmp_path / "at.npy", np.arange(300))
    pairs, _ = ooc.zip(view, ooc.open(tmp_path / "at.npy")).split(0.9, 0.1)
    loader = pairs.batches(32, shuffle=True, seed=3)
    seen = []
    for made, (x, at) in zip(loader.to_tf(), loader.epoch(0), strict=True):
        assert_array_equal(made[0].values, x.values)
        for row, number in zip(x, at, strict=True):
            assert_array_equal(row, rows[number])
        seen += at.tolist()
    assert sorted(seen) == list(range(270))
    again = from_json(as_json(loader)).batch(2, 1)[0]
    assert_array_equal(again.values, loader.batch(2, 1)[0].values)
    assert_array_equal(view.pad(50).batches(32, workers=1).batch(0), view.pad(50).take(range(32)))
    assert "varying length" in str(loader.explain())


def test_lengths_are_found_without_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.h5", "events", rows_of("f4"), **LAYOUTS["filtered chunks"])
    monkeypatch.setattr(varying, "PIECE_BYTES", 2000)
    calls, usual = [], varying.reading
    monkeypatch.setattr(
        varying, "reading", lambda target, rows: (calls.append(len(rows)), usual(target, rows))[1]
    )
    view = ooc.open(tmp_path / "a.h5", "events")
    assert_array_equal(view.lengths.take(np.arange(300)), LENGTHS)
    assert calls == []
    view.take(np.arange(0, 300, 3))
    assert sum(calls) == np.count_nonzero(LENGTHS[::3])  # each row once, empty ones never
    assert len(calls) >= LENGTHS[::3].sum() * 4 // 2000


def test_rows_of_several_files_and_of_several_datasets(tmp_path: Path) -> None:
    rows = rows_of("f4")
    for number in range(3):
        write(tmp_path / f"{number}.h5", "events", rows[number * 100 : number * 100 + 100])
        write(tmp_path / "all.h5", f"run_{number}/events", rows[number * 100 : number * 100 + 100])
    several = [ooc.open(str(tmp_path / "?.h5"), "events"), ooc.open(tmp_path / "all.h5", "run_*/*")]
    for view in several:
        assert isinstance(view, ooc.Ragged)
        same(view, np.random.default_rng(0).permutation(300).tolist(), rows)
        assert_array_equal(view.parts.numbers, np.repeat(np.arange(3), 100))
        again = from_json(as_json(view.batches(20))).batch(3)
        assert_array_equal(again.values, np.concatenate(rows[60:80]))


def test_rows_that_were_never_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("events", (9,), h5py.vlen_dtype("i4"), chunks=(3,))
        made[0] = [1, 2]
    with pytest.raises(MissingChunkError):
        ooc.open(tmp_path / "a.h5", "events")
    view = ooc.open(tmp_path / "a.h5", "events", missing="fill")
    assert [row.tolist() for row in view] == [[1, 2]] + [[]] * 8


def test_rows_that_the_file_itself_does_not_hold(tmp_path: Path) -> None:
    dtype = h5py.vlen_dtype("i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("events", (3,), dtype)
        made[0] = [1, 2]
        with pytest.raises(UnsupportedDtypeError, match="opened by its path"):
            ooc.open(made)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        layout = h5py.VirtualLayout((3,), dtype)
        layout[...] = h5py.VirtualSource(tmp_path / "a.h5", "events", (3,), dtype)
        file.create_virtual_dataset("u", layout)
    with pytest.raises(UnsupportedDtypeError, match="in the HDF5 file itself"):
        ooc.open(tmp_path / "b.h5", "u", external=True)


def test_filters_that_hide_the_lengths_of_rows(tmp_path: Path) -> None:
    """HDF5 may leave the last, partial chunk unfiltered, and shuffled bytes don't tell."""
    rows = rows_of("f4")
    write(tmp_path / "a.h5", "events", rows, chunks=(37,), shuffle=True)
    with pytest.raises(UnsupportedDtypeError, match=r"got shuffle.*300.*h5repack") as caught:
        ooc.open(tmp_path / "a.h5", "events")
    assert "text" not in str(caught.value)
    write(tmp_path / "a.h5", "whole", rows, chunks=(30,), shuffle=True)
    same(ooc.open(tmp_path / "a.h5", "whole"), [299, 0], rows)


def test_it_travels(tmp_path: Path) -> None:
    rows = rows_of("f4")
    write(tmp_path / "a.h5", "events", rows)
    view = ooc.open(tmp_path / "a.h5", "events")
    same(pickle.loads(pickle.dumps(view)), [3, 9], rows)


def test_what_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("plane", (3, 2), h5py.vlen_dtype("i4"))
        file.create_dataset("swapped", (3,), h5py.vlen_dtype(">i4"))
        file.create_dataset("nested", (3,), h5py.vlen_dtype(h5py.vlen_dtype("i4")))
    write(tmp_path / "a.h5", "events", rows_of("f4"))
    with pytest.raises(UnsupportedDtypeError, match=r"one axis; got an array of shape \(3, 2\)"):
        ooc.open(tmp_path / "a.h5", "plane", missing="fill")
    with pytest.raises(UnsupportedDtypeError, match="text or rows of varying length"):
        ooc.open(tmp_path / "a.h5", "nested", missing="fill")
    # h5py returns them in the file's byte order with a native dtype.
    with pytest.raises(UnsupportedDtypeError, match="native byte order; got >i4"):
        ooc.open(tmp_path / "a.h5", "swapped", missing="fill")
    view = ooc.open(tmp_path / "a.h5", "events")
    with pytest.raises(ArgumentError, match="dense rows"):
        ooc.check(view)
    view.take([0, 1])
    with open(tmp_path / "a.h5", "ab") as file:
        file.write(b"more")
    with pytest.raises(SourceError, match="chang"):
        view.take([0, 1])
    assert library.reading is varying.reading


@pytest.mark.parametrize("options", [{}, {"chunks": (4,), "maxshape": (None,)}], ids=str)
@pytest.mark.parametrize("missing", [None, "fill"])
def test_a_dataset_without_rows_among_others(
    tmp_path: Path, options: dict[str, Any], missing: Any
) -> None:
    parts = [[], rows_of("<f4")[:5], [], rows_of("<f4")[5:9]]
    for number, rows in enumerate(parts):
        with h5py.File(tmp_path / "a.h5", "a") as file:
            made = file.create_dataset(
                f"run_{number}/v", (len(rows),), h5py.vlen_dtype("<f4"), **options
            )
            for place, row in enumerate(rows):
                made[place] = row
    view = ooc.open(tmp_path / "a.h5", "run_*/v", missing=missing)
    assert view.parts.lengths.tolist() == [0, 5, 0, 4]
    same(view, [8, 0, 4, 5], [*parts[1], *parts[3]])
    assert len(ooc.open(tmp_path / "a.h5", "run_0/v")) == 0
    assert len(ooc.open(tmp_path / "a.h5", ["run_0/v", "run_2/v"])) == 0


def test_a_dataset_without_rows_of_bytes_among_others(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, rows in enumerate(([], [b"a", b"bcd"])):
            made = file.create_dataset(f"run_{number}", (len(rows),), h5py.vlen_dtype("u1"))
            for place, row in enumerate(rows):
                made[place] = np.frombuffer(row, "u1")
    assert np.asarray(ooc.open(tmp_path / "a.h5", "run_*")).tolist() == [b"a", b"bcd"]
    assert np.asarray(ooc.open(tmp_path / "a.h5", "run_0")).tolist() == []


@pytest.mark.parametrize("key", ["packed", "pack*"])
def test_packed_rows_are_delivered_as_stored_alone(tmp_path: Path, key: str) -> None:
    rows = rows_of("<i2")
    write(tmp_path / "a.h5", "packed", rows)
    write(tmp_path / "a.h5", "plain", rows)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["packed"].attrs["scale_factor"] = 0.5
    with pytest.raises(UnsupportedDtypeError, match=r"scale_factor 0\.5.*Leave out decode.*packed"):
        ooc.open(tmp_path / "a.h5", key, decode=True)
    same(ooc.open(tmp_path / "a.h5", key), [7, 3], rows)
    same(ooc.open(tmp_path / "a.h5", "plain", decode=True), [7, 3], rows)


def test_tools_say_that_rows_are_of_unequal_length(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, "events", rows_of("f4"))
    with h5py.File(path, "a") as file:
        file["u"] = np.zeros((5, 2))
    for tool in (ooc.check, ooc.preview, ooc.stats):
        with pytest.raises(ArgumentError, match=r"dense rows; got <Ragged: 300 rows"):
            tool(path, "events")
    health = ooc.check(path)  # checks all datasets
    assert "events" in str(health)
    assert "dense rows" in str(health)


def test_the_metadata_cache_stays_small(tmp_path: Path) -> None:
    """Without a limit it keeps 32 MiB of the heap. A file that the user has open is left alone."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("u", (20_000,), h5py.vlen_dtype("f8"), chunks=(100,))
        made[:] = np.array([np.zeros(n % 50) for n in range(20_000)], object)
    view = ooc.open(path)
    positions = np.random.default_rng(0).permutation(20_000)
    for start in range(0, 20_000, 1000):
        view.take(positions[start : start + 1000])
    opened = library._open[view.source.target]
    assert opened.file.id.get_mdc_size()[1] < 3 << 20
    with h5py.File(tmp_path / "a.h5") as file:
        again = ooc.open(path)
        before = file.id.get_mdc_config().max_size
        again.take([1, 2, 3])
        assert file.id.get_mdc_config().max_size == before
