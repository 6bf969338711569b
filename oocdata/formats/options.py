"""Define `Options`: the arguments of `oocdata.open`, and which formats they apply to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from numpy.typing import DTypeLike

from oocdata.errors import ArgumentError
from oocdata.formats.patterns import Key, Missing, checked_keys
from oocdata.index import as_flag

if TYPE_CHECKING:
    from oocdata.formats.pictures import Pictures

_APPLIES_TO = {
    "format": "files of text only",
    "missing": "chunks in HDF5 or Zarr only",
    "external": "HDF5 only",
    **dict.fromkeys(
        ("dtype", "shape", "offset"), "raw binary files only, dtype and shape together"
    ),
}
"""What each option applies to, for messages."""


def refuse_arguments(what: str, **given: Any) -> None:
    """Raise `ArgumentError` for an argument of `oocdata.open` that doesn't apply to `what`."""
    for name, value in given.items():
        if value is None or (isinstance(value, int) and not value):
            continue
        hint = " Use `.astype` to convert." if name == "dtype" else ""
        raise ArgumentError(
            f"`{name}` must be given for {_APPLIES_TO[name]}; got {value!r} for {what}.{hint}"
        )


@dataclass(frozen=True)
class Options:
    """Arguments of `oocdata.open` besides the target, checked.

    `axis` is the first of the sample axes: files are concatenated along it, and errors call
    positions along it rows. `manifest` is the path that `verify` means; set once the target's path
    is known.
    """

    key: Key | None = None
    axis: Any = 0
    dtype: DTypeLike | None = None
    shape: Sequence[int] | None = None
    offset: int = 0
    missing: Missing | None = None
    external: bool = False
    verify: bool | str | os.PathLike[str] | None = None
    field: str | Sequence[str] = ()
    decode: bool = False
    pad: float | None = None
    format: Literal["text"] | None = None
    pictures: Pictures | None = None
    manifest: str | None = None

    def __post_init__(self) -> None:
        """Check the arguments whose rules do not depend on the target."""
        for name, accepted in (("missing", ("error", "fill")), ("format", ("text",))):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value in accepted):
                words = " or ".join(map(repr, accepted))
                raise ArgumentError(f"`{name}` must be {words} if it is given; got {value!r}.")
        if self.pictures is not None:
            from oocdata.formats.pictures import Pictures  # not for `import oocdata`

            if not isinstance(self.pictures, Pictures):
                raise ArgumentError(
                    f"`pictures` must be an oocdata.Pictures; got {self.pictures!r}. Write "
                    "ooc.Pictures(size=(height, width)), or ooc.Pictures() to keep the size."
                )
        if self.key is not None:
            checked_keys(self.key)
        names = self.fields
        if not isinstance(names, tuple | list) or not all(isinstance(one, str) for one in names):
            raise ArgumentError(
                f"`field` must be a name, or one of a field of a field; got {self.field!r}."
            )
        for name in ("external", "decode"):
            object.__setattr__(self, name, as_flag(name, getattr(self, name)))
        if isinstance(self.axis, Sequence) and not isinstance(self.axis, str):
            first = self.axis[0] if self.axis else 0
            if not isinstance(first, str | SupportsIndex | None):
                raise ArgumentError(f"`axis` must be numbers or names of axes; got {self.axis!r}.")
            object.__setattr__(self, "axis", first)

    @property
    def fields(self) -> Sequence[str]:
        """`field` as names, the outermost first."""
        return (self.field,) if isinstance(self.field, str) else self.field

    def refuse_key(self, what: str) -> None:
        """Raise `ArgumentError` if a key is given for a target without names."""
        if self.key is not None:
            raise ArgumentError(f"`key` must be None for {what}, without names; got {self.key!r}.")

    def only(self, what: str, *accepted: str) -> dict[str, Any]:
        """Return `axis` and the accepted arguments; raise `ArgumentError` if another one is set."""
        others = [name for name in _APPLIES_TO if name not in accepted]
        refuse_arguments(what, **{name: getattr(self, name) for name in others})
        return {name: getattr(self, name) for name in ("axis", *accepted)}
