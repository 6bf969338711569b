"""Loaders as JSON: what travels, what does not, and what is refused on arrival."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from test_sources_zarr import write
from zarr.storage import MemoryStore, ZipStore

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.description import as_text, describe, differences, loader_from
from oocdata.errors import (
    DescriptionError,
    MissingFileError,
    OocdataError,
    SourceError,
)
from oocdata.sources.chunks import Chunks
from oocdata.sources.extents import Extents
from oocdata.sources.hdf5.chunked import ChunkedReader
from oocdata.sources.hdf5.reader import Hdf5Reader
from oocdata.sources.strided import StridedReader
from oocdata.sources.zarr.chunk_files import ChunkFiles
from oocdata.sources.zarr.readers import TensorStoreReader, ZarrReader
from oocdata.testing import sample_array

HERE = (__name__,)
"""What is defined in this module may be imported."""

ROWS = sample_array((60, 3, 5), "<f4")
LARGE = sample_array((24, 80, 75), "<f4")
"""Rows of 24,000 bytes."""


def sent(loader: ooc.Loader, allow: tuple[str, ...] = HERE) -> ooc.Loader:
    """Return a loader as whoever gets its description as text has it."""
    return loader_from(json.loads(as_text(describe(loader))), allow=allow)


def assert_same_batches(one: ooc.Loader, other: ooc.Loader) -> None:
    assert len(one) == len(other)
    assert one.spec == other.spec
    for step, epoch in {(0, 0), (len(one) - 1, 0), (len(one) // 2, 3)}:
        pairs = zip(leaves(one.batch(step, epoch)), leaves(other.batch(step, epoch)), strict=True)
        for a, b in pairs:
            assert a.dtype == b.dtype
            assert_array_equal(a, b)


# ---- sources: one for each reader ----


def npy(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS)
    return ooc.open(folder / "a.npy")


def big_endian_npy_by_another_axis(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS.astype(">f4").transpose(1, 0, 2))
    return ooc.open(folder / "a.npy", axis=1)


def fortran_npy(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", np.asfortranarray(sample_array((900, 20, 20), "<f4")))
    return ooc.open(folder / "a.npy")


def raw(folder: Path) -> ooc.View:
    (folder / "a.bin").write_bytes(b"head" + ROWS.tobytes())
    return ooc.open(folder / "a.bin", dtype="<f4", shape=(-1, 3, 5), offset=4)


def npz(folder: Path) -> ooc.View:
    np.savez(folder / "a.npz", u=ROWS, v=ROWS)
    return ooc.open(folder / "a.npz", "v")


def memmap(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS)
    return ooc.open(np.load(folder / "a.npy", mmap_mode="r")[10:])


def writable_memmap(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS)
    return ooc.open(np.load(folder / "a.npy", mmap_mode="r+"))


def hdf5(folder: Path, *, array: NDArray[Any] = ROWS, **options: Any) -> ooc.View:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("u", data=array, **options)
    return ooc.open(folder / "a.h5", "/u")


def hdf5_virtual(folder: Path) -> ooc.View:
    hdf5(folder)
    layout = h5py.VirtualLayout((60, 3, 5), "<f4")
    layout[:] = h5py.VirtualSource(folder / "a.h5", "u", (60, 3, 5))
    with h5py.File(folder / "v.h5", "w") as file:
        file.create_virtual_dataset("u", layout)
    return ooc.open(folder / "v.h5", external=True)


def hdf5_external(folder: Path) -> ooc.View:
    (folder / "a.bin").write_bytes(ROWS.tobytes())
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset(
            "u", ROWS.shape, ROWS.dtype, external=[(str(folder / "a.bin"), 0, ROWS.nbytes)]
        )
    return ooc.open(folder / "a.h5", external=True)


def hdf5_compact(folder: Path) -> ooc.View:
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_layout(h5py.h5d.COMPACT)
    with h5py.File(folder / "a.h5", "w") as file:
        space = h5py.h5s.create_simple(ROWS.shape)
        stored = h5py.h5d.create(file.id, b"u", h5py.h5t.IEEE_F32LE, space, made)
        h5py.Dataset(stored)[...] = ROWS
    return ooc.open(folder / "a.h5")


def hdf5_with_holes(folder: Path) -> ooc.View:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("u", ROWS.shape, ROWS.dtype, chunks=(7, 3, 5), fillvalue=5)[:30] = 1
    return ooc.open(folder / "a.h5", missing="fill")


def zarr_array(folder: Path, *, array: NDArray[Any] = ROWS, **options: Any) -> ooc.View:
    write(folder / "a.zarr", array, **options)
    return ooc.open(folder / "a.zarr")


def zarr_plain(folder: Path) -> ooc.View:
    write(folder / "a.zarr", LARGE, chunks=(6, 80, 75), compressors=None)
    budget = ooc.chunk_budget()
    ooc.set_chunk_budget(LARGE.nbytes // 2)  # a smaller array would be kept as whole chunks
    try:
        return ooc.open(folder / "a.zarr")
    finally:
        ooc.set_chunk_budget(budget)


def zarr_in_a_group_by_url(folder: Path) -> ooc.View:
    group = zarr.create_group(folder / "g.zarr")
    for name in ("a", "b/c"):
        stored = group.create_array(name, shape=ROWS.shape, dtype="<f4", chunks=(7, 3, 5))
        stored[...] = ROWS
    return ooc.open((folder / "g.zarr").as_uri(), "b/c")


def zarr_archive(folder: Path) -> ooc.View:
    with ZipStore(folder / "a.zip", mode="w") as store:
        write(store, ROWS)
    return ooc.open(folder / "a.zip")


def parts(folder: Path) -> ooc.View:
    for number, part in enumerate(np.split(ROWS, [20, 33])):
        np.save(folder / f"part{number}.npy", part)
    return ooc.open(folder / "part*.npy")


def parts_of_formats(folder: Path) -> ooc.View:
    np.save(folder / "a.npy", ROWS)
    return ooc.open([folder / "a.npy", hdf5(folder, chunks=(7, 3, 5), compression=1).source])


SOURCES: dict[str, tuple[Callable[[Path], ooc.View], type]] = {
    "npy": (npy, Extents),
    "another axis": (big_endian_npy_by_another_axis, Extents),
    "Fortran order": (fortran_npy, StridedReader),
    "raw": (raw, Extents),
    "npz": (npz, Extents),
    "memmap": (memmap, Extents),
    "writable memmap": (writable_memmap, Extents),
    "HDF5 contiguous": (hdf5, Extents),
    "HDF5 chunks": (partial(hdf5, chunks=(7, 3, 5)), Extents),
    "HDF5 gzip": (partial(hdf5, chunks=(7, 2, 5), compression="gzip"), ChunkedReader),
    "HDF5 scale-offset": (partial(hdf5, chunks=(7, 3, 5), scaleoffset=2), Hdf5Reader),
    "HDF5 compact": (hdf5_compact, Hdf5Reader),
    "HDF5 virtual": (hdf5_virtual, Hdf5Reader),
    "HDF5 external": (hdf5_external, Hdf5Reader),
    "HDF5 with holes": (hdf5_with_holes, ChunkedReader),
    "Zarr v3": (zarr_array, TensorStoreReader),
    "Zarr v2": (partial(zarr_array, zarr_format=2), TensorStoreReader),
    "Zarr shards": (
        partial(zarr_array, chunks=(5, 3, 5), shards=(10, 3, 5)),
        TensorStoreReader,
    ),
    "Zarr plain chunks": (zarr_plain, ChunkFiles),
    "Zarr by zarr-python": (
        partial(
            zarr_array,
            zarr_format=2,
            compressors=None,
            filters=[numcodecs.Delta("<f4")],
        ),
        ZarrReader,
    ),
    "Zarr by URL": (zarr_in_a_group_by_url, TensorStoreReader),
    "Zarr archive": (zarr_archive, TensorStoreReader),
    "parts": (parts, Extents),
    "parts of formats": (parts_of_formats, ChunkedReader),
}


@pytest.mark.parametrize(("make", "reader"), SOURCES.values(), ids=SOURCES)
def test_every_source(tmp_path: Path, make: Callable[[Path], ooc.View], reader: type) -> None:
    view = make(tmp_path)
    source: Any = view.source
    source = source.parts[-1] if hasattr(source, "parts") else source
    assert isinstance(source.reader if isinstance(source, Chunks) else source, reader)
    for chosen in (view, view[3:-3:2, 1:, ::-1].astype("f8").next_frame()):
        loader = chosen.batches(7, shuffle=True, seed=3)
        again = sent(loader)
        assert_same_batches(loader, again)
        assert describe(again) == describe(loader)
        assert str(again.explain()) == str(loader.explain())


def test_a_url(tmp_path: Path) -> None:
    zarr_array(tmp_path)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    handler = partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        loader = ooc.open(f"http://127.0.0.1:{server.server_port}/a.zarr").batches(7)
        assert_same_batches(loader, sent(loader))
        server.shutdown()


# ---- datasets, orders and functions ----


def double(x: NDArray[Any]) -> NDArray[Any]:
    return x * 2


def noisy(x: NDArray[Any], *, rng: np.random.Generator) -> NDArray[Any]:
    return x + rng.random(x.shape)


@dataclass(frozen=True)
class Scale:
    """A function with numbers of its own."""

    mean: NDArray[Any]
    factor: float = 1.0

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return (x - self.mean) * self.factor


@dataclass(frozen=True)
class Backwards:
    """An order of the user's own."""

    start: int = 0

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        return count - 1 - np.arange(start, stop)


