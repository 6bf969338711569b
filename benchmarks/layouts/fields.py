"""Simulations, weather, video: what happens to fields as time goes on."""

from __future__ import annotations

import functools
from typing import Any

import h5py
import numpy as np

import oocdata as ooc
from benchmarks.layouts.common import add, each, lengths, rows, shape, written
from benchmarks.layouts.layout import Arrays, Opener, paths

__all__: list[str] = []

# Each field with the axes of its tensors: t0, t1, t2 in The Well's words.
_WELL = {"t0_fields/density": 0, "t0_fields/pressure": 0, "t1_fields/velocity": 1, "t2_fields/C": 2}


def _well(target: str) -> Any:
    channels = []
    for key, order in _WELL.items():
        field = ooc.open(target, key, axis=(0, 1))
        channels += [field[(slice(None),) * 3 + inner] for inner in np.ndindex((2,) * order)]
    return ooc.stack(channels).windows(4, 1)


def _well_element(opened: Opener, target: str, number: int, step: int) -> Arrays:
    file, sample = divmod(number, shape(target, "t0_fields/density")[0])
    with opened(paths(target)[file]) as root:
        fields = [root[key][sample, step : step + 5] for key in _WELL]
    flat = np.concatenate([field.reshape(*field.shape[:3], -1) for field in fields], axis=-1)
    return flat[:4], flat[4:]


add(
    "well",
    "The Well, contiguous, 8 channels of 4 fields, 4 steps → 1 within a trajectory",
    "PolymathicAI/the_well, the_well/data/datasets.py, WellDataset._load_one_sample",
    written("well", 53_000_000, trajectories=1, steps=101, space=(128, 128), files=1),
    _well,
    lambda target: each(
        [shape(target, "t0_fields/density")[1]] * sum(lengths(target, "t0_fields/density")), 4
    ),
    _well_element,
    batch=8, workers=2, reopens=True,
)  # fmt: skip

_FNO = "pdebench/PDEBench, pdebench/models/fno/utils.py, "


def _add_pdebench(name: str, title: str, keys: tuple[str, ...], batch: int, write: Any) -> None:
    """Add a layout of variables (N, T, space…): x the first ten steps, y all, time before last."""

    def ours(target: str) -> Any:
        y = ooc.stack([ooc.open(target, key) for key in keys])
        space = len(y.shape) - 3
        y = y.transpose(*range(1, space + 1), 0, space + 1)
        return ooc.zip(y[(slice(None),) * (space + 1) + (slice(10),)], y)

    def element(opened: Opener, target: str, row: int) -> Arrays:
        with opened(target) as root:
            y = np.moveaxis(np.stack([root[key][row] for key in keys], -1), 0, -2)
        return y[..., :10, :], y

    add(
        name, title, f"{_FNO}FNODatasetSingle, which loads all",
        write, ours, rows(keys[0]), element, batch=batch, loads=True,
    )  # fmt: skip


_add_pdebench(
    "pdebench-cfd",
    "PDEBench 2D CFD, contiguous, 4 variables as channels, 10 steps → all 21",
    ("density", "pressure", "Vx", "Vy"),
    8,
    written("pdebench_cfd", 5_500_000, rows=1, steps=21, space=(128, 128)),
)
_add_pdebench(
    "pdebench-tensor",
    "PDEBench advection, contiguous, 10 steps → all 201",
    ("tensor",),
    50,
    written("pdebench_tensor", 823_000, rows=1, steps=201, space=(1024,)),
)


@functools.cache
def _seeds(target: str) -> int:
    with h5py.File(target, "r") as file:
        return len(file)


def _trajectories(target: str) -> Any:
    steps = shape(target, "0000/data")[0]
    data = ooc.open(target, "*/data")
    return ooc.windows((data, 10), (data, steps), shift=steps)


def _trajectory(opened: Opener, target: str, seed: int) -> Arrays:
    with opened(target) as root:
        data = root[f"{seed:04d}/data"][...]
    return data[:10], data


def _some_steps(opened: Opener, target: str, seed: int, step: int) -> Arrays:
    with opened(target) as root:
        data = root[f"{seed:04d}/data"][step : step + 11]
    return data[:10], data[10:]


_DIFF_REACT = written("pdebench_seeds", 13_200_000, rows=1, steps=101, space=(128, 128))

add(
    "pdebench-diff-react",
    "PDEBench 2D diff-react, lzf in auto-chunks, whole trajectories",
    f"{_FNO}FNODatasetMult.__getitem__",
    _DIFF_REACT,
    _trajectories,
    lambda target: [(seed,) for seed in range(_seeds(target))],
    _trajectory,
    batch=4, workers=2, reopens=True,
)  # fmt: skip
add(
    "pdebench-windows",
    "the same file, windows of 10 steps → 1",
    f"{_FNO}FNODatasetMult.__getitem__, reading no more than the steps of a window",
    _DIFF_REACT,
    lambda target: ooc.open(target, "*/data").windows(10, 1),
    lambda target: each([shape(target, "0000/data")[0]] * _seeds(target), 10),
    _some_steps,
    batch=16, workers=2, reopens=True, file="pdebench-diff-react",
)  # fmt: skip

