"""Weather and satellites: ARCO-ERA5, anemoi, Makani and physicsnemo, SEVIR."""

from __future__ import annotations

from oocdata.tools.info.layouts.layout import Layout, Recogniser, lines, listed, split
from oocdata.tools.info.layouts.listing import Listing

__all__ = ["WEATHER"]

_LEVELS = ("level", "hybrid")
_SENSORS = ("vis", "ir069", "ir107", "vil")
_FIRST = (
    *("geopotential", "temperature", "u_component_of_wind", "specific_humidity"),
    *("2m_temperature", "mean_sea_level_pressure", "land_sea_mask"),
)
_LOOKED_AT = 24
"""Of some hundred variables, so many are looked at for examples, the usual ones first."""


def arco(listing: Listing) -> Layout | None:
    """Recognise variables (time, level, …) beside (time, …) of one grid, by their dimensions."""
    names = listing.root("zarr")
    level = next((name for name in _LEVELS if name in names), None)
    if listing.files > 1 or level is None or "time" not in names:
        return None
    air: list[str] = []
    ground: list[str] = []
    fixed: list[str] = []
    shapes: set[tuple[int, ...]] = set()
    time = 0
    data = [name for name in names if name not in ("time", level, "latitude", "longitude")]
    data.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    for name, array in listing.arrays("", data[:_LOOKED_AT]).items():
        dims = array.dimensions
        space = tuple(one for one in dims if one not in ("time", level))
        if not space or array.dtype.kind != "f":
            continue
        kinds = {("time", level, *space): air, ("time", *space): ground, space: fixed}
        if dims not in kinds or (dims == space and len(space) != 2):
            continue
        kinds[dims].append(name)
        shapes.add(array.shape[-len(space) :])
        time = array.shape[0] if "time" in dims else time
    if not air or len(shapes) != 1 or time <= 2:
        return None
    code = f"""
path = {listing.target}
{listed("keys", air[:3])}
air = [ooc.open(path, key, axis='time') for key in keys]     # each ({level}, space…)
"""
    parts = "*air"
    if ground:
        code += f"{listed('keys', ground[:2])}\n"
        constants = "".join(f", ooc.constant(ooc.open(path, {name!r}))" for name in fixed[:1])
        code += f"""ground = [ooc.open(path, key, axis='time') for key in keys]
surface = ooc.stack([*ground{constants}], axis=0)
"""
        parts += ", surface"
    code += f"""fields = ooc.concatenate([{parts}], axis=0)     # channels first
pairs = fields.windows((-1, 0), 1)     # two hours in, the next one out
{split("pairs", time)}
"""
    summary = f"{time:,} times, {len(names):,} arrays, such as {air[0]} by {level}"
    keys = (*air[:3], *ground[:2], *fixed[:1])
    return Layout("Weather by levels, as ARCO-ERA5", summary, lines(code), keys)


def anemoi(listing: Listing) -> Layout | None:
    """Recognise `data` (dates, variables, ensembles, cells) with `dates` and names of variables."""
    if listing.files > 1 or not {"data", "dates"} <= set(listing.root("zarr")):
        return None
    told, data = listing.attributes(""), listing.array("data")
    names, missing = told.get("variables"), told.get("missing_dates")
    if not isinstance(names, list) or not isinstance(missing, list) or data is None:
        return None
    if len(data.shape) != 4 or data.shape[1] != len(names):
        return None
    code = f"""
import zarr
path = {listing.target}
group = zarr.open_group(path, mode='r')
dates, missing = group['dates'][:], group.attrs['missing_dates']
there = ~np.isin(dates, np.array(missing, dates.dtype))
lengths = ooc.episodes(time=dates[there], step=np.diff(dates[there]).min())
fields = ooc.open(path, 'data')[there]
pairs = fields.windows((-1, 0), 1, episodes=lengths)     # none over a missing date
{split("pairs", data.shape[0])}
"""
    summary = (
        f"{data.shape[0]:,} dates, {len(missing):,} of them missing, {len(names)} variables × "
        f"{data.shape[3]:,} cells"
    )
    return Layout("anemoi", summary, lines(code), ("data",))


def makani(listing: Listing) -> Layout | None:
    """Recognise `fields` (T, C, lat, lon) with the times or the names of channels beside them."""
    names = listing.root("hdf5")
    fields = listing.array("fields") if "fields" in names else None
    if fields is None or len(fields.shape) != 4 or not {"timestamp", "channel"} & {*names}:
        return None
    count, channels = fields.shape[:2]
    given = listing.arrays("", [one for one in ("timestamp", "valid_data") if one in names])
    code = f"target = {listing.target}\nfields = ooc.open(target, 'fields')\n"
    if "valid_data" in given and given["valid_data"].shape == (count, channels):
        code += "valid = np.asarray(ooc.open(target, 'valid_data')).all(axis=1)\n"
    else:
        code += "valid = np.ones(len(fields), bool)\n"
    episodes = ""
    if "timestamp" in given and given["timestamp"].shape == (count,):
        code += """time = np.asarray(ooc.open(target, 'timestamp'))[valid]
lengths = ooc.episodes(time=time, step=np.diff(time).min())
"""
        episodes = ", episodes=lengths"
    code += f"""pairs = fields[valid].windows((-1, 0), 1{episodes})
{split("pairs", count)}
"""
    summary = f"{listing.several}{count:,} times × {channels} channels"
    return Layout("Makani / physicsnemo", summary, lines(code), ("fields",))


def sevir(listing: Listing) -> Layout | None:
    """Recognise events (N, L, L, frames) of one sensor, time last, with an `id` for each."""
    names = listing.root("hdf5")
    kinds = [name for name in names if name in _SENSORS]
    if "id" not in names or len(kinds) != 1:
        return None
    ids, events = listing.array("id"), listing.array(kinds[0])
    if ids is None or events is None or len(events.shape) != 4 or ids.dtype.kind not in "SO":
        return None
    count, height, width, frames = events.shape
    if ids.shape != (count,) or height != width or frames < 2:
        return None
    inputs = min(13, frames // 2)
    targets = min(12, frames - inputs)
    code = f"""
frames = ooc.open({listing.target}, {kinds[0]!r}, axis=(0, 3))     # event × time
pairs = frames.windows({inputs}, {targets})
{split("pairs", count * listing.files)}     # whole events
"""
    summary = f"{listing.several}{count:,} events × {frames} frames of {kinds[0]}"
    return Layout("SEVIR", summary, lines(code), (kinds[0],))


WEATHER: tuple[Recogniser, ...] = (arco, anemoi, makani, sevir)
