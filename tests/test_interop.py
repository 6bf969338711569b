"""Other frameworks over the same loader, and what `open` says of what it does not open.

PyTorch and Grain are no dependencies, and too big to be: their tests run where they are.
"""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.errors import ArgumentError, UnknownFormatError
from oocdata.testing import sample_array

ARRAY = sample_array((600, 3, 20, 20), "f4")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "ds.npy", ARRAY)
    return tmp_path / "ds.npy"


@pytest.fixture
def loader(path: Path) -> ooc.Loader:
    return ooc.open(path).next_frame().batches(16, shuffle=True, seed=7)


def expected(loader: ooc.Loader, epoch: int, step: int) -> np.ndarray:
    """Return the inputs of a batch, from memory."""
    places = ooc.open(np.arange(len(ARRAY)))
    order = places.next_frame().batches(16, shuffle=True, seed=7)
    return ARRAY[order.batch(step, epoch)[0]]


# --- memory that another library keeps is not used again


def keep_dlpack(batch: np.ndarray) -> Any:
    return np.from_dlpack(batch)


def keep_memoryview(batch: np.ndarray) -> Any:
    return memoryview(batch)


def keep_part(batch: np.ndarray) -> Any:
    return batch[3:, 1]


@pytest.mark.parametrize("keep", [keep_dlpack, keep_memoryview, keep_part])
def test_memory_that_is_still_seen_is_not_recycled(
    loader: ooc.Loader, keep: Callable[[np.ndarray], Any]
) -> None:
    kept = []
    for epoch in range(2):
        for step, (x, _) in enumerate(loader.epoch(epoch)):
            if step % 3 == 0:
                kept.append((epoch, step, keep(x)))
            del x
    for epoch, step, alias in kept:
        assert_array_equal(np.asarray(alias), np.asarray(keep(expected(loader, epoch, step))))


# --- JAX


def test_jax_keeps_batches_that_share_memory(loader: ooc.Loader) -> None:
    """On a CPU `device_put` takes the memory as it is: it must not be used again meanwhile."""
    jax = pytest.importorskip("jax")
    for put in (jax.device_put, jax.numpy.asarray, jax.numpy.from_dlpack):
        kept, shared = [], 0
        for epoch in range(2):
            for step, (x, _) in enumerate(loader.epoch(epoch)):
                on_device = put(x)
                shared += on_device.unsafe_buffer_pointer() == x.ctypes.data
                if step % 3 == 0:
                    kept.append((epoch, step, on_device))
                del x
        if put is not jax.numpy.asarray:
            assert shared == 2 * len(loader)  # or this test proves nothing
        for epoch, step, on_device in kept:
            assert_array_equal(np.asarray(on_device), expected(loader, epoch, step))


def test_jax_computes_later(loader: ooc.Loader) -> None:
    """Calls return before they are done; the batch is out of sight by then."""
    jax = pytest.importorskip("jax")
    total = jax.jit(lambda x: jax.numpy.sort(x.reshape(-1)).sum(dtype="float32"))
    found = [total(jax.device_put(x)) for x, _ in loader.epoch(0)]
    for step, one in enumerate(found):
        assert one == total(np.array(expected(loader, 0, step)))


# --- PyTorch


def test_torch_shares_the_memory_of_a_batch(loader: ooc.Loader) -> None:
    torch = pytest.importorskip("torch")
    kept = []
    for epoch in range(2):
        for step, (x, _) in enumerate(loader.epoch(epoch)):
            tensor = torch.from_numpy(x)  # a warning here, that it can't be written to, is an error
            assert tensor.data_ptr() == x.ctypes.data
            if step % 3 == 0:
                kept.append((epoch, step, tensor))
            del x
    for epoch, step, tensor in kept:
        assert_array_equal(tensor.numpy(), expected(loader, epoch, step))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "multiprocessing_context": "spawn"}])
