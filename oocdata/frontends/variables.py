"""All that training changes in a Keras model: its values, and putting them back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["assign", "build", "values_of"]

Arrays = Mapping[str, Sequence[NDArray[Any]]]


def values_of(model: Any) -> tuple[dict[str, list[str]], dict[str, list[NDArray[Any]]]]:
    """Return the names and the values of a model's variables, by group.

    Parameters
    ----------
    model : keras.Model
        Compiled.

    Returns
    -------
    names, arrays : dict of list
        Of the groups ``"model"`` (weights and seeds), ``"optimizer"`` (of all optimizers that are
        attributes of the model) and ``"metrics"``.
    """
    found = _variables(model)
    names = {group: [variable.name for variable in some] for group, some in found.items()}
    arrays = {
        group: [np.asarray(variable.numpy()) for variable in some] for group, some in found.items()
    }
    return names, arrays


def build(model: Any, wanted: Arrays) -> bool:
    """Make the variables of a model's optimizer; return whether it has as many as are wanted."""
    if model.built and model.optimizer is not None:
        model.optimizer.build(model.trainable_variables)
    found = _variables(model)
    return all(len(found[group]) >= len(arrays) for group, arrays in wanted.items())


def assign(model: Any, names: Mapping[str, Sequence[str]], arrays: Arrays) -> None:
    """Put values back into the variables that they are of.

    Raises
    ------
    ValueError
        If the model's variables are others; the message says from which on.
    """
    found = _variables(model)
    for group, values in arrays.items():
        was = [
            _said(name, v.dtype.name, v.shape) for name, v in zip(names[group], values, strict=True)
        ]
        now = [_said(v.name, v.dtype, v.shape) for v in found[group]]
        for place, (one, other) in enumerate(zip_longest(was, now, fillvalue="none")):
            if one != other:
                raise ValueError(f"variable {place} of the {group} was {one}, and is {other}")
    for group, values in arrays.items():
        for variable, value in zip(found[group], values, strict=True):
            variable.assign(value)


def _variables(model: Any) -> dict[str, list[Any]]:
    """Return all variables, each once."""
    import keras

    seen: set[int] = set()

    def new(variables: Iterable[Any]) -> Iterator[Any]:
        for variable in variables:
            if id(variable) not in seen:
                seen.add(id(variable))
                yield variable

    optimizers = [
        value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)
    ]
    return {
        "model": list(new(model.variables)),
        "optimizer": [v for optimizer in optimizers for v in new(optimizer.variables)],
        "metrics": [v for metric in model.metrics for v in new(metric.variables)],
    }


def _said(name: str, dtype: Any, shape: Any) -> str:
    # Without the numbers that Keras counts up with each layer made in a process.
    return f"{re.sub(r'_[0-9]+(?=_|$)', '', name)} {dtype} {tuple(shape)}"
