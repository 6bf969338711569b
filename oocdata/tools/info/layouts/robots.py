"""Robots: robomimic, ALOHA and ACT, D4RL."""

from __future__ import annotations

from oocdata.tools.info.layouts.layout import Layout, Recogniser, lines, listed, split
from oocdata.tools.info.layouts.listing import Listing

__all__ = ["ROBOTS"]


def robomimic(listing: Listing) -> Layout | None:
    """Recognise ``data/demo_<i>`` with actions and observations; opens the first demo alone."""
    demos = listing.below("data") if listing.kind == "hdf5" else []
    if listing.files > 1 or not demos or not all(name.startswith("demo_") for name in demos):
        return None
    first = f"data/{demos[0]}"
    observed = listing.arrays(f"{first}/obs")
    actions = listing.array(f"{first}/actions")
    if not observed or actions is None or len(actions.shape) != 2:
        return None
    total = listing.attributes("data").get("total")
    summary = f"{len(demos):,} demos" + ("" if total is None else f", {int(total):,} steps")
    keys = sorted(observed, key=lambda name: -observed[name].row_bytes)
    code = f"path = {listing.target}\n{listed('keys', keys)}"
    named = {"train", "valid"} <= set(listing.below("mask"))
    if named:
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


def aloha(listing: Listing) -> Layout | None:
    """Recognise an episode: `action`, ``observations/qpos``, ``observations/images/<camera>``."""
    names = listing.root("hdf5")
    if not {"action", "observations"} <= set(names):
        return None
    action, qpos = listing.array("action"), listing.array("observations/qpos")
    cameras = listing.arrays("observations/images")
    if action is None or qpos is None or not cameras or len(action.shape) != 2:
        return None
    steps, ndims = action.shape[0], {len(one.shape) for one in cameras.values()}
    if ndims not in ({4}, {2}) or any(one.shape[0] != steps for one in cameras.values()):
        return None
    several = listing.files > 1
    count = f"{listing.files:,} episodes" + ", the first of" * several if several else "an episode"
    summary = f"{count}{' ' if several else ' of '}{steps:,} steps, {len(cameras)} cameras"
    keys = [f"observations/images/{name}" for name in cameras]
    files = ", episodes='files'" if several else ""
    # JPEG streams are padded to another length in each episode.
    name, opened = "ALOHA / ACT", "{key: ooc.open(target, key) for key in cameras}"
    if ndims == {2}:
        name = "Mobile ALOHA (JPEG)"
        opened = "{key: ooc.open(target, key, pictures=ooc.Pictures()) for key in cameras}"
    code = f"""
target = {listing.target}
{listed("cameras", keys)}
obs = {opened}
obs['observations/qpos'] = ooc.open(target, 'observations/qpos')
actions = ooc.open(target, 'action')
steps = ooc.windows(obs, (actions, 100){files}, pad=True)
{split("steps", listing.files, ", by=actions.parts.numbers")}
"""
    arrays = (*keys[: 0 if ndims == {2} else None], "observations/qpos", "action")
    return Layout(name, summary, lines(code, "x, y, mask"), arrays)


def d4rl(listing: Listing) -> Layout | None:
    """Recognise flat arrays of steps: `observations`, `actions`, `rewards`, `terminals`."""
    wanted = ["observations", "actions", "rewards", "terminals"]
    names = listing.root("hdf5")
    if listing.files > 1 or not set(wanted) <= set(names):
        return None
    arrays = listing.arrays("", wanted)
    if len(arrays) != len(wanted) or len({one.shape[0] for one in arrays.values()}) != 1:
        return None
    steps = arrays["rewards"].shape[0]
    ends = "[done, ooc.open(path, 'timeouts')]" if "timeouts" in names else "done"
    code = f"""
path = {listing.target}
s, a, r, done = (ooc.open(path, key) for key in {wanted})
lengths = ooc.episodes(done={ends})
arrays = {{'s': s, 'a': a, 'r': r, 'done': done, 'next': (s, (1,))}}
steps = ooc.windows(arrays, episodes=lengths, time_axis=False)
{split("steps", steps)}
"""
    batch = lines(code, "batch")
    code_lines = (*batch[:-1], "# batch['s'], batch['a'], …: s′ never lies in another episode")
    return Layout("D4RL", f"{steps:,} steps", code_lines, tuple(wanted))


ROBOTS: tuple[Recogniser, ...] = (robomimic, aloha, d4rl)
