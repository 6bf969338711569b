"""What the shell offers for an argument while it is typed.

A completion runs at every press of the key, in the middle of a line that is being written: it
prints nothing, raises nothing, and opens no more than the metadata of the file that is named.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterator

import typer

__all__ = ["colormaps", "keys", "layouts", "one_of"]

_MOST = 500
_LAYOUTS = ("auto", "CHW", "DHW", "HW", "HWC", "TCHW", "THW", "W", "WC")
Completer = Callable[[str], list[str]]


def keys(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the datasets of the file that has been typed.

    Parameters
    ----------
    context : typer.Context
        With the argument ``path``. Where that is not a file or folder, nothing is offered, and the
        shell offers its files.
    incomplete : str
        What has been typed of the key.

    Returns
    -------
    list of str
        Those that begin with it, at most 500; with a leading slash only where it has one.
    """
    path = context.params.get("path")
    if not isinstance(path, str):
        return []
    path = os.path.expanduser(path)
    # Neither a pipe, which might never answer, nor a URL, which answers slowly.
    if not (os.path.isfile(path) or os.path.isdir(path)):
        return []
    found: list[str] = []
    with _quiet():
        from oocdata.formats.opening import list_datasets

        found = [key for key in list_datasets(path) if key]
    if not incomplete.startswith("/"):
        found = [key.removeprefix("/") for key in found]
    return [_as_typed(key) for key in found if key.startswith(incomplete)][:_MOST]


def _as_typed(key: str) -> str:
    """Return a key as it must stand in the line; zsh and fish do that themselves."""
    if not os.environ.get("_OOCDATA_COMPLETE", "").endswith("bash"):
        return key
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", key)


def one_of(*choices: str) -> Completer:
    """Return what offers the choices of an option.

    Examples
    --------
    >>> one_of("error", "fill")("f")
    ['fill']
    """

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


layouts = one_of(*_LAYOUTS)


def colormaps(incomplete: str) -> list[str]:
    """Offer the names of matplotlib's colormaps, but for those that are only reversed ones."""
    found: list[str] = []
    with _quiet():
        from matplotlib import colormaps as there

        found = [name for name in there if not name.endswith("_r")]
    return [name for name in found if name.startswith(incomplete)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let nothing out: no error, no warning, nothing printed."""
    with (
        contextlib.suppress(Exception),
        warnings.catch_warnings(action="ignore"),
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield
