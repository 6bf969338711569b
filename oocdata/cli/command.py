"""How a function becomes a command: shared options, errors told, help that reads well."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from oocdata.cli.failures import errors
from oocdata.cli.options import flag, given

__all__ = ["Command", "command"]

_Verbose = Annotated[bool, flag("--verbose", "Show the traceback of an error.", "-v")]


class Command(TyperCommand):
    """A command whose help names arguments as people type them, and has its options in groups."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the command's name in its usage line."""
        named = [param for param in self.params if param.param_type_name == "argument"]
        return [*(f"{param.metavar}" for param in named), "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, those that all commands share last."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        param: Any
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                record = (str(param.metavar), record[1].removesuffix("  [required]"))
                panel = "Arguments"
            else:
                panel = getattr(param, "rich_help_panel", None) or "Options"
            groups.setdefault(panel, []).append(record)
        for panel, records in groups.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for Typer: it tells errors as `errors` does, and has ``--verbose``.

    A function that takes `array`, the first of its arguments, has all options of
    `oocdata.cli.options.given` instead, and gets what that makes of them. One that takes `context`
    gets Typer's.
    """
    own = _parameters(function)
    shared = _parameters(given) if "array" in own else {}
    first = {"files": own.pop("files", shared.pop("files"))} if shared else {}
    verbose = inspect.Parameter(
        "verbose", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation=_Verbose
    )
    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    every = {"context": context, **first, **own, **shared, "verbose": verbose}
    every.pop("array", None)

    @wraps(function)
    def run(**values: Any) -> None:
        context = values["context"] if "context" in own else values.pop("context")
        with errors(context, values.pop("verbose")):
            if "array" in own:
                values["array"] = given(**{name: values.pop(name) for name in _GIVEN})
            function(**values)

    run.__signature__ = inspect.Signature(list(every.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: param.annotation for name, param in every.items()}
    return run


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return {param.name: param.replace(annotation=hints[param.name]) for param in parameters}


_GIVEN = tuple(_parameters(given))
