"""How a function becomes a command: shared options, and errors.

Every error is one paragraph on standard error, and an exit code.
"""

from __future__ import annotations

import inspect
import io
import re
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from oocdata.cli.options import flag, given
from oocdata.errors import (
    ArgumentError,
    EmptyError,
    OocdataError,
    PositionError,
    SeveralDatasetsError,
)
from oocdata.tools.lines import wrapped

__all__ = ["NAMED", "command", "errors", "in_options"]

_BY_NAME = inspect.Parameter.KEYWORD_ONLY  # so that those with a default may stand before others
_Verbose = Annotated[bool, flag("--verbose", "Show the traceback of an error.", "-v")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for Typer: it tells errors as `errors` does, and has ``--verbose``.

    One that takes `verbose` gets it. One that takes `array`, the first of its arguments, has all
    options of `oocdata.cli.options.given` instead, and gets what that makes of them. One that takes
    `context` gets Typer's.
    """
    own = _parameters(function)
    shared = _parameters(given) if "array" in own else {}
    first = {"files": own.pop("files", shared.pop("files"))} if shared else {}
    verbose = inspect.Parameter("verbose", _BY_NAME, default=False, annotation=_Verbose)
    context = inspect.Parameter("context", _BY_NAME, annotation=typer.Context)
    every = {"context": context, **first, **own, **shared, "verbose": own.get("verbose", verbose)}
    every.pop("array", None)

    @wraps(function)
    def run(**values: Any) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            with suppress(OSError):  # of a pipe that can't be sought in
                sys.stdout.reconfigure(errors="replace")  # question marks for letters it lacks
        context = values["context"] if "context" in own else values.pop("context")
        with errors(context, values["verbose"] if "verbose" in own else values.pop("verbose")):
            if "array" in own:
                values["array"] = given(**{name: values.pop(name) for name in _GIVEN})
            function(**values)

    run.__signature__ = inspect.Signature(list(every.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: param.annotation for name, param in every.items()}
    return run


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return {
        name: param.replace(annotation=hints[name], kind=_BY_NAME)
        for name, param in inspect.signature(function).parameters.items()
    }


_GIVEN = tuple(_parameters(given))


_OTHER_NAMES = {
    "files": "FILE", "path": "FILE", "target": "FILE", "source": "FILE", "destination": "DST",
    "sizes": "--split", "service": "--dispatcher", "folder": "FOLDER", "cache": "FOLDER",
}  # fmt: skip
"""Arguments in Python whose options have other names; all others have the same."""

NAMED = "oocdata.named"
"""In the `meta` of a context: options of other names than these, for a while."""

_ARGUMENT = re.compile(
    r"\booc\.\w+\((?:[^()]|\([^()]*\))*\)"  # a call in Python, which stays as it is
    r"""|`([a-z_]+)`|\b([a-z_]+)=(True\b|(["']?)\w+\4(?!\w|\.\w|\()|(?='))"""
)


def in_options(text: str, context: typer.Context) -> str:
    """Return a text that names options of a command instead of arguments of a function."""
    options = dict(_OTHER_NAMES)
    for param in context.command.params:
        if param.name and param.opts[0].startswith("-"):
            options[param.name] = max(param.opts, key=len)
    options |= context.meta.get(NAMED, {})

    def told(found: re.Match[str]) -> str:
        name, value = found[1] or found[2], (found[3] or "").strip("\"'")
        if name not in options:
            return found[0]
        return options[name] if found[1] or value == "True" else f"{options[name]} {value}"

    return _ARGUMENT.sub(told, re.sub(r"ooc\.open\(…, (\w+=\w+)\)", r"\1", text))


@contextmanager
def errors(context: typer.Context, verbose: bool) -> Iterator[None]:
    """Print an error as one paragraph on standard error, and exit with the code that it has.

    The options of the context's command are named in it; `verbose` prints the traceback too.
    """
    try:
        with _hooks(context):
            yield
    except (BrokenPipeError, typer.Exit, typer.Abort, typer.BadParameter):
        raise  # of `oocdata … | head` nobody wants the rest
    except (Exception, KeyboardInterrupt) as error:
        if verbose:
            traceback.print_exc()
        message, code = _told(error, context)
        _complain(message)
        raise typer.Exit(code) from None


def _told(error: BaseException, context: typer.Context) -> tuple[str, int]:
    """Return the message of an error and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped.", 130
    if not isinstance(error, OocdataError | OSError | MemoryError):
        return (
            f"unexpected {type(error).__name__}: {error}. This should not happen: run it again "
            "with --verbose, and report what it shows."
        ), 1
    several = isinstance(error, SeveralDatasetsError)
    hint = " Name it: --key NAME, or FILE::NAME." if several else ""
    message = in_options(f"{error}{hint}", context) or type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, OocdataError) and error.strerror:
        where = "" if error.filename is None else f": '{error.filename}'"
        message = f"{error.strerror}{where}."
    notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
    # A file that is too short for what is asked is no wrong call.
    wrong = several or isinstance(error, ArgumentError | PositionError)
    code = 2 if wrong and not isinstance(error, EmptyError) else 1
    return " ".join([message, *notes]), code


@contextmanager
def _hooks(context: typer.Context) -> Iterator[None]:
    """Tell warnings of oocdata's without the line of code that gave them, and keep Ctrl-C.

    Ctrl-C that came while a finaliser ran is sent again: Python drops what that raises.
    """
    warned, dropped = warnings.showwarning, sys.unraisablehook
    main = threading.main_thread().ident

    def told(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, OocdataError):
            _complain(in_options(str(message), context))
        else:
            warned(message, category, *where, **more)

    def again(what: sys.UnraisableHookArgs) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt) or main is None:
            dropped(what)
            return
        # Raised right here it would be dropped once more.
        later = threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT))
        later.daemon = True
        later.start()

    warnings.showwarning, sys.unraisablehook = told, again
    try:
        yield
    finally:
        warnings.showwarning, sys.unraisablehook = warned, dropped


def _complain(message: str) -> None:
    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    typer.echo(wrapped(" ".join(f"oocdata: {message}".split()), width=width), err=True)
