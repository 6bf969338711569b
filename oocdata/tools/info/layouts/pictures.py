"""Recognise layouts of images, films and cells: Moving MNIST, AnnData, PCam, fastMRI, OME, DLIO."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from oocdata.tools.info.layouts.layout import Layout, Listing, expect, lines, listing_of, split

_PATCH = 64


def moving_mnist(listing: Listing) -> Layout:
    """Recognise films (20, N, 64, 64) of uint8, time first."""
    listing.root("npy")
    films = listing.array("")
    steps, count, *size = films.shape
    expect(films.dtype == "u1" and steps == 20 and size == [64, 64] and count > steps)
    code = f"""
frames = ooc.open({listing.target}, axis=(1, 0))     # sequence × time
pairs = frames.windows(10, 10)
{split("pairs", count)}     # whole sequences
"""
    return Layout(
        "Moving MNIST", f"{count:,} sequences of 20 frames, time first", lines(code), ("",)
    )


def anndata(listing: Listing) -> Layout:
    """Recognise AnnData by the attributes that its format requires."""
    listing.root("hdf5", "zarr", many_files=True)
    expect(listing.attributes("")["encoding-type"] == "anndata")
    attributes = listing.attributes("X")
    kinds = {"csr_matrix": "sparse", "csc_matrix": "sparse by columns"}
    kind = kinds.get(str(attributes.get("encoding-type")), "dense")
    cells, genes = listing.array("X").shape if kind == "dense" else attributes["shape"]
    columns = [str(name) for name in listing.attributes("obs").get("column-order", ())]
    encodings = {name: listing.attributes(f"obs/{name}").get("encoding-type") for name in columns}
    labels = [name for name in columns if encodings[name] == "categorical"]
    if listing.files > 1:  # codes of unlike categories are no one array
        labels = [name for name in labels if listing.is_one_array(f"obs/{name}")]
    code = f"path = {listing.target}\n"
    if kind == kinds["csc_matrix"]:
        code += "# X is stored by columns; write it by rows first: adata.X = adata.X.tocsr()\n"
    code += "counts = ooc.open(path, 'X')\n"
    if labels:
        code += f"""labels = ooc.open(path, {f"obs/{labels[0]}"!r})     # codes of labels.categories
{split("ooc.zip(counts, labels)", int(cells))}
"""
    else:
        code += split("counts", int(cells))
    summary = f"{listing.count_text}{int(cells):,} cells × {int(genes):,} genes, {kind}"
    batch = "x, y" if labels else "x"
    return Layout("AnnData", summary, lines(code, batch), ("X", *(f"obs/{n}" for n in labels[:3])))


def pcam(listing: Listing) -> Layout:
    """Recognise `x` (N, H, W, 3) of uint8, and `y` (N, 1, 1, 1) in a second file beside it."""
    stem, suffix = os.path.splitext(listing.path)
    expect(listing.root("hdf5", many_files=True) == ["x"] and stem.endswith("_x"))
    images = listing.array("x")
    count, _, _, _ = images.shape
    with listing_of("", [f"{stem[:-1]}y{suffix}"]) as label_file:
        expect(images.dtype == "u1" and label_file.array("y").shape == (count, 1, 1, 1))
    parts: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for path in listing.paths:
        name = os.path.basename(path)
        parts["val" if "valid" in name else "test" if "test" in name else "train"].append(path)
    if not parts["train"]:
        parts = {"train": [*listing.paths]}
    code = f"""
def pairs(paths):
    images = ooc.open(paths, 'x')
    paths = [path.replace('_x{suffix}', '_y{suffix}') for path in paths]
    labels = ooc.open(paths, 'y')[:, 0, 0, 0]
    return ooc.zip(images, labels).map(lambda x, y: (np.float32(x) / 255, y))
