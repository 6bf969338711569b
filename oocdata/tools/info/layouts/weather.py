"""Recognise layouts of weather data: ARCO-ERA5, anemoi, Makani and physicsnemo, SEVIR."""

from __future__ import annotations

import re

from oocdata.tools.info.layouts.layout import Layout, Listing, expect, lines, listed, split

_LEVELS = ("level", "hybrid")
_SENSORS = ("vis", "ir069", "ir107", "vil")
_FIRST = (
    *("geopotential", "temperature", "u_component_of_wind", "specific_humidity"),
    *("2m_temperature", "mean_sea_level_pressure", "land_sea_mask"),
)
_MOST_INSPECTED = 24
"""Variables to inspect among some hundred; the usual ones come first."""


def arco(listing: Listing) -> Layout:
    """Recognise variables (time, level, …) and (time, …) on one grid, by their dimensions."""
    names = listing.root("zarr")
    expect("time" in names)
    (level,) = {*_LEVELS} & {*names}
    data = [*_FIRST, *names][:_MOST_INSPECTED]
    arrays = {
        name: array
        for name, array in listing.arrays("", dict.fromkeys(data)).items()
        if array.dtype.kind == "f" or "scale_factor" in listing.attributes(name)
    }
    over = {name: array.dimensions for name, array in arrays.items()}
    air = [name for name, dims in over.items() if dims[:2] == ("time", level) and dims[2:]]
    time, _, *shape = arrays[air[0]].shape
    space = over[air[0]][2:]
    ground = [name for name, dims in over.items() if dims == ("time", *space)]
    fixed = [name for name, dims in over.items() if dims == space and len(space) == 2]
    expect(time > 2 and all(over[name][2:] == space for name in air))
    expect(all([*arrays[name].shape[-len(space) :]] == shape for name in (*air, *ground, *fixed)))
    is_packed = any(arrays[name].dtype.kind in "iu" for name in (*air, *ground))
    decode = ", decode=True" if is_packed else ""
    code = f"""
path = {listing.target}
{listed("keys", air[:3])}
air = [ooc.open(path, key, axis='time'{decode}) for key in keys]     # each ({level}, space…)
"""
    parts = "*air"
    if ground:
        code += f"{listed('keys', ground[:2])}\n"
        constants = "".join(f", np.asarray(ooc.open(path, {name!r}))" for name in fixed[:1])
        code += f"""ground = [ooc.open(path, key, axis='time'{decode}) for key in keys]
surface = ooc.stack([*ground{constants}], axis=0)
"""
        parts += ", surface"
    known, select = _valid(listing)
    code += f"""fields = ooc.concatenate([{parts}], axis=0)     # channels first
{select}pairs = fields.windows((-1, 0), 1)     # two times in, the next one out
{split("pairs", time)}
"""
    summary = f"{time:,} times{known}, {len(names):,} arrays, such as {air[0]} by {level}"
    keys = (*air[:3], *ground[:2], *fixed[:1])
    return Layout("Weather by levels, as ARCO-ERA5", summary, lines(code), keys)


def _valid(listing: Listing) -> tuple[str, str]:
    """Return words on the times that ARCO-ERA5 has data of, and lines that leave out others.

    Not their number: `time` would have to be read, a million numbers.
    """
    attributes = listing.attributes("")
    first, last = (attributes.get(f"valid_time_{end}") for end in ("start", "stop"))
    if not (isinstance(first, str) and isinstance(last, str)):
        return "", ""
    code = f"""time = ooc.open(path, 'time', decode=True)
time = np.asarray(time, time.unit)
# valid_time_start, valid_time_stop: other times hold no data
first, last = np.datetime64({first!r}), np.datetime64({last!r}) + 1
fields = fields[np.searchsorted(time, first):np.searchsorted(time, last)]
"""
    return f", with data from {first} to {last}", code


