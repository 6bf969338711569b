"""Turn a function into a command, with shared options and error handling.

Every error is printed as one paragraph on standard error, and sets the exit code.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import shlex
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from oocdata.cli.options import flag, opening_of
from oocdata.errors import (
    ArgumentError,
    EmptyError,
    OocdataError,
    PositionError,
    SeveralDatasetsError,
)
from oocdata.tools.report import plain, wrapped

CONTEXT: ContextVar[typer.Context] = ContextVar("context")
"""Typer's context of the command that is running."""

_BY_NAME = inspect.Parameter.KEYWORD_ONLY  # so parameters with defaults may precede others
_Verbose = Annotated[bool, flag("--verbose", "Show the traceback of an error.", "-v")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for Typer with the option ``--verbose``, which reports errors by `errors`.

    If the function takes `array` as its first argument, the command has all options of
    `oocdata.cli.options.opening_of`, and the function gets the `Opening` made of them.
    """
    own = _parameters(function)
    shared = _parameters(opening_of) if "array" in own else {}
    first = {"files": own.pop("files", shared.pop("files"))} if shared else {}
    verbose = inspect.Parameter("verbose", _BY_NAME, default=False, annotation=_Verbose)
    context = inspect.Parameter("context", _BY_NAME, annotation=typer.Context)
    parameters = {"context": context, **first, **own, **shared, "verbose": verbose}
    parameters.pop("array", None)

    @wraps(function)
    def run(**values: Any) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            with suppress(OSError):  # a pipe may not be seekable
                # Print question marks for characters that the encoding lacks.
                sys.stdout.reconfigure(errors="replace")
        context = values.pop("context")
        CONTEXT.set(context)
        with errors(context, values.pop("verbose")):
            if "array" in own:
                values["array"] = opening_of(
                    **{name: values.pop(name) for name in _OPENING_OPTIONS}
                )
            function(**values)

    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: param.annotation for name, param in parameters.items()}
    return run


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return {
        name: param.replace(annotation=hints[name], kind=_BY_NAME)
        for name, param in inspect.signature(function).parameters.items()
    }


_OPENING_OPTIONS = tuple(_parameters(opening_of))
"""Names of the options that open an array."""

_OTHER_NAMES = {"path": "FILE", "target": "FILE", "source": "FILE", "sizes": "--split",
                "service": "--dispatcher", "cache": "FOLDER"}  # fmt: skip
"""Options whose names differ from the arguments in Python."""

_ARGUMENT = re.compile(r"`(\w+)`|(?<!, )(?<!\()\b(\w+)=(\w+|'[^']*'|\"[^\"]*\")")
"""An argument, or one with its value, but not in a call in Python."""


def with_option_names(text: str, context: typer.Context) -> str:
    """Return a message in which a command's options replace the arguments of a function."""
    options, flags = dict(_OTHER_NAMES), set[str]()
    for param in context.command.params:
        name, is_option = param.name or "", param.opts[0].startswith("-")
        options[name] = max(param.opts, key=len) if is_option else str(param.metavar)
        flags |= {name} if getattr(param, "is_flag", False) else set()

    def as_option(match: re.Match[str]) -> str:
        name, value = match[1] or match[2], match[3]
        if name not in options or (value == "True" and name not in flags):
            return match[0]
        if value is None or name in flags:
            return options[name]
        bare = value.strip("'\"")
        return f"{options[name]} {shlex.quote(bare)}"

    return _ARGUMENT.sub(as_option, text)


def print_result(result: Any, as_json: bool, **more: object) -> None:
    """Print the result of a command, as text or as one JSON object with the members `more`."""
    if as_json:
        typer.echo(json.dumps({**more, **plain(result)}, indent=2))
    else:
        typer.echo(with_option_names(str(result), CONTEXT.get()))


@contextmanager
def errors(context: typer.Context, verbose: bool) -> Iterator[None]:
    """Print an error as one paragraph on standard error, and exit with its exit code.

    The message names the options of the context's command; `verbose` also prints the traceback.
    """
    try:
        with _hooks(context):
            yield
    except (BrokenPipeError, typer.Exit, typer.Abort, typer.BadParameter):
        raise  # a broken pipe is normal: `oocdata … | head`
    except (Exception, KeyboardInterrupt) as error:
        if verbose:
            traceback.print_exc()
        message, code = _message_and_code(error, context)
        _print_error(message)
        raise typer.Exit(code) from None


def _message_and_code(error: BaseException, context: typer.Context) -> tuple[str, int]:
    """Return the message of an error and the exit code."""
    notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
    if isinstance(error, KeyboardInterrupt):
        return " ".join(["stopped.", *notes]), 130
    if not isinstance(error, OocdataError | OSError | MemoryError):
        return (
            f"unexpected {type(error).__name__}: {error}. This should not happen: run it again "
            "with --verbose, and report what it shows."
        ), 1
    several = isinstance(error, SeveralDatasetsError)
    hint = " Name it: --key NAME, or FILE::NAME." if several else ""
    message = with_option_names(f"{error}{hint}", context) or type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, OocdataError) and error.strerror:
        where = "" if error.filename is None else f": '{error.filename}'"
        message = f"{error.strerror}{where}."
    # If a file is too short, the arguments are not wrong.
    is_wrong_call = several or isinstance(error, ArgumentError | PositionError)
    code = 2 if is_wrong_call and not isinstance(error, EmptyError) else 1
    return " ".join([message, *notes]), code


@contextmanager
def _hooks(context: typer.Context) -> Iterator[None]:
    """Print warnings of oocdata without the line of code that raised them, and never lose Ctrl-C.

    Python ignores exceptions in finalisers, so a Ctrl-C that came in one is sent again.
    """
    old_showwarning, old_unraisablehook = warnings.showwarning, sys.unraisablehook
    main = threading.main_thread().ident

    def showwarning(
        message: Warning | str, category: type[Warning], *where: Any, **more: Any
    ) -> None:
        if issubclass(category, OocdataError):
            _print_error(with_option_names(str(message), context))
        else:
            old_showwarning(message, category, *where, **more)

    def unraisablehook(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt) or main is None:
            old_unraisablehook(unraisable)
            return
        # An exception raised here would be ignored too.
        timer = threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT))
        timer.daemon = True
        timer.start()

    warnings.showwarning, sys.unraisablehook = showwarning, unraisablehook
    try:
        yield
    finally:
        warnings.showwarning, sys.unraisablehook = old_showwarning, old_unraisablehook


def _print_error(message: str) -> None:
    """Print a message on standard error, wrapped to the width of the terminal."""
    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    typer.echo(wrapped(" ".join(f"oocdata: {message}".split()), width=width), err=True)