@dataclass(frozen=True)
class Ramp:
    """A source of the user's own."""

    rows: int

    chunk_rows = 1
    dtype = np.dtype("i8")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows,)

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        out[...] = rows


def test_a_source_of_ones_own() -> None:
    loader = ooc.open(Ramp(100)).batches(7, shuffle=True)
    assert_same_batches(loader, sent(loader))
    with pytest.raises(DescriptionError, match="is not allowed"):
        sent(loader, ())


ORDERS = [False, True, "global", ooc.BlockShuffle(5, 2), ooc.BlockShuffle(5, 2, 3), Backwards()]

STEPS = st.sampled_from(["slice", "array", "mask", "map", "rng", "scale", "elements", "spec"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_composition(tmp_path: Path, data: st.DataObject) -> None:
    draw = data.draw
    view = draw(st.sampled_from([npy, hdf5, zarr_array, parts]))(_fresh(tmp_path))
    if draw(st.booleans()):
        view = view[:, draw(st.sampled_from([0, slice(1, 3), slice(None, None, -1)]))]
    if draw(st.booleans()):
        view = view.astype(draw(st.sampled_from(["f8", "i4", "?"])))
    dataset: ooc.Dataset = view
    kind = draw(st.sampled_from(["view", "pairs", "windows", "episodes", "files", "zip", "dict"]))
    if kind == "pairs":
        dataset = view.next_frame(horizon=draw(st.integers(1, 3)))
    elif kind == "windows":
        dataset = view.windows(3, draw(st.integers(0, 2)), shift=2, dilation=2)
    elif kind == "episodes":
        dataset = view.windows(2, 1, episodes=[10, 20, 30])
    elif kind == "files":
        dataset = view.next_frame(episodes="files")
    elif kind == "zip":
        dataset = ooc.zip(view, view[::-1].astype("f8"))
    elif kind == "dict":
        dataset = ooc.zip({"b": view, "a": view})
    for step in draw(st.lists(STEPS, max_size=3)):
        if step == "slice":
            dataset = dataset[draw(st.sampled_from([slice(5, None), slice(None, None, -2)]))]
        elif step == "array":
            dataset = dataset[draw(st.lists(st.integers(0, len(dataset) - 1), min_size=5))]
        elif step == "mask":
            dataset = dataset[np.arange(len(dataset)) % 3 > 0]
        elif isinstance(dataset.spec, ooc.ArraySpec):
            dataset = {
                "map": lambda d: d.map(double),
                "rng": lambda d: d.map(noisy, rng=True),
                "scale": lambda d: d.map(Scale(np.float32(np.ones(d.spec.shape)), 0.5)),
                "elements": lambda d: d.map(double, batched=False),
                "spec": lambda d: d.map(np.square, spec=d.map(np.square)[0]),
            }[step](dataset)
        assume(len(dataset) >= 4)
    loader = dataset.batches(
        4,
        shuffle=draw(st.sampled_from(ORDERS)),
        seed=draw(st.sampled_from([0, 7, -1, 2**70])),
        drop_remainder=draw(st.booleans()),
    )
    if draw(st.booleans()):
        loader = loader.shard(2, 1)
    again = sent(loader, (*HERE, "numpy"))
    assert_same_batches(loader, again)
    assert describe(again) == describe(loader)
    assert differences(describe(again), describe(loader)) == []


def _fresh(folder: Path) -> Path:
    made = folder / str(len(os.listdir(folder)))
    made.mkdir()
    return made


def test_rows_chosen_by_a_mask_are_small() -> None:
    from oocdata.description.arrays import decode_integers, encode_integers

    rows = np.flatnonzero(np.random.default_rng(0).random(100_000) < 0.5)
    assert len(json.dumps(encode_integers(rows))) < 1.4 * len(rows)
    assert_array_equal(decode_integers(encode_integers(rows)), rows)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_of_any_size(numbers: list[int]) -> None:
    from oocdata.description.arrays import decode_integers, encode_integers

    array = np.array(numbers, np.int64)
    found = decode_integers(json.loads(json.dumps(encode_integers(array))))
    assert found.dtype == np.int64
    assert_array_equal(found, array)


def test_what_sources_share_they_share_again(tmp_path: Path) -> None:
    """Two cuts of compressed chunks: each chunk is decoded once for both."""
    view = hdf5(tmp_path, chunks=(7, 3, 5), compression="gzip")
    other = ooc.open(tmp_path / "a.h5")
    again = sent(ooc.zip(view[:, :1], view[:, 1:], other).batches(4))
    one, two, three = (part.source for part in again.dataset.parts)
    assert one.known is two.known
    assert one.known is not three.known


SCRIPT = """
import sys, numpy as np, oocdata as ooc
from oocdata.description import as_text, describe
views = [ooc.open(path) for path in sys.argv[1:]]
both = ooc.zip({path[-3:]: view for path, view in zip(sys.argv[1:], views)})
pairs = both[np.arange(50) % 3 > 0].batches(8, shuffle=True)
print(as_text(describe(pairs)))
"""


def test_another_process_describes_it_alike(tmp_path: Path) -> None:
    npy(tmp_path)
    hdf5(tmp_path, chunks=(7, 3, 5), compression="gzip")
    zarr_array(tmp_path)
    paths = [str(tmp_path / name) for name in ("a.npy", "a.h5", "a.zarr")]
    views = [ooc.open(path)[:50] for path in paths]
    code = SCRIPT.replace("ooc.open(path)", "ooc.open(path)[:50]")
    found = {
        subprocess.run(
            [sys.executable, "-c", code, *paths],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    both = ooc.zip({path[-3:]: view for path, view in zip(paths, views, strict=True)})
    here = describe(both[np.arange(50) % 3 > 0].batches(8, shuffle=True))
    assert found == {as_text(here) + "\n"}


# ---- what can't be described ----


class Own:
    def method(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


@dataclass
class Melting:
    """Not frozen."""

    factor: float = 1.0

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


@dataclass(frozen=True)
class Holding:
    held: Any

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


def closure() -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda x: x


def inner() -> Callable[[NDArray[Any]], NDArray[Any]]:
    def named(x: NDArray[Any]) -> NDArray[Any]:
        return x

    return named


def script_function(x: NDArray[Any]) -> NDArray[Any]:
    return x


script_function.__module__ = "__main__"


def replaced(x: NDArray[Any]) -> NDArray[Any]:
    return x


before = replaced


def replaced(x: NDArray[Any]) -> NDArray[Any]:  # type: ignore[no-redef]
    return x * 2


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (closure(), "a lambda has no name"),
        (inner(), "defined inside a function"),
        (partial(double), "partial objects have no import path"),
        (Own().method, "gives something else"),
        (script_function, "the script itself"),
        (before, "gives something else"),
        (Melting(), "have no import path"),
        (Holding([1]), "Write a tuple"),
        (Holding({1, 2}), "Make its class a frozen dataclass"),
        (Holding(b"bytes"), "Make its class a frozen dataclass"),
        (Holding(np.array([None])), "numbers"),
        (Holding(lambda: 0), "`loader.dataset.fn.held` can't: a lambda"),
        (Scale("far"), "annotated as"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_functions_that_nobody_else_can_import(tmp_path: Path, fn: Any, said: str) -> None:
    with pytest.raises(DescriptionError, match=said) as caught:
        describe(npy(tmp_path).map(fn).batches(4))
    assert "loader.dataset.fn" in str(caught.value)


def in_memory(folder: Path) -> Any:
    return ROWS


def open_dataset(folder: Path) -> Any:
    return h5py.File(folder / "b.h5", "w", driver="core", backing_store=False).create_dataset(
        "u", data=ROWS
    )


def in_a_store(folder: Path) -> Any:
    return write(MemoryStore(), ROWS)


class Sliceable:
    shape, dtype = (10, 3), np.dtype("f4")

    def __getitem__(self, key: Any) -> Any:
        return np.zeros((10, 3), "f4")[key]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (in_memory, "an array in memory. Save it to a file"),
        (open_dataset, "by path"),
        (in_a_store, "by its path or URL"),
        (lambda _: Sliceable(), "Save it to a file"),
    ],
    ids=["array", "h5py", "zarr", "object"],
)
def test_data_that_nobody_else_can_open(
    tmp_path: Path, target: Callable[[Path], Any], said: str
) -> None:
    opened = target(tmp_path)
    loader = ooc.open(opened).batches(4)
    with pytest.raises(DescriptionError, match=said) as caught:
        describe(loader)
    assert "loader.dataset.source" in str(caught.value)


def test_only_loaders_are_described() -> None:
    with pytest.raises(DescriptionError, match="must be a Loader; got ndarray"):
        describe(ROWS)  # type: ignore[arg-type]


# ---- what is allowed on arrival ----


def test_nothing_is_imported_that_is_not_allowed(tmp_path: Path) -> None:
    (tmp_path / "spoiled.py").write_text("raise SystemExit('imported')")
    description = describe(npy(tmp_path).map(double).batches(4))
    text = as_text(description)
    for wanted in ("spoiled:f", "os:system", "numpy:load", f"{__name__}.deeper:f"):
        other = json.loads(text.replace(f"{__name__}:double", wanted))
        for allow in ((), ("numpy.ma",), ("spoile",), ("o",), HERE):
            if wanted.startswith(__name__) and allow == HERE:
                continue
            with pytest.raises(DescriptionError, match="is not allowed"):
                loader_from(other, allow=allow)
    with pytest.raises(DescriptionError, match="Allowed are none"):
        loader_from(description)
    assert loader_from(description, allow=HERE)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{__name__}:os.system", "at home at posix:system"),
        (f"{__name__}:subprocess.run", "at home at subprocess:run"),
        (f"{__name__}:before", "gives something else"),
        (f"{__name__}:nothing", "has no 'nothing'"),
        (f"{__name__}:", "has no ''"),
        (f"{__name__}:HERE", "no import path"),
        (f"{__name__}.deeper:f", "can't be imported"),
        ("double", "no kind of thing"),
        (3, "no kind of thing"),
    ],
    ids=str,
)
def test_an_allowed_module_gives_its_own_only(tmp_path: Path, path: Any, said: str) -> None:
    description = json.loads(as_text(describe(npy(tmp_path).map(double).batches(4))))
    _loader(description)["dataset"]["oocdata.datasets.map:Map"]["fn"] = {"import": path}
    with pytest.raises(DescriptionError, match=said):
        loader_from(description, allow=HERE)


def test_a_package_is_allowed_with_all_that_is_in_it(tmp_path: Path) -> None:
    loader = npy(tmp_path).map(np.ma.anom, spec=ROWS[0]).batches(4)
    for allow in (("numpy",), ("numpy.ma",), ("os", "numpy.ma.core")):
        assert_same_batches(loader, sent(loader, allow))
    for allow in (("num",), ("numpy.m",), ("numpy.ma.core.anom",)):
        with pytest.raises(DescriptionError, match=r"'numpy\.ma\.core' is not allowed"):
            sent(loader, allow)


def test_what_is_allowed_is_a_list() -> None:
    with pytest.raises(DescriptionError, match="must be a list of modules"):
        loader_from({"format": 1, "loader": None}, allow="os")


# ---- what is no description ----


def _loader(description: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = description["loader"]["oocdata.loader:Loader"]
    return fields


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(format=2), "another version"),
        (lambda d: d.update(more=2), "what `describe` returns"),
        (lambda d: d.update(loader=5), "it must be Loader; got 5"),
        (lambda d: d.update(loader={"oocdata.order.shuffle:Shuffle": {}}), "must be Loader"),
        (lambda d: _loader(d).update(workers_of_the_world=2), "has no field"),
        (lambda d: _loader(d).pop("seed"), "needs 'seed'"),
        (lambda d: _loader(d).update(batch_size="4"), "must be int; got '4'"),
        (lambda d: _loader(d).update(batch_size=True), "must be int; got True"),
        (lambda d: _loader(d).update(batch_size=4.0), "must be int; got 4.0"),
        (lambda d: _loader(d).update(order={}), "one key"),
        (lambda d: _loader(d).update(order=None), "must be .*Order"),
        (lambda d: _loader(d).update(order={"range": [0, 1, 0]}), "must not be zero"),
        (lambda d: _loader(d).update(order={"range": [0, 1, "1"]}), "loader.order"),
        (lambda d: _loader(d).update(order={"dtype": "|O"}), "object"),
        (lambda d: _loader(d).update(order={"dtype": "f4"}), "no dtype is written"),
        (lambda d: _loader(d).update(order={"int64": [1, "|i1", "?"]}), "not base64"),
        (lambda d: _loader(d).update(order={"int64": [1, "|O", ""]}), "not as integers"),
        (lambda d: _loader(d).update(order={"array": ["<f4", [3], "AAAA"]}), "3 bytes for"),
        (lambda d: _loader(d).update(order={"array": ["<f4", [-1], ""]}), "no shape"),
        (lambda d: _loader(d).update(order={"oocdata.order.shuffle:Shuffle": []}), "by name"),
        (lambda d: _loader(d).update(order={"oocdata.order.shuffle:forward": {}}), "at home"),
        (lambda d: _loader(d).update(order={"oocdata.order.visits:visits_of_epoch": {}}), "no cl"),
        (lambda d: _loader(d).update(order={"oocdata.sources.handles:Descriptor": {}}), "no froz"),
        (lambda d: _loader(d).update(order={"oocdata.cli:main": {}}), "is not allowed"),
        (
            lambda d: _loader(d).update(
                order={"oocdata.order.block:BlockShuffle": {"block": 0, "window": 1}}
            ),
            "`block` must be",
        ),
    ],
)
def test_what_is_no_description(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    description = json.loads(as_text(describe(npy(tmp_path).batches(4))))
    change(description)
    with pytest.raises(OocdataError, match=said):
        loader_from(description)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(part, (*path, name))


JUNK = st.recursive(
    st.sampled_from([None, True, -1, 0, 7, 2**70, 1.5, "", "x", "oocdata.loader:Loader"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["range", "slice", "dtype", "int64", "array", "dict", "float", "import"]
            )
            | st.text(max_size=3),
            inner,
            max_size=2,
        )
    ),
    max_leaves=4,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_arrives_is_a_loader_or_a_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "a.h5").exists():
        npy(tmp_path)
        hdf5(tmp_path, chunks=(7, 3, 5), compression="gzip")
        zarr_array(tmp_path)
    name = data.draw(st.sampled_from(["a.npy", "a.h5", "a.zarr"]))
    loader = ooc.open(tmp_path / name).next_frame(episodes=[20, 40])[[3, 1]].batches(4)
    description = json.loads(as_text(describe(loader)))
    *way, last = data.draw(st.sampled_from([path for path in _paths(description) if path]))
    holder = description
    for name in way:
        holder = holder[name]
    if data.draw(st.booleans()) and isinstance(holder, dict):
        holder[data.draw(st.text(max_size=4))] = data.draw(JUNK)
    else:
        holder[last] = data.draw(JUNK)
    try:
        found = loader_from(description)
    except OocdataError:
        return
    assert isinstance(found, ooc.Loader)


