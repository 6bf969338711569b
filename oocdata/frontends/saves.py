"""Save and restore all state of a Keras model in training, in one file that is written atomically.

A save is an ``.npz`` file, with a checksum for each array. Whenever the process is killed, every
file with the name of a save is complete. The last two saves are kept.
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

from oocdata.engines.atomic import atomic_file, write_errors
from oocdata.engines.dtypes import named_dtype
from oocdata.errors import RestoreError

_FORMAT = "oocdata save 4"
_KEPT = 2
_UNFINISHED = "unfinished.tmp"
"""A fixed temporary name, so that the next save overwrites what a killed process left."""
_NAME = re.compile(r"save-(\d{6})-(\d{9})\.npz")


Values = Mapping[str, Sequence[tuple[str, NDArray[Any]]]]
"""Name and value of each variable, in the groups ``"model"`` (weights and seeds) and ``"metrics"``,
and one for each optimizer that is an attribute of the model, with the attribute's name. Of values
that differ among replicas (moving averages, sums of metrics), the mean or sum, as Keras reports
it."""


@dataclass(frozen=True)
class Save:
    """The state of a training: the (epoch, step) to continue with, and the model's values.

    The position is valid for the loader of this fingerprint; see `oocdata.describe.fingerprint`.
    """

    epoch: int
    step: int
    fingerprint: str
    values: Values


def saves_in(folder: Path) -> list[Path]:
    """Return the saves in a folder, the latest first; an empty list if there is no folder.

    Raises RestoreError if `folder` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise RestoreError(f"`folder` must be a folder; '{folder}' is a file.")
    paths = folder.iterdir() if folder.exists() else ()
    return sorted((path for path in paths if _NAME.fullmatch(path.name)), reverse=True)


def make_folder(folder: Path) -> None:
    """Make the folder of saves if there is none; raise `SourceError` if it can't be written to."""
    with write_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / _UNFINISHED
        temporary.touch()
        temporary.unlink()


def write_save(folder: Path, save: Save) -> Path:
    """Write a save atomically, or raise `SourceError`; then delete all but the last two."""
    about: dict[str, Any] = {
        "format": _FORMAT, "epoch": save.epoch, "step": save.step,
        "fingerprint": save.fingerprint, "values": {},
    }  # fmt: skip
    members: dict[str, NDArray[Any]] = {}
    for group, values in save.values.items():
        # The dtype is saved by name, because .npy can't express bfloat16.
        about["values"][group] = [[name, array.dtype.name] for name, array in values]
        members.update({f"{group}-{at}": array for at, (_, array) in enumerate(values)})
    members["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    path = folder / f"save-{save.epoch:06d}-{save.step:09d}.npz"
    with write_errors(str(path)):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(str(path), str(folder / _UNFINISHED)) as file:
            np.savez(file, **members)  # type: ignore[arg-type]  # none is called `allow_pickle`
    for old in saves_in(folder)[_KEPT:]:
        old.unlink()
    return path


def read_save(path: Path, *, with_values: bool = True) -> Save:
    """Read a save, or only its position; raise RestoreError if it is damaged, or not a save."""
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
    """Return the values of all variables of a compiled model."""
    return {
        group: [(variable.name, np.asarray(variable.numpy())) for variable in variables]
        for group, variables in _variables(model).items()
    }


def has_missing_variables(model: Any, saved: Values) -> bool:
    """Return whether a model has fewer variables than a save; first build the optimizer saved."""
    optimizer, count = model.optimizer, len(saved.get("optimizer", ()))
    is_more = optimizer is not None and count > len(optimizer.variables)
    # (A built mixed-precision optimizer would create its variables again.)
    if model.built and is_more and not optimizer.built:
        optimizer.build(model.trainable_variables)
    groups = _variables(model)
    return any(len(groups.get(group, ())) < len(values) for group, values in saved.items())


def assign(model: Any, saved: Values) -> None:
    """Assign saved values to a model's variables.

    Raises ValueError, naming the first variable that differs, if the model has other variables.
    """
    groups = {**{group: [] for group in saved}, **_variables(model)}
    if "metrics" not in saved:
        del groups["metrics"]
    for group, variables in groups.items():
        values = saved.get(group, ())
        before = [_signature(name, value.dtype.name, value.shape) for name, value in values]
        now = [_signature(v.name, v.dtype, v.shape) for v in variables]
        for at, (old, new) in enumerate(zip_longest(before, now, fillvalue="none")):
            if old != new:
                raise ValueError(f"variable {at} of the {group} was {old}, and is {new}")
    for group, variables in groups.items():
        for variable, (_, value) in zip(variables, saved.get(group, ()), strict=True):
            variable.assign(value)


def assign_rates(model: Any, saved: Values) -> list[Any]:
    """Restore variables that optimizers have before they are built (their rates); return them."""
    assigned = []
    for group, variables in _variables(model).items():
        values = saved.get(group, ()) if group not in ("model", "metrics") else ()
        for variable, (name, value) in zip(variables, values, strict=False):
            if _signature(variable.name, "", variable.shape) == _signature(name, "", value.shape):
                variable.assign(value)
                assigned.append(variable)
    return assigned


def _variables(model: Any) -> dict[str, list[Any]]:
    """Return all variables by group; each is only in the first group that has it."""
    import keras

    groups = {"model": model.variables}
    for name, value in vars(model).items():
        if isinstance(value, keras.optimizers.Optimizer):
            groups[name] = value.variables
    groups["metrics"] = [variable for metric in model.metrics for variable in metric.variables]
    seen: set[int] = set()
    for group, variables in groups.items():
        new = {id(variable): variable for variable in variables if id(variable) not in seen}
        seen |= new.keys()
        groups[group] = list(new.values())
    return groups


def _signature(name: str, dtype: Any, shape: Any) -> str:
    # Without the counters that Keras appends to names of layers made in the same process.
    return f"{re.sub(r'_[0-9]+(?=_|$)', '', name)} {dtype} {tuple(shape)}"
