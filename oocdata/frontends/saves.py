"""Saved trainings: all that training changes in a Keras model, in one file that is whole or absent.

A save is an ``.npz``, so that NumPy opens it, with a checksum for each array. It is written under
another name, forced to the disk and renamed: whatever moment the process is killed at, every file
with a save's name is a whole save. The last two are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.dtypes import named_dtype
from oocdata.engines.whole import whole_file
from oocdata.errors import RestoreError

__all__ = [
    "Save", "Values", "assign", "assign_rates", "lacking", "read_save", "saves_in", "values_of",
    "write_save",
]  # fmt: skip

_FORMAT = "oocdata save 3"
_KEPT = 2
_NAME = re.compile(r"save-(\d{6})-(\d{9})\.npz")


_GROUPS = ("model", "optimizer", "metrics")

Values = Mapping[str, Sequence[tuple[str, NDArray[Any]]]]
"""Name and value of each variable, in the groups ``"model"`` (weights and seeds), ``"optimizer"``
(of all optimizers that are attributes of the model) and ``"metrics"``. Where replicas hold values
of their own (moving averages, sums of metrics): those of each, in groups ``"replica 0"`` and so on,
by the places of the variables among all."""


@dataclass(frozen=True)
class Save:
    """A training at one step: the (epoch, step) to go on with, and the model's values.

    The position belongs to a fingerprint; see `oocdata.describe.fingerprint`.
    """

    epoch: int
    step: int
    fingerprint: str
    values: Values


def saves_in(folder: Path) -> list[Path]:
    """Return the files of saves in a folder, the latest first; none where there is no folder.

    RestoreError if it is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise RestoreError(f"`folder` must be a folder; '{folder}' is a file.")
    found = folder.iterdir() if folder.exists() else ()
    return sorted((path for path in found if _NAME.fullmatch(path.name)), reverse=True)


