"""Robots: robomimic, ALOHA and ACT, D4RL."""

from __future__ import annotations

from oocdata.tools.info.layouts.layout import Layout, Listing, expect, lines, listed, split

__all__ = ["ROBOTS"]


def robomimic(listing: Listing) -> Layout:
    """Recognise ``data/demo_<i>`` with actions and observations; opens the first demo alone."""
    listing.root("hdf5")
    demos = listing.below("data")
    expect(demos and all(name.startswith("demo_") for name in demos))
    first = f"data/{demos[0]}"
    observed = listing.arrays(f"{first}/obs")
    expect(observed and len(listing.array(f"{first}/actions").shape) == 2)
    total = listing.attributes("data").get("total")
    summary = f"{len(demos):,} demos" + ("" if total is None else f", {int(total):,} steps")
    keys = sorted(observed, key=lambda name: -observed[name].row_bytes)
    code = f"path = {listing.target}\n{listed('keys', keys)}"
    if {"train", "valid"} <= set(listing.below("mask")):
        code += """
def steps(part):
    names = ooc.read_names(path, f'mask/{part}')
    obs = {key: ooc.open(path, f'data/demo_*/obs/{key}').named(names) for key in keys}
    actions = ooc.open(path, 'data/demo_*/actions').named(names)
    obs = {key: (view, (-1, 0)) for key, view in obs.items()}       # two frames
    return ooc.windows(obs, (actions, 16), pad=True)                # sixteen actions
train, val = steps('train'), steps('valid')
"""
    else:
        code += """
obs = {key: (ooc.open(path, f'data/demo_*/obs/{key}'), (-1, 0)) for key in keys}
actions = ooc.open(path, 'data/demo_*/actions')
steps = ooc.windows(obs, (actions, 16), pad=True)                   # sixteen actions
"""
        code += split("steps", len(demos), ", by=actions.parts.numbers")
    arrays = (*(f"{first}/obs/{key}" for key in keys), f"{first}/actions")
    whole = f"data/demo_*/obs/{keys[0]}"
    return Layout("robomimic", summary, lines(code, "x, y, mask"), arrays, whole)


def aloha(listing: Listing) -> Layout:
    """Recognise an episode: `action`, ``observations/qpos``, ``observations/images/<camera>``."""
    listing.root("hdf5", several=True)
    steps, _ = listing.array("action").shape
    listing.array("observations/qpos")
    cameras = listing.arrays("observations/images")
    ((length, ndim),) = {(one.shape[0], len(one.shape)) for one in cameras.values()}
    expect(length == steps and ndim in (2, 4))
    count, files = f"an episode of {steps:,} steps", ""
    if listing.files > 1:
        count = f"{listing.files:,} episodes, the first of {steps:,} steps"
        files = ", episodes='files'"
    keys = [f"observations/images/{name}" for name in cameras]
    # JPEG streams are padded to another length in each episode.
    jpeg = ndim == 2
    pictures = ", pictures=ooc.Pictures()" if jpeg else ""
    code = f"""
target = {listing.target}
{listed("cameras", keys)}
obs = {{key: ooc.open(target, key{pictures}) for key in cameras}}
obs['observations/qpos'] = ooc.open(target, 'observations/qpos')
actions = ooc.open(target, 'action')
steps = ooc.windows(obs, (actions, 100){files}, pad=True)
{split("steps", listing.files, ", by=actions.parts.numbers")}
"""
    arrays = (*([] if jpeg else keys), "observations/qpos", "action")
    name = "Mobile ALOHA (JPEG)" if jpeg else "ALOHA / ACT"
    return Layout(name, f"{count}, {len(cameras)} cameras", lines(code, "x, y, mask"), arrays)


def d4rl(listing: Listing) -> Layout:
    """Recognise flat arrays of steps: `observations`, `actions`, `rewards`, `terminals`."""
    wanted = ["observations", "actions", "rewards", "terminals"]
    names = listing.root("hdf5")
    (steps,) = {listing.array(name).shape[0] for name in wanted}
    ends = "[done, ooc.open(path, 'timeouts')]" if "timeouts" in names else "done"
    code = f"""
path = {listing.target}
s, a, r, done = (ooc.open(path, key) for key in {wanted})
lengths = ooc.episodes(done={ends})
arrays = {{'s': s, 'a': a, 'r': r, 'done': done, 'next': (s, (1,))}}
steps = ooc.windows(arrays, episodes=lengths, time_axis=False)
"""
    batch = lines(code + split("steps", steps), "batch")
    code_lines = (*batch[:-1], "# batch['s'], batch['a'], …: s′ never lies in another episode")
    return Layout("D4RL", f"{steps:,} steps", code_lines, tuple(wanted))


ROBOTS = (robomimic, aloha, d4rl)
