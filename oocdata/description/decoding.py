"""From JSON to a loader: nothing is made that was not checked."""

from __future__ import annotations

from dataclasses import MISSING, fields
from types import GenericAlias
from typing import Any

from oocdata.description.arrays import decode_array, decode_dtype, decode_integers
from oocdata.description.differences import differences
from oocdata.description.encoding import Encoder, dotted
from oocdata.description.hints import fits, hints_of, is_frozen
from oocdata.description.names import OURS, find
from oocdata.description.storage import ANEW, look_again
from oocdata.errors import DescriptionError, OocdataError

__all__ = ["Decoder"]

_FLOATS = {repr(value): value for value in map(float, ("nan", "inf", "-inf"))}


class Decoder:
    """Decodes one loader.

    Parameters
    ----------
    allow : tuple of str
        Modules and packages, beside oocdata's own, that may be imported from.
    """

    def __init__(self, allow: tuple[str, ...]) -> None:
        self.allow = allow
        self._kept: dict[tuple[str, int], Any] = {}

    def decode(self, value: Any, hint: Any, place: tuple[str, ...]) -> Any:
        """Return what JSON describes.

        Parameters
        ----------
        value : object
            As `json` reads it.
        hint : type
            What it must be.
        place : tuple of str
            Where it stands, for messages.

        Raises
        ------
        oocdata.errors.DescriptionError
        oocdata.errors.SourceError
            If a file can't be opened.
        """
        try:
            made = self._made(value, place)
        except OocdataError:
            raise
        except RecursionError:
            raise
        except Exception as error:  # whatever is wrong with it, it is not readable
            raise self._error(place, f"{error}.") from error
        if not fits(made, hint):
            raise self._error(place, f"it must be {_said(hint)}; got {made!r}.")
        return made

    def _made(self, value: Any, place: tuple[str, ...]) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return tuple(self.decode(part, Any, (*place, str(at))) for at, part in enumerate(value))
        if type(value) is not dict or len(value) != 1:
            raise ValueError("an object must have one key, its kind")
        ((kind, parts),) = value.items()
        if kind == "dict":
            return {
                self.decode(name, str, place): self.decode(part, Any, (*place, str(name)))
                for name, part in parts
            }
        if kind in ("range", "slice"):
            bounds = self.decode(parts, tuple[int | None, int | None, int | None], place)
            return range(*bounds) if kind == "range" else slice(*bounds)
        if kind == "float":
            return _FLOATS[parts]
        if kind == "dtype":
            return decode_dtype(parts)
        if kind == "int64":
            return decode_integers(parts)
        if kind == "array":
            array = decode_array(parts)
            return array if array.ndim else array[()]
        if kind == "import":
            return self._found(parts, self.allow)
        return self._object(kind, parts, place)

    def _found(self, path: Any, allow: tuple[str, ...]) -> Any:
        if type(path) is not str or ":" not in path:
            raise ValueError(f"{path!r} is no kind of thing that is described")
        try:
            return find(path, allow)
        except ValueError as error:
            raise ValueError(
                f"{path!r} can't be imported: {error}. Allowed are {', '.join(allow) or 'none'}"
            ) from error

    def _object(self, path: str, parts: Any, place: tuple[str, ...]) -> Any:
        kind = self._found(path, (*OURS, *self.allow))
        if not isinstance(kind, type):
            raise ValueError(f"{path!r} is no class")
        if path in ANEW:
            return self._anew(path, parts, place)
        if "__reduce__" in vars(kind):
            return self._shared(path, kind, parts, place)
        if not is_frozen(kind):
            raise ValueError(f"{path!r} is no frozen dataclass")
        if type(parts) is not dict:
            raise ValueError(f"the fields of {path!r} must be given by name")
        known = {one.name: one for one in fields(kind) if one.init}
        unknown = [name for name in parts if name not in known]
        missing = [
            name
            for name, one in known.items()
            if name not in parts and one.default is MISSING and one.default_factory is MISSING
        ]
        if unknown or missing:
            which = f"has no field {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"
            raise ValueError(f"{path!r} {which}; another version of it made the description")
        hints = hints_of(kind)
        return kind(
            **{name: self.decode(part, hints[name], (*place, name)) for name, part in parts.items()}
        )

    def _anew(self, path: str, parts: Any, place: tuple[str, ...]) -> Any:
        """Return what lies in storage now, if it is what was described."""
        if type(parts) is not dict or tuple(sorted(parts)) != tuple(sorted(ANEW[path])):
            raise ValueError(f"{path!r} must have {', '.join(ANEW[path])}")
        plain = {
            "path": str, "key": str, "axis": int, "missing": str, "nbytes": int, "store": str,
            "ends": str | None,
        }  # fmt: skip
        for name, hint in plain.items():
            if name in parts:
                self.decode(parts[name], hint, (*place, name))
        found = look_again(path, parts)
        now = Encoder().encode(found, place)[path]
        lines = differences(parts, now, here="described", there="found")
        if lines:
            raise DescriptionError(
                f"`{parts['path']}` must be what was described; it is not: {'; '.join(lines)}. "
                "Describe the loader again."
            )
        return found

    def _shared(self, path: str, kind: type, parts: Any, place: tuple[str, ...]) -> Any:
        """Return what a process keeps: one object for each number."""
        number, arguments = parts
        if type(number) is not int:
            raise ValueError(f"{path!r} must have a number")
        if (path, number) not in self._kept:
            hints = [hint for name, hint in hints_of(kind.__init__).items() if name != "return"]  # type: ignore[misc]
            made = self.decode(arguments, GenericAlias(tuple, tuple(hints)), place)
            self._kept[path, number] = kind(*made)
        return self._kept[path, number]

    def _error(self, place: tuple[str, ...], reason: str) -> DescriptionError:
        return DescriptionError(
            f"a description must be readable; `{dotted(place)}` is not: {reason}"
        )


def _said(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
