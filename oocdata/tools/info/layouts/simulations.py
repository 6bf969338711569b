"""Recognise layouts of simulations: The Well, and the five layouts of PDEBench."""

from __future__ import annotations

from collections.abc import Sequence

from oocdata.formats.tree import Array
from oocdata.tools.info.layouts.layout import Layout, Listing, expect, lines, listed, split


def well(listing: Listing) -> Layout:
    """Recognise ``t0_fields`` and ``t1_fields`` (trajectory, time, space…[, D]) by attributes."""
    expect({"t0_fields", "t1_fields"} <= set(listing.root("hdf5", many_files=True)))
    attributes = listing.attributes("")
    expect("n_trajectories" in attributes)
    ndim = 2 + int(attributes["n_spatial_dims"])
    scalars, vectors = (_varying(listing, f"t{order}_fields", ndim + order) for order in (0, 1))
    fields = {**scalars, **vectors}
    ((count, steps, *_),) = {field.shape[:ndim] for field in fields.values()}
    expect(steps > 1)
    code, parts = "", list[str]()
    if scalars:
        code += f"""{listed("keys", scalars)}
scalars = ooc.stack([ooc.open(target, key, axis=(0, 1)) for key in keys])
"""
        parts.append("scalars")
    for number, key in enumerate(vectors):
        code += f"vector_{number} = ooc.open(target, {key!r}, axis=(0, 1))\n"
        parts.append(f"vector_{number}")
    joined = f"ooc.concatenate([{', '.join(parts)}])"
    windows = f".windows({min(4, steps - 1)}, 1)"
    if listing.is_one_array(next(iter(fields)), axis=(0, 1)):  # trajectories of one length
        code = f"target = {listing.target}\n{code}fields = {joined}     # channels last\n"
        code += f"train = fields{windows}"
    else:
        body = "\n    ".join([*code.splitlines(), f"return {joined}     # channels last"])
        code = f"""
import glob
def fields(target):     # files differ in their steps
    {body}
paths = {listing.paths_code}
train = ooc.concat([fields(path){windows} for path in paths])
"""
    code = f"{code.rstrip()}     # within a trajectory; data/valid/*.hdf5 is for validation"
    summary = f"{listing.count_text}{count:,} trajectories × {steps:,} steps, {len(fields)} fields"
    return Layout("The Well", summary, lines(code), tuple(fields))


def _varying(listing: Listing, group: str, ndim: int) -> dict[str, Array]:
    """Return the fields of a group that vary along every axis: trajectory, time, space."""
    fields = {}
    for name, array in listing.arrays(group).items():
        attributes = listing.attributes(f"{group}/{name}")
        varies = [attributes.get("sample_varying", True), attributes.get("time_varying", True)]
        if len(array.shape) == ndim and all(map(bool, varies)):
            fields[f"{group}/{name}"] = array
    return fields


def flow(listing: Listing) -> Layout:
    """Recognise PDEBench's compressible flow: variables (N, T, X[, Y[, Z]]) and coordinates."""
    names = listing.root("hdf5", many_files=True)
    expect({"Vx", "x-coordinate", "t-coordinate"} <= set(names))
    keys = [name for name in ("density", "pressure", "Vx", "Vy", "Vz") if name in names]
    (shape,) = {listing.array(name).shape for name in keys}
    code = f"""
path = {listing.target}
{listed("keys", keys)}
runs = ooc.stack([ooc.open(path, key) for key in keys])     # (time, space…, channels)
"""
    return _runs(listing, "compressible flow", shape, code, keys)


def tensor(listing: Listing) -> Layout:
    """Recognise PDEBench's `tensor` (N, T, X); with `nu`, Darcy flow."""
    names = listing.root("hdf5", many_files=True)
    expect("x-coordinate" in names)
    shape = listing.array("tensor").shape
    path = f"path = {listing.target}\n"
    if "nu" not in names:
        code = path + "runs = ooc.open(path, 'tensor')     # (time, space…)\n"
        return _runs(listing, "one variable", shape, code, ["tensor"])
    count, _, *space = shape
    expect(listing.array("nu").shape == (count, *space))
    code = f"""{path}pairs = ooc.zip(ooc.open(path, 'nu'), ooc.open(path, 'tensor')[:, 0])
{split("pairs", count)}
"""
    return Layout("PDEBench", f"Darcy flow, {count:,} samples", lines(code), ("tensor", "nu"))


def _runs(
    listing: Listing, kind: str, shape: tuple[int, ...], code: str, keys: Sequence[str]
) -> Layout:
    """Return the layout of whole runs: the first steps are inputs, the others targets."""
    count, steps, *space = shape
    expect(space and steps > 1)
    first = min(10, steps - 1)
    code += f"pairs = ooc.zip(runs[:, :{first}], runs[:, {first}:])\n{split('pairs', count)}\n"
    summary = f"{kind}, {listing.count_text}{count:,} runs × {steps:,} steps"
    return Layout("PDEBench", summary, lines(code), tuple(keys))


def seeds(listing: Listing) -> Layout:
    """Recognise PDEBench's groups ``0000``, ``0001``, …: `data` (T, X, Y, V); open the first."""
    names = listing.root("hdf5")
    expect(names and all(len(name) == 4 and name.isdecimal() for name in names))
    steps, _, *others = listing.array(f"{names[0]}/data").shape
    expect(others and steps > 1 and listing.below(f"{names[0]}/grid"))
    code = f"""
fields = ooc.open({listing.target}, '*/data')     # each group is an episode
pairs = fields.windows({min(10, steps - 1)}, 1)
{split("pairs", len(names), ", by=fields.parts.numbers")}
"""
    summary = f"a group for each seed, {len(names):,} runs of {steps:,} steps"
    return Layout("PDEBench", summary, lines(code), (f"{names[0]}/data",), "*/data")


def incompressible(listing: Listing) -> Layout:
    """Recognise PDEBench's `velocity` and `particles` (B, T, X, Y, V) with `force` (B, X, Y, 2)."""
    keys = ["velocity", "particles", "force"]
    listing.root("hdf5", many_files=True)
    velocity, particles, force = (listing.array(key).shape for key in keys)
    count, steps, *space, _ = velocity
    expect(len(space) == 2 and steps > 1 and len(particles) == 5 and len(force) == 4)
    expect(particles[:4] == velocity[:4] and force[:3] == (count, *space))
    code = f"""
path = {listing.target}
moving = [ooc.open(path, key, axis=(0, 1)) for key in {keys[:2]}]
fields = ooc.concatenate([*moving, ooc.open(path, 'force')])     # channels last
pairs = fields.windows({min(10, steps - 1)}, 1)
"""
    summary = f"incompressible flow, {listing.count_text}{count:,} runs × {steps:,} steps"
    return Layout("PDEBench", summary, lines(code + split("pairs", count)), tuple(keys))


SIMULATIONS = (well, flow, tensor, seeds, incompressible)
