"""Read a TOML table into a dataclass, reporting unknown, missing and ill-typed keys with remedies."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from privfed.errors import Faults, InputError, did_you_mean
from privfed.tables.toml_file import check_keys

T = TypeVar("T")
#: Remedies by expected type.
MEANT = {
    "int | float": "a number",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text in quotes",
    "list": "a list in [ ]",
    "table": "a table in { }",
}


def section(
    data: Any,
    type_: type[T],
    where: str,
    error: type[InputError],
    *,
    examples: Mapping[str, str] = MappingProxyType({}),
    without: Collection[str] = (),
) -> T:
    """Read one table, called ``where`` in messages; raise ``error`` with all its faults.

    ``examples`` show how keys are written; the fields ``without`` are not keys.
    """
    known = {f.name: f for f in fields(type_) if f.name not in without}  # type: ignore[arg-type]
    values, faults = dict[str, Any](), Faults()
    with faults.collected():
        check_keys(data, known, where, error)
    if isinstance(data, Mapping):
        meant = meant_keys(data, set(known))
        for name, key in known.items():
            required = key.default is MISSING and key.default_factory is MISSING
            if required and name not in data and name not in meant:
                example = examples.get(name, f'{name} = "..."')
                faults.add(error(f"{where}: {name} is missing; write {example}"))
        with faults.collected():
            entries = {key: data[key] for key in data if key in known}
            values = typed(entries, type_, where, error, examples)
    faults.tell(error)
    return type_(**values)


def meant_keys(data: Mapping[str, Any], known: set[str]) -> set[str]:
    """Return the keys meant by misspelt ones, which are then not reported as missing."""
    hints = [did_you_mean(key, known) for key in set(data) - known]
    return {key for key in known for hint in hints if repr(key) in hint}


def typed(
    data: Mapping[str, Any],
    type_: type[Any],
    where: str,
    error: type[InputError],
    examples: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Convert values to a dataclass's types; ``error`` names the types of all wrong ones, never values."""
    hints, faults = get_type_hints(type_), Faults()
    values = {}
    for key, value in data.items():
        try:
            values[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as misfit:
            text, hint = in_words_of_toml(misfit), remedy(misfit, hints[key])
            hint = f"; write {examples[key]}" if key in examples else hint
            text = text.replace(" - at $", f" at {key}") if " at " in text else f"{text} at {key}"
            faults.add(error(f"{where}: {text.replace(' | null', '')}{hint}"))
    faults.tell(error)
    return values


def in_words_of_toml(error: msgspec.ValidationError) -> str:
    """Return a type error in TOML's terms."""
    text = str(error).replace("`", "").replace("object", "table").replace("array", "list")
    return text[0].lower() + text[1:]


def remedy(error: msgspec.ValidationError, type_: Any) -> str:
    """Return what to write instead of a value of the wrong type."""
    text = in_words_of_toml(error)
    if "enum" in text:
        words = [word for choice in get_args(type_) for word in get_args(choice) or [choice]]
        return f"; write one of {', '.join(word for word in words if isinstance(word, str))}"
    meant = next((word for expected, word in MEANT.items() if f"expected {expected}" in text), "")
    quoted = "got str" in text and "quotes" not in meant
    return f"; write {meant}{', without quotes' if quoted else ''}" if meant else ""
