"""``python -m benchmarks``: every way on one array, interleaved, with memory."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.case import QUICK, WORK_A, Case
from benchmarks.ways import WAYS


class Worker:
    """The process of one way."""

    def __init__(self, way: str, case: Case, path: Path) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the process
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", way, json.dumps(asdict(case)), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | quiet,
        )
        self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise SystemExit(f"{self.errors.read()}\na way died: {self.process.args!r}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def epoch(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(case: Case, path: Path, rounds: int, ways: list[str]) -> list[dict[str, Any]]:
    """Return the figures of each way: medians over interleaved rounds."""
    with open(path, "rb") as file:  # warm: the same pages for everyone
        while file.read(64 << 20):
            pass
    workers = {way: Worker(way, case, path) for way in ways}
    answers: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways:
            answer = workers[way].epoch()
            kept = "warm-up" if number == 0 else f"round {number}/{rounds}"
            rate = case.pairs / answer["seconds"]
            print(f"{kept:>10}  {way:<26}{rate:>12,.0f} elements/s", file=sys.stderr, flush=True)
            answers[way].append(answer)
    for worker in workers.values():
        worker.stop()
    figures = []
    for way in ways:
        rates = [case.pairs / answer["seconds"] for answer in answers[way][1:]]
        figures.append(
            {
                "way": way,
                "elements_per_second": statistics.median(rates),
                "lowest": min(rates),
                "highest": max(rates),
                "first_batch_ms": 1000 * answers[way][0]["first_batch"],
                "resident_growth_mib": max(answer["growth"] for answer in answers[way]) / 2**20,
            }
        )
    return figures


def table(case: Case, figures: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown, with ratios to from_generator."""
    base = next((f for f in figures if f["way"] == "from_generator"), figures[0])
    lines = [
        (
            f"Shuffled next-frame pairs of `{case.rows} × {case.element} {case.dtype}` "
            f"({case.rows * case.row_bytes / 1e9:.1f} GB `.npy`), batch {case.batch}, warm cache; "
            f"{os.cpu_count()} cores, Python {platform.python_version()}."
        ),
        "",
        f"| way | elements/s | × {base['way']} | memory growth |",
        "|---|---:|---:|---:|",
    ]
    for f in figures:
        ratio = f["elements_per_second"] / base["elements_per_second"]
        lines.append(
            f"| {f['way']} | {f['elements_per_second']:,.0f} | {ratio:.1f} "
            f"| {f['resident_growth_mib']:,.0f} MiB |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    parser.add_argument("--rounds", type=int, default=None, help="counted rounds (default 5)")
    parser.add_argument("--folder", type=Path, default=None, help="where the array is written")
    parser.add_argument("--json", type=Path, default=None, help="write the figures here too")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="only these")
    options = parser.parse_args()
    case = QUICK if options.quick else WORK_A
    rounds = options.rounds or (1 if options.quick else 5)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = case.write(Path(folder))
        figures = measure(case, path, rounds, options.way or list(WAYS))
    print(table(case, figures))
    if options.json:
        options.json.write_text(json.dumps({"case": asdict(case), "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