def test_torch_data_loader(path: Path, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    pairs = ooc.open(path).next_frame()
    batches = torch.utils.data.DataLoader(pairs, batch_size=64, shuffle=True, **options)
    firsts = []
    for x, y in batches:
        assert_array_equal(y.numpy() - x.numpy(), ARRAY[1].reshape(-1)[0] - ARRAY[0].reshape(-1)[0])
        firsts.extend(x[:, 0, 0, 0].tolist())
    assert sorted(firsts) == ARRAY[:-1, 0, 0, 0].tolist()


def test_torch_data_loader_of_whole_batches(path: Path) -> None:
    torch = pytest.importorskip("torch")
    loader = ooc.open(path).batches(16, shuffle=True, seed=7)

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            return map(torch.from_numpy, loader.epoch(0))

    found = list(torch.utils.data.DataLoader(Batches(), batch_size=None))
    assert_array_equal(torch.cat(found).numpy(), np.concatenate(list(loader.epoch(0))))


# --- Keras on other backends, Grain


KERAS = """
import sys, numpy as np, keras, oocdata as ooc
assert keras.backend.backend() == sys.argv[2]
loader = ooc.open(sys.argv[1]).next_frame().map(lambda x, y: (x / 1e6, y / 1e6))
model = keras.Sequential([keras.Input((3, 20, 20)), keras.layers.Dense(20)])
model.compile("adam", "mse")
batches = loader.batches(64, shuffle=True).to_keras()
losses = model.fit(batches, epochs=2, verbose=0, shuffle=False).history["loss"]
assert np.isfinite(losses).all() and losses[1] < losses[0]
"""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_on_another_backend(path: Path, backend: str) -> None:
    pytest.importorskip(backend)
    environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", KERAS, str(path), backend]
    subprocess.run(command, check=True, timeout=300, env=environment)


def test_grain(path: Path) -> None:
    grain = pytest.importorskip("grain")
    pairs = ooc.open(path).next_frame()
    batches = grain.MapDataset.source(pairs).shuffle(seed=1).batch(32)
    x, y = batches[0]
    assert_array_equal(x[:, 0, 0, 0] + (y - x)[:, 0, 0, 0], y[:, 0, 0, 0])
    firsts = np.concatenate([batches[place][0][:, 0, 0, 0] for place in range(len(batches))])
    assert_array_equal(np.sort(firsts), ARRAY[:-1, 0, 0, 0])


# --- what is not opened as it is


def head(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content + bytes(64)) and None


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


def torch_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
        archive.writestr("archive/version", "3")


def picture_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train/cat/1.png", b"\x89PNG\r\n\x1a\n")


def matlab(path: Path) -> None:
    scipy = pytest.importorskip("scipy.io")
    scipy.savemat(path, {"a": np.zeros((4, 3))})


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("a.mat", matlab, r"Save it with '-v7\.3', or .*loadmat"),
        ("a.parquet", head(b"PAR1"), "first bytes are b'PAR1"),
        ("a", head(b"\1\0\0\0\0\0\0\0{\0"), "its first bytes are"),
        ("a", head(b'\0\0\0\0\0\0\1\0{"'), "its first bytes are"),
        ("a", lambda path: path.write_bytes(pickle.dumps(np.zeros(3))), "first bytes are"),
        ("a.pt", torch_archive, r"what torch\.save writes"),
        ("a.json", text('{"refs": {}}'), "format='text'"),
        ("a", head(b"CDF\x01"), r"netCDF of version 3\. Open it through xarray"),
        (
            "a.npy.gz",
            lambda path: path.write_bytes(gzip.compress(b"a")),
            r"gunzip -k data\.h5\.gz\. Rows",
        ),
        ("a.zip", picture_archive, r"an archive without \.npy\. Unpack it"),
        ("a.tar.gz", lambda path: path.write_bytes(gzip.compress(b"a")), "Unpack it first"),
        ("lines.gz", lambda path: path.write_bytes(gzip.compress(b"a")), "format='text'"),
        (
            "a",
            head(b"\x01\x02\x03"),
            r"first bytes are b'\\x01\\x02\\x03.*give `dtype` and `shape`",
        ),
    ],
)
def test_other_formats(
    tmp_path: Path, name: str, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(UnknownFormatError, match=said) as caught:
        ooc.open(tmp_path / name)
    assert caught.value.path == str(tmp_path / name)
    assert len(caught.value.message) < 300


def test_a_session_of_icechunk(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    made = icechunk.Repository.create(icechunk.in_memory_storage())
    session = made.writable_session("main")
    array = zarr.group(session.store).create_array("u", data=ARRAY[:20, 0])
    session.commit("one")
    array = zarr.open_array(made.readonly_session("main").store, path="u", mode="r")
    loader = ooc.open(array).batches(8, shuffle=True)
    firsts = np.concatenate([batch[:, 0, 0] for batch in loader])
    assert_array_equal(np.sort(firsts), ARRAY[:20, 0, 0, 0])


VIRTUAL = np.arange(30 * 8 * 6, dtype="i2").reshape(30, 8, 6)


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    """Files of netCDF, compressed in chunks, that end to end are `VIRTUAL`."""
    xarray = pytest.importorskip("xarray")
    paths = [str(tmp_path / f"{number}.nc") for number in range(3)]
    for number, path in enumerate(paths):
        rows = slice(10 * number, 10 * number + 10)
        data = xarray.Dataset(
            {"u": (("time", "y", "x"), VIRTUAL[rows])}, {"time": np.arange(30)[rows]}
        )
        encoding = {"u": {"chunksizes": (2, 8, 6), "zlib": True, "shuffle": True}}
        data.to_netcdf(path, encoding=encoding)
    return paths


def read_of_store(store: Any, expected: np.ndarray) -> None:
    """Check what is read of an array in a store that refers to chunks of other files."""
    view = ooc.open(zarr.open_group(store, mode="r")["u"])
    assert view.storage.chunks == (2, 8, 6)
    assert "\n" not in str(view)
    assert_array_equal(np.asarray(view), expected)
    batches = list(view.enumerate().batches(4, shuffle="block", seed=3))
    rows = np.concatenate([rows for rows, _ in batches])
    assert_array_equal(np.sort(rows), np.arange(len(expected)))
    assert_array_equal(np.concatenate([x for _, x in batches]), expected[rows])


def test_references_of_kerchunk(parts: list[str]) -> None:
    hdf = pytest.importorskip("kerchunk.hdf")
    combine = pytest.importorskip("kerchunk.combine")
    with warnings.catch_warnings(action="ignore"):
        each = [hdf.SingleHdf5ToZarr(path, inline_threshold=0).translate() for path in parts]
        joined = combine.MultiZarrToZarr(each, concat_dims=["time"], inline_threshold=0)
        files = fsspec.filesystem("reference", fo=joined.translate(), asynchronous=True)
        read_of_store(zarr.storage.FsspecStore(files, read_only=True, path=""), VIRTUAL)


def test_a_virtual_zarr(parts: list[str], tmp_path: Path) -> None:
    virtualizarr = pytest.importorskip("virtualizarr")
    icechunk = pytest.importorskip("icechunk")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    with warnings.catch_warnings(action="ignore"):
        registry, parser = ObjectStoreRegistry({"file://": LocalStore()}), HDFParser()
        read_of_store(parser(url=f"file://{parts[1]}", registry=registry), VIRTUAL[10:20])
        found = [
            virtualizarr.open_virtual_dataset(f"file://{path}", registry=registry, parser=parser)
            for path in parts
        ]
        joined = pytest.importorskip("xarray").concat(
            found, dim="time", coords="minimal", compat="override"
        )
        prefix = f"file://{tmp_path}/"
        config = icechunk.RepositoryConfig.default()
        files = icechunk.local_filesystem_store(f"{tmp_path}/")
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, files))
        repository = icechunk.Repository.create(
            icechunk.in_memory_storage(), config, authorize_virtual_chunk_access={prefix: None}
        )
        session = repository.writable_session("main")
        joined.virtualize.to_icechunk(session.store)
        session.commit("one")
        read_of_store(repository.readonly_session("main").store, VIRTUAL)


