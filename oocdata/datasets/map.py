"""Define `Map`: a NumPy function that is applied to batches or elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset, Draw, fields_of
from oocdata.datasets.multi_array import aligned_length
from oocdata.datasets.spec import (
    ArraySpec,
    Batch,
    Spec,
    align,
    as_leaf,
    as_spec,
    elements_of,
    leaves,
    map_tree,
    spec_of,
)
from oocdata.engines.dtypes import check_dtype
from oocdata.errors import ArgumentError, EmptyError, MapError
from oocdata.index import as_flag
from oocdata.threads import cached_property


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
        Spec of an element, or None to call `fn` on one element to find it. Of a padded array, it
        has the largest length.
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
            return self._padded(self._limits)
        if len(self.source) == 0:
            raise EmptyError(
                "`spec` must be given to map an empty dataset; there is nothing to try."
            )
        first = self.source.read(np.zeros(1, np.int64), Draw(positions=np.zeros(1, np.int64)))
        batch = self._apply(first, Draw(), 1)
        return self._checked(spec_of(batch, axes=1))

    @cached_property
    def _limits(self) -> Spec:
        """The spec, of a padded array with the largest length."""
        return self.spec if self.given is None else self._checked(as_spec(self.given))

    def _checked(self, spec: Spec) -> Spec:
        def native(leaf: ArraySpec) -> ArraySpec:
            is_padded = leaf.form == "padded" and leaf.shape and all(leaf.shape) and self.batched
            if leaf.form != "dense" and not is_padded:
                raise ArgumentError(
                    "`spec` must say how long the rows of padded batches are at most, such as "
                    "ooc.ArraySpec((512,), 'int64', 'padded'), of a function that pads a batch "
                    f"(`batched=True`); got {leaf} and batched={self.batched}."
                )
            if leaf.dtype.hasobject:  # `bytes` objects, which `as_leaf` checks
                return leaf
            return replace(leaf, dtype=check_dtype(leaf.dtype).newbyteorder("="))

        return map_tree(native, spec)

    def _padded(self, spec: Spec) -> Spec:
        """Return a spec with None for each length of a padded array that is within its limit."""
        try:
            limits = leaves(align(self._limits, spec))
        except ValueError:  # another tree
            return spec

        def leaf(found: ArraySpec) -> ArraySpec:
            limit = next(limits)
            if limit.form == "dense" or not found.shape or found.shape[0] > limit.shape[0]:
                return found
            words = f"by the function up to {limit.shape[0]}"
            return ArraySpec((None, *found.shape[1:]), found.dtype, "padded", words)

        return map_tree(leaf, spec)

    @cached_property
    def is_multi_array(self) -> bool:
        return self.given is not None and any(leaf.form != "dense" for leaf in leaves(self.spec))

    def array_bytes(self, elements: int) -> list[int]:
        if not self.is_multi_array:
            return super().array_bytes(elements)
        sizes = []
        for leaf in leaves(self._limits):
            length = leaf.shape[0] if leaf.form == "padded" else 1
            count = aligned_length(elements * length) if leaf.form == "padded" else elements
            sizes.append(count * leaf.nbytes // length)
        return sizes

    is_mapped = True

    def input_bytes(self, elements: int) -> int:
        requests = self.requests(np.zeros(1, np.int64), Draw())
        return elements * sum(each.nbytes for each in requests) + self._object_bytes(elements)

    @property
    def _members(self) -> tuple[Dataset]:
        return (self.source,)

    def _with_members(self, members: Sequence[Any]) -> Self:
        (source,) = members
        # Pass on the cached spec, which replace() does not copy.
        given = self.__dict__.get("spec") if self.given is None else self.given
        return replace(self, source=source, given=given)

    def describe(self) -> dict[str, Any]:
        return {**fields_of(self), "given": self._limits}

    def assemble(self, arrays: Iterator[NDArray[Any]], positions: Ints, draw: Draw) -> Batch:
        batch = self.source.assemble(arrays, positions, draw)
        length = len(positions)
        if length == 0:  # don't call the function on an empty batch
            return map_tree(lambda leaf: np.empty((0, *leaf.shape), leaf.dtype), self._limits)
        return self._check_result(self._apply(batch, draw, length))

    def _apply(self, batch: Batch, draw: Draw, length: int) -> Batch:
        if not self.batched:
            elements = elements_of(batch, self.source.spec, length)
            for place, element in enumerate(elements):
                rng = draw.rng_of(place) if self.rng else None
                elements[place] = map_tree(as_leaf, self._call(element, rng))
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
            arrays = ", ".join(str(spec_of(argument)) for argument in arguments)
            what = "a batch" if self.batched else "one element"
            hint = " With batched=False it gets one element." if self.batched else ""
            note = f"{self._name} of `map` was called with {what}: {arrays}.{hint}"
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise
        if result is None or (isinstance(result, tuple | list | dict) and not result):
            raise MapError(
                f"a mapped function must return its result; {self._name} returned {result}. Add "
                "`return`, even where it changes its arguments in place."
            )
        return tuple(result) if isinstance(result, list) else result

    def _stack(self, elements: list[Any]) -> Batch:
        try:
            columns = [leaves(align(element, elements[0])) for element in elements]
            stacked = iter([np.stack(column) for column in zip(*columns, strict=True)])
        except ValueError as error:
            raise MapError(
                f"a mapped function must return arrays of one shape; {self._name} did not: {error}."
            ) from error
        return map_tree(lambda _: next(stacked), elements[0])

    def _check_result(self, result: Batch) -> Batch:
        """Return a result with dicts in the order of the spec; raise MapError if the two differ."""
        actual = spec_of(result, axes=1)
        if self.is_multi_array:
            actual = self._padded(actual)
        if actual != self.spec:  # dicts compare equal in any order
            raise MapError(
                f"a mapped function must return what its spec says, {self.spec}; "
                f"{self._name} returned {actual}. Give all results one shape, such as "
                "by padding, or say the largest: ooc.ArraySpec((512,), 'int64', 'padded'). Convert "
                "with `.astype(...)` (texts of different lengths to bytes objects), or give `spec`."
            )
        return align(result, self.spec)

    @property
    def _name(self) -> str:
        return repr(getattr(self.fn, "__name__", type(self.fn).__name__))
