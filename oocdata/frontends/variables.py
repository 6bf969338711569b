"""All that training changes in a Keras model: its values, and putting them back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Values", "assign", "build", "values_of"]

Values = Mapping[str, Sequence[tuple[str, NDArray[Any]]]]
"""Name and value of each variable, in the groups ``"model"`` (weights and seeds), ``"optimizer"``
(of all optimizers that are attributes of the model) and ``"metrics"``."""


def values_of(model: Any) -> Values:
    """Return the variables of a compiled model."""
    return {
        group: [(variable.name, np.asarray(variable.numpy())) for variable in variables]
        for group, variables in _variables(model).items()
    }


def build(model: Any, wanted: Values) -> bool:
    """Make the variables of a model's optimizer; return whether it has as many as are wanted."""
    if model.built and model.optimizer is not None:
        model.optimizer.build(model.trainable_variables)
    found = _variables(model)
    return all(len(found[group]) >= len(values) for group, values in wanted.items())


def assign(model: Any, wanted: Values) -> None:
    """Put values back into the variables that they are of.

    Raises
    ------
    ValueError
        If the model's variables are others; the message says from which on.
    """
    found = _variables(model)
    for group, values in wanted.items():
        was = [_words(name, value.dtype.name, value.shape) for name, value in values]
        now = [_words(v.name, v.dtype, v.shape) for v in found[group]]
        for place, (one, other) in enumerate(zip_longest(was, now, fillvalue="none")):
            if one != other:
                raise ValueError(f"variable {place} of the {group} was {one}, and is {other}")
    for group, values in wanted.items():
        for variable, (_, value) in zip(found[group], values, strict=True):
            variable.assign(value)


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
