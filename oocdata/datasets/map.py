"""Define `Map`: a NumPy function that is applied to batches or elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset, Draw, fields_of
from oocdata.datasets.spec import (
    ArraySpec,
    Batch,
    Spec,
    align,
    as_leaf,
    as_spec,
    leaves,
    map_tree,
    spec_of,
    spec_text,
)
from oocdata.engines.dtypes import check_dtype
from oocdata.errors import ArgumentError, EmptyError, MapError
from oocdata.index import as_flag
from oocdata.threads import cached_property

__all__ = ["Map"]


@dataclass(frozen=True, eq=False, repr=False)
class Map(Dataset):
    """A dataset whose batches pass through a function; made by `Dataset.map`.

    Attributes
    ----------
    source : Dataset
    fn : callable
    batched : bool
        Whether `fn` is called on batches; if not, on elements.
    rng : bool
        Whether `fn` gets a generator.
    given : tree of ArraySpec or None
        Spec of an element, or None to call `fn` on one element to find it.
    """

    source: Dataset
    fn: Callable[..., Any]
    batched: bool
    rng: bool
    given: Any = field(default=None)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ArgumentError(f"`fn` must be a function; got {self.fn!r}.")
        for name in ("batched", "rng"):
            as_flag(name, getattr(self, name))
        if self.source.is_multi_array:
            raise ArgumentError(
                "`map` must get dense arrays; these are sparse or ragged. Map before `.sparse()`, "
                "map what `pad` gives (also `parse(…, pad=40)`), or zip such rows with what is "
                "mapped."
            )
        if self.given is not None:
            self._checked(as_spec(self.given))

    def __repr__(self) -> str:
        return f"<Map of {getattr(self.fn, '__name__', self.fn)!s} over {self.source!r}>"

    @cached_property
    def spec(self) -> Spec:
        """Shapes and dtypes of a result's element; reads one element if no spec was given."""
        if self.given is not None:
            return self._checked(as_spec(self.given))
        if len(self.source) == 0:
            raise EmptyError(
                "`spec` must be given to map an empty dataset; there is nothing to try."
            )
        first = self.source.read(np.zeros(1, np.int64), Draw(positions=np.zeros(1, np.int64)))
        batch = self._apply(first, Draw(), 1)
        return self._checked(spec_of(batch, axes=1))

    @staticmethod
    def _checked(spec: Spec) -> Spec:
        def native(leaf: ArraySpec) -> ArraySpec:
            if leaf.dtype.hasobject:  # `bytes` objects, which `as_leaf` checks
                return leaf
            return ArraySpec(leaf.shape, check_dtype(leaf.dtype).newbyteorder("="))

        return map_tree(native, spec)

    is_mapped = True

    def input_bytes(self, elements: int) -> int:
        """Return the bytes of the function's arguments, for a number of elements."""
        requests = self.requests(np.zeros(1, np.int64), Draw())
        return elements * sum(each.nbytes for each in requests) + self._object_bytes(elements)

    @property
    def _members(self) -> tuple[Dataset]:
        return (self.source,)

    def _with_members(self, members: Sequence[Any]) -> Self:
        (source,) = members
        # Pass on the cached spec, which replace() does not copy.
        return replace(self, source=source, given=self.__dict__.get("spec", self.given))

    def describe(self) -> dict[str, Any]:
        """Return the fields, with the spec that was given or found."""
        return {**fields_of(self), "given": self.spec}

    def assemble(self, arrays: Iterator[NDArray[Any]], positions: Ints, draw: Draw) -> Batch:
        """Return the results of the function, checked against the spec."""
        batch = self.source.assemble(arrays, positions, draw)
        length = len(next(leaves(batch)))
        if length == 0:  # don't call the function on an empty batch
            return map_tree(lambda leaf: np.empty((0, *leaf.shape), leaf.dtype), self.spec)
        return self._check_result(self._apply(batch, draw, length))

    def _apply(self, batch: Batch, draw: Draw, length: int) -> Batch:
        if not self.batched:
            elements = []
            for place in range(length):
                rng = draw.rng_of(place) if self.rng else None
                element = self._call(map_tree(itemgetter(place), batch), rng)
                elements.append(map_tree(as_leaf, element))
            return self._stack(elements)
        result: Batch = map_tree(as_leaf, self._call(batch, draw.rng if self.rng else None))
        for array in leaves(result):
            if array.ndim == 0 or len(array) != length:
                raise MapError(
                    f"a mapped function must keep the {length} elements of its batch; "
                    f"{self._name} returned an array of shape {array.shape}. Give "
                    "`batched=False` for a function of one element; make an array of a list: "
                    "np.array(rows)."
                )
        return result

    def _call(self, batch: Any, rng: np.random.Generator | None) -> Any:
        arguments = batch if isinstance(batch, tuple) else (batch,)
        try:
            result = self.fn(*arguments) if rng is None else self.fn(*arguments, rng=rng)
        except Exception as error:
            arrays = ", ".join(spec_text(spec_of(argument)) for argument in arguments)
            what = "a batch" if self.batched else "one element"
            hint = " With batched=False it gets one element." if self.batched else ""
            note = f"{self._name} of `map` was called with {what}: {arrays}.{hint}"
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise
        if result is None:
            raise MapError(
                f"a mapped function must return its result; {self._name} returned None. Add "
                "`return`, even where it changes its arguments in place."
            )
        return tuple(result) if isinstance(result, list) else result

    def _stack(self, elements: list[Any]) -> Batch:
        try:
            columns = [list(leaves(align(element, elements[0]))) for element in elements]
            stacked = iter([np.stack(column) for column in zip(*columns, strict=True)])
        except ValueError as error:
            raise MapError(
                f"a mapped function must return arrays of one shape; {self._name} did not: {error}."
            ) from error
        return map_tree(lambda _: next(stacked), elements[0])

    def _check_result(self, result: Batch) -> Batch:
        """Return a result with dicts in the order of the spec; raise MapError if the two differ."""
        actual = spec_of(result, axes=1)
        if actual != self.spec:  # dicts compare equal in any order
            raise MapError(
                f"a mapped function must return what its spec says, {spec_text(self.spec)}; "
                f"{self._name} returned {spec_text(actual)}. Give all results one shape, such as "
                "by padding, convert with `.astype(...)` (texts of different lengths to bytes "
                "objects), or give `spec`."
            )
        return align(result, self.spec)

    @property
    def _name(self) -> str:
        return repr(getattr(self.fn, "__name__", type(self.fn).__name__))
