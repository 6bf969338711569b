"""``python -m benchmarks.layouts``: public layouts, ours beside the loops of their makers.

Files are written once, and kept in the folder that is named. Layouts run one after the other, the
ways of each in processes of their own that take turns; at the end each delivers an epoch that is
compared, element by element, with the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.check import Check, check
from benchmarks.layouts.layout import Layout, LayoutCase, prepare
from benchmarks.layouts.table import LAYOUTS
from benchmarks.layouts.ways import BESIDE, LIMIT, MAKERS, OURS
from benchmarks.machine import machine
from benchmarks.report import as_json
from benchmarks.results import Figure, Results, ratio
from benchmarks.rounds import Plan, run
from benchmarks.section import Section
from benchmarks.ways import WAYS
from oocdata.tools.demo.data import workspace

__all__ = ["main", "quick"]

_QUICK_BYTES = 200_000
_BEGIN, _END = "<!-- layouts: begin -->", "<!-- layouts: end -->"
_PEERS = ("scDataset", "annbatch, its own Zarr")

NOTES = """\
Shuffled batches, all bytes in the page cache; medians of rounds that take turns, each way in a
process of its own. Times: the median of each round's ratio. Limit: two
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
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table between its marks")
    parser.add_argument("--write", action="store_true", help="write the files, measure nothing")
    parser.add_argument("--quick", action="store_true", help="tiny files, one epoch, no processes")
    return parser.parse_args(arguments)


def quick(
    layout: Layout, folder: Path, ways: tuple[str, ...] = (OURS, BESIDE, *MAKERS, LIMIT)
) -> dict[str, Check]:
    """Let ways deliver an epoch of a tiny file, in this process, and look at it."""
    case = prepare(layout, folder, _QUICK_BYTES)
    found = {}
    for way in map(WAYS.__getitem__, ways):
        if not way.missing and way.applies(case):
            made = way.make(case, folder / case.file_name)
            if way.kind == "limit":
                assert sum(made) == case.elements
            else:
                found[way.name] = check(case, made, 60)
    return found


def _section(layout: Layout, case: LayoutCase) -> Section:
    names = (OURS, BESIDE, *MAKERS, *_PEERS, LIMIT)
    ways = [name for name in names if WAYS[name].applies(case)]
    if not WAYS["maker's loop, PyTorch"].missing and "maker's loop" in ways:
        ways.remove("maker's loop")  # the same in a generator
    return Section(
        layout.name,
        layout.title,
        (case,),
        tuple(ways),
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _table(measured: list[tuple[Section, Results]]) -> str:
    """Return a row for each loader that was measured beside ours, and what the layouts are."""
    heads = (
        *("layout", "beside", "oocdata, elements/s", "it", "times", "of the limit"),
        *("memory, MiB (bound)", "its memory"),
    )
    lines = [_row(*heads), _row("---", "---", *["---:"] * 6)]
    told = []
    for section, results in measured:
        layout, case = LAYOUTS[section.name], section.cases[0]
        ours = next(figure for figure in results if figure.way == OURS)
        lines += [
            _row(layout.name, *_beside(results, ours, figure))
            for figure in results
            if figure.kind == "peer"
        ]
        size = f"{case.elements:,} elements of {case.element_bytes:,} bytes, batch {case.batch}"
        told.append(f"- **{layout.name}**: {layout.title}; {size}. {layout.source}.")
    return "\n".join([*lines, "", "What they are, and where the makers' loops are:", "", *told])


def _beside(results: Results, ours: Figure, figure: Figure) -> tuple[str, ...]:
    times, of_limit = ratio(ours, figure), ratio(ours, results.limit(figure.case))
    return (
        figure.way,
        f"{ours.rate:,.0f}" if ours.rates else ours.status,
        f"{figure.rate:,.0f}" if figure.rates else figure.status,
        "" if times is None else f"{times:.2g}",
        "" if of_limit is None else f"{of_limit:.2f}",
        f"{ours.growth / 2**20:,.0f} ({(ours.bound or 0) / 2**20:,.0f})",
        f"{figure.growth / 2**20:,.0f}",
    )


def _quickly(layouts: list[Layout]) -> int:
    wrong = 0
    with workspace() as folder:
        for layout in layouts:
            for name, looked in quick(layout, folder).items():
                wrong += not looked.sound
                print(f"{layout.name}: {name}: {looked if not looked.sound else looked.elements}")
    return bool(wrong)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a way failed."""
    options = _options(arguments)
    layouts = [LAYOUTS[name] for name in options.only or LAYOUTS]
    if options.quick:
        return _quickly(layouts)
    plan = Plan(options.rounds, options.seconds, check_seconds=2 * options.seconds)
    measured = []
    with workspace() as own:
        folder = options.folder or own
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
    if options.into:
        page = options.into.read_text(encoding="utf-8")
        before, _, rest = page.partition(_BEGIN)
        after = rest.partition(_END)[2]
        options.into.write_text(f"{before}{_BEGIN}\n{text}{_END}{after}", encoding="utf-8")
    failed = [f for _, results in measured for f in results if f.status.startswith("failed")]
    for figure in failed:
        print(f"{figure.case}: {figure.label}: {figure.status}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
