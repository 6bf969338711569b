"""Recognise layouts of robot data: robomimic, ALOHA and ACT, D4RL."""

from __future__ import annotations

from oocdata.tools.info.layouts.layout import Layout, Listing, expect, lines, listed, split


def robomimic(listing: Listing) -> Layout:
    """Recognise ``data/demo_<i>`` with actions and observations; open only the first demo."""
    listing.root("hdf5")
    demos = listing.below("data")
    expect(demos and all(name.startswith("demo_") for name in demos))
    first = f"data/{demos[0]}"
    observations = listing.arrays(f"{first}/obs")
    expect(observations and len(listing.array(f"{first}/actions").shape) == 2)
    total = listing.attributes("data").get("total")
    summary = f"{len(demos):,} demos" + ("" if total is None else f", {int(total):,} steps")
    keys = sorted(observations, key=lambda name: -observations[name].row_bytes)
    code = f"path = {listing.target}\n{listed('keys', keys)}"
    if {"train", "valid"} <= set(listing.below("mask")):
        code += """
def steps(part):
    names = np.asarray(ooc.open(path, f'mask/{part}'))
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
    listing.root("hdf5", many_files=True)
    steps, _ = listing.array("action").shape
    listing.array("observations/qpos")
    cameras = listing.arrays("observations/images")
    ((length, ndim),) = {(images.shape[0], len(images.shape)) for images in cameras.values()}
    expect(length == steps and ndim in (2, 4))
    count, files = f"an episode of {steps:,} steps", ""
    if listing.files > 1:
        count = f"{listing.files:,} episodes, the first of {steps:,} steps"
        files = ", episodes='parts'"
    keys = [f"observations/images/{name}" for name in cameras]
    # JPEG streams are padded to a length that differs between episodes.
    is_jpeg = ndim == 2
    pictures = ", pictures=ooc.Pictures()" if is_jpeg else ""
    code = f"""
target = {listing.target}
{listed("cameras", keys)}
obs = {{key: ooc.open(target, key{pictures}) for key in cameras}}
obs['observations/qpos'] = ooc.open(target, 'observations/qpos')
actions = ooc.open(target, 'action')
steps = ooc.windows(obs, (actions, 100){files}, pad=True)
{split("steps", listing.files, ", by=actions.parts.numbers")}
"""
    arrays = (*([] if is_jpeg else keys), "observations/qpos", "action")
    name = "Mobile ALOHA (JPEG)" if is_jpeg else "ALOHA / ACT"
    seen = f"{len(cameras)} camera{'s' * (len(cameras) > 1)}"
    return Layout(name, f"{count}, {seen}", lines(code, "x, y, mask"), arrays)


def d4rl(listing: Listing) -> Layout:
    """Recognise flat arrays of steps: `observations`, `actions`, `rewards`, `terminals`."""
    keys = ["observations", "actions", "rewards", "terminals"]
    names = listing.root("hdf5")
    (steps,) = {listing.array(key).shape[0] for key in keys}
    ends = "[done, ooc.open(path, 'timeouts')]" if "timeouts" in names else "done"
    code = f"""
path = {listing.target}
s, a, r, done = (ooc.open(path, key) for key in {keys})
lengths = ooc.episodes(done={ends})
arrays = {{'s': s, 'a': a, 'r': r, 'done': done, 'next': (s, (1,))}}
steps = ooc.windows(arrays, episodes=lengths, pad=True, mask=False, time_axis=False)
ends = np.cumsum(lengths) - 1     # they have no next state: keep them only if done
keep = np.ones(len(s), bool)
keep[ends] = np.asarray(done)[ends]
steps = steps.filter(keep)
"""
    code_lines = lines(code + split("steps", steps), "batch")[:-1]
    code_lines += (
        "# batch['s'], batch['a'], …; batch['next'] is the next state, or s itself if done",
    )
    return Layout("D4RL", f"{steps:,} steps", code_lines, tuple(keys))


ROBOTS = (robomimic, aloha, d4rl)
