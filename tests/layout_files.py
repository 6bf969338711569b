"""Files in the layouts in which public data sets are published, as their makers write them.

One function a layout: ``write_<layout>(folder, scale=1, seed=0, …)`` writes it with h5py, zarr and
NumPy alone and returns the path, or the glob, that a trainer opens. Names, dtypes, order of axes,
chunks, filters and attributes are those of the writer named in the docstring; numbers are made up.
`scale` multiplies how many there are (trajectories, demos, rows, files); elements keep their shape,
which a keyword changes where the makers' is large. Data are written in blocks: memory stays small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import zarr

__all__ = [
    "write_aloha",
    "write_anemoi",
    "write_anemoi_forecasts",
    "write_anndata",
    "write_arco",
    "write_d4rl",
    "write_dlio",
    "write_fastmri",
    "write_makani",
    "write_makani_virtual",
    "write_moving_mnist",
    "write_ome",
    "write_pcam",
    "write_pdebench_cfd",
    "write_pdebench_darcy",
    "write_pdebench_incompressible",
    "write_pdebench_seeds",
    "write_pdebench_tensor",
    "write_robomimic",
    "write_sevir",
    "write_well",
]

_BLOCK = 16 << 20
"""Bytes that are made up at a time."""


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return numbers that compress about as pictures and fields do."""
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        noise = rng.integers(0, 8, shape, "u1")
        most = min(int(np.iinfo(dtype).max), 4000)
        slope = np.linspace(0, most - 8, shape[-1] if len(shape) > 1 else 1)
        return (slope + noise).astype(dtype)
    real = np.round(rng.standard_normal(shape, "f4") * 64) / 64
    if dtype.kind == "c":
        return (real + 1j * rng.standard_normal(shape, "f4")).astype(dtype)
    return real.astype(dtype)


