"""What a way is: a function of a case and its file, and where it applies."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.case import Case

__all__ = ["WAYS", "Make", "Way", "everywhere", "way"]

Make = Callable[[Case, Path], Iterable[Any]]
"""Gets a case and its file; what it returns is iterated over once an epoch.

A batch is an array, a tensor, a pair or a dict of them. A limit yields numbers of elements.
"""


def everywhere(case: Case) -> bool:
    """Apply to every case."""
    return True


@dataclass(frozen=True, slots=True)
class Way:
    """One way to get batches.

    Attributes
    ----------
    name : str
    make : callable
        See `Make`.
    kind : str
        ``"ours"``, ``"peer"`` or ``"limit"``.
    packages : tuple of str
        Modules that it needs; all are imported before anything is measured.
    applies : callable
        Which cases it can read.
    tf_data : bool
        Whether `make` returns a ``tf.data.Dataset``.
    convert : callable or None
        Writes the case's rows into another format and returns that file, for `make` to read.
    bound : callable or None
        The bytes of memory that the way itself says it needs.
    python : str
        The environment variable that names an interpreter for it, if it needs another one.
    """

    name: str
    make: Make
    kind: str
    packages: tuple[str, ...]
    applies: Callable[[Case], bool]
    tf_data: bool = False
    convert: Callable[[Case, Path], Path] | None = None
    bound: Callable[[Case, Path], int] | None = None
    python: str = ""

    @property
    def interpreter(self) -> str:
        """The Python that runs it."""
        return os.environ.get(self.python) or sys.executable

    @property
    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed here."""
        if self.interpreter != sys.executable:
            return ()
        # A folder of the same name, such as tests/datasets, is a package without an origin.
        specs = {name: find_spec(name) for name in self.packages}
        return tuple(name for name, spec in specs.items() if spec is None or spec.origin is None)


WAYS: dict[str, Way] = {}


def way(
    name: str,
    *packages: str,
    kind: str = "peer",
    applies: Callable[[Case], bool] = everywhere,
    tf_data: bool = False,
    convert: Callable[[Case, Path], Path] | None = None,
    bound: Callable[[Case, Path], int] | None = None,
    python: str = "",
) -> Callable[[Make], Make]:
    """Enter a function into the table of ways."""

    def enter(make: Make) -> Make:
        WAYS[name] = Way(name, make, kind, packages, applies, tf_data, convert, bound, python)
        return make

    return enter
