"""Simulations: The Well, and PDEBench's four ways."""

from __future__ import annotations

from typing import Any

from oocdata.tools.info.layouts.layout import Layout, Recogniser, lines, listed, split
from oocdata.tools.info.layouts.listing import Array, Listing

__all__ = ["SIMULATIONS"]

_FEWEST_STEPS = 3


def well(listing: Listing) -> Layout | None:
    """Recognise ``t0_fields`` and ``t1_fields`` (trajectory, time, space…[, D]) by attributes."""
    if not {"t0_fields", "t1_fields"} <= set(listing.root("hdf5")):
        return None
    told = listing.attributes("")
    if not {"n_trajectories", "n_spatial_dims"} <= set(told):
        return None
    ndim = 2 + int(told["n_spatial_dims"])
    scalars, vectors = (_varying(listing, f"t{order}_fields", ndim + order) for order in (0, 1))
    every = {**scalars, **vectors}
    if len({one.shape[:ndim] for one in every.values()}) != 1:
        return None
    count, steps = next(iter(every.values())).shape[:2]
    inputs = min(4, steps - 1)
    if inputs < 1:
        return None
    code = f"target = {listing.target}\n"
    parts = []
    if scalars:
        code += f"""{listed("keys", scalars)}
scalars = ooc.stack([ooc.open(target, key, axis=(0, 1)) for key in keys])
"""
        parts.append("scalars")
    for number, key in enumerate(vectors):
        code += f"vector_{number} = ooc.open(target, {key!r}, axis=(0, 1))\n"
        parts.append(f"vector_{number}")
    code += f"""fields = ooc.concatenate([{", ".join(parts)}])     # channels last
train = fields.windows({inputs}, 1)     # within a trajectory; data/valid/*.hdf5 is for validation
"""
    summary = f"{listing.several}{count:,} trajectories × {steps:,} steps, {len(every)} fields"
    return Layout("The Well", summary, lines(code), tuple(every))


def _varying(listing: Listing, group: str, ndim: int) -> dict[str, Array]:
    """Return the fields of a group that vary along every axis: trajectory, time, space."""
    found = {}
    for name, array in listing.arrays(group).items():
        told = listing.attributes(f"{group}/{name}")
        varies = [told.get("sample_varying", True), told.get("time_varying", True)]
        if len(array.shape) == ndim and all(map(bool, varies)):
            found[f"{group}/{name}"] = array
    return found


def flow(listing: Listing) -> Layout | None:
    """Recognise PDEBench's compressible flow: variables (N, T, X[, Y[, Z]]) and coordinates."""
    wanted = ["density", "pressure", "Vx", "Vy", "Vz"]
    names = listing.root("hdf5")
    keys = [name for name in wanted if name in names]
    if "Vx" not in keys or not {"x-coordinate", "t-coordinate"} <= {*names}:
        return None
    arrays = listing.arrays("", keys)
    shapes = {one.shape for one in arrays.values()}
    if len(shapes) != 1 or len(arrays) != len(keys) or len(arrays["Vx"].shape) < _FEWEST_STEPS:
        return None
    shape = arrays["Vx"].shape
    code = f"""
path = {listing.target}
{listed("keys", keys)}
runs = ooc.stack([ooc.open(path, key) for key in keys])     # (time, space…, channels)
"""
    return _runs(listing, "compressible flow", shape, code, "runs", tuple(keys))


def tensor(listing: Listing) -> Layout | None:
    """Recognise PDEBench's `tensor` (N, T, X); with `nu` it is Darcy flow."""
    names = listing.root("hdf5")
    found = listing.array("tensor") if {"tensor", "x-coordinate"} <= {*names} else None
    if found is None or len(found.shape) < _FEWEST_STEPS:
        return None
    path = f"path = {listing.target}\n"
    other = listing.array("nu")
    if other is None:
        code = path + "runs = ooc.open(path, 'tensor')     # (time, space…)"
        return _runs(listing, "one variable", found.shape, code, "runs", ("tensor",))
    if other.shape != (found.shape[0], *found.shape[2:]):
        return None
    code = f"""{path}pairs = ooc.zip(ooc.open(path, 'nu'), ooc.open(path, 'tensor')[:, 0])
{split("pairs", found.shape[0])}
"""
    summary = f"Darcy flow, {found.shape[0]:,} samples"
    return Layout("PDEBench", summary, lines(code), ("tensor", "nu"))


def seeds(listing: Listing) -> Layout | None:
    """Recognise PDEBench's groups ``0000``, ``0001``, …: `data` (T, X, Y, V); opens the first."""
    names = listing.root("hdf5")
    if listing.files > 1 or not names or not all(len(n) == 4 and n.isdecimal() for n in names):
        return None
    found = listing.array(f"{names[0]}/data")
    if found is None or len(found.shape) < _FEWEST_STEPS or not listing.below(f"{names[0]}/grid"):
        return None
    steps = found.shape[0]
    inputs = min(10, steps - 1)
    if inputs < 1:
        return None
    code = f"""
fields = ooc.open({listing.target}, '*/data')     # each group is an episode
pairs = fields.windows({inputs}, 1)
{split("pairs", len(names), ", by=fields.parts.numbers")}
"""
    summary = f"a group for each seed, {len(names):,} runs of {steps:,} steps"
    return Layout("PDEBench", summary, lines(code), (f"{names[0]}/data",), "*/data")


def incompressible(listing: Listing) -> Layout | None:
    """Recognise PDEBench's `velocity` and `particles` (B, T, X, Y, V) with `force` (B, X, Y, 2)."""
    keys = ["velocity", "particles", "force"]
    arrays = listing.arrays("", keys) if set(keys) <= {*listing.root("hdf5")} else {}
    if [len(one.shape) for one in arrays.values()] != [5, 5, 4]:
        return None
    count, steps, *space = arrays["velocity"].shape[:4]
    alike = arrays["particles"].shape[:4] == (count, steps, *space)
    if not alike or arrays["force"].shape[:3] != (count, *space) or steps <= 1:
        return None
    code = f"""
path = {listing.target}
moving = [ooc.open(path, key, axis=(0, 1)) for key in {keys[:2]}]
fields = ooc.concatenate([*moving, ooc.open(path, 'force')])     # channels last
pairs = fields.windows({min(10, steps - 1)}, 1)
{split("pairs", count)}
"""
    summary = f"incompressible flow, {listing.several}{count:,} runs × {steps:,} steps"
    return Layout("PDEBench", summary, lines(code), tuple(keys))


def _runs(
    listing: Listing, kind: str, shape: tuple[int, ...], code: str, name: str, keys: tuple[str, ...]
) -> Layout | None:
    """Return the layout of whole runs: the first steps in, all of them out, as PDEBench trains."""
    count, steps = shape[:2]
    first: Any = min(10, steps - 1)
    if first < 1:
        return None
    code = (
        code.strip("\n")
        + f"""
pairs = ooc.zip({name}[:, :{first}], {name}[:, {first}:])
{split("pairs", count)}
"""
    )
    return Layout(
        "PDEBench", f"{kind}, {listing.several}{count:,} runs × {steps:,} steps", lines(code), keys
    )


SIMULATIONS: tuple[Recogniser, ...] = (well, flow, tensor, seeds, incompressible)