"""
    code += "\n".join(f"{name} = pairs({paths})" for name, paths in parts.items() if paths)
    summary = f"{listing.count_text}{count:,} images, labels in a second file"
    return Layout("PCam", summary, lines(code), ("x",))


def fastmri(listing: Listing) -> Layout:
    """Recognise a volume: complex `kspace` (slices[, coils], H, W) with its ISMRMRD header."""
    names = listing.root("hdf5", many_files=True)
    kspace = listing.array("kspace")
    slices, *coils, _, _ = kspace.shape
    expect("ismrmrd_header" in names and kspace.dtype.kind == "c" and len(coils) < 2)
    targets = ["reconstruction_rss"] if coils else ["reconstruction_esc", "reconstruction_rss"]
    targets = [name for name in targets if name in names]
    expect(targets or listing.array("mask").shape == kspace.shape[-1:])
    files = f"{listing.files:,} volumes, the first of " if listing.files > 1 else "a volume of "
    summary = f"{files}{slices} slices" + (f" of {coils[0]} coils" if coils else "")
    name = "fastMRI" if targets else "fastMRI test files"
    return Layout(name, summary, _slices(listing, targets, bool(coils)), (*targets, "kspace")[:1])


def _slices(listing: Listing, targets: list[str], coils: bool) -> tuple[str, ...]:
    """Return code for slices of volumes: volumes of the same width become one array.

    Without targets, slices are for a trained model, volume by volume.
    """
    paths = listing.paths_code
    imports = "import glob\n" if "glob.glob" in paths else ""
    combined = "np.sqrt((np.abs(space) ** 2).sum(1))" if coils else "np.abs(space)"
    transform = f"""axes = (-2, -1)
    space = np.fft.ifft2(np.fft.ifftshift(kspace, axes), norm='ortho')
    image = np.fft.fftshift({combined}, axes)"""
    if not targets:
        code = f"""{imports}def image(kspace):
    {transform}
    return np.float32(image)
for path in {paths}:
    mask = np.asarray(ooc.open(path, 'mask'))     # the columns that were measured
    loader = ooc.open(path, 'kspace').map(image).batches(8)
    # images = model.predict(loader.to_tf())
"""
        return lines(code)[:-3]
    code = f"""
from collections import defaultdict
by_shape = defaultdict(list)
for path in {paths}:
    by_shape[ooc.open(path, 'kspace').shape[1:]].append(path)
