"""Reads a TOML table into a dataclass: unknown, missing and ill-typed keys, each with its remedy."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from privfed.errors import Faults, StudyError, did_you_mean

T = TypeVar("T")


def section(plain: Any, type_: type[T], where: str) -> T:
    """Read one table (StudyError: all its faults)."""
    known, faults = {f.name: f for f in fields(type_)}, Faults()  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    with faults.collected():
        check_keys(plain, set(known), where)
    if isinstance(plain, Mapping):
        meant = meant_keys(plain, set(known))
        for name, key in known.items():
            required = key.default is MISSING and key.default_factory is MISSING
            if required and name not in plain and name not in meant:
                faults.add(StudyError(f'{where}: {name} is missing; write {name} = "..."'))
        with faults.collected():
            values = typed({key: plain[key] for key in plain if key in known}, type_, where)
    faults.tell(StudyError)
    return type_(**values)


def check_keys(plain: Mapping[str, Any], known: set[str], where: str) -> None:
    """Check that a table has no unknown keys (StudyError: it has, or is no table)."""
    if not isinstance(plain, Mapping):
        raise StudyError(f"{where}: must be a table of keys and values")
    unknown = sorted(set(plain) - known)
    if unknown:
        raise StudyError(*(f"{where}: unknown key {key!r}; {_hint(key, known)}" for key in unknown))


def meant_keys(plain: Mapping[str, Any], known: set[str]) -> set[str]:
    """Return the keys that misspelt ones stand for, which are not missing as well."""
    hints = [did_you_mean(key, known) for key in set(plain) - known]
    return {key for key in known for hint in hints if repr(key) in hint}


def _hint(key: str, known: set[str]) -> str:
    return did_you_mean(key, known).removeprefix("; ") or f"known are {', '.join(sorted(known))}"


def typed(plain: Mapping[str, Any], type_: type[Any], where: str) -> dict[str, Any]:
    """Convert values to a dataclass's types; a StudyError names types of all misfits, never values."""
    hints, faults = get_type_hints(type_), Faults()
    made = {}
    for key, value in plain.items():
        try:
            made[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            text = str(error).replace("`", "").replace(" - at $", f" at {key}")
            text = text if " at " in text else f"{text} at {key}"
            known = ", ".join(map(str, get_args(hints[key])))
            text += f"; write one of {known}" if "enum" in text else ""
            text += unquoted(text)
            faults.add(StudyError(f"{where}: {text[0].lower()}{text[1:]}"))
    faults.tell(StudyError)
    return made


def unquoted(text: str) -> str:
    """Return the remedy if a type error is about a quoted number or truth value, else ""."""
    types = {"expected int": "a whole number", "expected float": "a number"}
    types["expected bool"] = "true or false"
    meant = [
        word for start, word in types.items() if start in text.lower() and text.count("got str")
    ]
    return f"; write {meant[0]}, without quotes" if meant else ""