def anemoi(listing: Listing) -> Layout:
    """Recognise `data` (dates, variables, ensembles, cells) with `dates` and names of variables."""
    expect("dates" in listing.root("zarr"))
    attributes = listing.attributes("")
    names, missing = attributes["variables"], attributes["missing_dates"]
    dates, variables, _, cells = listing.array("data").shape
    expect(isinstance(names, list) and isinstance(missing, list) and variables == len(names))
    code = f"""
import zarr
path = {listing.target}
group = zarr.open_group(path, mode='r')
dates, missing = group['dates'][:], group.attrs['missing_dates']
present = ~np.isin(dates, np.array(missing, dates.dtype))
lengths = ooc.episodes(time=dates[present], step=np.diff(dates[present]).min())
fields = ooc.open(path, 'data')[present]
pairs = fields.windows((-1, 0), 1, episodes=lengths)     # never across a missing date
"""
    summary = f"{dates:,} dates, {len(missing):,} of them missing"
    summary += f", {variables} variables × {cells:,} cells"
    return Layout("anemoi", summary, lines(code + split("pairs", dates)), ("data",))


def anemoi_forecasts(listing: Listing) -> Layout:
    """Recognise anemoi's trajectories: `data` (base dates, variables, ensembles, steps, cells)."""
    expect({"base_dates", "steps"} <= {*listing.root("zarr")})
    runs, variables, _, steps, cells = listing.array("data").shape
    expect(len(listing.attributes("")["variables"]) == variables)
    expect(listing.array("base_dates").shape == (runs,) and steps > 2)
    code = f"""
fields = ooc.open({listing.target}, 'data', axis=(0, 3))     # base date × step
pairs = fields.windows((-1, 0), 1)     # within a forecast
{split("pairs", runs)}     # whole forecasts
"""
    summary = f"{runs:,} base dates × {steps:,} steps, {variables} variables × {cells:,} cells"
    return Layout("anemoi forecasts", summary, lines(code), ("data",))


def makani(listing: Listing) -> Layout:
    """Recognise `fields` (T, C, lat, lon) with coordinates, and mostly `valid_data` (T, C)."""
    names = listing.root("hdf5", many_files=True)
    count, channels, _, _ = listing.array("fields").shape
    expect(listing.array("timestamp").shape == (count,))
    code = f"""
target = {listing.target}
fields = ooc.open(target, 'fields')
time = np.asarray(ooc.open(target, 'timestamp'))
"""
    if "valid_data" in names:  # years as one virtual dataset have none
        expect(listing.array("valid_data").shape == (count, channels))
        code += """valid = np.asarray(ooc.open(target, 'valid_data')).all(axis=1)
fields, time = fields[valid], time[valid]
"""
    else:
        expect({"channel", "lat", "lon"} <= {*names})
    code += f"""lengths = ooc.episodes(time=time, step=np.diff(time).min())
pairs = fields.windows((-1, 0), 1, episodes=lengths)
{split("pairs", count)}
"""
    summary = f"{listing.count_text}{count:,} times × {channels} channels"
    return Layout("Makani / physicsnemo", summary, lines(code), ("fields",))


def sevir(listing: Listing) -> Layout:
    """Recognise events (N, L, L, frames) of one sensor, time last, with an `id` for each."""
    (kind,) = {*listing.root("hdf5", many_files=True)} & {*_SENSORS}
    ids, (count, height, width, frames) = listing.array("id"), listing.array(kind).shape
    expect(ids.dtype.kind in "SO" and ids.shape == (count,) and height == width and frames > 1)
    inputs = min(13, frames // 2)
    targets = min(12, frames - inputs)
    code = f"""
frames = ooc.open({listing.target}, {kind!r}, axis=(0, 3))     # event × time
pairs = frames.windows({inputs}, {targets})
{split("pairs", count * listing.files)}     # whole events
"""
    summary = f"{listing.count_text}{count:,} events × {frames} frames of {kind}"
    return Layout("SEVIR", summary, lines(code), (kind,))


def sevir_lightning(listing: Listing) -> Layout:
    """Recognise tables of flashes (N, 5), each under the id of its event."""
    events = listing.root("hdf5", many_files=True)
    expect(events and all(re.fullmatch(r"[RS]\d{6,}", event) for event in events))
    flashes = listing.array(events[0])
    expect(flashes.dtype.kind == "f" and flashes.shape[1:] == (5,))
    code = f"""
flashes = ooc.open({listing.target}, '*', axis=None)     # (flashes, 5) of each event
ids = [name.rpartition('/')[2] for name in flashes.parts.names]     # of the other sensors too
{split("flashes", len(events) * listing.files)}
"""
    summary = f"{listing.count_text}{len(events):,} events"
    return Layout("SEVIR lightning", summary, lines(code, "x"), ("*",), axis=None)


WEATHER = (arco, anemoi, anemoi_forecasts, makani, sevir, sevir_lightning)
