"""Pictures, cells and films: Moving MNIST, AnnData, PCam, fastMRI, OME-Zarr, DLIO."""

from __future__ import annotations

import os
from typing import Any

from oocdata.errors import SourceError
from oocdata.tools.info.layouts.layout import Layout, Recogniser, lines, split
from oocdata.tools.info.layouts.listing import Listing, listing_of

__all__ = ["PICTURES"]

_PATCH = 64


def moving_mnist(listing: Listing) -> Layout | None:
    """Recognise films (20, N, 64, 64) of uint8, time first."""
    if listing.kind != "npy" or listing.files > 1:
        return None
    found = listing.array("")
    if found is None or found.dtype.str != "|u1" or len(found.shape) != 4:
        return None
    steps, count, *size = found.shape
    if steps != 20 or size != [64, 64] or count <= steps:
        return None
    code = f"""
frames = ooc.open({listing.target}, axis=(1, 0))     # sequence × time
pairs = frames.windows(10, 10)
{split("pairs", count)}     # whole sequences
"""
    return Layout(
        "Moving MNIST", f"{count:,} sequences of 20 frames, time first", lines(code), ("",)
    )


def anndata(listing: Listing) -> Layout | None:
    """Recognise AnnData's `X` by the attributes that its format asks for."""
    if listing.kind not in ("hdf5", "zarr") or listing.files > 1:
        return None
    if listing.attributes("").get("encoding-type") != "anndata":
        return None
    told = listing.attributes("X")
    dense = listing.array("X")
    if dense is not None and len(dense.shape) == 2:
        (cells, genes), kind = dense.shape, "dense"
    elif told.get("encoding-type") == "csr_matrix" and len(told.get("shape", ())) == 2:
        (cells, genes), kind = told["shape"], "sparse"
    else:
        return None
    columns = [str(name) for name in listing.attributes("obs").get("column-order", ())]
    labels = [name for name in columns if _categorical(listing, f"obs/{name}")]
    code = f"path = {listing.target}\ncounts = ooc.open(path, 'X')\n"
    if labels:
        code += f"""labels = ooc.open(path, {f"obs/{labels[0]}"!r})     # codes of labels.categories
{split("ooc.zip(counts, labels)", int(cells))}
"""
    else:
        code += split("counts", int(cells))
    summary = f"{int(cells):,} cells × {int(genes):,} genes, {kind}"
    batch = "x, y" if labels else "x"
    return Layout("AnnData", summary, lines(code, batch), ("X", *(f"obs/{n}" for n in labels[:3])))


def _categorical(listing: Listing, name: str) -> bool:
    return listing.attributes(name).get("encoding-type") == "categorical"


def pcam(listing: Listing) -> Layout | None:
    """Recognise `x` (N, H, W, 3) of uint8, with a file of `y` (N, 1, 1, 1) beside it."""
    stem, suffix = os.path.splitext(listing.path)
    if listing.files > 1 or not stem.endswith("_x"):
        return None
    images = listing.array("x") if listing.root("hdf5") == ["x"] else None
    if images is None or len(images.shape) != 4 or images.dtype.str != "|u1":
        return None
    beside = f"{stem[:-1]}y{suffix}"
    try:
        with listing_of("", [beside]) as other:
            labels = other.array("y")
    except SourceError:
        return None
    if labels is None or labels.shape != (images.shape[0], 1, 1, 1):
        return None
    code = f"""
images = ooc.open({listing.target}, 'x')
labels = ooc.open({beside!r}, 'y')[:, 0, 0, 0]
pairs = ooc.zip(images, labels).map(lambda x, y: (np.float32(x) / 255, y))
train = pairs     # the makers' valid and test files are for the rest
"""
    return Layout("PCam", f"{images.shape[0]:,} images with labels beside", lines(code), ("x",))


def fastmri(listing: Listing) -> Layout | None:
    """Recognise a volume: complex `kspace` (slices[, coils], H, W) with its ISMRMRD header."""
    names = listing.root("hdf5")
    kspace = listing.array("kspace") if {"kspace", "ismrmrd_header"} <= {*names} else None
    if kspace is None or kspace.dtype.kind != "c" or len(kspace.shape) not in (3, 4):
        return None
    coils = f" of {kspace.shape[1]} coils" if len(kspace.shape) == 4 else ""
    files = f"{listing.files:,} volumes, the first of " if listing.files > 1 else "a volume of "
    summary = f"{files}{kspace.shape[0]} slices{coils}"
    wanted = ("reconstruction_rss",) if coils else ("reconstruction_esc", "reconstruction_rss")
    target = next((one for one in wanted if one in names), None)
    if target is None:
        return None  # a test file: there is nothing to train on
    return Layout("fastMRI", summary, _slices(listing, target, bool(coils)), (target,))


