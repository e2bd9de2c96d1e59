"""Modules and their names, imported on first use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def attach(
    module: str, file: str, elsewhere: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` (PEP 562) and ``__all__`` for a module.

    Its names are those imported under ``if TYPE_CHECKING:``, which only type checkers execute. A name of the module
    ``elsewhere`` is an ImportError that says where it is.
    """
    homes = {
        name.name: node.module
        for branch in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }

    def get(name: str) -> Any:
        if name not in homes:
            if elsewhere and not name.startswith("_") and name in dir(import_module(elsewhere)):
                raise ImportError(f"{name} is not in {module}: from {elsewhere} import {name}")
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("privfed."):
                raise
            raise ImportError(
                f"{name} is not in privfed-testing; uninstall it, and install privfed, which has all of it"
            ) from error

    return get, lambda: sorted(homes), sorted(homes)


class _Deferred(ModuleType):
    """Placeholder of a module until one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # what the import system looks for
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


def defer(*names: str) -> None:
    """Postpone ``import NAME`` of libraries until one of their names is used."""
    for name in names:
        sys.modules.setdefault(name, _Deferred(name))