def _blocks(
    shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield an array, made up, in blocks of rows."""
    dtype = np.dtype(dtype)
    row = max(1, int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize)
    step = max(1, _BLOCK // row)
    for start in range(0, shape[0], step):
        stop = min(start + step, shape[0])
        yield slice(start, stop), _numbers(rng, (stop - start, *shape[1:]), dtype)


def _put(
    group: h5py.Group, name: str, shape: tuple[int, ...], dtype: Any, rng: Any, **options: Any
) -> h5py.Dataset:
    """Create a dataset of HDF5 as ``create_dataset(name, data=…, **options)`` does, and fill it."""
    made = group.create_dataset(name, shape, dtype, **options)
    for rows, block in _blocks(shape, dtype, rng):
        made[rows] = block
    return made


def _array(
    group: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    rng: Any,
    *,
    chunks: tuple[int, ...],
    dims: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Create an array of Zarr and fill it, whole chunks at a time."""
    version = group.metadata.zarr_format
    if dims and version == 3:
        options["dimension_names"] = dims
    if version == 2:
        options.setdefault("chunk_key_encoding", {"name": "v2", "separator": "."})
        options["compressors"] = numcodecs.Blosc()  # lz4, as zarr-python 2 did by default
    made = group.create_array(name, shape=shape, dtype=dtype, chunks=chunks, **options)
    if dims and version == 2:
        made.attrs["_ARRAY_DIMENSIONS"] = list(dims)
    outer = options.get("shards") or chunks
    for start in range(0, shape[0], outer[0]):
        stop = min(start + outer[0], shape[0])
        made[start:stop] = _numbers(rng, (stop - start, *shape[1:]), np.dtype(dtype))
    return made


def _values(group: Any, name: str, values: Any, dims: tuple[str, ...] = ()) -> None:
    """Write a small array of Zarr, in one chunk."""
    values = np.asarray(values)
    options: dict[str, Any] = {"fill_value": None} if group.metadata.zarr_format == 2 else {}
    if dims and group.metadata.zarr_format == 3:
        options["dimension_names"] = dims
    made = group.create_array(
        name, shape=values.shape, dtype=values.dtype, chunks=values.shape or "auto", **options
    )
    made[...] = values
    if dims and group.metadata.zarr_format == 2:
        made.attrs["_ARRAY_DIMENSIONS"] = list(dims)


def write_well(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    trajectories: int = 4,
    steps: int | tuple[int, ...] = 6,
    space: tuple[int, ...] = (16, 24),
    files: int = 2,
) -> str:
    """Write The Well's layout (docs/data_format.md of PolymathicAI/the_well): return a glob.

    ``<name>/data/{train,valid,test}/*.hdf5``; contiguous float32; no labels of dimensions. One
    constant field of the trajectory, and one that does not vary along the last axis of space.
    """
    rng, names = np.random.default_rng(seed), ("x", "y", "z")[: len(space)]
    lengths = steps if isinstance(steps, tuple) else (steps,)  # viscoelastic: one for each file
    for part, count in {"train": files * scale, "valid": 1, "test": 1}.items():
        place = Path(folder) / "turbulent_layer" / "data" / part
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            with h5py.File(place / f"turbulent_layer_tcool_{number + 1:.2f}.hdf5", "w") as file:
                length = lengths[number % len(lengths)]
                _well_file(file, rng, (trajectories, length, *space), names)
    return str(Path(folder) / "turbulent_layer" / "data" / "train" / "*.hdf5")


def _well_file(file: h5py.File, rng: Any, shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    rows, steps, *space = shape
    file.attrs.update(
        dataset_name="turbulent_layer", grid_type="cartesian", n_spatial_dims=len(space),
        n_trajectories=rows, simulation_parameters=["tcool"], tcool=0.03,
    )  # fmt: skip
    dimensions = file.create_group("dimensions")
    dimensions.attrs["spatial_dims"] = list(names)
    time = dimensions.create_dataset("time", data=np.arange(steps, dtype="f4"))
    time.attrs["sample_varying"] = False
    for name, length in zip(names, space, strict=True):
        line = dimensions.create_dataset(name, data=np.linspace(0, 1, length, dtype="f4"))
        line.attrs.update(sample_varying=False, time_varying=False)
    bounds = file.create_group("boundary_conditions").create_group("x_periodic")
    bounds.attrs.update(
        associated_dims=["x"], bc_type="PERIODIC", sample_varying=False, time_varying=False
    )
    bounds.create_dataset("mask", data=np.arange(space[0]) % (space[0] - 1) == 0)
    scalars = file.create_group("scalars")
    scalars.attrs["field_names"] = ["tcool"]
    scalar = scalars.create_dataset("tcool", data=np.float32(0.03))
    scalar.attrs.update(sample_varying=False, time_varying=False)

    def field(group: h5py.Group, name: str, dims: list[bool], time: bool, more: tuple[int, ...]):
        inside = [length for length, varies in zip(space, dims, strict=True) if varies]
        made = _put(group, name, (rows, *[steps] * time, *inside, *more), "f4", rng)
        made.attrs.update(dim_varying=dims, sample_varying=True, time_varying=time)

    every = [True] * len(space)
    fields: dict[str, list[tuple[str, list[bool], bool]]] = {
        "t0_fields": [
            ("density", every, True),
            ("inflow", [*every[:-1], False], False),
            ("pressure", every, True),
        ],
        "t1_fields": [("velocity", every, True)],
        "t2_fields": [("C", every, True)],
    }
    for order, (name, listed) in enumerate(fields.items()):
        group = file.create_group(name)
        group.attrs["field_names"] = [one for one, *_ in listed]
        for one, dims, varies in listed:
            field(group, one, dims, varies, (len(space),) * order)
            if order == 2:
                group[one].attrs.update(symmetric=True, antisymmetric=False)


def write_pdebench_cfd(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 6,
    steps: int = 13,
    space: tuple[int, ...] = (16, 24),
) -> str:
    """Write PDEBench's compressible flow: (N, T, X, Y[, Z]) a variable, float32, contiguous."""
    rng, names = np.random.default_rng(seed), "xyz"[: len(space)]
    path = Path(folder) / f"{len(space)}D_CFD_Rand_M0.1_Eta0.01_Zeta0.01_periodic_Train.hdf5"
    with h5py.File(path, "w") as file:
        for name in ["density", "pressure", *(f"V{axis}" for axis in names)]:
            _put(file, name, (rows * scale, steps, *space), "f4", rng)
        for axis, length in zip(names, space, strict=True):
            file[f"{axis}-coordinate"] = np.linspace(0, 1, length, dtype="f4")
        file["t-coordinate"] = np.linspace(0, 1, steps + 1, dtype="f4")
        file.attrs.update(eta=0.01, zeta=0.01, M=0.1)
    return str(path)


def write_pdebench_tensor(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 10,
    steps: int = 41,
    space: tuple[int, ...] = (64,),
) -> str:
    """Write PDEBench's advection or Burgers: `tensor` (N, T, X), float32, contiguous."""
    rng = np.random.default_rng(seed)
    path = Path(folder) / "1D_Advection_Sols_beta0.4.hdf5"
    with h5py.File(path, "w") as file:
        _put(file, "tensor", (rows * scale, steps, *space), "f4", rng)
        file["x-coordinate"] = np.linspace(0, 1, space[0], dtype="f4")
        file["t-coordinate"] = np.linspace(0, 2, steps + 1, dtype="f4")
    return str(path)


def write_pdebench_darcy(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 20,
    space: tuple[int, int] = (32, 32),
) -> str:
    """Write PDEBench's Darcy flow: `nu` (N, X, Y) -> `tensor` (N, 1, X, Y), float32."""
    rng = np.random.default_rng(seed)
    path = Path(folder) / "2D_DarcyFlow_beta1.0_Train.hdf5"
    with h5py.File(path, "w") as file:
        _put(file, "tensor", (rows * scale, 1, *space), "f4", rng)
        _put(file, "nu", (rows * scale, *space), "f4", rng)
        for axis, length in zip("xy", space, strict=True):
            file[f"{axis}-coordinate"] = np.linspace(0, 1, length, dtype="f4")
        file["t-coordinate"] = np.zeros(1, "f4")
        file.attrs["beta"] = 1.0
    return str(path)


def write_pdebench_seeds(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 6,
    steps: int = 21,
    space: tuple[int, int] = (32, 32),
    variables: int = 2,
    compression: str | None = "lzf",
) -> str:
    """Write PDEBench's groups of seeds: ``0000/data`` (T, X, Y, V), lzf in h5py's own chunks.

    gen_diff_react.py writes it so; with ``compression=None`` and one variable it is gen_radial_dam_
    break.py's layout, contiguous.
    """
    rng = np.random.default_rng(seed)
    name = "2D_diff-react_NA_NA.h5" if compression else "2D_rdb_NA_NA.h5"
    with h5py.File(Path(folder) / name, "w") as file:
        for number in range(rows * scale):
            group = file.create_group(f"{number:04d}")
            shape = (steps, *space, variables)
            _put(group, "data", shape, "f4", rng, compression=compression)
            for axis, length in zip("xyt", (*space, steps), strict=True):
                line = np.linspace(0, 1, length, dtype="f4")
                group.create_dataset(f"grid/{axis}", data=line, compression=compression)
            group.attrs["config"] = f"sim:\n  seed: {number}\n  t: 5\n"
    return str(Path(folder) / name)


def write_pdebench_incompressible(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 2,
    steps: int = 20,
    space: tuple[int, int] = (32, 32),
) -> str:
    """Write PDEBench's incompressible flow: (B, T, X, Y, V) in chunks (1, 1, X, Y, V), lzf."""
    rng = np.random.default_rng(seed)
    path = Path(folder) / "ns_incom_inhom_2d_512-0.h5"
    count = rows * scale
    with h5py.File(path, "w") as file:
        packed = {"compression": "lzf", "shuffle": True}
        for name, last in {"velocity": 2, "particles": 1}.items():
            shape = (count, steps, *space, last)
            _put(file, name, shape, "f4", rng, chunks=(1, 1, *shape[2:]), **packed)
        _put(file, "force", (count, *space, 2), "f4", rng, chunks=(1, *space, 2), **packed)
        file["t"] = np.tile(np.linspace(0, 5, steps, dtype="f4"), (count, 1))
    return str(path)


def write_makani(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    years: int = 2,
    rows: int = 24,
    channels: int = 5,
    space: tuple[int, int] = (21, 40),
) -> str:
    """Write yearly files as Makani and physicsnemo read them: return a glob.

    ``YYYY.h5``: `fields` (T, C, lat, lon) float32, contiguous, with dimension scales; 6-hourly.
    """
    rng = np.random.default_rng(seed)
    names = [f"{name}{level}" for name in "uvzt" for level in (50, 500, 850, 1000)]
    for number in range(years):
        year, count = 2016 + number, rows * scale
        with h5py.File(Path(folder) / f"{year}.h5", "w") as file:
            fields = _put(file, "fields", (count, channels, *space), "f4", rng)
            start = np.datetime64(f"{year}-01-01", "s").astype("i8")
            file["timestamp"] = (start + 21600 * np.arange(count)).astype("f8")
            file["channel"] = np.array([names[at % 16] for at in range(channels)], "S5")
            file["lat"] = np.linspace(90, -90, space[0])
            file["lon"] = np.linspace(0, 360, space[1], endpoint=False)
            valid = np.ones((count, channels), "i4")
            valid[count // 2] = 0
            file["valid_data"] = valid
            for axis, name in enumerate(("timestamp", "channel", "lat", "lon")):
                file[name].make_scale(name)
                fields.dims[axis].label = name
                fields.dims[axis].attach_scale(file[name])
    for name in ("global_means", "global_stds"):
        np.save(Path(folder) / f"{name}.npy", np.ones((1, channels, 1, 1), "f4"))
    return str(Path(folder) / "*.h5")


def write_makani_virtual(folder: Path, scale: int = 1, seed: int = 0) -> str:
    """Write years as one virtual dataset, as Makani does (data_process/concatenate_dataset.py).

    `fields` is virtual, coordinates are written anew, and `valid_data` is left out.
    """
    path = Path(folder) / "all.h5"
    (Path(folder) / "years").mkdir()
    write_makani(Path(folder) / "years", scale, seed)
    names = sorted((Path(folder) / "years").glob("*.h5"))
    with h5py.File(path, "w", libver="latest") as file:
        years = [h5py.File(name) for name in names]
        shapes = [year["fields"].shape for year in years]
        file["timestamp"] = np.concatenate([year["timestamp"][:] for year in years])
        for name in ("channel", "lat", "lon"):
            file[name] = years[0][name][:]
        layout = h5py.VirtualLayout((sum(shape[0] for shape in shapes), *shapes[0][1:]), "f4")
        at = 0
        for name, shape in zip(names, shapes, strict=True):
            layout[at : at + shape[0]] = h5py.VirtualSource(name, "fields", shape)
            at += shape[0]
        made = file.create_virtual_dataset("fields", layout, fillvalue=0)
        for axis, name in enumerate(("timestamp", "channel", "lat", "lon")):
            file[name].make_scale(name)
            made.dims[axis].attach_scale(file[name])
        for year in years:
            year.close()
    return str(path)


def write_arco(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 24,
    levels: int = 3,
    space: tuple[int, int] = (21, 40),
    packed: bool = False,
) -> str:
    """Write ARCO-ERA5's analysis-ready layout: Zarr v2, one hour a chunk, blosc-lz4.

    What lies on the ground may be packed, as what people download from the Climate Data Store is.
    """
    rng, path = np.random.default_rng(seed), Path(folder) / "full_37-1h-0p25deg-chunk-1.zarr"
    root = zarr.open_group(path, mode="w", zarr_format=2)
    count, dims = rows * scale, ("time", "level", "latitude", "longitude")
    for name in ("geopotential", "temperature", "u_component_of_wind"):
        shape = (count, levels, *space)
        made = _array(
            root, name, shape, "f4", rng, chunks=(1, *shape[1:]), dims=dims, fill_value=np.nan
        )
        made.attrs.update(long_name=name, units="SI")
    surface = (count, *space)
    name = "2m_temperature"
    nan = {"fill_value": np.nan}  # as xarray writes floats
    kind, fill = ("i2", {"fill_value": -9999}) if packed else ("f4", nan)
    made = _array(
        root, name, surface, kind, rng, chunks=(1, *space), dims=("time", *dims[2:]), **fill
    )
    made.attrs.update({"scale_factor": 0.01, "add_offset": 280.0} if packed else {})
    _array(root, "land_sea_mask", space, "f4", rng, chunks=space, dims=dims[2:], **nan)
    _values(root, "level", np.array([500, 850, 1000])[:levels], ("level",))
    _values(root, "latitude", np.linspace(90, -90, space[0], dtype="f4"), ("latitude",))
    east = np.linspace(0, 360, space[1], endpoint=False, dtype="f4")
    _values(root, "longitude", east, ("longitude",))
    _values(root, "time", np.arange(count), ("time",))
    root["time"].attrs.update(units="hours since 1900-01-01", calendar="proleptic_gregorian")
    # ARCO-ERA5's times begin in 1900 and go on into the future; its data does not.
    first, last = (np.datetime64("1900-01-01T00") + row for row in (1, count - 2))
    root.attrs.update(valid_time_start=str(first), valid_time_stop=str(last))
    zarr.consolidate_metadata(str(path), zarr_format=2)
    return str(path)


def write_anemoi(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    dates: int = 40,
    variables: int = 6,
    ensembles: int = 1,
    cells: int = 300,
) -> str:
    """Write anemoi's layout: Zarr v2 `data` (dates, variables, ensembles, cells), one date each."""
    rng, path = np.random.default_rng(seed), Path(folder) / "aifs-ea-an-oper-o96-6h-v1.zarr"
    root = zarr.open_group(path, mode="w", zarr_format=2)
    count = dates * scale
    dims = ("time", "variable", "ensemble", "cell")
    shape = (count, variables, ensembles, cells)
    data = _array(root, "data", shape, "f4", rng, chunks=(1, variables, 1, cells), dims=dims)
    times = np.datetime64("2020-01-01T00", "s") + np.arange(count) * np.timedelta64(6, "h")
    absent = [count // 3, count // 3 + 1]
    for row in absent:
        data[row] = np.nan
    _values(root, "dates", times, ("time",))
    _values(root, "latitudes", np.linspace(-90, 90, cells), ("cell",))
    _values(root, "longitudes", np.linspace(0, 360, cells), ("cell",))
    for name in ("mean", "stdev", "minimum", "maximum"):
        _values(root, name, np.ones(variables), ("variable",))
    names = ["10u", "10v", "2t", "lsm", "q_500", "t_850", "z_500"]
    root.attrs.update(
        variables=[names[at % 7] for at in range(variables)], frequency="6h", resolution="o96",
        missing_dates=[str(times[row]) for row in absent], version="0.30",
        start_date=str(times[0]), end_date=str(times[-1]), field_shape=[cells],
    )  # fmt: skip
    zarr.consolidate_metadata(str(path), zarr_format=2)
    return str(path)


def write_anemoi_forecasts(folder: Path, scale: int = 1, seed: int = 0, *, steps: int = 6) -> str:
    """Write anemoi's trajectories (create/trajectories/creator.py): steps after each base date."""
    rng, path = np.random.default_rng(seed), Path(folder) / "aifs-forecasts-o96-6h.zarr"
    root, count = zarr.open_group(path, mode="w", zarr_format=2), 12 * scale
    dims, shape = ("time", "variable", "ensemble", "step", "cell"), (count, 3, 2, steps, 40)
    _array(root, "data", shape, "f4", rng, chunks=(1, 3, 1, 1, 40), dims=dims, fill_value=np.nan)
    dates = np.datetime64("2020-01-01T00", "s") + np.arange(count) * np.timedelta64(12, "h")
    _values(root, "base_dates", dates, ("time",))
    _values(root, "steps", np.arange(steps) * np.timedelta64(21600, "s"), ("step",))
    _values(root, "latitudes", np.linspace(-90, 90, 40), ("cell",))
    _values(root, "longitudes", np.linspace(0, 360, 40), ("cell",))
    root.attrs.update(variables=["2t", "10u", "10v"], layout="trajectories")
    zarr.consolidate_metadata(str(path), zarr_format=2)
    return str(path)


def write_moving_mnist(
    folder: Path, scale: int = 1, seed: int = 0, *, sequences: int = 50, size: int = 64
) -> str:
    """Write Moving MNIST's test file: ``mnist_test_seq.npy`` (20, N, 64, 64) uint8, time first."""
    rng, path = np.random.default_rng(seed), Path(folder) / "mnist_test_seq.npy"
    shape = (20, sequences * scale, size, size)
    made = np.lib.format.open_memmap(path, "w+", "u1", shape)
    for rows, block in _blocks(shape, "u1", rng):
        made[rows] = block
    made.flush()
    return str(path)


def write_sevir(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    events: int = 12,
    size: int = 32,
    frames: int = 49,
    files: int = 2,
    **options: Any,
) -> str:
    """Write SEVIR's layout, time last, an id an event, and CATALOG.csv: return a glob of `vil`.

    ``data/vil/2018/SEVIR_VIL_*.h5``: `id` strings, `vil` (N, L, L, 49) uint8; ``data/ir069``: int16
    of half the size, other events in another order; ``data/lght``: a table (flashes, 5) for each
    event, under its id. Chunks are not documented: `options` are those of `create_dataset`.
    """
    rng, rows = np.random.default_rng(seed), ["id,file_name,file_index,img_type,event_type"]
    count = events * scale
    for kind, length, dtype in (("vil", size, "u1"), ("ir069", size // 2, "i2")):
        for number in range(files):
            name = f"{kind}/2018/SEVIR_{kind.upper()}_STORMEVENTS_2018_{number + 1:02d}01.h5"
            path = Path(folder) / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            ids = [f"S{number * count + at:06d}" for at in range(count)]
            if kind == "ir069":  # it lacks some events, in another order
                ids = [ids[at] for at in rng.permutation(count)[: count - 2]]
            with h5py.File(path, "w") as file:
                file["id"] = np.array(ids, "S10")
                _put(file, kind, (len(ids), length, length, frames), dtype, rng, **options)
            for at, event in enumerate(ids):
                storm = ("Hail", "Tornado", "Flash Flood")[int(event[1:]) % 3]
                rows.append(f"{event},{name},{at},{kind},{storm}")
    for number in range(files):
        path = Path(folder) / "data/lght/2018" / f"SEVIR_LGHT_ALLEVENTS_2018_{number + 1:02d}01.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            for at in rng.permutation(count)[: count - 1]:
                file[f"S{number * count + at:06d}"] = rng.random((1 + 3 * at, 5))
    (Path(folder) / "CATALOG.csv").write_text("\n".join(rows) + "\n")
    return str(Path(folder) / "data" / "vil" / "2018" / "*.h5")


def write_robomimic(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    demos: int = 12,
    steps: int = 30,
    image: tuple[int, int, int] = (84, 84, 3),
    compress: bool = False,
    next_obs: bool = True,
) -> str:
    """Write robomimic's layout (dataset_states_to_obs.py): a group for each demo of one file."""
    rng, path = np.random.default_rng(seed), Path(folder) / "image.hdf5"
    packed = {"compression": "gzip"} if compress else {}
    observed = {
        "agentview_image": (image, "u1"), "robot0_eef_pos": ((3,), "f8"),
        "robot0_eef_quat": ((4,), "f8"), "robot0_gripper_qpos": ((2,), "f8"),
    }  # fmt: skip
    lengths = steps + rng.integers(-steps // 3, steps // 3 + 1, demos * scale)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for number, length in enumerate(map(int, lengths)):
            group = data.create_group(f"demo_{number}")
            _put(group, "actions", (length, 7), "f8", rng)
            _put(group, "states", (length, 32), "f8", rng)
            group["rewards"] = (np.arange(length) == length - 1).astype("f8")
            group["dones"] = (np.arange(length) == length - 1).astype("i8")
            for place in ("obs", "next_obs")[: 1 + next_obs]:
                for name, (shape, dtype) in observed.items():
                    _put(group, f"{place}/{name}", (length, *shape), dtype, rng, **packed)
            group.attrs.update(num_samples=length, model_file="<mujoco/>")
        data.attrs["total"] = int(lengths.sum())
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {}})
        names = np.array([f"demo_{number}" for number in range(len(lengths))], "S8")
        valid = np.arange(len(names)) % 10 == 4
        file["mask/train"], file["mask/valid"] = names[~valid], names[valid]
    return str(path)


def write_aloha(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    episodes: int = 4,
    steps: int = 25,
    image: tuple[int, int, int] = (24, 32, 3),
    cameras: tuple[str, ...] = ("cam_high", "cam_left_wrist"),
    compress: bool = False,
) -> str:
    """Write the episodes of ALOHA and ACT (record_episodes.py): a file each; return a glob.

    ``episode_<i>.hdf5``: images (T, 480, 640, 3) uint8 in chunks of one frame, unfiltered. With
    `compress`, as Mobile ALOHA: JPEG streams padded with zeros to one length, and `compress_len`.
    """
    rng = np.random.default_rng(seed)
    for number in range(episodes * scale):
        with h5py.File(Path(folder) / f"episode_{number}.hdf5", "w") as file:
            file.attrs.update(sim=not compress, compress=compress)
            if not compress:
                del file.attrs["compress"]
            images = file.create_group("observations/images")
            lengths = []
            for camera in cameras:
                if compress:
                    lengths.append(_jpegs(images, camera, (steps, *image), rng))
                else:
                    shape = (steps, *image)
                    _put(images, camera, shape, "u1", rng, chunks=(1, *image))
            for name in ("qpos", "qvel", "effort"):
                _put(file["observations"], name, (steps, 14), "f4", rng)
            _put(file, "action", (steps, 14), "f4", rng)
            if compress:
                file["compress_len"] = np.array(lengths, "f4")
    return str(Path(folder) / "episode_*.hdf5")


def _jpegs(group: h5py.Group, name: str, shape: tuple[int, ...], rng: Any) -> list[int]:
    """Write frames as JPEG streams, padded to the longest; return their lengths."""
    from imagecodecs import jpeg_encode

    frames = (jpeg_encode(_numbers(rng, shape[1:], np.dtype("u1")), 50) for _ in range(shape[0]))
    streams = [np.frombuffer(frame, "u1") for frame in frames]
    padded = np.zeros((len(streams), max(map(len, streams))), "u1")
    for row, stream in zip(padded, streams, strict=True):
        row[: len(stream)] = stream
    group.create_dataset(name, data=padded, chunks=(1, padded.shape[1]))
    return list(map(len, streams))


def write_d4rl(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 2000,
    observation: int = 17,
    action: int = 6,
) -> str:
    """Write D4RL's layout (scripts/generation): flat arrays, gzip in h5py's own chunks."""
    rng, path = np.random.default_rng(seed), Path(folder) / "halfcheetah_medium-v2.hdf5"
    count = rows * scale
    with h5py.File(path, "w") as file:
        packed = {"compression": "gzip"}
        shapes = {
            "observations": (observation,), "next_observations": (observation,),
            "actions": (action,), "rewards": (), "infos/action_log_probs": (),
            "infos/qpos": (9,), "infos/qvel": (9,),
        }  # fmt: skip
        for name, shape in shapes.items():
            _put(file, name, (count, *shape), "f4", rng, **packed)
        at = np.arange(count)
        file.create_dataset("terminals", data=at % 370 == 369, **packed)
        file.create_dataset("timeouts", data=at % 1000 == 999, **packed)
        file["metadata/algorithm"] = np.bytes_(b"SAC")
        file["metadata/iteration"] = 1000
    return str(path)


def write_anndata(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 400,
    genes: int = 60,
    density: float = 0.1,
    kind: str = "h5ad",
    compression: str | None = None,
) -> str:
    """Write AnnData's layout (docs/fileformat-prose.md): `X` sparse by rows, `obs` with categories.

    HDF5 is written as AnnData does, with ``maxshape=(None,)``: chunks are h5py's own. `kind` is
    ``"h5ad"`` or ``"zarr"``.
    """
    rng, count = np.random.default_rng(seed), rows * scale
    path = Path(folder) / f"cells.{kind}"
    per_row = rng.binomial(genes, density, count)
    indptr = np.concatenate([[0], np.cumsum(per_row)]).astype("i8" if scale > 1000 else "i4")
    if kind == "zarr":
        root: Any = zarr.open_group(path, mode="w", zarr_format=3)
    else:
        root = h5py.File(path, "w")
    total = int(indptr[-1])

    def group(parent: Any, name: str, encoding: str, version: str, **attributes: Any) -> Any:
        made = parent.create_group(name)
        made.attrs.update({"encoding-type": encoding, "encoding-version": version, **attributes})
        return made

    def column(parent: Any, name: str, values: Any) -> None:
        values = np.asarray(values)
        text = values.dtype.kind in "US"
        if kind == "zarr":
            made = parent.create_array(
                name, shape=values.shape, dtype=str if text else values.dtype, chunks=values.shape
            )
            made[...] = values.astype(str) if text else values
        else:
            dtype = h5py.string_dtype() if text else values.dtype
            made = parent.create_dataset(name, values.shape, dtype)
            made[...] = values.astype(object) if text else values
        made.attrs.update(
            {"encoding-type": "string-array" if text else "array", "encoding-version": "0.2.0"}
        )

    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    matrix = group(root, "X", "csr_matrix", "0.1.0", shape=[count, genes])
    sizes = {"data": ((total,), "f4"), "indices": ((total,), "i4"), "indptr": ((count + 1,), None)}
    for name, (shape, dtype) in sizes.items():
        if kind == "zarr":
            length = min(shape[0], 1 << 16)
            made = matrix.create_array(
                name, shape=shape, dtype=dtype or indptr.dtype, chunks=(length,)
            )
        else:
            made = matrix.create_dataset(
                name, shape, dtype or indptr.dtype, maxshape=(None,), compression=compression
            )
        if name == "indptr":
            made[...] = indptr
    _sparse_rows(matrix, per_row, indptr, genes, rng)
    cells = group(root, "obs", "dataframe", "0.2.0", **{
        "_index": "_index", "column-order": ["cell_type", "n_genes"],
    })  # fmt: skip
    column(cells, "_index", [f"AAACCTG{at:09d}-1" for at in range(count)])
    types = group(cells, "cell_type", "categorical", "0.2.0", ordered=False)
    column(types, "codes", (np.arange(count) % 4 - 1).astype("i1"))
    column(types, "categories", ["B cell", "T cell", "NK cell"])
    column(cells, "n_genes", per_row.astype("i8"))
    more = {"_index": "_index", "column-order": []}
    var = group(root, "var", "dataframe", "0.2.0", **more)
    column(var, "_index", [f"ENSG{at:011d}" for at in range(genes)])
    obsm = group(root, "obsm", "dict", "0.1.0")
    column(obsm, "X_pca", _numbers(rng, (count, 50), np.dtype("f4")))
    if kind == "h5ad":
        root.close()
    return str(path)


def _sparse_rows(matrix: Any, per_row: Any, indptr: Any, genes: int, rng: Any) -> None:
    """Fill the numbers of a sparse matrix, some rows at a time."""
    step = 4096
    for start in range(0, len(per_row), step):
        counts = per_row[start : start + step]
        scores = rng.random((len(counts), genes))
        rank = scores.argsort(1).argsort(1)
        _, indices = np.nonzero(rank < counts[:, None])
        a, b = int(indptr[start]), int(indptr[start + len(counts)])
        matrix["indices"][a:b] = indices.astype("i4")
        matrix["data"][a:b] = rng.integers(1, 100, b - a).astype("f4")


def write_pcam(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    rows: int = 60,
    size: int = 96,
    chunks: tuple[int, ...] | bool | None = None,
) -> str:
    """Write PCam's two files, images `x` and labels `y` (N, 1, 1, 1), uint8; return that of images.

    Shipped as ``.h5.gz``; what chunks are inside is not documented.
    """
    rng, count = np.random.default_rng(seed), rows * scale
    name = "camelyonpatch_level_2_split_train_{}.h5"
    with h5py.File(Path(folder) / name.format("x"), "w") as file:
        _put(file, "x", (count, size, size, 3), "u1", rng, chunks=chunks)
    with h5py.File(Path(folder) / name.format("y"), "w") as file:
        file["y"] = rng.integers(0, 2, (count, 1, 1, 1)).astype("u1")
    return str(Path(folder) / name.format("x"))


def write_fastmri(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    volumes: int = 4,
    coils: int = 0,
    size: int = 32,
    widths: tuple[int, ...] = (40, 44),
    test: bool = False,
) -> str:
    """Write fastMRI's layout (data/README.md): a file a volume, of unlike widths; return a glob.

    `kspace` (slices[, coils], H, W) complex64, `reconstruction_esc` or `_rss` (slices, 320, 320)
    float32; in test files `mask` (W) and no reconstruction.
    """
    rng = np.random.default_rng(seed)
    place = Path(folder) / f"{'multi' if coils else 'single'}coil_{'test' if test else 'train'}"
    place.mkdir(exist_ok=True)
    for number in range(volumes * scale):
        slices, width = 6 + number % 3, widths[number % len(widths)]
        with h5py.File(place / f"file1{number:06d}.h5", "w") as file:
            middle = (coils,) if coils else ()
            _put(file, "kspace", (slices, *middle, 2 * size, width), "c8", rng)
            if test:
                file["mask"] = np.arange(width) % 4 == 0
            else:
                name = "reconstruction_rss" if coils else "reconstruction_esc"
                _put(file, name, (slices, size, size), "f4", rng)
                if not coils:
                    _put(file, "reconstruction_rss", (slices, size, size), "f4", rng)
                file.attrs.update(max=1.5, norm=20.0)
            file["ismrmrd_header"] = "<?xml version='1.0'?><ismrmrdHeader/>"
            file.attrs.update(
                acquisition=("CORPD_FBK", "CORPDFS_FBK")[number % 2], patient_id=f"{number:064d}"
            )
    return str(place / "*.h5")


def write_ome(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    shape: tuple[int, int, int, int, int] = (2, 1, 24, 96, 96),
    chunk: tuple[int, int] = (32, 32),
    label_depth: int = 12,
    version: str = "0.4",
    levels: int = 2,
) -> str:
    """Write an image of OME-Zarr (t, c, z, y, x), chunks of one z, with a label in deep ones.

    Version 0.4 is Zarr v2 with ``/`` between the numbers of a chunk, 0.5 is Zarr v3, its image in
    shards. `scale` multiplies t.
    """
    rng, path = np.random.default_rng(seed), Path(folder) / "image.ome.zarr"
    full = (shape[0] * scale, *shape[1:])
    number = 2 if version == "0.4" else 3
    root = zarr.open_group(path, mode="w", zarr_format=number)
    units = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}
    axes = [{"name": name, "type": units[name]} for name in "tczyx"]

    def pyramid(group: Any, dtype: str, depth: int, channels: int, more: dict[str, Any]) -> None:
        listed = []
        for level in range(levels):
            lengths = (full[0], channels, full[2], full[3] >> level, full[4] >> level)
            chunks = (1, 1, depth, *chunk)
            options: dict[str, Any] = {}
            if number == 2:
                options["chunk_key_encoding"] = {"name": "v2", "separator": "/"}
            elif depth == 1:
                whole = (
                    -(-length // size) * size
                    for length, size in zip(lengths[3:], chunk, strict=True)
                )
                options["shards"] = (1, 1, 1, *whole)
            dims = tuple("tczyx") if number == 3 else ()
            _array(group, str(level), lengths, dtype, rng, chunks=chunks, dims=dims, **options)
            zoom = [1.0, 1.0, 1.0, 2.0**level, 2.0**level]
            transform = [{"type": "scale", "scale": zoom}]
            listed.append({"path": str(level), "coordinateTransformations": transform})
        scales = [{"version": version, "name": "0", "axes": axes, "datasets": listed}]
        told = {"multiscales": scales, **more}
        group.attrs.update(told if number == 2 else {"ome": {"version": version, **told}})

    pyramid(root, "u2", 1, full[1], {"omero": {"channels": [{"label": "DAPI"}]}})
    labels = root.create_group("labels")
    names = {"labels": ["nuclei"]}
    labels.attrs.update(names if number == 2 else {"ome": {"version": version, **names}})
    source = {"image-label": {"version": version, "source": {"image": "../../"}}}
    pyramid(labels.create_group("nuclei"), "i4", min(label_depth, full[2]), 1, source)
    return str(path)


def write_dlio(
    folder: Path,
    scale: int = 1,
    seed: int = 0,
    *,
    samples: int = 12,
    size: int = 24,
    kind: str = "npz",
) -> str:
    """Write DLIO's files, one sample each; return a glob.

    As its generators do: ``.npz`` with `x` (H, W, 1) uint8 and `y` (1,) int64, HDF5 with `records`
    (1, H, W) uint8 and `labels` (1,) int64, or ``.npy`` (H, W, 1) uint8.
    """
    rng, count = np.random.default_rng(seed), samples * scale
    place = Path(folder) / "train"
    place.mkdir(exist_ok=True)
    suffix = {"npz": "npz", "npy": "npy", "hdf5": "hdf5"}[kind]
    width = len(str(count))
    for number in range(count):
        path = place / f"img_{number:0{width}d}_of_{count}.{suffix}"
        values, label = rng.integers(0, 255, (size, size), "u1"), np.zeros(1, "i8")
        if kind == "npz":
            np.savez(path, x=values[..., None], y=label)
        elif kind == "npy":
            np.save(path, values[..., None])
        else:
            with h5py.File(path, "w") as file:
                file["records"], file["labels"] = values[None], label
    return str(place / f"*.{suffix}")
