"""Runs a section: a process for each way, rounds that take turns, a last pass that looks.

Every round asks each way for one epoch, or for as much of it as some seconds give. In a cold case
each round has a process of its own, begun after the file was dropped from the page cache: pages
that another process has mapped can't be dropped.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.files import can_evict, evict, warm, write
from benchmarks.results import Figure, Results
from benchmarks.section import Section
from benchmarks.ways import Way

__all__ = ["Plan", "Process", "run"]

_CHECK_SECONDS = 20.0
_STARTED_TOGETHER = 3
_WITHOUT_END = 3600.0  # seconds; what takes longer hangs
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONWARNINGS": "ignore",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes
    ----------
    rounds : int
        Counted ones; a warm-up round comes first.
    seconds : float
        What a way gets for its epoch in a round; one that has not delivered a quarter of it by then
        is stopped, after at least eight batches.
    ways : tuple of str
        Only these; empty for all.
    check_seconds : float
        The most that looking at what a way delivers may take.
    say : callable
        Gets a line of progress.
    """

    rounds: int
    seconds: float
    ways: tuple[str, ...] = ()
    check_seconds: float = _CHECK_SECONDS
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)


class WayFailedError(RuntimeError):
    """A way's process ended: its message is the last that it wrote."""


class Process:
    """The process of one way on one case."""

    def __init__(self, way: Way, case: Case, path: Path, *more: str) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the process
        case_text = json.dumps(dataclasses.asdict(case))
        self.process = subprocess.Popen(
            [way.interpreter, "-m", "benchmarks.worker", way.name, case_text, str(path), *more],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | _QUIET,
        )

    def answer(self) -> dict[str, Any]:
        """Wait for what it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            lines = [text for text in self.errors.read().splitlines() if text.strip()]
            raise WayFailedError(lines[-1] if lines else f"exit code {self.process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Let it do something, and wait until it is done."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # why it ended is in `answer`
        return self.answer()

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Turn:
    """One way on one case, through all rounds; its figures, one for each consumer."""

    def __init__(self, section: Section, case: Case, way: Way, plan: Plan) -> None:
        self.section, self.case, self.way, self.plan = section, case, way, plan
        consumers = ["loop", *(["graph"] if section.graph and way.tf_data else [])]
        self.figures = [Figure(case.name, way.name, way.kind, each) for each in consumers]
        self.path = Path()
        self.process: Process | None = None
        if way.missing:
            self.fail(f"not installed: {', '.join(way.missing)}")

    @property
    def runs(self) -> bool:
        return self.figures[0].status == "measured"

    @property
    def fresh(self) -> bool:
        """Whether each round has a process of its own."""
        return self.case.cache == "cold" or self.section.first_batch_only

    def fail(self, status: str) -> None:
        for figure in self.figures:
            figure.status = status
            figure.rates.clear()
        self.plan.say(f"{'':>10}  {self.case.name}: {self.way.name}: {status}")

    def tried(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do something, unless the way has failed; it may fail now."""
        if not self.runs:
            return
        try:
            work(*arguments)
        except WayFailedError as error:
            self.fail(f"failed: {error}")
            self.stop()

    def convert(self, folder: Path) -> None:
        """Write the case's file, and the way's own."""
        self.path = write(self.case, folder)
        if self.way.convert is None:
            return
        noted = folder / f"{self.case.file_name}.{self.way.convert.__module__}.{self.case.pairs}"
        if not noted.exists():
            self.plan.say(f"{'':>10}  {self.case.name}: {self.way.name}: converting")
            process = Process(self.way, self.case, self.path, "convert")
            noted.write_text(process.answer()["path"])
            process.stop()
        self.path = Path(noted.read_text())

    def start(self) -> None:
        self.process = Process(self.way, self.case, self.path)

    def ready(self) -> None:
        assert self.process is not None
        self.process.answer()

    def open(self) -> float:
        assert self.process is not None
        return float(self.process.ask("open")["seconds"])

    def round(self, number: int) -> None:
        """Measure one epoch for each consumer; round 0 warms up."""
        if self.fresh:
            self.start()
            self.ready()
        assert self.process is not None
        if self.case.cache == "cold":
            stayed = evict(self.path) if can_evict() else 1.0
            self.figures[0].evicted = min(self.figures[0].evicted, 1 - stayed)
        opened = self.open() if self.fresh or number == 0 else None
        for figure in self.figures:
            self.note(number, figure, opened)
        if self.fresh:
            self.stop()

    def seconds(self, number: int) -> float:
        """Return the most that a round may take."""
        if self.section.whole:
            return _WITHOUT_END
        if self.section.first_batch_only:
            return 0.0
        return min(self.plan.seconds, 1.0) if number == 0 and not self.fresh else self.plan.seconds

    def note(self, number: int, figure: Figure, opened: float | None) -> None:
        assert self.process is not None
        found = self.process.ask("epoch", seconds=self.seconds(number), consumer=figure.consumer)
        rate = found["elements"] / found["seconds"]
        figure.growth = max(figure.growth, found["growth"])
        if opened is not None and found["first_batch"] is not None:
            figure.first_batch.append(opened + found["first_batch"])
        if number:
            figure.rates.append(rate)
        when = f"round {number}/{self.plan.rounds}" if number else "warm-up"
        self.plan.say(f"{when:>10}  {self.case.name}: {figure.label:<34}{rate:>14,.0f} elements/s")

    def look(self) -> None:
        """Let it deliver an epoch that is looked at."""
        if self.fresh:
            self.start()
            self.ready()
            self.open()
        assert self.process is not None
        if self.way.kind != "limit":
            found = self.process.ask("check", seconds=self.plan.check_seconds)
            for figure in self.figures:
                # Not what grew meanwhile: of a layout, the fingerprints of all elements.
                figure.check = found
                figure.bound = self.process.ask("bound")["bound"]
                if not figure.sound:
                    figure.status = "failed: rows came twice or wrong"
        self.stop()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
            self.process = None


def run(section: Section, folder: Path, plan: Plan) -> Results:
    """Measure a section.

    Parameters
    ----------
    section : Section
    folder : Path
        Where the files are written, or found from a section before.
    plan : Plan

    Returns
    -------
    Results
        A figure for each way and consumer; a way that can't run has its reason as status.
    """
    entries = [
        (case, way) for case, way in section.entries() if not plan.ways or way.name in plan.ways
    ]
    turns = [Turn(section, case, way, plan) for case, way in entries]
    try:
        for turn in turns:
            turn.tried(turn.convert, folder)
        for path in {turn.path for turn in turns if turn.runs and turn.case.cache == "warm"}:
            if any(turn.case.stamped for turn in turns if turn.path == path):
                warm(path)  # in a sparse file there is nothing to be read
        _start(turns)
        for number in range(plan.rounds + 1):
            for turn in turns:
                turn.tried(turn.round, number)
        for turn in turns:
            turn.tried(turn.look)
    finally:
        for turn in turns:
            turn.stop()
    return Results(section.cases, [figure for turn in turns for figure in turn.figures])


def _start(turns: list[Turn]) -> None:
    """Start the processes that live through all rounds, a few at a time."""
    lasting = [turn for turn in turns if not turn.fresh]
    for first in range(0, len(lasting), _STARTED_TOGETHER):
        some = lasting[first : first + _STARTED_TOGETHER]
        for turn in some:
            turn.tried(turn.start)
        for turn in some:
            turn.tried(turn.ready)
