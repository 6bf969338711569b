"""Test layouts of public data sets: the code that `info` prints, against h5py, zarr and xarray.

Files are written as their publishers write them (`layout_files`). The code is run as printed, and a
shuffled epoch of its training part is compared with elements that an oracle reads from the file.
"""

from __future__ import annotations

import glob
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import layout_files as made
import numpy as np
import pytest
import xarray as xr
import zarr
from scipy import sparse
from typer.testing import CliRunner

import oocdata as ooc
from oocdata.advice import advise, reading_of
from oocdata.cli import app
from oocdata.datasets.ragged import RaggedBatch
from oocdata.errors import SourceError
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.patterns import natural_key
from oocdata.tools.info import Description, contents
from oocdata.tools.info.layouts import LAYOUTS, recognise
from oocdata.tools.info.layouts.layout import listing_of
from oocdata.tools.opening import Opening

Element = Any


def files(target: str) -> list[str]:
    return sorted(glob.glob(target), key=natural_key)


def windows(rows: np.ndarray, inputs: int, targets: int) -> Iterator[Element]:
    """Yield (x, y) of neighbouring rows of one episode."""
    for at in range(len(rows) - inputs - targets + 1):
        yield rows[at : at + inputs], rows[at + inputs : at + inputs + targets]


def chunk(rows: np.ndarray, first: int, count: int) -> np.ndarray:
    """Return `count` rows from `first` on, padded with the first and the last row."""
    return rows[np.clip(np.arange(first, first + count), 0, len(rows) - 1)]


def well(target: str) -> Iterator[Element]:
    for path in files(target):
        with h5py.File(path) as file:
            scalars = [file[f"t0_fields/{name}"][:] for name in ("density", "pressure")]
            fields = np.concatenate([np.stack(scalars, -1), file["t1_fields/velocity"][:]], -1)
        for trajectory in fields:
            yield from windows(trajectory, 4, 1)


