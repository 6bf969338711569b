"""``python -m benchmarks``: every case, every way that is installed, and the limits, in one run."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.picture import draw
from benchmarks.quick import QUICK
from benchmarks.report import as_json, head, section_table
from benchmarks.results import Results
from benchmarks.rounds import Plan, run
from benchmarks.section import Section
from benchmarks.sections import SECTIONS
from benchmarks.ways import WAYS
from oocdata.tools.demo.data import workspace

__all__ = ["main"]

_ROUNDS, _SECONDS = 5, 2.0
_QUICK_ROUNDS, _QUICK_SECONDS = 2, 0.5


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a subset, within two minutes")
    parser.add_argument("--case", action="append", metavar="NAME", help="only these sections")
    parser.add_argument("--way", action="append", metavar="NAME", help="only these ways")
    parser.add_argument("--rounds", type=int, help=f"counted rounds (default {_ROUNDS})")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"what a way gets for an epoch in a round (default {_SECONDS:g})",
    )
    parser.add_argument("--folder", type=Path, help="where the data is written, and removed again")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="write results.md, .json and .png there"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and ways, run nothing")
    options = parser.parse_args(arguments)
    for name, known in (("case", SECTIONS), ("way", WAYS)):
        for wanted in getattr(options, name) or []:
            if wanted not in known:
                parser.error(f"--{name} must be one of {', '.join(known)}; got {wanted!r}.")
    return options


def _list() -> None:
    for section in SECTIONS.values():
        quick = " (quick)" if section.name in QUICK else ""
        print(f"{section.name}{quick}: {section.title}")
    print()
    for way in WAYS.values():
        missing = f" (not installed: {', '.join(way.missing)})" if way.missing else ""
        print(f"{way.kind:>5}  {way.name}{missing}")


def _sections(options: argparse.Namespace) -> list[Section]:
    chosen = QUICK if options.quick else SECTIONS
    if options.case:
        # A case that --quick leaves out runs whole if it is named.
        return [chosen.get(name, SECTIONS[name]) for name in options.case]
    return list(chosen.values())


def _measure(sections: list[Section], plan: Plan, folder: Path) -> list[tuple[Section, Results]]:
    measured = []
    for place, section in enumerate(sections):
        results = run(section, folder, plan)
        print(f"\n{section_table(section, results)}", flush=True)
        measured.append((section, results))
        needed = {case.file_name for later in sections[place + 1 :] for case in later.cases}
        _remove(folder, needed)
    return measured


def _remove(folder: Path, needed: set[str]) -> None:
    """Remove files that no later section reads, with what was converted from them."""
    for path in folder.iterdir():
        if any(path.name.startswith(name) for name in needed):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for.

    Returns
    -------
    int
        1 if a way failed, else 0.
    """
    options = _options(arguments)
    if options.list:
        _list()
        return 0
    rounds = options.rounds or (_QUICK_ROUNDS if options.quick else _ROUNDS)
    seconds = options.seconds or (_QUICK_SECONDS if options.quick else _SECONDS)
    plan = Plan(rounds, seconds, tuple(options.way or ()), check_seconds=2 * seconds)
    with workspace(options.folder) as folder:
        measured = _measure(_sections(options), plan, folder)
    if options.output:
        _write(options.output, plan, measured)
    failed = [f for _, results in measured for f in results if f.status.startswith("failed")]
    for figure in failed:
        print(f"{figure.case}: {figure.label}: {figure.status}", file=sys.stderr)
    return bool(failed)


def _write(folder: Path, plan: Plan, measured: list[tuple[Section, Results]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    here = machine()
    parts = [head(here, plan.rounds, plan.seconds)]
    parts += [section_table(section, results) for section, results in measured]
    (folder / "results.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    found = as_json(here, plan.rounds, plan.seconds, measured)
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw(measured, folder / "results.png")


if __name__ == "__main__":
    raise SystemExit(main())
