"""The arguments of `oocdata.open` besides target and key."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.formats.opening import Axis, Missing

__all__ = ["Opening"]


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments of `oocdata.open` besides target and key."""

    axis: Axis = 0
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    offset: int = 0
    missing: Missing | None = None
    external: bool = False

    def view(self, target: str, key: str | None) -> View:
        """Open the target."""
        return open_view(target, key, **asdict(self))

    def code(self, target: str, key: str | None) -> str:
        """Return the call of `oocdata.open` in Python, with the arguments that matter.

        Examples
        --------
        >>> Opening(axis=1).code("ds.h5", "/u")
        "ooc.open('ds.h5', '/u', axis=1)"
        """
        usual = asdict(Opening())
        given = [
            f"{name}={value!r}" for name, value in asdict(self).items() if value != usual[name]
        ]
        named = [repr(target), *([repr(key)] if key else []), *given]
        return f"ooc.open({', '.join(named)})"