def flow(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        runs = np.stack([file[name][:] for name in ("density", "pressure", "Vx", "Vy")], -1)
    yield from ((run[:10], run[10:]) for run in runs)


def tensor(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        yield from ((run[:10], run[10:]) for run in file["tensor"][:])


def darcy(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        yield from zip(file["nu"][:], file["tensor"][:, 0], strict=True)


def seeds(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        for name in file:
            yield from windows(file[name]["data"][:], 10, 1)


def incompressible(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        velocity, particles, force = (file[k][:] for k in ("velocity", "particles", "force"))
    force = np.broadcast_to(force[:, None], velocity.shape)
    for run in np.concatenate([velocity, particles, force], -1):
        yield from windows(run, 10, 1)


def arco(path: str) -> Iterator[Element]:
    with xr.open_zarr(path, consolidated=True, chunks=None) as file:
        count = file.sizes["time"]
        file = file.sel(time=slice(file.attrs["valid_time_start"], file.attrs["valid_time_stop"]))
        assert file.sizes["time"] == count - 2
        names = ("geopotential", "temperature", "u_component_of_wind")
        mask = np.broadcast_to(file["land_sea_mask"].values, file["2m_temperature"].shape)
        surface = [file["2m_temperature"].values[:, None], mask[:, None]]
        fields = np.concatenate([*(file[name].values for name in names), *surface], 1)
    yield from windows(fields, 2, 1)


def anemoi(path: str) -> Iterator[Element]:
    group = zarr.open_group(path, mode="r")
    data, missing = group["data"][:], {str(date) for date in group.attrs["missing_dates"]}
    gone = [row for row, date in enumerate(group["dates"][:]) if str(date) in missing]
    assert len(gone) == 2
    for rows in (data[: gone[0]], data[gone[-1] + 1 :]):
        assert np.isfinite(rows).all()
        yield from windows(rows, 2, 1)


def anemoi_forecasts(path: str) -> Iterator[Element]:
    for run in zarr.open_group(path, mode="r")["data"][:]:
        yield from windows(np.moveaxis(run, 2, 0), 2, 1)


def makani(target: str) -> Iterator[Element]:
    for path in files(target):
        with h5py.File(path) as file:
            fields, bad = file["fields"][:], np.flatnonzero(file["valid_data"][:].min(1) == 0)
        for rows in (fields[: bad[0]], fields[bad[0] + 1 :]):
            yield from windows(rows, 2, 1)


def makani_virtual(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        fields, time = file["fields"][:], file["timestamp"][:]
    for rows in np.split(fields, np.flatnonzero(np.diff(time) > 21600) + 1):
        yield from windows(rows, 2, 1)


def moving_mnist(path: str) -> Iterator[Element]:
    films = np.load(path)
    for number in range(films.shape[1]):
        yield from windows(films[:, number], 10, 10)


def sevir(target: str) -> Iterator[Element]:
    for path in files(target):
        with h5py.File(path) as file:
            for event in file["vil"][:]:
                yield from windows(np.moveaxis(event, -1, 0), 13, 12)


def write_lightning(folder: Path) -> str:
    made.write_sevir(folder)
    return str(folder / "data" / "lght" / "2018" / "*.h5")


def lightning(target: str) -> Iterator[Element]:
    for path in files(target):
        with h5py.File(path) as file:
            yield from (file[event][:] for event in file)


def robomimic(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        for part in ("train", "valid"):
            for name in file[f"mask/{part}"][:]:
                demo = file["data"][name.decode()]
                obs = {key: demo["obs"][key][:] for key in demo["obs"]}
                actions = demo["actions"][:]
                for t in range(demo.attrs["num_samples"]):
                    x = {key: chunk(rows, t - 1, 2) for key, rows in obs.items()}
                    yield x, chunk(actions, t, 16), t + np.arange(16) < len(actions)


def aloha(target: str) -> Iterator[Element]:
    for path in files(target):
        with h5py.File(path) as file:
            keys = [f"observations/images/{name}" for name in file["observations/images"]]
            obs = {key: file[key][:] for key in [*keys, "observations/qpos"]}
            actions = file["action"][:]
        for t in range(len(actions)):
            x = {key: rows[t] for key, rows in obs.items()}
            yield x, chunk(actions, t, 100), t + np.arange(100) < len(actions)


def aloha_jpeg(target: str) -> Iterator[Element]:
    from imagecodecs import jpeg_decode

    for path in files(target):
        with h5py.File(path) as file:
            cameras, lengths = (
                list(file["observations/images"]),
                file["compress_len"][:].astype(int),
            )
            streams = [file[f"observations/images/{name}"][:] for name in cameras]
            qpos, actions = file["observations/qpos"][:], file["action"][:]
        for t in range(len(actions)):
            x = {
                f"observations/images/{name}": jpeg_decode(streams[at][t, : lengths[at, t]].copy())
                for at, name in enumerate(cameras)
            }
            x["observations/qpos"] = qpos[t]
            yield x, chunk(actions, t, 100), t + np.arange(100) < len(actions)


def d4rl(path: str) -> Iterator[Element]:
    with h5py.File(path) as file:
        s, a, r = (file[key][:] for key in ("observations", "actions", "rewards"))
        done, late = file["terminals"][:], file["timeouts"][:]
    following = np.minimum(np.arange(len(s)) + ~(done | late), len(s) - 1)
    for t, then in enumerate(following):
        if done[t] or then > t:
            yield {"s": s[t], "a": a[t], "r": r[t], "done": done[t], "next": s[then]}


def anndata(path: str) -> Iterator[Element]:
    file: Any = zarr.open_group(path, mode="r") if path.endswith(".zarr") else h5py.File(path)
    x, shape = file["X"], file["X"].attrs["shape"]
    dense = np.zeros(shape, "f4")
    rows = np.repeat(np.arange(shape[0]), np.diff(x["indptr"][:]))
    dense[rows, x["indices"][:]] = x["data"][:]
    yield from zip(dense, file["obs/cell_type/codes"][:], strict=True)


def write_two_anndata(folder: Path, **options: Any) -> str:
    for number, seed in enumerate((3, 4)):
        (folder / f"donor{number}").mkdir()
        made.write_anndata(folder / f"donor{number}", seed=seed, **options)
    return str(folder / "*" / f"cells.{options.get('kind', 'h5ad')}")


def anndata_files(target: str) -> Iterator[Element]:
    for path in files(target):
        yield from anndata(path)


def pcam(path: str) -> Iterator[Element]:
    with h5py.File(path) as x, h5py.File(path.replace("_x.h5", "_y.h5")) as y:
        for image, label in zip(x["x"][:], y["y"][:].reshape(-1), strict=True):
            yield image.astype("f4") / np.float32(255), label


def dlio(target: str) -> Iterator[Element]:
    for path in files(target):
        if path.endswith("npy"):
            yield np.load(path)
        elif path.endswith("npz"):
            with np.load(path) as file:
                yield file["x"], file["y"][0]
        else:
            with h5py.File(path) as file:
                yield file["records"][0], file["labels"][0]


def write_pcam_parts(folder: Path) -> str:
    for seed, part in enumerate(("train", "valid", "test")):
        path = Path(made.write_pcam(folder, seed=seed, rows=20, size=32))
        if part != "train":
            for kind in "xy":
                old = path.with_name(path.name.replace("_x", f"_{kind}"))
                old.rename(old.with_name(old.name.replace("train", part)))
    made.write_pcam(folder, rows=20, size=32)
    return str(folder / "*_x.h5")


def pcam_files(target: str) -> Iterator[Element]:
    for path in files(target):
        if "test" not in path.rpartition("/")[2]:
            yield from pcam(path)


ARCO = (
    "Weather by levels, as ARCO-ERA5: 24 times, with data from 1900-01-01T01 to 1900-01-01T22, "
    "9 arrays, such as geopotential by level"
)

CASES: dict[str, tuple[str, Callable[..., str], dict[str, Any], Callable[[str], Any]]] = {
    "well": (
        "The Well: 2 files, the first of 4 trajectories × 6 steps, 3 fields",
        made.write_well, {}, well,
    ),
    "well_of_unequal_files": (
        "The Well: 2 files, the first of 4 trajectories × 9 steps, 3 fields",
        made.write_well, {"steps": (9, 6)}, well,
    ),
    "flow": (
        "PDEBench: compressible flow, 6 runs × 13 steps", made.write_pdebench_cfd, {}, flow,
    ),
    "tensor": (
        "PDEBench: one variable, 10 runs × 41 steps", made.write_pdebench_tensor, {}, tensor,
    ),
    "darcy": ("PDEBench: Darcy flow, 20 samples", made.write_pdebench_darcy, {}, darcy),
    "seeds": (
        "PDEBench: a group for each seed, 12 runs of 21 steps",
        made.write_pdebench_seeds, {"rows": 12}, seeds,
    ),
    "dam_break": (
        "PDEBench: a group for each seed, 6 runs of 21 steps",
        made.write_pdebench_seeds, {"compression": None, "variables": 1}, seeds,
    ),
    "incompressible": (
        "PDEBench: incompressible flow, 2 runs × 20 steps",
        made.write_pdebench_incompressible, {}, incompressible,
    ),
    "arco": (
        ARCO,
        made.write_arco, {}, arco,
    ),
    "arco_packed": (
        ARCO,
        made.write_arco, {"packed": True}, arco,
    ),
    "anemoi": (
        "anemoi: 40 dates, 2 of them missing, 6 variables × 300 cells",
        made.write_anemoi, {}, anemoi,
    ),
    "anemoi_forecasts": (
        "anemoi forecasts: 12 base dates × 6 steps, 3 variables × 40 cells",
        made.write_anemoi_forecasts, {}, anemoi_forecasts,
    ),
    "makani": (
        "Makani / physicsnemo: 2 files, the first of 24 times × 5 channels",
        made.write_makani, {}, makani,
    ),
    "makani_virtual": (
        "Makani / physicsnemo: 48 times × 5 channels",
        made.write_makani_virtual, {}, makani_virtual,
    ),
    "moving_mnist": (
        "Moving MNIST: 50 sequences of 20 frames, time first",
        made.write_moving_mnist, {}, moving_mnist,
    ),
    "sevir": (
        "SEVIR: 2 files, the first of 12 events × 49 frames of vil", made.write_sevir, {}, sevir,
    ),
    "sevir_chunks": (
        "SEVIR: 2 files, the first of 12 events × 49 frames of vil",
        made.write_sevir, {"chunks": True, "compression": "gzip"}, sevir,
    ),
    "sevir_lightning": (
        "SEVIR lightning: 2 files, the first of 11 events", write_lightning, {}, lightning,
    ),
    "robomimic": (
        "robomimic: 12 demos, 344 steps", made.write_robomimic, {"image": (16, 16, 3)}, robomimic,
    ),
    "robomimic_gzip": (
        "robomimic: 12 demos, 344 steps",
        made.write_robomimic,
        {"image": (48, 48, 3), "compress": True, "next_obs": False}, robomimic,
    ),
    "aloha": (
        "ALOHA / ACT: 4 episodes, the first of 25 steps, 2 cameras", made.write_aloha, {}, aloha,
    ),
    "aloha_jpeg": (
        "Mobile ALOHA (JPEG): 4 episodes, the first of 25 steps, 2 cameras",
        made.write_aloha, {"compress": True}, aloha_jpeg,
    ),
    "d4rl": ("D4RL: 2,000 steps", made.write_d4rl, {}, d4rl),
    "h5ad": (
        "AnnData: 400 cells × 60 genes, sparse",
        made.write_anndata, {"compression": "gzip"}, anndata,
    ),
    "anndata_zarr": (
        "AnnData: 400 cells × 60 genes, sparse", made.write_anndata, {"kind": "zarr"}, anndata,
    ),
    "h5ad_files": (
        "AnnData: 2 files, the first of 400 cells × 60 genes, sparse",
        write_two_anndata, {}, anndata_files,
    ),
    "anndata_zarr_files": (
        "AnnData: 2 files, the first of 400 cells × 60 genes, sparse",
        write_two_anndata, {"kind": "zarr"}, anndata_files,
    ),
    "pcam": (
        "PCam: 60 images, labels in a second file",
        made.write_pcam, {"size": 32, "chunks": True}, pcam,
    ),
    "pcam_parts": (
        "PCam: 3 files, the first of 20 images, labels in a second file",
        write_pcam_parts, {}, pcam_files,
    ),
    "dlio": (
        "One sample per file, as DLIO: 12 files, the first of 1 sample", made.write_dlio, {}, dlio,
    ),
    "dlio_hdf5": (
        "One sample per file, as DLIO: 12 files, the first of 1 sample",
        made.write_dlio, {"kind": "hdf5"}, dlio,
    ),
    "dlio_npy": (
        "One sample per file, as DLIO: 12 files, the first of 24 × 24",
        made.write_dlio, {"kind": "npy"}, dlio,
    ),
}  # fmt: skip


def digest(element: Element) -> bytes:
    """Return a digest of an element: bytes, names, dtypes and shapes."""
    if isinstance(element, dict):
        return b"".join(name.encode() + digest(element[name]) for name in sorted(element))
    if isinstance(element, tuple | RaggedBatch):
        return b"".join(map(digest, element))
    array = np.asarray(element)
    return f"{array.dtype.str} {array.shape}".encode() + array.tobytes()


def elements(dataset: ooc.Dataset) -> Iterator[Element]:
    """Yield the elements of a shuffled epoch."""

    def cut(batch: Any, at: int) -> Element:
        if isinstance(batch, dict):
            return {name: cut(one, at) for name, one in batch.items()}
        return tuple(cut(one, at) for one in batch) if isinstance(batch, tuple) else batch[at]

    loader = dataset.batches(32, shuffle=True, seed=1)
    for step, batch in enumerate(loader.epoch(0)):
        count = min(32, len(dataset) - 32 * step)
        yield from (cut(batch, at) for at in range(count))


EXTERNAL = {"makani_virtual": {"external": True}}
"""Arguments of `info` for files with data in other files."""


def run(target: str, **arguments: Any) -> dict[str, Any]:
    """Run the code that `info` prints for a target; return its variables."""
    found = recognise(Opening.of(target, **arguments))
    assert found is not None
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    return names


def claimed_by_one(target: Any, **options: Any) -> None:
    """Fail if several layouts match the same file, because their order must not matter."""

    def found(layout: Callable[[Any], Any], listing: Any) -> Any:
        try:
            return layout(listing)
        except (SourceError, LookupError, TypeError, ValueError):
            return None

    with listing_of(repr(target), files(target), **options) as listing:
        assert sum(found(layout, listing) is not None for layout in LAYOUTS) == 1


@pytest.mark.parametrize("name", CASES)
def test_the_code_gives_what_an_oracle_reads(tmp_path: Path, name: str) -> None:
    sentence, write, options, oracle = CASES[name]
    target, external = write(tmp_path, **options), EXTERNAL.get(name, {})
    found = recognise(Opening.of(target, **external))
    assert found is not None
    assert found.sentence == sentence
    claimed_by_one(target, **external)
    names = run(target, **external)
    parts = [names["train"], *([names["val"]] if "val" in names else [])]
    expected = Counter(digest(element) for element in oracle(target))
    seen = [Counter(digest(element) for element in elements(part)) for part in parts]
    total: Counter[bytes] = sum(seen, Counter())
    assert not total - expected  # exactly once, and none over the end of an episode
    assert total[digest(next(elements(parts[0])))] >= 1
    split = re.search(r"^train, .* = (.+?)\.split\(", "\n".join(found.code), re.MULTILINE)
    if split:  # the parts leave out windows that reach from one to the other
        whole = eval(split[1], names)
        assert Counter(digest(element) for element in elements(whole)) == expected
        assert sum(total.values()) > 0.7 * sum(expected.values())
    else:
        assert total == expected
    # The first batch that the code reads is of its loader.
    batch = names["loader"].batch(0)
    if "batch" in names:
        assert digest(batch) == digest(names["batch"])
    else:
        found = [names[name] for name in ("x", "y", "mask") if name in names]
        assert digest(batch) == digest(tuple(found))


def rows_of(element: Element) -> Iterator[bytes]:
    """Yield each row of the x and y of a pair of windows."""
    for part in element[:2]:
        for row in next(iter(part.values())) if isinstance(part, dict) else part:
            yield row.tobytes()


@pytest.mark.parametrize(
    "name",
    ["seeds", "arco", "anemoi", "anemoi_forecasts", "makani", "moving_mnist", "sevir", "robomimic"],
)
def test_parts_share_no_row(tmp_path: Path, name: str) -> None:
    """Rows are noise, so all differ."""
    _, write, options, _ = CASES[name]
    names = run(write(tmp_path, **options))
    train, val = (
        {row for element in elements(names[part]) for row in rows_of(element)}
        for part in ("train", "val")
    )
    assert train
    assert val
    assert not train & val


@pytest.mark.parametrize("coils", [0, 3])
def test_volumes_without_targets(tmp_path: Path, coils: int) -> None:
    """Test that the loop of the code gives the slices of each volume, in order."""
    target = made.write_fastmri(tmp_path, coils=coils, test=True)
    found = contents(target)
    assert found.layout is not None
    of_coils = " of 3 coils" * bool(coils)
    assert (
        found.layout.sentence == f"fastMRI test files: 4 volumes, the first of 6 slices{of_coils}"
    )
    assert [one.key for one in found.described] == ["/kspace"]  # of the first: widths differ
    claimed_by_one(target)
    names: dict[str, Any] = {"seen": []}
    loop = [line.replace("# images = model.predict(loader.to_tf())",
                         "seen.append((mask, np.concatenate(list(loader.epoch(0)))))")
            for line in found.layout.code]  # fmt: skip
    exec("\n".join(loop), names)
    assert len(names["seen"]) == 4
    for path, (mask, images) in zip(files(target), names["seen"], strict=True):
        with h5py.File(path) as file:
            np.testing.assert_array_equal(mask, file["mask"][:])
            kspace = file["kspace"][:]
        axes = (-2, -1)
        space = np.fft.ifft2(np.fft.ifftshift(kspace, axes), norm="ortho")
        whole = np.abs(np.fft.fftshift(space, axes))
        image = np.sqrt((whole**2).sum(1)) if coils else whole
        np.testing.assert_allclose(images, image, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("coils", [0, 3])
def test_slices_of_unlike_volumes(tmp_path: Path, coils: int) -> None:
    target = made.write_fastmri(tmp_path, coils=coils)
    expected = {}
    for path in files(target):
        with h5py.File(path) as file:
            key = "reconstruction_rss" if coils else "reconstruction_esc"
            for kspace, y in zip(file["kspace"][:], file[key][:], strict=True):
                whole = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace, (-2, -1)),
                                                     norm="ortho"), (-2, -1))  # fmt: skip
                image = np.sqrt((np.abs(whole) ** 2).sum(0)) if coils else np.abs(whole)
                h, w = (np.array(image.shape) - y.shape) // 2
                expected[y.tobytes()] = image[h : h + y.shape[0], w : w + y.shape[1]]
    seen = [(x, y.tobytes()) for x, y in elements(run(target)["train"])]
    assert Counter(y for _, y in seen) == Counter(dict.fromkeys(expected, 1))
    for x, y in seen:
        np.testing.assert_allclose(x, expected[y], rtol=1e-5, atol=1e-5)


def test_patches_of_an_image_and_its_label_lie_at_one_place(tmp_path: Path) -> None:
    path = made.write_ome(tmp_path, version="0.5")
    group = zarr.open_group(path, mode="r+")
    shape = group["0"].shape
    number = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    group["0"][:], group["labels/nuclei/0"][:] = number.astype("u2"), number
    names = run(path)
    image = number.astype("u2")
    count = 0
    for x, y in elements(names["train"]):
        t, _, z, row, column = np.unravel_index(y[0, 0, 0], shape)
        box = (t, slice(None), z, slice(row, row + 64), slice(column, column + 64))
        np.testing.assert_array_equal(y, number[box])
        np.testing.assert_array_equal(x, image[box])
        count += 1
    assert count == shape[0] * shape[2] * 8


@pytest.mark.parametrize("name", ["well", "makani", "sevir", "aloha", "aloha_jpeg", "dlio"])
def test_one_of_several_files(tmp_path: Path, name: str) -> None:
    _, write, options, oracle = CASES[name]
    path = files(write(tmp_path, **options))[0]
    expected = Counter(map(digest, oracle(path)))
    seen = Counter(map(digest, elements(run(path)["train"])))
    assert seen
    assert not seen - expected


def test_codes_of_unlike_categories_are_no_labels(tmp_path: Path) -> None:
    target = write_two_anndata(tmp_path)
    with h5py.File(files(target)[1], "r+") as file:
        names = file["obs/cell_type/categories"]
        names[...] = names[:][::-1]
    assert "labels" not in run(target)
    assert len(run(target)["train"]) == 720


def test_sparse_rows_of_several_files_of_no_known_layout(tmp_path: Path) -> None:
    target = write_two_anndata(tmp_path)
    for path in files(target):
        with h5py.File(path, "r+") as file:
            file.attrs.clear()
    found = contents(target)
    assert found.layout is not None
    assert found.layout.name == "Arrays of the same rows"


def put_sparse(path: str, matrix: Any) -> None:
    """Write a matrix of SciPy as the `X` of a file, as AnnData does."""
    with h5py.File(path, "r+") as file:
        del file["X"]
        group = file.create_group("X")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        kind = f"{matrix.format}_matrix"
        group.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0"}, shape=matrix.shape)


def test_a_matrix_stored_by_columns(tmp_path: Path) -> None:
    path = made.write_anndata(tmp_path)
    expected = Counter(digest(element) for element in anndata(path))
    with h5py.File(path) as file:
        x = file["X"]
        rows = [x[name][:] for name in ("data", "indices", "indptr")]
        matrix = sparse.csr_matrix(tuple(rows), x.attrs["shape"])
    put_sparse(path, matrix.tocsc())
    found = contents(path)
    assert found.layout is not None
    assert found.layout.sentence == "AnnData: 400 cells × 60 genes, sparse by columns"
    assert "adata.X = adata.X.tocsr()" in "\n".join(found.layout.code)
    printed = " ".join(str(found).split())
    assert " X: a sparse matrix must be stored by rows (csr_matrix); this one is" in printed
    claimed_by_one(path)
    with pytest.raises(SourceError, match="tocsr"):
        run(path)
    put_sparse(path, matrix.tocsc().tocsr())
    names: dict[str, Any] = {}
    exec("\n".join(found.layout.code), names)
    parts = [digest(each) for part in ("train", "val") for each in elements(names[part])]
    assert Counter(parts) == expected
    with h5py.File(path, "r+") as file:
        del file["obs/cell_type"]
        file["obs"].attrs["column-order"] = []
    put_sparse(path, matrix.tocsc())
    assert str(contents(path)).startswith("AnnData: 400 cells × 60 genes, sparse by columns\n")


def test_every_file_keeps_its_label(tmp_path: Path) -> None:
    """Test a file that is too short, and one that is twice as long: no label may move on."""
    target = made.write_dlio(tmp_path)
    others = {10: np.full((10, 24, 1), 10, "u1"), 48: np.full((48, 24, 1), 48, "u1")}
    for path, (height, x) in zip(files(target)[5::3], others.items(), strict=False):
        np.savez(path, x=x, y=np.array([height]))
    train = run(target)["train"]
    found = {int(y): x for x, y in (train[number] for number in range(len(train))) if y}
    for height, x in others.items():
        np.testing.assert_array_equal(found[height], x)


def chunks_decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[Any, ...]]:
    """Count the chunks that are decoded, by chunk table and position in it."""
    decoded: Counter[tuple[Any, ...]] = Counter()
    read = FilteredChunks.read_chunks

    def counting(self: FilteredChunks, places: np.ndarray, outs: Any) -> None:
        decoded.update((id(self.table), *place) for place in places.tolist())
        read(self, places, outs)

    monkeypatch.setattr(FilteredChunks, "read_chunks", counting)
    return decoded


def stored_chunks(path: str, keys: list[str]) -> int:
    """Return the number of chunks of datasets, from h5py."""
    with h5py.File(path) as file:
        return sum(file[key].id.get_num_chunks() for key in keys)


@pytest.mark.parametrize("order", [True, "block"])
@pytest.mark.parametrize("name", ["d4rl", "robomimic_gzip", "seeds"])
def test_chunks_that_cut_rows_are_decoded_once_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, order: Any
) -> None:
    _, write, options, _ = CASES[name]
    path = write(tmp_path, **options)
    key = {"d4rl": "observations", "seeds": "*/data"}.get(name, "data/demo_*/obs/agentview_image")
    view = ooc.open(path, key)
    assert view.storage.chunks is not None
    assert any(c < n for c, n in zip(view.storage.chunks[1:], view.element, strict=True))
    decoded = chunks_decoded(monkeypatch)
    rows = sum(len(batch) for batch in view.batches(32, shuffle=order, seed=3).epoch(0))
    with h5py.File(path) as file:
        names = {
            "d4rl": ["observations"], "seeds": [f"{seed}/data" for seed in file],
            "robomimic_gzip": [f"data/{d}/obs/agentview_image" for d in file.get("data", ())],
        }[name]  # fmt: skip
    assert rows == len(view)
    assert set(decoded.values()) == {1}
    assert len(decoded) == stored_chunks(path, names)


def test_terminal_states_of_d4rl_are_elements(tmp_path: Path) -> None:
    path = made.write_d4rl(tmp_path)
    names = run(path)
    with h5py.File(path) as file:
        count = file["terminals"][:].sum()
    assert sum(element["done"] for element in elements(names["steps"])) == count > 0


def test_advice_where_chunks_cut_rows(tmp_path: Path) -> None:
    path = made.write_d4rl(tmp_path)
    with h5py.File(path) as file:
        chunks = file["observations"].chunks
    first = contents(path).datasets[0]
    assert isinstance(first, Description)
    (advice,) = first.advice
    pieces = -(-17 // chunks[1])
    assert f"Chunks of {chunks} cut each row into {pieces} pieces" in advice.text
    assert f"{pieces} chunks are decoded, which hold {chunks[0]} rows" in advice.text
    assert advice.command is not None
    assert advice.command.split()[-2:] == ["--key", "/observations"]
    ooc.convert(path, tmp_path / "again.h5", key="observations")
    (again,) = contents(tmp_path / "again.h5").described
    assert again.advice == ()
    with h5py.File(tmp_path / "again.h5") as file:
        assert file["observations"].chunks[1] == 17


def test_no_advice_where_patches_want_cut_rows(tmp_path: Path) -> None:
    path = made.write_robomimic(tmp_path, demos=1, compress=True)
    view = ooc.open(path, "data/demo_0/obs/agentview_image")
    loader = view.patches((21, 21), step=21, axes=(0, 1)).batches(32, shuffle=True)
    assert not [one for one in advise(reading_of(loader)) if "cut each row" in one.text]
    whole = view.batches(32, shuffle=True)
    assert [one for one in advise(reading_of(whole)) if "cut each row" in one.text]


def test_few_datasets_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many demos is opened, twice: for its names, and to describe it."""
    path = tmp_path / "many.hdf5"
    with h5py.File(path, "w") as file:
        for number in range(400):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"], demo["obs/state"] = np.zeros((3, 2)), np.zeros((3, 5))
        file["data"].attrs["total"] = 1200
    opened = 0
    read = h5py.h5o.open

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal opened
        opened += 1
        return read(*arguments, **options)

    monkeypatch.setattr(h5py.h5o, "open", counting)
    found = contents(path)
    assert found.layout is not None
    assert found.layout.sentence == "robomimic: 400 demos, 1,200 steps"
    assert [one.key for one in found.described] == [
        "/data/demo_0/obs/state",
        "/data/demo_0/actions",
    ]
    assert opened < 40
    assert len(run(str(path))["train"]) > 1000  # without names of parts, whole demos are split off


def test_what_is_printed(tmp_path: Path) -> None:
    path = made.write_robomimic(tmp_path, demos=3, compress=True)
    shown = CliRunner().invoke(app, ["info", path]).output
    assert shown.startswith("robomimic: 3 demos, 100 steps\n\n    import numpy as np\n")
    assert "data/demo_*/obs/agentview_image" in shown.splitlines()[-1]
    told = json.loads(CliRunner().invoke(app, ["info", path, "--json"]).output)
    assert told["layout"]["name"] == "robomimic"
    assert told["layout"]["summary"] == "3 demos, 100 steps"
    assert told["layout"]["code"][:2] == ["import numpy as np", "import oocdata as ooc"]
    # An array that is named is described as ever.
    assert (
        "robomimic" not in CliRunner().invoke(app, ["info", f"{path}::data/demo_0/actions"]).output
    )


@pytest.mark.parametrize(
    ("name", "rows"),
    [("dlio_npy", "12 rows of (24, 24, 1)"), ("sevir_lightning", "22 rows")],
)
def test_whole_samples_are_described(tmp_path: Path, name: str, rows: str) -> None:
    _, write, options, _ = CASES[name]
    (found,) = contents(write(tmp_path, **options)).described
    assert f"shape      {rows}\n" in str(found)


def test_a_glob_that_is_no_single_array(tmp_path: Path) -> None:
    target = made.write_fastmri(tmp_path)
    result = CliRunner().invoke(app, ["info", target])
    assert result.exit_code == 0
    assert result.output.startswith("fastMRI: 4 volumes, the first of 6 slices\n")


NEAR = {
    "data/demo_0/obs/u": (5, 2), "data/demo_0/actions": (5,), "data/other": (3,),
    "observations": (4,), "actions": (4,), "rewards": (4,), "fields": (2, 2, 2),
    "tensor": (3,), "x-coordinate": (3,), "kspace": (3, 3, 3), "id": (4,), "vil": (4, 3, 2, 1),
    "velocity": (2, 3), "particles": (2, 3), "force": (2, 3), "t0_fields/u": (2, 3, 4),
}  # fmt: skip


@pytest.mark.parametrize("left_out", [None, *NEAR])
def test_where_in_doubt_nothing_is_said(tmp_path: Path, left_out: str | None) -> None:
    with h5py.File(tmp_path / "a_x.h5", "w") as file:
        for name, shape in NEAR.items():
            if name != left_out:
                file[name] = np.zeros(shape)
        file.attrs.update(n_trajectories="many", n_spatial_dims=[1, 2])
        file.create_group("t1_fields")
        file.attrs["encoding-type"] = "annotated"
    assert recognise(Opening.of(str(tmp_path / "a_x.h5"))) is None


def test_other_arrays_are_no_layout(tmp_path: Path) -> None:
    others = {
        "a": np.zeros((20, 50, 64, 64), "f4"), "b": np.zeros((50, 20, 64, 64), "u1"),
        "c": np.zeros((20, 15, 64, 64), "u1"), "d": np.zeros((9, 9), "u1"),
    }  # fmt: skip
    for name, array in others.items():
        np.save(tmp_path / f"{name}.npy", array)
        assert recognise(Opening.of(str(tmp_path / f"{name}.npy"))) is None
    np.savez(tmp_path / "e.npz", x=np.zeros((9, 9, 3), "u1"), y=np.zeros(9))
    assert recognise(Opening.of(str(tmp_path / "e.npz"))) is None
    assert recognise(Opening.of(ooc.open(np.zeros((20, 50, 64, 64), "u1")))) is None
    assert recognise(Opening.of(str(tmp_path / "gone.npy"))) is None
    mnist = made.write_moving_mnist(tmp_path)
    assert recognise(Opening.of(mnist)) is not None
    assert recognise(Opening.of(mnist, external=True)) is None  # an argument for HDF5 alone
    path = made.write_pcam(tmp_path)
    Path(path.replace("_x.h5", "_y.h5")).unlink()
    assert recognise(Opening.of(path)) is None


def test_scalar_fields_alone(tmp_path: Path) -> None:
    target = made.write_well(tmp_path)
    for path in files(target):
        with h5py.File(path, "r+") as file:
            del file["t1_fields/velocity"]
    x, _ = run(target)["train"][0]
    with h5py.File(files(target)[0]) as file:
        np.testing.assert_array_equal(x[..., 1], file["t0_fields/pressure"][0, :4])
    assert x.shape == (4, 16, 24, 2)


def test_an_image_without_time_or_label_or_with_another_one(tmp_path: Path) -> None:
    path = made.write_ome(tmp_path)
    group = zarr.open_group(path, mode="r+")
    label = group["labels/nuclei"].create_array("other", shape=(2, 1, 12, 96, 96), dtype="i4")
    label[:] = 1
    attributes = group["labels/nuclei"].attrs.asdict()
    attributes["multiscales"][0]["datasets"][0]["path"] = "other"
    group["labels/nuclei"].attrs.update(attributes)
    found = recognise(Opening.of(path))
    assert found is not None
    assert found.sentence.endswith("2 levels, without labels")  # half as many planes
    plain = zarr.open_group(tmp_path / "b.zarr", mode="w", zarr_format=2)
    image = np.arange(2 * 5 * 70 * 80, dtype="u2").reshape(2, 5, 70, 80)
    plain.create_array("0", data=image, chunks=(1, 1, 32, 32))
    axes = [{"name": name} for name in "czyx"]
    plain.attrs["multiscales"] = [{"axes": axes, "datasets": [{"path": "0"}]}]
    names = run(str(tmp_path / "b.zarr"))
    assert names["x"].shape == (32, 2, 64, 64)
    assert len(names["train"]) == 5 * 8


def test_variables_by_level_are_found_among_many(tmp_path: Path) -> None:
    path = made.write_arco(tmp_path, rows=4)
    group = zarr.open_group(path, mode="r+")
    for number in range(30):
        one = group.create_array(f"a{number}", shape=(4, 21, 40), dtype="f4", chunks=(1, 21, 40))
        one.attrs["_ARRAY_DIMENSIONS"] = ["time", "latitude", "longitude"]
    found = recognise(Opening.of(path))
    assert found is not None
    assert found.summary == (
        "4 times, with data from 1900-01-01T01 to 1900-01-01T02, 39 arrays, such as geopotential "
        "by level"
    )
    assert found.keys[3:] == ("2m_temperature", "a0", "land_sea_mask")


def write_plate(path: Path, version: str, axes: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Write a plate of OME-Zarr with labels in the first field; return each field's level 0."""
    number, random, fields = {"0.4": 2, "0.5": 3}[version], np.random.default_rng(0), {}
    root = zarr.open_group(path, mode="w", zarr_format=number)

    def told(group: Any, attributes: dict[str, Any]) -> None:
        group.attrs.update(
            attributes if number == 2 else {"ome": {"version": version, **attributes}}
        )

    def pyramid(group: Any) -> np.ndarray:
        pixels = random.integers(0, 999, shape, "u2")
        for level in range(2):
            data = pixels[..., :: 1 << level, :: 1 << level]
            group.create_array(str(level), data=data, chunks=(*[1] * (len(shape) - 2), 64, 64))
        levels = [{"path": str(level)} for level in range(2)]
        told(group, {"multiscales": [{"axes": [{"name": a} for a in axes], "datasets": levels}]})
        return pixels

    wells = ["A/1", "A/2", "B/10"]
    names = {"rows": [{"name": "A"}, {"name": "B"}], "columns": [{"name": n} for n in ("1", "2")]}
    told(root, {"plate": {**names, "wells": [{"path": well} for well in wells]}})
    for well in wells:
        group = root.create_group(well)
        told(group, {"well": {"images": [{"path": str(field)} for field in range(4)]}})
        for field in range(4):
            image = group.create_group(str(field))
            fields[f"{well}/{field}/0"] = pyramid(image)
            pyramid(image.create_group("labels/nuclei"))
    return fields


def planes(field: np.ndarray, axes: str) -> np.ndarray:
    """Return the planes of a field in order, with their channels."""
    inner = 3 if "c" in axes else 2
    moved = np.moveaxis(field, axes.index("c"), -3) if inner == 3 else field
    return moved.reshape(-1, *moved.shape[-inner:])


PLATES = {"tczyx": (2, 2, 2, 70, 80), "czyx": (2, 3, 70, 80), "cyx": (3, 70, 80), "yx": (70, 80)}


@pytest.mark.parametrize(("axes", "version"), [*((axes, "0.5") for axes in PLATES), ("cyx", "0.4")])
def test_a_plate_is_one_array_of_its_fields(tmp_path: Path, version: str, axes: str) -> None:
    path, shape = tmp_path / "plate.zarr", PLATES[axes]
    fields = write_plate(path, version, axes, shape)
    found = recognise(Opening.of(str(path)))
    assert found is not None
    sizes = " × ".join(f"{length} {name}" for name, length in zip(axes, shape, strict=True))
    assert found.sentence == f"OME-Zarr plate: 3 wells, the first of 4 fields of {sizes}"
    claimed_by_one(str(path))
    names = run(str(path))
    expected = np.concatenate([planes(field, axes) for field in fields.values()])
    delivered = Counter(digest(element) for element in elements(names["fields"]))
    assert delivered == Counter(map(digest, expected))
    np.testing.assert_array_equal(np.asarray(names["fields"]), expected)  # A/2 before B/10
    parts = names["fields"].parts
    assert [name.strip("/") for name in parts.names] == [*fields]
    assert len(names["train"]) == 8 * len(expected)
    assert names["x"].shape == (32, *expected.shape[1:-2], 64, 64)
    if axes == "tczyx":
        view = ooc.open(path, "*/*/*/0", axis=("t", "z"))
        np.testing.assert_array_equal(np.asarray(view), expected)
    # A field alone is an image; one row, if it has neither time nor depth.
    image = run(str(path / "A/1/0"))["image"]
    np.testing.assert_array_equal(np.asarray(image), planes(fields["A/1/0/0"], axes))
    printed = CliRunner().invoke(app, ["info", str(path)]).output
    assert printed.startswith("OME-Zarr plate: 3 wells, the first of 4 fields of ")
