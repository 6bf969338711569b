"""Find what functions read besides their arguments: globals, and functions that they call."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partial, partialmethod
from inspect import getattr_static
from itertools import chain, pairwise
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_CONSTANTS = (bool, int, float, complex, str, bytes, np.generic)


def function_of(member: Any) -> FunctionType | None:
    """Return the function of a method, class method, static method or property of a class."""
    if isinstance(member, partial | partialmethod):
        return None
    for name in ("__func__", "fget", "func"):
        member = getattr(member, name, member)
    return member if isinstance(member, FunctionType) else None


def is_installed(value: Any) -> bool:
    """Return whether a function or class is from a library, and so identified by its name."""
    if isinstance(value, type) and value.__module__ in sys.builtin_module_names:
        return True
    # What a library's decorator makes of a function has the module of the function.
    is_own_code = isinstance(value, FunctionType) and not is_library(value.__code__.co_filename)
    return not is_own_code and is_library(
        getattr(sys.modules.get(value.__module__), "__file__", None) or ""
    )


@cache
def is_library(file: str) -> bool:
    """Return whether a file with code is part of an installed library, or of Python."""
    from sysconfig import get_paths  # not for `import oocdata`

    paths = get_paths()
    return file.startswith(tuple(paths[name] for name in ("stdlib", "purelib", "platlib")))


def module_of(value: Any) -> str:
    """Return the module of a class or function; that of a script is ``__main__`` in any process.

    In a process that multiprocessing has spawned, it is named ``__mp_main__``.
    """
    module: str = value.__module__
    return "__main__" if module == "__mp_main__" else module


def globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function reads, and attributes of them (``module.function``).

    A list to which the code only appends, such as a log, has no influence on what it returns; nor
    should the globals of a library, which a decorator from there reads.
    """
    if is_library(function.__code__.co_filename):
        return
    for code in codes(function.__code__):
        name, value = "", None
        for instruction, following in pairwise(dis.get_instructions(code)):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                name = instruction.argval
                value = function.__globals__.get(name)
            elif name and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                name = f"{name}.{instruction.argval}"
                value = getattr_static(value, instruction.argval, None)
            elif instruction.opname != "EXTENDED_ARG":
                name = ""
            if name and following.argval != "append":
                yield name, value


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def constants_read(functions: Iterable[Any]) -> dict[str, str]:
    """Return the numbers and texts in globals that functions, and those they call, read.

    By name, as text; also tuples of them. Not those that one of these functions assigns: they are
    its own state, as lists and dicts may be.
    """
    found, assigned = dict[str, str](), set[str]()
    pending, visited = list(functions), dict[int, Any]()
    for value in pending:
        if id(value) in visited:
            continue
        visited[id(value)] = value
        if isinstance(value, partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, MethodType):
            pending += [value.__self__, value.__func__]
        elif not isinstance(value, FunctionType):
            if callable(value) and not isinstance(value, ModuleType):
                kind = value if isinstance(value, type) else type(value)
                for base in kind.__mro__:
                    pending += filter(None, map(function_of, vars(base).values()))
        elif not is_installed(value):
            for cell in value.__closure__ or ():
                with suppress(ValueError):  # a variable not assigned yet
                    pending.append(cell.cell_contents)
            for name, used in globals_of(value):
                parts = used if isinstance(used, tuple) else (used,)
                if all(isinstance(part, _CONSTANTS) for part in parts):
                    found[f"{module_of(value)}.{name}"] = repr(used)
                else:
                    pending.append(used)
            assigned |= {
                f"{module_of(value)}.{instruction.argval}"
                for instruction in chain(*map(dis.get_instructions, codes(value.__code__)))
                if instruction.opname == "STORE_GLOBAL"
            }
    return {name: text for name, text in found.items() if name not in assigned}
