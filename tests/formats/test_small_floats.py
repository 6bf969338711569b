"""Test bfloat16 and float8, with ml_dtypes and TensorFlow as the oracles."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tensorstore
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.errors import ArgumentError, UnsupportedDtypeError


def sample(name: str) -> NDArray[Any]:
    numbers = np.random.default_rng(0).normal(size=(20, 3, 4)).astype("f4")
    numbers[2, 1, 3] = np.nan
    return numbers.astype(getattr(ml_dtypes, name))


def zarr_2(path: Path, array: NDArray[Any]) -> None:
    specification = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": f"{path}/"},
        "metadata": {"shape": array.shape, "dtype": array.dtype.name, "chunks": [4, 3, 4]},
    }
    tensorstore.open(specification, create=True).result()[...] = array


def zarr_3(path: Path, array: NDArray[Any], codecs: list[dict[str, Any]]) -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [4, 3, 4]}}
    specification = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{path}/"},
        "metadata": {
            "shape": array.shape, "data_type": array.dtype.name, "chunk_grid": grid,
            "codecs": codecs,
        },
    }  # fmt: skip
    tensorstore.open(specification, create=True).result()[...] = array


def opened(kind: str, folder: Path, array: NDArray[Any]) -> ooc.View:
    name = array.dtype.name
    if kind == "memory":
        return ooc.open(array)
    if kind == "npy":
        np.save(folder / "a.npy", array)
        return ooc.open(folder / "a.npy", dtype=name)
    if kind == "raw":
        array.tofile(folder / "a.raw")
        return ooc.open(folder / "a.raw", dtype=name, shape=array.shape)
    if kind == "mapped":
        np.save(folder / "a.npy", array)
        return ooc.open(np.load(folder / "a.npy", mmap_mode="r").view(array.dtype))
    if kind == "version 2":
        zarr_2(folder / "a.zarr", array)
        return ooc.open(folder / "a.zarr")
    endian = "big" if kind == "big-endian" else "little"
    codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": endian}}]
    if kind == "zstd":
        codecs.append({"name": "zstd", "configuration": {"level": 1}})
    zarr_3(folder / "a.zarr", array, codecs)
    return ooc.open(folder / "a.zarr")


def same(found: Any, expected: NDArray[Any]) -> None:
    assert found.dtype == expected.dtype
    assert_array_equal(np.asarray(found).view("u1"), np.ascontiguousarray(expected).view("u1"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("bfloat16", kind) for kind in ("npy", "memory", "zstd", "big-endian", "version 2")),
        *(("float8_e4m3fn", kind) for kind in ("raw", "mapped", "zarr", "big-endian", "version 2")),
    ],
)
def test_small_floats(
    tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oocdata.formats.zarr import chunk_files

    monkeypatch.setattr(chunk_files, "_LARGE", 1)
    array = sample(name)
    view = opened(kind, tmp_path, array)
    assert view.dtype == array.dtype
    same(np.asarray(view), array)
    same(view[7], array[7])
    same(view[::-3, 1:, ::2][2], array[::-3, 1:, ::2][2])
    same(np.concatenate(list(view.batches(8, shuffle=False))), array)
    assert_array_equal(view.astype("f4").take([2, 5]), array[[2, 5]].astype("f4"))
    same(pickle.loads(pickle.dumps(view)).take([3]), array[[3]])
    if kind != "memory":
        same(from_json(as_json(view.batches(4, shuffle=False))).batch(1), array[4:8])
    for batch in view.batches(20, shuffle=False).to_tf():
        assert batch.dtype == tf.as_dtype(name)
        same(batch.numpy(), array)


def test_worker_processes(tmp_path: Path) -> None:
    array = sample("bfloat16")
    view = opened("npy", tmp_path, array)
    loader = view.map(lambda x: x + x).batches(5, shuffle=False, workers=1)
    same(np.concatenate(list(loader.epoch(0))), array + array)


def test_converting(tmp_path: Path) -> None:
    array = np.arange(12, dtype="f4").reshape(4, 3)
    same(ooc.open(array).astype("bfloat16").take([3, 1]), array[[3, 1]].astype("bfloat16"))


def test_what_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", sample("bfloat16"))
    np.save(tmp_path / "f.npy", np.zeros((3, 2), "f2"))
    for file, dtype in (("a.npy", "float8_e4m3fn"), ("a.npy", "f2"), ("f.npy", "bfloat16")):
        with pytest.raises(ArgumentError, match="`dtype` must be given for raw binary"):
            ooc.open(tmp_path / file, dtype=dtype)
    with pytest.raises(UnsupportedDtypeError):
        ooc.open(tmp_path / "a.npy")
    with pytest.raises(UnsupportedDtypeError, match="float8_e5m2"):
        ooc.open(np.zeros(3, ml_dtypes.float8_e5m2))
    with pytest.raises(UnsupportedDtypeError, match="float16"):
        ooc.create(tmp_path / "b.npy", dtype="bfloat16", element_shape=())


def test_ml_dtypes_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys, numpy as np, oocdata as ooc\n"
        "ooc.open(np.zeros(3)).astype('f4')[0]\n"
        "assert 'ml_dtypes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
