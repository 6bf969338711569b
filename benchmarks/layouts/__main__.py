"""``python -m benchmarks.layouts``: public layouts, ours beside the loops of their makers.

Files are written once, and kept in the folder that is named. Layouts run one after the other, the
ways of each in processes of their own that take turns; at the end each delivers an epoch that is
compared, element by element, with the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.check import check
from benchmarks.layouts.layout import Layout, LayoutCase, prepare
from benchmarks.layouts.table import LAYOUTS
from benchmarks.layouts.ways import BESIDE, LIMIT, MAKERS, OURS
from benchmarks.machine import machine
from benchmarks.report import as_json
from benchmarks.results import Figure, Results, ratio
from benchmarks.rounds import Plan, run
from benchmarks.section import Section, Target
from benchmarks.ways import WAYS

__all__ = ["main", "quick"]

_QUICK_BYTES = 200_000
_PEERS = ("scDataset", "annbatch, its own Zarr")

NOTES = """\
Shuffled batches, all bytes in the page cache; medians of rounds that take turns, each way in a
process of its own. Times: the median of each round's ratio, and what is asked for. Limit: two
threads that do nothing but decode each compressed chunk once and copy the bytes of every element
once. Memory: the most that the resident set grew over all rounds, libraries imported already,
beside the bound that `Loader.explain()` states. Every element that a way delivered in a last epoch
was compared with the file: its bytes, and that it came once."""


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layouts", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=LAYOUTS, help="these layouts")
    parser.add_argument("--folder", type=Path, help="where the files are kept; else removed again")
    parser.add_argument("--bytes", type=float, default=1e9, help="of each file, about (1e9)")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (3)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of a way in a round (1.5)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write layouts.md and .json")
    parser.add_argument("--write", action="store_true", help="write the files, measure nothing")
    parser.add_argument("--quick", action="store_true", help="tiny files, one epoch, no processes")
    return parser.parse_args(arguments)


def quick(layout: Layout, folder: Path) -> dict[str, Any]:
    """Let every way that is installed deliver an epoch of a tiny file, here, and look at it."""
    case = prepare(layout, folder, _QUICK_BYTES)
    found = {}
    for name in (OURS, BESIDE, *MAKERS, LIMIT):
        way = WAYS[name]
        if way.missing or not way.applies(case):
            continue
        made = way.make(case, folder / case.file_name)
        if way.kind == "limit":
            assert sum(made) == case.elements
            continue
        began = time.perf_counter()
        looked = check(case, made, 60)
        found[name] = (looked, case.elements / (time.perf_counter() - began))
    return {"case": case, "found": found}


def _section(layout: Layout, case: LayoutCase) -> Section:
    def times(results: Results) -> float | None:
        return ratio(results.find(OURS), _other(layout, results))

    names = (OURS, BESIDE, *MAKERS, *_PEERS, LIMIT)
    ways = [name for name in names if WAYS[name].applies(case)]
    if MAKERS[1] in ways and not WAYS[MAKERS[1]].missing:
        ways.remove(MAKERS[0])  # the same loop in a generator
    return Section(
        layout.name,
        layout.title,
        (case,),
        tuple(ways),
        (Target("times", layout.wanted, times),),
    )


def _other(layout: Layout, results: Results) -> Figure | None:
    return results.best((layout.than,) if layout.than else (*MAKERS, BESIDE))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _table(measured: list[tuple[Section, Results]]) -> str:
    heads = ("layout", "way", "elements/s", "MB/s", "times (asked)", "of the limit", "memory, MiB")
    lines = [_row(*heads), _row("---", "---", *["---:"] * 5)]
    for section, results in measured:
        layout, case = LAYOUTS[section.name], section.cases[0]
        lines += [_row(*_cells(layout, case, results, figure)) for figure in results]
    lines += ["", "What each layout is, and where its maker's loop is found:", ""]
    for section, _ in measured:
        layout, case = LAYOUTS[section.name], section.cases[0]
        size = f"{case.elements:,} elements of {case.element_bytes:,} bytes, batch {case.batch}"
        lines.append(f"- **{layout.name}**: {layout.title}; {size}. {layout.source}.")
    return "\n".join(lines)


def _cells(layout: Layout, case: Any, results: Results, figure: Figure) -> list[str]:
    ours = figure.way == OURS
    name = layout.name if ours else ""
    if not figure.rates:
        return [name, figure.way, figure.status, "", "", "", ""]
    times = ""
    if not ours and figure.kind != "limit":
        found = ratio(results.find(OURS), figure)
        asked = figure is _other(layout, results)
        times = f"{found:.2g} ({layout.wanted:g})" if asked else f"{found:.2g}"
    of_limit = ratio(figure, results.limit(case.name))
    memory = f"{figure.growth / 2**20:,.0f}"
    if figure.bound:
        memory += f" of {figure.bound / 2**20:,.0f}"
    if figure.kind == "limit":
        memory = ""
    rate = f"{figure.rate:,.0f}" if figure.rate >= 10 else f"{figure.rate:.2g}"
    share = "" if of_limit is None or figure.kind == "limit" else f"{of_limit:.2f}"
    amount = f"{figure.rate * case.element_bytes / 1e6:,.0f}"
    return [name, figure.way, rate, amount, times, share, memory]


def _quickly(layouts: list[Layout]) -> int:
    with tempfile.TemporaryDirectory(prefix="oocdata-") as folder:
        for layout in layouts:
            for name, (looked, rate) in quick(layout, Path(folder))["found"].items():
                once = "each once" if looked.sound else f"WRONG: {looked}"
                print(f"{layout.name}: {name}: {looked.elements}, {once}; {rate:,.0f}/s")
                if not looked.sound:
                    return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a way failed."""
    options = _options(arguments)
    layouts = [LAYOUTS[name] for name in options.only or LAYOUTS]
    if options.quick:
        return _quickly(layouts)
    plan = Plan(options.rounds, options.seconds, check_seconds=2 * options.seconds)
    measured = []
    with tempfile.TemporaryDirectory(prefix="oocdata-") as own:
        folder = options.folder or Path(own)
        for layout in layouts:
            case = prepare(layout, folder, int(options.bytes))
            if options.write:
                print(f"{layout.name}: {case.target}", flush=True)
                continue
            section = _section(layout, case)
            measured.append((section, run(section, folder, plan)))
    if options.write:
        return 0
    here = machine()
    where = f"{here['cpu']}, {here['cores']} cores, {here['kernel']}, Python {here['python']}."
    text = f"{where}\n{NOTES}\n\n{_table(measured)}\n"
    print(text)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "layouts.md").write_text(text, encoding="utf-8")
        found = as_json(here, plan.rounds, plan.seconds, measured)
        (options.output / "layouts.json").write_text(json.dumps(found, indent=1) + "\n")
    failed = [f for _, results in measured for f in results if f.status.startswith("failed")]
    for figure in failed:
        print(f"{figure.case}: {figure.label}: {figure.status}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
