"""Read and write users' TOML files: schemas, policies and studies."""

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import tomli_w

from privfed.errors import InputError, did_you_mean, file_errors


class InToml(ABC):
    """Base class of objects that can be written to a TOML file."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""

    def to_toml(self, path: str | Path) -> None:
        """Write the file."""
        Path(path).write_text(tomli_w.dumps(self.to_dict()), encoding="utf-8")

    def _repr_html_(self) -> str:
        """Return the file's text for notebooks."""
        text = escape(tomli_w.dumps(self.to_dict()))
        return f'<pre style="font-family:monospace">{text}</pre>'


def read_toml(path: str | Path, where: str, error: type[InputError]) -> dict[str, Any]:
    """Read a file, called ``where`` in messages; raise ``error`` if it is missing, or not TOML."""
    try:
        with file_errors(where, instead="check its path", error=error):
            return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise error(f"{where}: is not UTF-8 text; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as fault:
        raise error(f"{where}: is not TOML: {fault}") from None


def check_keys(
    data: Mapping[str, Any], known: Iterable[str], where: str, error: type[InputError]
) -> None:
    """Check a table's keys; raise ``error`` with all unknown ones."""
    names = sorted(known)
    if not isinstance(data, Mapping):
        raise error(f"{where}: must be a table of keys; known are {', '.join(names)}")
    faults = []
    for key in sorted(set(data) - set(names)):
        hint = did_you_mean(key, names)
        known = f"{hint} Known" if hint else "; known"
        faults.append(f"{where}: unknown key {key!r}{known} are {', '.join(names)}")
    if faults:
        raise error(*faults)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Prefix faults raised inside with the file's name, unless they have it already."""
    try:
        yield
    except InputError as error:
        error.args = tuple(
            fault if where in fault else f"{where}: {fault}" for fault in error.faults
        )
        raise
