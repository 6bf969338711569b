"""Robots, images, cells, many parts: samples of their own."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import oocdata as ooc
from benchmarks.layouts.common import Place, add, each, edge, lengths, rows, shape, written
from benchmarks.layouts.layout import Arrays, Opener, paths

__all__: list[str] = []

_SEEN = ("obs/agentview_image", "obs/robot0_eef_pos", "actions")


def _sequences(target: str) -> Any:
    views = [(ooc.open(target, f"data/demo_*/{name}"), 10) for name in _SEEN]
    return ooc.windows(*views, pad=True, mask=False)


def _sequence_places(target: str) -> list[Place]:
    with h5py.File(target, "r") as file:
        demos = range(len(file["data"]))
        return each([int(file[f"data/demo_{at}"].attrs["num_samples"]) for at in demos])


def _sequence(opened: Opener, target: str, demo: int, row: int) -> Arrays:
    with opened(target) as root:
        return tuple(edge(root[f"data/demo_{demo}/{name}"][row : row + 10], 10) for name in _SEEN)


for _name, _gzip in (("robomimic", False), ("robomimic-gzip", True)):
    add(
        _name,
        f"robomimic, {'gzip in auto-chunks' if _gzip else 'contiguous'}, 10 steps of image, "
        "position and action, padded at the end",
        "ARISE-Initiative/robomimic, robomimic/utils/dataset.py, SequenceDataset.get_item",
        written(
            "robomimic", 3_180_000, {"demos": 3, "steps": 15, "compress": _gzip},
            demos=1, steps=150, compress=_gzip, next_obs=False,
        ),
        _sequences,
        _sequence_places,
        _sequence,
        batch=16, workers=2,
    )  # fmt: skip

_CAMERAS = ("observations/images/cam_high", "observations/images/cam_left_wrist")


def _chunks(target: str) -> Any:
    seen = (ooc.stack([ooc.open(target, name) for name in _CAMERAS], axis=0),)
    seen += (ooc.open(target, "observations/qpos"),)
    actions = (ooc.open(target, "action"), 100)
    return ooc.windows(*seen, actions, episodes="parts", pad=True, mask=False)


def _chunk(opened: Opener, target: str, episode: int, step: int) -> Arrays:
    with opened(paths(target)[episode]) as root:
        images = np.stack([root[name][step] for name in _CAMERAS])
        # Padded with the last action and not with zeros, as here; the maker has a mask too.
        action = edge(root["action"][step : step + 100], 100)
        return images, root["observations/qpos"][step], action


add(
    "aloha",
    "ALOHA, a file an episode, chunks of a frame, 2 cameras and 100 actions",
    "tonyzhaozh/act, utils.py, EpisodicDataset.__getitem__",
    written("aloha", 184_000_000, episodes=1, steps=100, image=(480, 640, 3)),
    _chunks,
    lambda target: each(lengths(target, "action")),
    _chunk,
    batch=8, workers=1, reopens=True,
)  # fmt: skip


def _transitions(target: str) -> Any:
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    state, action, reward, *done = (ooc.open(target, name) for name in names)
    arrays = (state, action, reward, (state, (1,)))
    return ooc.windows(*arrays, episodes=ooc.episodes(done=done), time_axis=False)


def _transition_places(target: str) -> Any:
    with h5py.File(target, "r") as file:
        last = file["terminals"][...] | file["timeouts"][...]
    last[-1] = True
    return np.flatnonzero(~last)


def _transition(opened: Opener, target: str, at: Any) -> Arrays:
    with opened(target) as root:
        now = tuple(root[name][at] for name in ("observations", "actions", "rewards"))
        return (*now, root["observations"][at + 1])


for _name, _loads in (("d4rl", True), ("d4rl-from-file", False)):
    add(
        _name,
        "D4RL, flat arrays, gzip in auto-chunks, (s, a, r, s′)",
        "Farama-Foundation/D4RL, d4rl/__init__.py, qlearning_dataset, then random rows "
        + ("of what it loaded" if _loads else "by h5py, where memory does not hold them"),
        written("d4rl", 240_000_000, rows=1_000_000),
        _transitions,
        _transition_places,
        _transition,
        batch=256 if _loads else 16, loads=_loads, whole_batches=True, file="d4rl",
    )  # fmt: skip


def _labels(target: str) -> str:
    return target.replace("_x.h5", "_y.h5")


def _patch(opened: Opener, target: str, row: int) -> Arrays:
    with opened(target) as images, opened(_labels(target)) as labels:
        return images["x"][row], labels["y"][row]


_PCAM = written("pcam", 27_648_000, {"rows": 200}, rows=1_000)

add(
    "pcam",
    "PCam, contiguous, images and labels",
    "basveeling/pcam, README.md: ImageDataGenerator.flow of an HDF5Matrix, row by row",
    _PCAM,
    lambda target: ooc.zip(ooc.open(target, "x"), ooc.open(_labels(target), "y")),
    rows("x"),
    _patch,
    batch=64,
)  # fmt: skip


def _slice(opened: Opener, target: str, volume: int, row: int) -> Arrays:
    with opened(paths(target)[volume]) as root:
        return root["kspace"][row], root["reconstruction_esc"][row]


add(
    "fastmri",
    "fastMRI, a file a volume, contiguous, k-space and target of a slice",
    "facebookresearch/fastMRI, fastmri/data/mri_data.py, SliceDataset.__getitem__",
    written("fastmri", 19_000_000, {"widths": (40,)}, volumes=1, size=320, widths=(372,)),
    lambda target: ooc.zip(ooc.open(target, "kspace"), ooc.open(target, "reconstruction_esc")),
    lambda target: each(lengths(target, "kspace")),
    _slice,
    batch=8, workers=2, reopens=True,
)  # fmt: skip


def _tiles(target: str) -> Any:
    both = [ooc.open(target, key, axis=(0, 2)) for key in ("0", "labels/nuclei/0")]
    return ooc.zip(*both).patches((256, 256), step=256)


def _tile_places(target: str) -> list[Place]:
    t, _, z, y, x = shape(target, "0")
    corners = [(j, i) for j in range(0, y - 255, 256) for i in range(0, x - 255, 256)]
    return [(at, depth, *corner) for at in range(t) for depth in range(z) for corner in corners]


def _tile(opened: Opener, target: str, t: int, z: int, y: int, x: int) -> Arrays:
    part = (t, slice(None), z, slice(y, y + 256), slice(x, x + 256))
    with opened(target) as root:
        return root["0"][part], root["labels/nuclei/0"][part]


add(
    "ome-zarr",
    "OME-Zarr 0.4, chunks of one z, of labels 30, blosc, patches of 256 × 256 with labels",
    "ome/ome-zarr-py, docs: slices of the opened levels",
    written(
        "ome", 377_000_000, {"shape": (1, 2, 2, 256, 512), "chunk": (128, 128)},
        shape=(1, 2, 30, 1024, 1024), chunk=(512, 512), label_depth=30,
    ),
    _tiles,
    _tile_places,
    _tile,
    batch=32, workers=2,
)  # fmt: skip


@functools.cache
def _genes(target: str) -> int:
    with h5py.File(target, "r") as file:
        return int(file["X"].attrs["shape"][1])


def _cell(opened: Opener, target: str, row: int) -> Arrays:
    dense = np.zeros(_genes(target), "f4")
    with opened(target) as root:
        first, stop = root["X/indptr"][row : row + 2]
        dense[root["X/indices"][first:stop]] = root["X/data"][first:stop]
    return (dense,)


for _name, _sparse in (("h5ad", False), ("h5ad-sparse", True)):
    add(
        _name,
        f"AnnData `.h5ad`, CSR, 20,000 genes, {'sparse' if _sparse else 'dense'}, by blocks",
        "scDataset and annbatch, as their documentation shows",
        written("anndata", 16_000, rows=1, genes=20_000),
        lambda target, sparse=_sparse: (
            ooc.open(target, "X").sparse() if sparse else ooc.open(target, "X")
        ),
        rows("X/indptr", 1),
        _cell,
        batch=128, maker=False, shuffle="block", file="h5ad",
    )  # fmt: skip


def _write_files(folder: Path, nbytes: int) -> str:
    rng = np.random.default_rng(0)
    (folder / "train").mkdir()
    for number in range(max(4, nbytes // 262_144)):
        np.save(folder / "train" / f"part_{number}.npy", rng.random((4, 128, 128), np.float32))
    return str(folder / "train" / "*.npy")


add(
    "many-files",
    "Thousands of `.npy` files of 4 samples",
    "argonne-lcf/dlio_benchmark, dlio_benchmark/reader/npy_reader.py: a file for a sample",
    _write_files,
    ooc.open,
    lambda target: each([4] * len(paths(target))),
    lambda opened, target, file, row: (np.load(paths(target)[file])[row],),
    batch=64, workers=2,
)  # fmt: skip


def _write_parts(folder: Path, nbytes: int) -> str:
    rng = np.random.default_rng(0)
    parts, path = (10_000 if nbytes > 100_000_000 else 40), folder / "parts.hdf5"
    length = max(2, nbytes // (2 * parts * 4096))
    with h5py.File(path, "w") as file:
        one = file.create_dataset("one", (parts * length, 4096), "u1")
        for number in range(parts):
            block = rng.integers(0, 256, (length, 4096), "u1")
            file[f"data/demo_{number}/obs"] = block
            one[number * length : (number + 1) * length] = block
    return str(path)


def _part_places(target: str) -> list[Place]:
    length = shape(target, "data/demo_0/obs")[0]
    return each([length] * (shape(target, "one")[0] // length))


def _part(opened: Opener, target: str, part: int, row: int) -> Arrays:
    with opened(target) as root:
        return (root[f"data/demo_{part}/obs"][row],)


add(
    "parts-10k",
    "10,000 datasets of a file as one array, rows of 4 KiB",
    "beside the same rows in one dataset",
    _write_parts,
    lambda target: ooc.open(target, "data/demo_*/obs"),
    _part_places,
    _part,
    batch=128, beside=lambda target: ooc.open(target, "one"),
)  # fmt: skip


def _mixed(target: str) -> Any:
    images = ooc.open(target, "x")
    half = len(images) // 2
    return ooc.mix({images[:half]: 0.7, images[half:]: 0.3}, length=len(images))


def _image(opened: Opener, target: str, row: int) -> Arrays:
    with opened(target) as images:
        return (images["x"][row],)


for _name, _title, _made, _weights in (
    ("mix", "two halves of PCam's images, 0.7 and 0.3", _mixed, None),
    ("weights", "PCam's images drawn by weight", lambda target: ooc.open(target, "x"), 0.1),
):
    add(
        _name,
        _title,
        "beside the plain shuffle of the same images",
        _PCAM,
        _made,
        rows("x"),
        _image,
        batch=64, weights=_weights, once=False, file="pcam",
        beside=lambda target: ooc.open(target, "x"),
    )  # fmt: skip