_RUNS = (slice(0, 3), slice(7, 8), slice(12, 13), slice(18, 19))  # of channels


def _makani(target: str) -> Any:
    fields = ooc.open(target, "fields")
    chosen = ooc.concatenate([fields[:, run] for run in _RUNS], axis=0)
    return chosen.windows(1, 1, episodes="none")


def _makani_element(opened: Opener, target: str, row: int) -> Arrays:
    pair = []
    for at in (row, row + 1):
        file, own = divmod(at, shape(target, "fields")[0])
        out, done = np.empty((1, 6, *shape(target, "fields")[2:]), "f4"), 0
        with opened(paths(target)[file]) as root:
            for run in _RUNS:
                length = run.stop - run.start
                out[:, done : done + length] = root["fields"][own : own + 1, run]
                done += length
        pair.append(out)
    return pair[0], pair[1]


add(
    "era5-makani",
    "ERA5, yearly `fields`, contiguous, 6 of 20 channels at 1°, t → t + 1",
    "NVIDIA/makani, makani/utils/dataloaders/backends/makani_hdf5.py, MakaniHDF5Backend.read",
    written("makani", 10_400_000, {"channels": 20}, rows=1, channels=20, space=(181, 360)),
    _makani,
    rows("fields", 1),
    _makani_element,
    batch=8, workers=2,
)  # fmt: skip


def _dates(opened: Opener, target: str, row: int) -> Arrays:
    with opened(target) as root:
        data = root["data"][row : row + 3]
    return data[:2], data[2:]


add(
    "anemoi",
    "anemoi, Zarr, a date of 30 × 40,320 a chunk, blosc, 2 dates → 1",
    "ecmwf/anemoi-core, training/src/anemoi/training/data/data_reader.py, get_sample",
    written("anemoi", 4_840_000, dates=1, variables=30, cells=40_320),
    lambda target: ooc.open(target, "data").windows(2, 1),
    rows("data", 2),
    _dates,
    batch=4, workers=2,
)  # fmt: skip

_ARCO = ("geopotential", "temperature")


def _hours(opened: Opener, target: str, row: int) -> Arrays:
    with opened(target) as root:
        data = np.stack([root[name][row : row + 3] for name in _ARCO], axis=-1)
    return data[:2], data[2:]


add(
    "arco-era5",
    "ARCO-ERA5, Zarr, an hour of 3 levels at 1° a chunk, blosc, 2 variables, 2 hours → 1",
    "google-research/arco-era5, README.md: slices in time of the opened store",
    written("arco", 2_600_000, rows=1, levels=3, space=(181, 360)),
    lambda target: ooc.stack([ooc.open(target, name) for name in _ARCO]).windows(2, 1),
    rows("temperature", 2),
    _hours,
    batch=16, workers=2,
)  # fmt: skip


@functools.cache
def _digits(path: str, in_memory: bool) -> Any:
    return np.load(path, mmap_mode=None if in_memory else "r")


def _digits_element(opened: Opener, target: str, sequence: int) -> Arrays:
    frames = _digits(target, opened.__name__ == "in_memory")[:, sequence]
    return frames[:10], frames[10:]


add(
    "moving-mnist",
    "Moving MNIST, `.npy`, time first: a sequence is 20 reads; 10 frames → 10",
    "chengtan9907/OpenSTL, openstl/datasets/dataloader_moving_mnist.py, which loads all",
    written("moving_mnist", 81_920, sequences=1),
    lambda target: ooc.open(target, axis=(1, 0)).windows(10, 10),
    lambda target: [(row,) for row in range(_digits(target, False).shape[1])],
    _digits_element,
    batch=64, loads=True,
)  # fmt: skip


def _storm(opened: Opener, target: str, file: int, event: int, start: int) -> Arrays:
    with opened(paths(target)[file]) as root:
        frames = np.moveaxis(root["vil"][event, :, :, start : start + 25], 2, 0)
    return frames[:13], frames[13:]


add(
    "sevir",
    "SEVIR `vil`, contiguous, time last, 13 frames → 12, three an event",
    "MIT-AI-Accelerator/eie-sevir, sevir/generator.py, SEVIRGenerator._read_data",
    written("sevir", 21_700_000, events=1, size=384),
    lambda target: ooc.open(target, "vil", axis=(0, 3)).windows(13, 12, shift=12),
    lambda target: [(*at, start) for at in each(lengths(target, "vil")) for start in (0, 12, 24)],
    _storm,
    batch=8,
)  # fmt: skip