@pytest.mark.parametrize("change", [lambda it: it, lambda it: it.cache(), lambda it: it.batch(3)])
def test_a_dataset_of_tf_data(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    import tensorflow as tf

    target = change(tf.data.Dataset.from_tensor_slices(ARRAY[:8]))
    said = r"ooc\.create and writer\.append\(batch\)"
    with pytest.raises(UnknownFormatError, match=said):
        ooc.open(target)
    with ooc.create(tmp_path / "a.npy", dtype="f4", element_shape=ARRAY.shape[1:]) as writer:
        for batch in target.as_numpy_iterator():
            writer.append(batch)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.npy")), ARRAY[:8])


def test_an_iterator() -> None:
    with pytest.raises(
        UnknownFormatError, match=r"got generator\. .*ooc\.create and writer\.append"
    ):
        ooc.open(one for one in range(3))


def test_a_url_of_another_scheme() -> None:
    with pytest.raises(UnknownFormatError, match=r"a URL must start with s3://.*fsspec.*store="):
        ooc.open("hf://datasets/a/b.zarr")


def test_a_url_of_a_file_on_this_machine(path: Path, tmp_path: Path) -> None:
    zarr.save_array(tmp_path / "a b.zarr", ARRAY)
    for name in ("ds.npy", "a%20b.zarr"):
        for host in ("", "localhost"):
            assert_array_equal(ooc.open(f"file://{host}{tmp_path}/{name}")[3], ARRAY[3])
        with pytest.raises(ArgumentError, match="the machine 'data'"):
            ooc.open(f"file://data{tmp_path}/{name}")


def test_hdf5_through_fsspec() -> None:
    """What the message on HDF5 at a URL suggests."""
    with fsspec.open("memory://interop.h5", "wb") as file, h5py.File(file, "w") as made:
        made.create_dataset("u", data=ARRAY, chunks=(10, 3, 20, 20), compression="gzip")
    with fsspec.open("memory://interop.h5") as file, h5py.File(file) as opened:
        loader = ooc.open(opened["u"]).batches(32, shuffle=True)
        firsts = np.concatenate([batch[:, 0, 0, 0] for batch in loader.epoch(0)])
        assert_array_equal(np.sort(firsts), ARRAY[:, 0, 0, 0])


def test_what_is_suggested_for_torch_works(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.arange(12.0).reshape(4, 3), tmp_path / "a.pt")
    with pytest.raises(UnknownFormatError, match=r"torch\.save"):
        ooc.open(tmp_path / "a.pt")
    np.save(tmp_path / "ds.npy", torch.load(tmp_path / "a.pt", mmap=True).numpy())
    assert ooc.open(tmp_path / "ds.npy").shape == (4, 3)