def image(kspace, target):
    {transform}
    (h, w), (m, n) = image.shape[1:], target.shape[1:]
    return np.float32(image[:, (h - m) // 2:(h + m) // 2, (w - n) // 2:(w + n) // 2]), target
def slices(paths):
    both = ooc.zip(ooc.open(paths, 'kspace'), ooc.open(paths, {targets[0]!r}))
    return both.map(image)
train = ooc.concat([slices(paths) for paths in by_shape.values()])
"""
    return lines(imports + code.lstrip())


def ome(listing: Listing) -> Layout:
    """Recognise OME-Zarr by `multiscales`, version 0.4 or 0.5, and its first label."""
    listing.root("zarr")
    key, axes, levels = _multiscale(listing, "")
    shape, rows, patch, sizes = _image(listing, key, axes)
    label = _label(listing, axes, shape)
    code = f"path = {listing.target}\nimage = ooc.open(path, {key!r}, axis={rows})"
    code += f"     # level {key} of {levels}\n"
    if not label:
        code += f"train = image.patches({patch}, per_row=8)"
        batch = "x"
    else:
        batch = "x, y"
        code += f"""label = ooc.open(path, {label!r}, axis={rows})
train = ooc.zip(image, label).patches({patch}, per_row=8)     # the same places in both
"""
    summary = f"{sizes}, {levels} levels, {'with labels' if label else 'without labels'}"
    return Layout("OME-Zarr", summary, lines(code, batch), (key, *[label] * bool(label)))


def ome_plate(listing: Listing) -> Layout:
    """Recognise a plate of OME-Zarr: images (fields) of wells, each a `multiscales`."""
    listing.root("zarr")
    wells = [str(well["path"]) for well in _ome_attributes(listing, "")["plate"]["wells"]]
    fields = [str(image["path"]) for image in _ome_attributes(listing, wells[0])["well"]["images"]]
    first = f"{wells[0]}/{fields[0]}"
    key, axes, levels = _multiscale(listing, first)
    _, rows, patch, sizes = _image(listing, key, axes)
    level = key.removeprefix(f"{first}/")
    pattern = f"*/*/*/{level}"
    code = f"""
fields = ooc.open({listing.target}, {pattern!r}, axis={rows})     # level {level} of {levels}
train = fields.patches({patch}, per_row=8)     # fields.parts.names: row/column/field of each
"""
    summary = f"{len(wells):,} wells, the first of {len(fields):,} fields of {sizes}"
    return Layout("OME-Zarr plate", summary, lines(code, "x"), (key,), pattern)


def _image(listing: Listing, key: str, axes: list[str]) -> tuple[Any, Any, Any, str]:
    """Return an image's shape, its sample axes (None: it is one row), a patch, and its sizes."""
    shape = listing.array(key).shape
    expect(len(axes) == len(shape) and axes[-2:] == ["y", "x"])
    rows = tuple(axis for axis, name in enumerate(axes[:-2]) if name != "c")
    patch = tuple(min(_PATCH, length) for length in shape[-2:])
    sizes = " × ".join(f"{length:,} {name}" for name, length in zip(axes, shape, strict=True))
    return shape, rows or None, patch, sizes


def _label(listing: Listing, axes: list[str], shape: tuple[int, ...]) -> str:
    """Return the key of the first label, if it has the shape of the image without channels."""
    try:
        name = _ome_attributes(listing, "labels")["labels"][0]
        key, label_axes, _ = _multiscale(listing, f"labels/{name}")
        lengths = zip(axes, listing.array(key).shape, shape, strict=True)
        fits = label_axes == axes and all(axis == "c" or n == length for axis, n, length in lengths)
    except (LookupError, TypeError, ValueError):  # there is no label
        return ""
    return key if fits else ""


def _ome_attributes(listing: Listing, group: str) -> Mapping[str, Any]:
    """Return the OME attributes of a group, which version 0.5 stores under ``ome``."""
    attributes = listing.attributes(group)
    inner = attributes.get("ome")
    return inner if isinstance(inner, dict) else attributes


def _multiscale(listing: Listing, group: str) -> tuple[str, list[str], int]:
    """Return the key of the finest level, the names of the axes, and the number of levels."""
    first = _ome_attributes(listing, group)["multiscales"][0]
    axes = [str(axis["name"]) for axis in first["axes"]]
    paths = [str(level["path"]) for level in first["datasets"]]
    return f"{group}/{paths[0]}".lstrip("/"), axes, len(paths)


def dlio(listing: Listing) -> Layout:
    """Recognise files of one sample: `x` (H, W, 1) and `y` in ``.npz``, `records` in HDF5.

    A ``.npy`` has the sample alone, (H, W, 1).
    """
    if listing.kind == "npy":
        sample = listing.array("")
        height, width, last = sample.shape
        expect(listing.files > 1 and sample.dtype == "u1" and last == 1 < min(height, width))
        code = f"images = ooc.open({listing.target}, axis=None)     # each file is one element\n"
        code_lines = lines(code + split("images", listing.files), "x")
        summary = f"{listing.count_text}{height} × {width}"
        return Layout("One sample per file, as DLIO", summary, code_lines, ("",), axis=None)
    names = sorted(listing.root("npz", "hdf5", many_files=True))
    data, label = ("x", "y") if names == ["x", "y"] else ("records", "labels")
    images, labels = listing.array(data), listing.array(label)
    (first, _, last), (samples,) = images.shape, labels.shape
    expect(names == sorted((data, label)) and images.dtype == "u1")
    expect(samples == last == 1 if data == "x" else samples == first)
    count = listing.files * samples
    code = f"target = {listing.target}\n"
    if data == "x":
        code += """images = ooc.open(target, 'x', axis=None)
labels = ooc.open(target, 'y')     # one sample per file
"""
    else:
        code += "images, labels = ooc.open(target, 'records'), ooc.open(target, 'labels')\n"
    code += split("ooc.zip(images, labels)", count)
    summary = f"{listing.count_text}{samples} sample{'s' * (samples > 1)}"
    return Layout("One sample per file, as DLIO", summary, lines(code), (data, label))


PICTURES = (moving_mnist, anndata, pcam, fastmri, ome, ome_plate, dlio)
