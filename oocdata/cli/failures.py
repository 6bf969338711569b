"""Every error is one paragraph on standard error, and an exit code."""

from __future__ import annotations

import shutil
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from oocdata.errors import (
    ExternalDataError,
    MissingChunkError,
    MissingChunkWarning,
    OocdataError,
    SeveralDatasetsError,
    UnknownFormatError,
)

__all__ = ["errors"]

_SOON = 0.01
"""Seconds."""


@contextmanager
def errors(debug: bool) -> Iterator[None]:
    """Print an error as one paragraph on standard error, and exit with code 1.

    Parameters
    ----------
    debug : bool
        Let it through, with its traceback.
    """
    try:
        with _interrupted_in_the_end(), _warnings_told():
            yield
    except BrokenPipeError:  # `oocdata … | head`: nobody wants the rest
        raise
    except (OocdataError, OSError, MemoryError) as error:
        if debug:
            raise
        message = str(error) or type(error).__name__
        _complain(f"{message} {_on_the_command_line(error)}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        if debug:
            raise
        _complain("stopped.")
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        if debug:
            raise
        _complain(
            f"unexpected {type(error).__name__}: {error}. This should not happen: run it again "
            "with --debug, and report what it shows."
        )
        raise typer.Exit(1) from None


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Print a warning of oocdata's as a paragraph, without the line of code that gave it."""
    usual = warnings.showwarning

    def told(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, OocdataError):
            _complain(f"{message} {_on_the_command_line(message)}")
        else:
            usual(message, category, *where, **more)

    warnings.showwarning = told
    try:
        yield
    finally:
        warnings.showwarning = usual


@contextmanager
def _interrupted_in_the_end() -> Iterator[None]:
    """Send Ctrl-C again where it came while a finaliser ran: Python drops what that raises."""
    usual = sys.unraisablehook
    main = threading.main_thread().ident

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt) or main is None:
            usual(dropped)
            return
        # Raised right here it would be dropped once more.
        later = threading.Timer(_SOON, signal.pthread_kill, (main, signal.SIGINT))
        later.daemon = True
        later.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _complain(message: str) -> None:
    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    text = textwrap.fill(
        " ".join(f"oocdata: {message}".split()),
        width,
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.echo(text, err=True)


def _on_the_command_line(error: object) -> str:
    """Return the option that does what an error's hint says in Python."""
    if isinstance(error, MissingChunkError):
        return "Here: --missing fill."
    if isinstance(error, MissingChunkWarning):
        return "Here: --missing fill, or --missing error."
    if isinstance(error, ExternalDataError):
        return "Here: --external."
    if isinstance(error, SeveralDatasetsError):
        return "Here: the KEY comes after the file; for convert and demo, as --key KEY."
    if isinstance(error, UnknownFormatError) and "raw binary" in str(error):
        return "Here: --dtype and --shape."
    return ""
