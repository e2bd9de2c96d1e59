"""FedForest's private way: random trees weighted by noisy sums, of the engine that private learners share.

No quantile has a finite sensitivity, so nothing of the published protocol is asked: see
:mod:`privfed.learners.private`. The model is still a forest, of completely random trees beside linear
terms and bins of each column; their weights are learnt together, through a link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from privfed.errors import InputError
from privfed.learners.plain import plain, restored
from privfed.learners.private import Outcome, PrivateModel
from privfed.learners.private.grid import WHOLE, one_bin_each
from privfed.learners.private.target_link import MOST_CLASSES
from privfed.tables.schema import Schema

T = TypeVar("T")


def outcome(schema: Schema, numbers: bool) -> Outcome:
    """What is learned privately of the schema's target.

    Args:
        schema: the public data dictionary.
        numbers: whether numbers are predicted, else classes.

    Raises:
        InputError: more classes than the engine tells apart, or a number that is none.
    """
    found = Outcome.of(schema, numbers)
    target = schema.target
    assert target is not None
    few = one_bin_each(target) and found.classes <= MOST_CLASSES
    if found.kind == "classes" and not few:
        raise InputError(
            f"in private a forest tells apart up to {MOST_CLASSES} categories or {WHOLE} integers, "
            f'and {target.name!r} is no such target; declare kind = "category" and its categories '
            "in the schema, or take FedForestRegressor for a number"
        )
    return found


def values(model: PrivateModel, x: np.ndarray) -> np.ndarray:
    """Class shares, or the target in its own unit; shape (rows, values).

    Args:
        model: the fitted model.
        x: encoded rows, shape (rows, features).
    """
    found = model.predictions(x)
    if model.outcome.kind == "number":
        return model.outcome.values(found)[:, None]
    return np.column_stack([1 - found, found]) if model.outcome.kind == "binary" else found


def importances(model: PrivateModel) -> np.ndarray:
    """Each column's share of the weighted functions' variances; a tree's is even over its splits.

    Variances are those of the made-up records, so that nothing further is asked.

    Returns:
        shape (features,), summing to 1, or zeros for a constant.
    """
    basis = model.basis
    spread = ((model.effects * np.asarray(model.deviations)[:, None]) ** 2).sum(axis=1)
    found = spread[: basis.columns].copy()
    group = np.repeat(np.arange(len(basis.widths)), basis.widths)
    by_group = np.bincount(group, spread[basis.columns :], len(basis.widths))
    found += by_group[: basis.columns]
    first = basis.columns
    for own in basis.trees:
        share = by_group[first : first + own.count] / own.features.shape[1]
        np.add.at(found, own.features, share[:, None])
        first += own.count
    return np.asarray(found / max(found.sum(), 1e-300))


def lines(model: PrivateModel, names: tuple[str, ...]) -> list[str]:
    """What weighs most, for people: columns by their share of the score's variance."""
    shares = importances(model)
    order = np.argsort(-shares, kind="stable")
    trees = sum(own.count for own in model.basis.trees)
    head = (
        f"{trees} random trees, linear terms and bins of {len(names)} columns, weighted by "
        f"{model.rounds} noisy sums of about {max(model.records, 0):.0f} records"
    )
    return [head, *(f"{names[column]}: {shares[column]:.1%} of the score" for column in order)]


def state_of(model: PrivateModel) -> dict[str, Any]:
    """The model as plain data, without its schema."""
    return {f.name: _plain(getattr(model, f.name)) for f in fields(model) if f.name != "schema"}


def model_of(schema: Schema, state: Mapping[str, Any]) -> PrivateModel:
    """Read what :func:`state_of` gave.

    Raises:
        ValueError, TypeError, LookupError, QueryError: it makes no sense.
    """
    model = _built(PrivateModel, {**state, "schema": schema})
    model.outcome.check(schema)
    model.basis.check(schema)
    shape = (model.basis.size, model.outcome.classes)
    if model.weights.shape != shape or not np.isfinite(model.weights).all():
        raise ValueError("every function needs its weights")
    return model


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return plain(value)


def _built(type_: type[T], state: Mapping[str, Any]) -> T:
    """A dataclass of known field types from plain data."""
    hints = get_type_hints(type_)
    return type_(**{name: _field(hints[name], value) for name, value in state.items()})


def _field(hint: Any, value: Any) -> Any:
    if isinstance(hint, type) and is_dataclass(hint):
        return value if isinstance(value, hint) else _built(hint, value)
    inner = get_args(hint)
    if isinstance(value, list) and inner:
        return tuple(_field(inner[0], each) for each in value)
    return restored(value)