def test_deep_nesting_is_a_clear_error() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(DescriptionError, match="nested"):
        loader_from({"format": 1, "loader": nested})
    while nested:  # or freeing it would recurse as deep
        nested = nested[0]


# ---- the files behind it ----


def test_a_copy_of_a_file_is_the_same_data(tmp_path: Path) -> None:
    loader = npy(tmp_path).batches(4)
    description = describe(loader)
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes())
    os.replace(tmp_path / "b.npy", tmp_path / "a.npy")
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert_array_equal(loader_from(description).batch(0), ROWS[:4])


def test_a_file_that_changed_since_it_was_opened_is_not_described(tmp_path: Path) -> None:
    loader = npy(tmp_path).batches(4)
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    with pytest.raises(SourceError, match="has changed"):
        describe(loader)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ROWS[:50], "nbytes: 3728 described, 3128 found"),
        (ROWS.reshape(60, 5, 3), "ends: '.*' described, '.*' found"),
        (ROWS.view("<i4"), "ends: "),
        (ROWS + 1, "ends: "),
    ],
    ids=["length", "shape", "dtype", "numbers"],
)
def test_other_data_in_a_file_are_an_error(tmp_path: Path, other: NDArray[Any], said: str) -> None:
    description = describe(npy(tmp_path).batches(4))
    np.save(tmp_path / "a.npy", other)
    with pytest.raises(DescriptionError, match=said):
        loader_from(description)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"array": ROWS[:50]}, r"metadata.shape: \(60, 3, 5\) described, \(50, 3, 5\) found"),
        ({"array": ROWS.view("<i4")}, "metadata.dtype: float32 described, int32 found"),
        ({"array": ROWS, "chunks": (7, 3, 5)}, "metadata.object_shape"),
        ({"array": ROWS + 1}, "stored_bytes"),
    ],
    ids=["length", "dtype", "chunks", "numbers"],
)
def test_another_zarr_array_is_an_error(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    description = describe(zarr_array(tmp_path).batches(4))
    array = change.pop("array")
    write(tmp_path / "a.zarr", array, overwrite=True, **change)
    with pytest.raises(DescriptionError, match=said):
        loader_from(description)


@pytest.mark.parametrize("make", [npy, hdf5, zarr_array, zarr_archive])
def test_a_file_that_is_not_there(tmp_path: Path, make: Callable[[Path], ooc.View]) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    description = describe(make(folder).batches(4))
    folder.rename(tmp_path / "other")
    with pytest.raises(MissingFileError) as caught:
        loader_from(description)
    assert str(folder) in str(caught.value)


# ---- differences ----


def test_differences(tmp_path: Path) -> None:
    view = npy(tmp_path)
    loader = view.batches(4, shuffle=True)
    description = describe(loader)

    def lines(other: ooc.Loader) -> list[str]:
        return differences(description, describe(other))

    assert lines(loader) == []
    assert lines(view.batches(8, shuffle=True)) == ["batch_size: 4 here, 8 there"]
    assert lines(view.batches(4)) == ["order: Shuffle here, Sequential there"]
    assert lines(view[1:].batches(4, shuffle=True)) == [
        "dataset.rows: range(0, 60, 1) here, range(1, 60, 1) there"
    ]
    assert lines(view.map(double).batches(4, shuffle=True)) == ["dataset: View here, Map there"]
    assert lines(replace(loader, reason="another")) == []
    folder = tmp_path / "other"
    folder.mkdir()
    np.save(folder / "a.npy", ROWS[:50].astype("<f8"))
    found = lines(ooc.open(folder / "a.npy").batches(4, shuffle=True))
    path = "dataset.source.file"
    assert found[0].startswith(f"{path}.path: ")
    assert found[1:3] == [f"{path}.nbytes: 3728 here, 6128 there", found[2]]
    assert found[2].startswith(f"{path}.ends: ")
    assert "dataset.source.stored: float32 here, float64 there" in found
    assert "dataset.source.shape: (60, 3, 5) here, (50, 3, 5) there" in found


def test_differences_of_parts(tmp_path: Path) -> None:
    view = npy(tmp_path)

    def lines(one: ooc.Dataset, other: ooc.Dataset) -> list[str]:
        return differences(
            describe(one.batches(4)), describe(other.batches(4)), here="saved", there="now"
        )

    assert lines(view[[1, 2, 3, 4]], view[[1, 2, 7, 5]]) == [
        "dataset.rows[2] and 1 more: 3 saved, 7 now"
    ]
    assert lines(view[[1, 2, 3]], view[[1, 2, 3, 4]]) == [
        "dataset.rows: int64 of shape (3,) saved, int64 of shape (4,) now"
    ]
    assert lines(ooc.zip({"a": view, "b": view}), ooc.zip({"b": view, "a": view})) == [
        "dataset.parts (order): a, b saved, b, a now"
    ]
    assert lines(ooc.zip({"a": view, "b": view}), ooc.zip({"a": view})) == [
        "dataset.parts.b: View saved, nothing now"
    ]
    assert lines(view.map(double), view.map(np.square)) == [
        f"dataset.fn: {__name__}:double saved, numpy:square now"
    ]
    one, other = Scale(np.float32([1, 2])), Scale(np.float32([1, 3]))
    assert lines(view.map(one, spec=ROWS[0]), view.map(other, spec=ROWS[0])) == [
        "dataset.fn.mean[1]: 2.0 saved, 3.0 now"
    ]


def test_opened_once_or_twice_makes_no_difference(tmp_path: Path) -> None:
    view = hdf5(tmp_path, chunks=(7, 3, 5), compression="gzip")
    once = ooc.zip(view, view).batches(4)
    twice = ooc.zip(view, ooc.open(tmp_path / "a.h5")).batches(4)
    assert differences(describe(once), describe(twice)) == []
