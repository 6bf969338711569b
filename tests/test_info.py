"""What `oocdata.tools.info` says of an array, against what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import oocdata as ooc
from oocdata import choice
from oocdata.errors import ExternalDataError, MissingChunkError, MissingKeyError
from oocdata.memory import memory_limit, set_memory
from oocdata.tools.info import Contents, Description, Opening, Unopened, contents, describe
from oocdata.tools.info import text as info_text
from oocdata.tools.info.shuffling import shuffling_of

FRAMES = np.arange(64 * 6 * 5, dtype="f4").reshape(64, 6, 5)


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(choice, "WINDOW_BYTES", 2048)
    usual = memory_limit()
    set_memory(1 << 20)
    yield
    set_memory(usual)


def test_npy_is_described_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, FRAMES.astype(">f8"))
    found = describe(str(path))
    assert (found.format, found.shape, found.dtype) == (".npy", (64, 6, 5), "float64")
    assert (found.row_bytes, found.memory_bytes, found.stored_bytes) == (240, 15360, 15360)
    assert (found.chunk_rows, found.codec, found.key, found.files) == (1, "none", None, 1)
    assert found.shuffling is not None
    assert (found.shuffling.kind, found.shuffling.full_cost) == ("full", 1.0)


def test_hdf5_chunks_and_codec(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            "flow/u", data=FRAMES, chunks=(8, 6, 5), compression="gzip", shuffle=True
        )
        stored = made.id.get_storage_size()
    found = describe(str(path))
    assert (found.key, found.chunk_rows, found.stored_bytes) == ("/flow/u", 8, stored)
    assert "gzip" in found.codec
    assert "(8, 6, 5)" in found.storage


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_of_both_versions(tmp_path: Path, version: int) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=FRAMES.shape, chunks=(16, 6, 5), dtype="f4", zarr_format=version
    )
    array[:] = FRAMES
    found = describe(str(tmp_path / "a.zarr"))
    assert found.format == f"Zarr v{version}"
    assert (found.shape, found.chunk_rows) == (FRAMES.shape, 16)


def test_raw_axis_and_glob(tmp_path: Path) -> None:
    FRAMES.astype(">f4").tofile(tmp_path / "a.bin")
    raw = describe(str(tmp_path / "a.bin"), None, Opening(dtype=">f4", shape=(-1, 6, 5)))
    assert raw.shape == (64, 6, 5)
    for part in range(3):
        np.save(tmp_path / f"part{part}.npy", FRAMES)
    several = describe(str(tmp_path / "part*.npy"), None, Opening(axis=1))
    assert (several.shape, several.files) == ((18, 64, 5), 3)
    assert "2 more" in " ".join(info_text.description_text(several).split())


def test_the_code_runs_and_opens_the_same_array(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = FRAMES
        file["v"] = FRAMES[:3]
    found = describe(str(tmp_path / "a.h5"), "u", Opening(axis=2, missing="fill"))
    names: dict[str, object] = {}
    exec("\n".join(found.code[:4]), names)  # the last line trains
    assert names["frames"].shape == (5, 64, 6)
    assert isinstance(names["loader"], ooc.Loader)
    assert "missing='fill'" in found.code[1]
    assert found.code[4].startswith("model.fit(loader.to_tf()")


def test_the_arguments_that_are_usual_are_left_out() -> None:
    assert Opening().code("a.npy", None) == "ooc.open('a.npy')"
    assert Opening(dtype=">f4", shape=(-1, 3), offset=8).code("a", None) == (
        "ooc.open('a', dtype='>f4', shape=(-1, 3), offset=8)"
    )


def test_all_datasets_and_why_some_do_not_open(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = FRAMES
        file["deep/v"] = np.arange(10)
        file["note"] = "text"
        file["scalar"] = 1.0
        file["names"] = np.array([b"x"], "S1")
        file.create_dataset("unwritten", (32, 4), "f4", chunks=(8, 4))
        file["linked"] = h5py.ExternalLink("b.h5", "/u")
    found = contents(str(tmp_path / "a.h5"))
    described = {one.key: one for one in found.datasets if isinstance(one, Description)}
    reasons = {
        one.key: info_text.reason(one) for one in found.datasets if isinstance(one, Unopened)
    }
    assert set(described) == {"/u", "/deep/v"}
    assert reasons == {
        "/note": "text or rows of varying length",
        "/scalar": "a single number",
        "/names": "|S1",
        "/unwritten": "chunks are missing: --missing fill",
        "/linked": "its data lie in another file: --external",
    }
    filled = contents(str(tmp_path / "a.h5"), Opening(missing="fill"))
    assert "/unwritten" in {one.key for one in filled.datasets if isinstance(one, Description)}


def test_one_dataset_that_does_not_open_is_an_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", (32, 4), "f4", chunks=(8, 4))
    with pytest.raises(MissingChunkError):
        contents(str(tmp_path / "a.h5"))


def test_a_file_without_arrays(tmp_path: Path) -> None:
    h5py.File(tmp_path / "a.h5", "w").close()
    assert contents(str(tmp_path / "a.h5")) == Contents(str(tmp_path / "a.h5"), (), ())


def test_errors_are_those_of_open(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = FRAMES
        file["linked"] = h5py.ExternalLink("b.h5", "/u")
    with pytest.raises(MissingKeyError, match="'/u'"):
        describe(str(tmp_path / "a.h5"), "w")
    with pytest.raises(ExternalDataError):
        describe(str(tmp_path / "a.h5"), "linked")


def test_chunks_that_fit_into_the_cache_are_shuffled_in_full(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=FRAMES, chunks=(16, 6, 5))
    shuffling = shuffling_of(ooc.open(tmp_path / "a.zarr"))
    assert shuffling is not None
    assert (shuffling.kind, shuffling.window_rows) == ("full", None)
    assert "16 rows for each row used" in shuffling.advice[0]


def test_chunks_that_do_not_fit_are_shuffled_by_block(tmp_path: Path, small_window: None) -> None:
    many = np.concatenate([FRAMES] * 200)
    zarr.create_array(tmp_path / "a.zarr", data=many, chunks=(4, 6, 5))
    shuffling = shuffling_of(ooc.open(tmp_path / "a.zarr"))
    assert shuffling is not None
    # 2048 bytes are 4 chunks of 4 rows of 120 bytes.
    assert (shuffling.kind, shuffling.window_rows) == ("block", 16)
    assert 1 < shuffling.full_cost <= 4
    assert shuffling.entropy is not None
    assert shuffling.entropy < shuffling.full_entropy


def test_big_chunks_get_a_recommendation(tmp_path: Path, small_window: None) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=FRAMES, chunks=(32, 6, 5))
    shuffling = shuffling_of(ooc.open(tmp_path / "a.zarr"))
    assert shuffling is not None
    words = " ".join(shuffling.advice)
    assert "The chunks are big: 32 rows are 3.8 KiB decoded" in words
    assert "store it again with chunks of at most 1 row." in words


def test_rows_that_lie_apart_are_pointed_out(tmp_path: Path) -> None:
    np.save(tmp_path / "fortran.npy", np.asfortranarray(FRAMES))
    np.save(tmp_path / "c.npy", FRAMES)
    scattered = shuffling_of(ooc.open(tmp_path / "fortran.npy"))
    assert scattered is not None
    assert "lie apart" in scattered.advice[-1]
    # The last axis of a Fortran array varies slowest: its rows are whole, in another order.
    for whole in (ooc.open(tmp_path / "c.npy"), ooc.open(tmp_path / "fortran.npy", axis=2)):
        shuffling = shuffling_of(whole)
        assert shuffling is not None
        assert len(shuffling.advice) == 1


def test_an_empty_array_has_nothing_to_shuffle(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    found = describe(str(tmp_path / "a.npy"))
    assert found.shuffling is None
    assert "nothing to shuffle" in info_text.description_text(found)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit(tmp_path: Path, width: int) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(FRAMES))
    text = info_text.description_text(describe(str(tmp_path / "a.npy")), width)
    assert max(map(len, text.splitlines())) <= width