def _slices(listing: Listing, target: str, coils: bool) -> tuple[str, ...]:
    """Return code for slices of volumes of unlike widths: those that are alike are one array."""
    given = listing.target
    paths = given if given.startswith("[") else f"sorted(glob.glob({given}))"
    paths = f"[{given}]" if listing.files == 1 else paths
    combined = "np.sqrt((np.abs(space) ** 2).sum(1))" if coils else "np.abs(space)"
    code = f"""
from collections import defaultdict
alike = defaultdict(list)
for path in {paths}:
    alike[ooc.open(path, 'kspace').shape[1:]].append(path)
def image(kspace, target):
    axes = (-2, -1)
    space = np.fft.ifft2(np.fft.ifftshift(kspace, axes), norm='ortho')
    image = np.fft.fftshift({combined}, axes)
    (h, w), (m, n) = image.shape[1:], target.shape[1:]
    return np.float32(image[:, (h - m) // 2:(h + m) // 2, (w - n) // 2:(w + n) // 2]), target
def slices(paths):
    both = ooc.zip(ooc.open(paths, 'kspace'), ooc.open(paths, {target!r}))
    return both.map(image)
train = ooc.concat([slices(paths) for paths in alike.values()])
"""
    return lines(("import glob" if "glob.glob" in paths else "") + code)


def ome(listing: Listing) -> Layout | None:
    """Recognise OME-Zarr by `multiscales`, version 0.4 or 0.5, and its first label."""
    if listing.kind != "zarr" or listing.files > 1:
        return None
    image = _multiscale(listing, "")
    if image is None:
        return None
    key, axes, levels = image
    found = listing.array(key)
    if found is None or len(axes) != len(found.shape) or axes[-2:] != ["y", "x"]:
        return None
    rows = [at for at, name in enumerate(axes[:-2]) if name != "c"]
    patch = tuple(min(_PATCH, length) for length in found.shape[-2:])
    if not rows:
        return None
    label = _label(listing, axes, found.shape)
    code = f"path = {listing.target}\nimage = ooc.open(path, {key!r}, axis={tuple(rows)})"
    code += f"     # level {key} of {levels}\n"
    if not label:
        code += f"train = image.patches({patch}, per_row=8)"
        batch = "x"
    else:
        batch = "x, y"
        code += f"""label = ooc.open(path, {label!r}, axis={tuple(rows)})
train = ooc.zip(image, label).patches({patch}, per_row=8)     # the same places in both
"""
    sizes = " × ".join(f"{length:,} {name}" for name, length in zip(axes, found.shape, strict=True))
    summary = f"{sizes}, {levels} levels, {'with labels' if label else 'without labels'}"
    return Layout("OME-Zarr", summary, lines(code, batch), (key, *[label] * bool(label)))


def _label(listing: Listing, axes: list[str], shape: tuple[int, ...]) -> str:
    """Return the key of the first label, if it has the places of the image, channels aside."""
    names = _told(listing, "labels").get("labels")
    found = (
        _multiscale(listing, f"labels/{names[0]}") if isinstance(names, list) and names else None
    )
    array = None if found is None or found[1] != axes else listing.array(found[0])
    if found is None or array is None or len(array.shape) != len(shape):
        return ""
    pairs = zip(axes, array.shape, shape, strict=True)
    return found[0] if all(name == "c" or own == length for name, own, length in pairs) else ""


def _told(listing: Listing, group: str) -> dict[str, Any]:
    """Return a group's attributes: version 0.5 keeps them under ``ome``."""
    found = listing.attributes(group)
    inner = found.get("ome")
    return inner if isinstance(inner, dict) else found


def _multiscale(listing: Listing, group: str) -> tuple[str, list[str], int] | None:
    """Return the key of the finest level, the names of the axes, and how many levels there are."""
    try:
        first = _told(listing, group)["multiscales"][0]
        axes = [str(axis["name"]) for axis in first["axes"]]
        paths = [str(level["path"]) for level in first["datasets"]]
    except (KeyError, IndexError, TypeError):
        return None
    return (f"{group}/{paths[0]}".lstrip("/"), axes, len(paths)) if paths else None


def dlio(listing: Listing) -> Layout | None:
    """Recognise files of one sample: `x` (H, W, 1) and `y` in ``.npz``, `records` in HDF5."""
    names = sorted(listing.root("npz", "hdf5"))
    if names not in (["x", "y"], ["labels", "records"]):
        return None
    data, label = ("x", "y") if "x" in names else ("records", "labels")
    found, labels = listing.array(data), listing.array(label)
    if found is None or labels is None or len(found.shape) != 3 or len(labels.shape) != 1:
        return None
    samples = found.shape[-1] if data == "x" else found.shape[0]
    if found.dtype.str != "|u1" or labels.shape != (samples,) or (data == "x" and samples != 1):
        return None
    count = listing.files * samples
    code = f"target = {listing.target}\n"
    if data == "x":
        files = ", episodes='files'" if listing.files > 1 else ""
        height = found.shape[0]
        code += f"""images = ooc.open(target, 'x').windows({height}, shift={height}{files})
labels = ooc.open(target, 'y')     # a file is a sample
"""
    else:
        code += "images, labels = ooc.open(target, 'records'), ooc.open(target, 'labels')\n"
    code += split("ooc.zip(images, labels)", count)
    summary = f"{listing.several}{samples} sample{'s' * (samples > 1)}"
    return Layout("A sample a file, as DLIO", summary, lines(code), (data, label))


PICTURES: tuple[Recogniser, ...] = (moving_mnist, anndata, pcam, fastmri, ome, dlio)
