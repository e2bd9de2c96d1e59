"""Saving and loading models: one JSON file each, loaded by the installed learner that it names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privfed.errors import InputError, file_errors
from privfed.learners.base import FederatedLearner
from privfed.learners.plain import DIGEST, digest
from privfed.learners.privacy_text import privacy_entry
from privfed.questions import plugins
from privfed.tables.toml_file import naming

_HINT = "give a model.json of a study, or what privfed.learners.save wrote"
LARGEST = 2**30  #: Maximum size of a file to read, bytes


def save(model: FederatedLearner, path: str | Path) -> None:
    """Write a fitted model as JSON, for :func:`load` (InputError: ``to_dict`` is not JSON-compatible).

    With its epsilon, if known; a simulated study's file has none, but the ledgers beside it.
    """
    Path(path).write_text(written(model, privacy_entry(model.privacy_)), encoding="utf-8")


def written(model: FederatedLearner, more: Mapping[str, Any] | None = None) -> str:
    """Return a fitted model, and ``more`` entries, as JSON (InputError: ``to_dict`` is not JSON-compatible)."""
    data = {**model.to_dict(), **(more or {})}
    try:
        return _to_json({**data, DIGEST: digest(data)}) + "\n"
    except (TypeError, ValueError) as error:
        name = type(model).__name__
        raise InputError(f"readable() of {name} gives no plain data: {error}") from None


def _to_json(value: Any, indent: str = "\n") -> str:
    """Format as indented JSON, with a list of scalars on one line."""
    inside = indent + "  "
    if isinstance(value, dict) and value:
        names = [key if isinstance(key, str) else json.dumps(key) for key in value]
        pairs = zip(names, value.values(), strict=True)
        lines = [f"{json.dumps(name)}: {_to_json(item, inside)}" for name, item in pairs]
        return f"{{{inside}{(',' + inside).join(lines)}{indent}}}"
    if isinstance(value, list | tuple) and any(
        isinstance(item, dict | list | tuple) for item in value
    ):
        lines = [_to_json(item, inside) for item in value]
        return f"[{inside}{(',' + inside).join(lines)}{indent}]"
    return json.dumps(value, allow_nan=False)


def load(path: str | Path, *, learner: type[FederatedLearner] | None = None) -> FederatedLearner:
    """Load a model that :func:`save` or a study wrote; predictions are exactly the same.

    ``learner`` is its class, if that is not installed as a plugin.

    Raises:
        InputError: no such file, no model in it, or a damaged one.
        PluginError: the learner that it names is not installed.
    """
    try:
        with file_errors(f"model file {path}", instead=_HINT):
            if Path(path).stat().st_size > LARGEST:
                raise InputError(f"model file {path}: is larger than {LARGEST} bytes")
            data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise InputError(f"model file {path}: is not JSON; {_HINT}") from None
    with naming(f"model file {path}"):
        return from_dict(data) if learner is None else learner.from_dict(data)


def from_dict(data: Mapping[str, Any]) -> FederatedLearner:
    """Restore a fitted model of any installed learner from the output of its ``to_dict``."""
    if not isinstance(data, Mapping) or not isinstance(data.get("learner"), str):
        raise InputError(f"no model: it names no learner; {_HINT}")
    return _class(data["learner"]).from_dict(data)


def settings(learner: FederatedLearner) -> dict[str, Any]:
    """Return a learner's name and parameters as JSON-compatible data, for :func:`built`."""
    return {"learner": type(learner).__name__, "parameters": learner.saved_parameters()}


def built(data: Mapping[str, Any]) -> FederatedLearner:
    """Build the unfitted learner from the output of :func:`settings`."""
    learner = _class(data["learner"])
    return learner(**learner.restored_parameters(data["parameters"]))


def _class(name: str) -> type[FederatedLearner]:
    learner = plugins.load("learners", name)
    if not (isinstance(learner, type) and issubclass(learner, FederatedLearner)):
        raise InputError(f"the plugin {name!r} is not a learner")
    return learner
