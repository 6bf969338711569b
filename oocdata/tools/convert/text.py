"""A conversion in words: what will be done and why, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oocdata.explain import size
from oocdata.tools.lines import labelled
from oocdata.writers.codec import NONE

if TYPE_CHECKING:
    from oocdata.tools.convert.plan import Plan
    from oocdata.tools.convert.work import Conversion

__all__ = ["outcome_text", "plan_json", "plan_text"]


def plan_text(plan: Plan) -> str:
    """Return what will be done, and why, as aligned lines."""
    target = plan.target
    rows, element = target.shape[0], target.element
    what = f"{rows:,} rows of {element}" if element else f"{rows:,} numbers"
    stored = plan.view.storage
    key = f", dataset {stored.key}" if stored.key else ""
    fields = [
        (
            "from",
            f"{stored.path or 'memory'}{key}: {stored.format}, {stored.layout}"
            + (f", {stored.codec}" if stored.codec != "none" else ""),
        ),
        ("to", plan.placement.path + (f", dataset {target.key}" if target.key else "")),
        ("array", f"{what}, {target.dtype}, {size(plan.nbytes)}"),
        ("chunks", _chunks(plan)),
        ("codec", _codec(plan)),
        ("order", _order(plan)),
        ("memory", f"at most {size(plan.memory_bytes)}"),
        ("disk", _disk(plan)),
        ("carried", _carried(plan)),
    ]
    return "\n".join(labelled(label, text) for label, text in fields if text)


def outcome_text(done: Conversion) -> str:
    """Return what came of it, as aligned lines."""
    nbytes = done.plan.nbytes
    lines = []
    if done.resumed:
        lines.append(("resumed", "went on with what an earlier run had done"))
    elif done.anew:
        lines.append(("anew", f"an earlier run had begun, but {done.anew}"))
    share = f", {done.stored_bytes / nbytes:.0%} of its size in memory" if nbytes else ""
    rate = f", {size(nbytes / done.seconds)}/s" if done.seconds > 0 else ""
    if done.verified is False:
        rows = ", ".join(map(str, done.differing_rows))
        text = (
            f"the result differs from the source in rows {rows}, …; it was thrown away. Is the "
            "disk or the memory sound?"
        )
        lines.append(("DAMAGED", text))
    else:
        lines.append(("done", f"{size(done.stored_bytes)}{share}; {done.seconds:.1f} s{rate}"))
    if done.verified:
        lines.append(("verified", "read back, and the source again: every bit is the same"))
    return "\n".join(labelled(label, text) for label, text in lines)


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan, for ``json.dumps``."""
    target = plan.target
    return {
        "source": plan.view.storage.path,
        "key": plan.view.storage.key,
        "destination": plan.placement.path,
        "to_key": target.key,
        "format": target.format,
        "shape": list(target.shape),
        "dtype": str(target.dtype),
        "nbytes": plan.nbytes,
        "chunks": None if target.chunks is None else list(target.chunks),
        "shards": None if target.shards is None else list(target.shards),
        "chunks_why": _chunks(plan),
        "codec": str(target.codec),
        "codec_why": _codec(plan),
        "sampled": plan.sampled,
        "through_file": plan.steps.tiles is not None,
        "decodes_per_chunk": plan.steps.decodes,
        "memory_bytes": plan.memory_bytes,
        "disk_bytes": plan.disk_bytes,
        "attributes": [name for name, _ in target.attributes],
        "dimension_names": None if target.dimension_names is None else list(target.dimension_names),
        "lost": list(plan.carried.lost),
    }


def _chunks(plan: Plan) -> str:
    target = plan.target
    if target.chunks is None:
        return "none: each row lies by itself, and is read alone"
    if not plan.chosen_chunks:
        return target.storage
    rows = target.chunks[0]
    nbytes = target.row_bytes
    if target.chunks[1:] != tuple(max(1, length) for length in target.element):
        why = f"a row is {size(nbytes)}, too large for one chunk"
    elif rows == 1:
        why = f"a row ({size(nbytes)}) is a chunk, so that no other is decoded with it"
    else:
        why = (
            f"whole rows, {rows} together ({size(rows * nbytes)}): smaller chunks cost more each, "
            "larger ones decode more that a shuffled batch does not use"
        )
    shards = "; many chunks a file, for fewer files" if target.shards else ""
    return f"{target.storage}: {why}{shards}"


def _codec(plan: Plan) -> str:
    codec, share = plan.target.codec, plan.sampled
    if plan.target.format == "npy":
        return ""
    if share is None:
        return f"{codec}"
    saves = f"a sample comes down to {share:.0%}"
    if not plan.chosen_codec:
        return f"{codec}: {saves}"
    if codec == NONE:
        return f"none: {saves} of its size, which is not worth decoding"
    known = {"hdf5": "every HDF5 library reads it", "zarr": "every Zarr v3 library reads it"}
    return f"{codec}: {saves}; {known[plan.target.format]}. Uncompressed reads faster (codec none)"


def _order(plan: Plan) -> str:
    if plan.steps.tiles is None:
        times = plan.steps.decodes
        again = f", a stored chunk decoded {times:.2f} times" if times > 1.004 else ""
        count = plan.steps.blocks.count()
        rows = min(plan.steps.blocks.step[0], plan.target.shape[0])
        if plan.steps.blocks.step[1:] != plan.target.shape[1:]:
            return f"{count:,} boxes of up to {plan.steps.blocks.step}{again}"
        return f"{count:,} run{'s' if count != 1 else ''} of up to {rows:,} rows{again}"
    return (
        "stored across the rows: every stored chunk is read once, into a scratch file "
        f"({size(plan.nbytes)}) from which rows are put together"
    )


def _disk(plan: Plan) -> str:
    about = "about " if plan.sampled is not None and plan.target.codec != NONE else ""
    more = "".join(f", {size(nbytes)} for {what}" for nbytes, what in plan.more_disk)
    return f"{about}{size(plan.result_bytes)}{more}"


def _carried(plan: Plan) -> str:
    target = plan.target
    kept = []
    if target.attributes:
        kept.append(f"attributes {', '.join(name for name, _ in target.attributes)}")
    if target.dimension_names:
        names = ", ".join(name or "(none)" for name in target.dimension_names)
        kept.append(f"dimensions {names}")
    text = "; ".join(kept)
    if plan.carried.lost:
        place = {"npy": ".npy", "hdf5": "HDF5", "zarr": "Zarr"}[target.format]
        lost = ", ".join(plan.carried.lost)
        why = f"{place} has no place for it, or it is not true of the result"
        text += f"{'. ' if text else ''}NOT carried ({why}): {lost}"
        if {"scale_factor", "add_offset"} & set(plan.carried.lost):
            text += " (the numbers stay packed)"
    return text
