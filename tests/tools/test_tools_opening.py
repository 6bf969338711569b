"""Test `Opening` of a path, several paths, or an open dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

import oocdata as ooc
from oocdata.errors import UnsupportedDtypeError
from oocdata.tools.opening import Opening


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number in (2, 10):
        np.save(f"part{number}.npy", np.full((3, 4), number))
    with h5py.File("sim.h5", "w") as file:
        file["/flow/u"] = np.arange(24.0).reshape(2, 3, 4)
        file["/flow/v"] = np.zeros((2, 3, 4))
    return tmp_path


def test_what_is_opened_is_the_same_however_it_is_given(folder: Path) -> None:
    arguments: dict[str, Any] = {"axis": 1, "missing": "fill"}
    view = ooc.open("sim.h5", "/flow/u", **arguments)
    for opening in (
        Opening.of("sim.h5", "/flow/u", **arguments),
        Opening.of(folder / "sim.h5", "flow/u", **arguments),
        Opening.of(Opening.of("sim.h5"), "/flow/u", **arguments),
        Opening.of(Opening.of(view)),
    ):
        assert opening.view().shape == (3, 2, 4)
        assert np.array_equal(opening.view(), view)
    assert Opening.of("part*.npy").view()[3].tolist() == [10] * 4
    assert Opening.of(["part10.npy", "part2.npy"]).view()[3].tolist() == [2] * 4


@pytest.mark.parametrize(
    ("given", "name", "code"),
    [
        (["sim.h5", "/flow/u"], "sim.h5 /flow/u", "ooc.open('sim.h5', '/flow/u')"),
        (["part*.npy"], "part*.npy", "ooc.open('part*.npy')"),
        ([["a.npy", "b.npy"]], "a.npy and 1 more", "ooc.open(['a.npy', 'b.npy'])"),
        ([Path("a.npy")], "a.npy", "ooc.open('a.npy')"),
    ],
)  # fmt: skip
def test_names_and_code(given: list[Any], name: str, code: str) -> None:
    opening = Opening.of(*given)
    assert (opening.name, opening.code()) == (name, code)


def test_the_code_names_what_is_not_usual() -> None:
    opening = Opening.of("a.bin", dtype=">f4", shape=(-1, 3), offset=0, external=True)
    assert opening.code() == "ooc.open('a.bin', dtype='>f4', shape=(-1, 3), external=True)"


def test_names_of_open_datasets(folder: Path) -> None:
    frames = ooc.open("sim.h5", "/flow/u")
    assert Opening.of(frames.windows(2)).name == "sim.h5 /flow/u"
    assert Opening.of(ooc.open("part*.npy")).name == "part2.npy and 1 more"
    assert Opening.of(ooc.zip(frames, ooc.open("sim.h5", "/flow/v"))).name == "sim.h5"
    assert Opening.of(ooc.open(np.zeros(3))).name == "an array in memory"


def test_files_in_natural_order(folder: Path) -> None:
    assert Opening.of("part*.npy").paths() == ["part2.npy", "part10.npy"]
    assert Opening.of(["sim.h5", "part*.npy"]).paths() == ["sim.h5", "part2.npy", "part10.npy"]
    assert Opening.of("http://host/run.zarr").paths() == ["http://host/run.zarr"]
    assert Opening.of("file:///data/a%20b.npy").code() == "ooc.open('/data/a b.npy')"


def test_wrong_calls(folder: Path) -> None:
    frames = ooc.open("sim.h5", "/flow/u")
    with pytest.raises(ooc.errors.ArgumentError, match="`key` must be left out for a Windows"):
        Opening.of(frames.windows(2), "/flow/u")
    with pytest.raises(ooc.errors.ArgumentError, match="got a Loader"):
        Opening.of(frames.batches(2)).dataset()
    with pytest.raises(ooc.errors.ArgumentError, match="must be a path, or a View"):
        Opening.of(frames.windows(2)).view()
    with pytest.raises(ooc.errors.ArgumentError, match="must be the path"):
        Opening.of(frames).paths()
    with pytest.raises(ooc.errors.ArgumentError, match="empty list"):
        Opening.of([]).paths()
    with pytest.raises(ooc.errors.MissingFileError, match="glob"):
        Opening.of("no*.npy").paths()


def test_text_in_memory_has_no_file() -> None:
    texts = ooc.open(np.array(["a", "bcd"]))
    with pytest.raises(UnsupportedDtypeError, match="elements must be numbers") as raised:
        ooc.stats(texts)
    assert raised.value.path is None
    assert ooc.stats(texts.map(np.vectorize(len))).mean == 2


def test_small_floats_are_widened_for_statistics() -> None:
    stored = np.arange(8).reshape(4, 2).astype(ml_dtypes.bfloat16)
    assert ooc.stats(ooc.open(stored)).mean.tolist() == [3, 4]
