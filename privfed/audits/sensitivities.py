"""Audits of the sensitivities that queries of other packages state; no data are read."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from privfed.attacks.finding import Finding
from privfed.learners.base import Planned
from privfed.owner.guards import assign, foreign
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import mechanism_of
from privfed.questions.part import Bound, Part
from privfed.questions.query import CohortQuery, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema

NAME = "audit of the stated sensitivities"  #: Findings of this audit are called so
SIZES, TRIES = (0, 1, 3, 30), 12  #: Records of the made-up tables, and tables of each size
LARGEST = 2**20  #: Most cells of a query that is tried
SECRET = b"a made-up client's secret"


def audit_sensitivities(plan: Sequence[Planned], schema: Schema, policy: Policy) -> list[Finding]:
    """Try the questions of other packages on made-up tables of a schema, with and without one record.

    Tables are of values between the bounds and of their ends, the record stands first or last. A part that
    moves beyond what is declared for a record disproves the claim: nothing of this is chance. What does not
    proves little, and :func:`privfed.testing.check_query.check_query` searches further.

    Args:
        plan, schema, policy: as in :func:`privfed.audits.guards.audit_guards`.

    Returns:
        one finding for each kind whose parts noise protects: how many of them move too far.
    """
    found: dict[str, Finding] = {}
    for query in (planned.query for planned in plan if foreign(type(planned.query))):
        parts = query.parts(schema)
        noisy = {name: parts[name] for name in _noisy(query, parts, policy)}
        cells = sum(part.size for part in parts.values())
        if not noisy or isinstance(query, CohortQuery) or cells > LARGEST or query.kind in found:
            continue
        moved, failed = set[str](), ""
        try:
            moved.update(_excesses(query, noisy, schema))
        except Exception as error:  # noqa: BLE001  # a plugin's own, on constants: it ends no study
            failed = f"it failed with {type(error).__name__} on made-up records"
        found[query.kind] = Finding(
            NAME,
            "Does one record move an answer further than the query declares?",
            "parts that one record moves beyond their sensitivity",
            len(moved),
            of=len(noisy),
            baseline=0.0,
            releases=(query.kind,),
            severity="breach" if moved else "none",
            simulation=False,
            detail={"parts": sorted(moved)},
            partial=failed,
        )
    return list(found.values())


def _noisy(query: Query, parts: Mapping[str, Part], policy: Policy) -> Iterator[str]:
    """The parts with a sensitivity that a guard adds noise to."""
    guards = policy.guards.get(query.kind, ())
    for guard, names in zip(guards, assign(guards, parts), strict=True):
        if mechanism_of(guard).currency is not None:
            yield from (name for name in names if parts[name].sensitivity is not None)


def _excesses(query: Query, parts: Mapping[str, Part], schema: Schema) -> Iterator[str]:
    """Every part that a made-up record moves beyond its bound, each time that it does."""
    rng = np.random.default_rng(0)
    for size in np.repeat(SIZES, TRIES):
        rows = _rows(schema, int(size) + 1, rng)
        everybody = _answer(query, rows, schema)
        for without in (rows[1:], rows[:-1]):
            others = _answer(query, without, schema)
            for name, part in parts.items():
                step = np.abs(everybody[name] - others[name]).ravel()
                moved = Bound(int(step.sum()), int((step.astype(object) ** 2).sum()))
                bound = part.sensitivity.add_or_remove if part.sensitivity else moved
                if moved.l1 > bound.l1 or moved.l2_squared > bound.l2_squared:
                    yield name


def _rows(schema: Schema, size: int, rng: np.random.Generator) -> np.ndarray:
    """Made-up values, shape (size, columns), the target last: an end of the bounds in every second cell."""
    columns = [*schema.features, *([schema.target] if schema.target else [])]
    low, high = np.array([column.bounds for column in columns], dtype=float).T
    values = rng.uniform(low, high, (size, len(columns)))
    whole = np.array([column.kind != "number" for column in columns])
    values[:, whole] = np.rint(values[:, whole])
    ends = np.where(rng.random(values.shape) < 0.5, low, high)
    return np.where(rng.random(values.shape) < 0.5, ends, values)


def _answer(query: Query, rows: np.ndarray, schema: Schema) -> dict[str, np.ndarray]:
    width = len(schema.features)
    target = rows[:, width] if schema.target else None
    exact = query.evaluate(View(Records(schema, rows[:, :width], target), schema, SECRET))
    return {name: np.asarray(array).astype(np.int64) for name, array in exact.items()}