def write_save(folder: Path, save: Save) -> Path:
    """Write a save, whole or not at all; then remove all but the last two.

    OSError if it can't be written; those that were there still are.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     path = write_save(Path(name), Save(0, 7, "{}", {"model": [("kernel", np.arange(3))]}))
    ...     path.name, read_save(path).step
    ('save-000000-000000007.npz', 7)
    """
    about: dict[str, Any] = {
        "format": _FORMAT, "epoch": save.epoch, "step": save.step,
        "fingerprint": save.fingerprint, "values": {},
    }  # fmt: skip
    members: dict[str, NDArray[Any]] = {}
    for group, values in save.values.items():
        # With the dtype: .npy has no name for bfloat16.
        about["values"][group] = [[name, array.dtype.name] for name, array in values]
        members.update({f"{group}-{at}": array for at, (_, array) in enumerate(values)})
    members["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"save-{save.epoch:06d}-{save.step:09d}.npz"
    # One name for all: what a killed process leaves is written over by the next.
    with whole_file(str(path), str(folder / "unfinished.tmp")) as file:
        np.savez(file, **members)  # type: ignore[arg-type]  # none is called `allow_pickle`
    for former in saves_in(folder)[_KEPT:]:
        former.unlink()
    return path


def read_save(path: Path, *, with_values: bool = True) -> Save:
    """Read a save, or its position alone; RestoreError if it is damaged, or no save."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as members:
            about = json.loads(members["about"].tobytes())
            if about["format"] != _FORMAT:
                raise ValueError(f"its format is {about['format']!r}, not {_FORMAT!r}")
            values = {
                group: [
                    (name, members[f"{group}-{at}"].view(named_dtype(dtype)))
                    for at, (name, dtype) in enumerate(each)
                ]
                for group, each in (about["values"].items() if with_values else ())
            }
            return Save(about["epoch"], about["step"], about["fingerprint"], values)
    except Exception as error:  # a damaged archive raises anything
        raise RestoreError(
            f"a save must be whole, and written by oocdata; '{path}' is not: "
            f"{type(error).__name__}: {error}. Delete it to go on from the save before it."
        ) from error


def values_of(model: Any) -> Values:
    """Return the variables of a compiled model."""
    groups = _variables(model)
    values = {
        group: [(variable.name, np.asarray(variable.numpy())) for variable in variables]
        for group, variables in groups.items()
    }
    # All replicas train with the same updates; what else changes may differ.
    each = [
        [copy.numpy() for copy in _replicas(model, variable)]
        if group != "optimizer" and not variable.trainable
        else []
        for group, variables in groups.items()
        for variable in variables
    ]
    for replica in range(max(map(len, each), default=0)):
        values[f"replica {replica}"] = [
            (str(place), copies[replica])
            for place, copies in enumerate(each)
            if any((copies[0] != copy).any() for copy in copies[1:])
        ]
    return values


def lacking(model: Any, wanted: Values) -> bool:
    """Return whether a model has fewer variables than are wanted; make those of its optimizer."""
    # (That of mixed precision would make its own once more.)
    if model.built and model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    found = _variables(model)
    return any(len(found[group]) < len(wanted.get(group, ())) for group in found)


def assign(model: Any, wanted: Values) -> None:
    """Put values back into the variables that they are of.

    ValueError if the model's variables are others; the message says from which on.
    """
    found = {group: variables for group, variables in _variables(model).items() if group in wanted}
    for group, variables in found.items():
        was = [_words(name, value.dtype.name, value.shape) for name, value in wanted[group]]
        now = [_words(v.name, v.dtype, v.shape) for v in variables]
        for at, (one, other) in enumerate(zip_longest(was, now, fillvalue="none")):
            if one != other:
                raise ValueError(f"variable {at} of the {group} was {one}, and is {other}")
    for group, variables in found.items():
        for variable, (_, value) in zip(variables, wanted[group], strict=True):
            variable.assign(value)
    flat = [variable for variables in found.values() for variable in variables]
    replicas = [values for group, values in wanted.items() if group not in _GROUPS]
    for replica, values in enumerate(replicas):
        for name, value in values:
            place = int(name)
            copies = _replicas(model, flat[place]) if place < len(flat) else ()
            if len(copies) == len(replicas):  # else of another number: each has what all had
                copies[replica].assign(value)


def assign_rates(model: Any, wanted: Values) -> list[Any]:
    """Put back what optimizers have before they are built, their rates; return the variables."""
    assigned = []
    for variable, (name, value) in zip(
        _variables(model)["optimizer"], wanted["optimizer"], strict=False
    ):
        if _words(variable.name, "", variable.shape) != _words(name, "", value.shape):
            break
        variable.assign(value)
        assigned.append(variable)
    return assigned


def _replicas(model: Any, variable: Any) -> Sequence[Any]:
    """Return the variables of the replicas, where there are several."""
    copies: Sequence[Any] = model.distribute_strategy.experimental_local_results(variable.value)
    return copies if len(copies) > 1 else ()


def _variables(model: Any) -> dict[str, list[Any]]:
    """Return all variables, each in the first group that has it."""
    import keras

    optimizers = [
        one for one in vars(model).values() if isinstance(one, keras.optimizers.Optimizer)
    ]
    groups = {
        "model": model.variables,
        "optimizer": [variable for one in optimizers for variable in one.variables],
        "metrics": [variable for metric in model.metrics for variable in metric.variables],
    }
    seen: set[int] = set()
    for group, variables in groups.items():
        new = {id(variable): variable for variable in variables if id(variable) not in seen}
        seen |= new.keys()
        groups[group] = list(new.values())
    return groups


def _words(name: str, dtype: Any, shape: Any) -> str:
    # Without the numbers that Keras counts up with each layer made in a process.
    return f"{re.sub(r'_[0-9]+(?=_|$)', '', name)} {dtype} {tuple(shape)}"
