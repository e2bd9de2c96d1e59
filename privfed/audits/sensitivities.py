"""Audits of the stated sensitivities of other packages' queries; no data are read."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from privfed.attacks.finding import Finding
from privfed.learners.base import Planned
from privfed.owner.guards import assign
from privfed.privacy.loss import foreign
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import mechanism_of
from privfed.questions.part import Bound, Part, as_declared
from privfed.questions.query import CohortQuery, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema

NAME = "audit of the stated sensitivities"  #: Name of this audit's findings
#: Records of the synthetic tables, and tables of each size, divided among the queries of a kind.
SIZES, TRIES = (0, 1, 3, 30), 12
QUESTIONS = 64  #: Most queries of a kind that are tried; each has a table of each size
LARGEST = 2**20  #: Most cells of a query that is tried
LONGEST = 300  #: Most characters of a failure's text
SECRET = b"a made-up client's secret"


def audit_sensitivities(plan: Sequence[Planned], schema: Schema, policy: Policy) -> list[Finding]:
    """Try the queries of other packages on synthetic tables of a schema and their neighbours.

    Tables have values between the bounds and at their ends. One record, first or last, is left out or replaced by
    another; and all of them are left out, if a part is declared for a whole client. A part that
    moves beyond its declaration disproves the claim, deterministically; so does a failure, instead of which a gate
    answers with noise around zeros, for all parts of the query. A part that does neither proves little, and
    :func:`privfed.testing.check_query.check_query` searches further.

    Args:
        plan, schema, policy: as in :func:`privfed.audits.guards.audit_guards`.

    Returns:
        one finding for each kind with noisy parts: the number of them that move too far. ``partial`` lists what was
        not tried: queries to a cohort, whose rules are not synthesised here, and large ones.
    """
    kinds: dict[str, dict[str, Query]] = {}
    for query in (planned.query for planned in plan if foreign(type(planned.query))):
        if any(_noisy(query, query.parts(schema), policy)):
            kinds.setdefault(query.kind, {})[query.digest] = query
    return [
        _audit_kind(kind, list(group.values()), schema, policy) for kind, group in kinds.items()
    ]


def _audit_kind(kind: str, queries: Sequence[Query], schema: Schema, policy: Policy) -> Finding:
    """Try all different queries of one kind."""
    exceeded, known = set[str](), set[str]()
    untried, failed = dict[str, None](), dict[str, None]()
    tries = max(1, TRIES // len(queries))
    for number, query in enumerate(queries):
        parts = query.parts(schema)
        noisy = {name: parts[name] for name in _noisy(query, parts, policy)}
        known.update(noisy)
        if why := _untried(query, parts, number):
            untried[why] = None
            continue
        try:
            exceeded.update(_excesses(query, noisy, schema, tries))
        except Exception as error:  # noqa: BLE001  # a plugin's own, on synthetic records: its text holds no data
            exceeded.update(noisy)
            failed[f"{type(error).__name__}: {error}"[:LONGEST]] = None
    return Finding(
        NAME,
        "Does one record change an answer by more than the query's stated sensitivity?",
        "parts that one record changes by more than their sensitivity",
        len(exceeded),
        of=len(known),
        baseline=0.0,
        releases=(kind,),
        severity="breach" if exceeded else "none",
        simulation=False,
        detail={"parts": sorted(exceeded), "errors": list(failed)},
        partial="; ".join(untried),
    )


def _untried(query: Query, parts: Mapping[str, Part], number: int) -> str:
    """Why a query is not tried; empty if it is."""
    if isinstance(query, CohortQuery):
        return "no synthetic individuals of a cohort are drawn"
    if sum(part.size for part in parts.values()) > LARGEST:
        return f"answers of more than {LARGEST:,} cells were not tried"
    return f"more than {QUESTIONS} questions are planned" if number >= QUESTIONS else ""


def _noisy(query: Query, parts: Mapping[str, Part], policy: Policy) -> Iterator[str]:
    """Yield the parts with a sensitivity to which a guard adds noise."""
    guards = policy.guards.get(query.kind, ())
    for guard, names in zip(guards, assign(guards, parts), strict=True):
        if mechanism_of(guard).currency is not None:
            yield from (name for name in names if parts[name].sensitivity is not None)


def _excesses(query: Query, parts: Mapping[str, Part], schema: Schema, tries: int) -> Iterator[str]:
    """Yield every part that moves beyond its bound between synthetic neighbours, each time."""
    rng = np.random.default_rng(0)
    for number, size in enumerate(np.repeat(SIZES, tries)):
        rows = _rows(schema, int(size) + 2, rng)
        if number % 3 == 1:  # a crowd of equal records
            rows[1:-1] = rows[:1]
        added, others, replacement = rows[:1], rows[1:-1], rows[-1:]
        positions = [others, others[:0]], [others[:0], others]  # the record stands last, or first
        without, empty = (_answer(query, table, parts, schema) for table in (others, others[:0]))
        for before, after in positions:
            first, second = (
                _answer(query, np.concatenate([before, record, after]), parts, schema)
                for record in (added, replacement)
            )
            for name, part in parts.items():
                stated = part.sensitivity
                assert stated is not None
                within = (
                    _within(first[name], without[name], stated.add_or_remove),
                    _within(first[name], second[name], stated.under("record", "replace-one", None)),
                    _within(first[name], second[name], stated.anything),
                    _within(first[name], empty[name], stated.client),
                )
                if not all(within):
                    yield name


def _within(first: np.ndarray, second: np.ndarray, bound: Bound | None) -> bool:
    """Whether the distance of two answers is within a bound, if there is one."""
    if bound is None:
        return True
    step = np.abs(first - second).ravel()
    norms = int(step.sum()), int((step.astype(object) ** 2).sum())
    return norms[0] <= bound.l1 and norms[1] <= bound.l2_squared


def _rows(schema: Schema, size: int, rng: np.random.Generator) -> np.ndarray:
    """Synthetic values, shape (size, columns), the target last: in half of the cells an end of the bounds."""
    columns = [*schema.features, *([schema.target] if schema.target else [])]
    low, high = np.array([column.bounds for column in columns], dtype=float).T
    values = rng.uniform(low, high, (size, len(columns)))
    integral = np.array([column.kind != "number" for column in columns])
    values[:, integral] = np.rint(values[:, integral])
    ends = np.where(rng.random(values.shape) < 0.5, low, high)
    return np.where(rng.random(values.shape) < 0.5, ends, values)


def _answer(
    query: Query, rows: np.ndarray, parts: Mapping[str, Part], schema: Schema
) -> dict[str, np.ndarray]:
    """The exact parts, before a gate adds noise."""
    width = len(schema.features)
    target = rows[:, width] if schema.target else None
    exact = query.evaluate(View(Records(schema, rows[:, :width], target), schema, SECRET))
    arrays = {name: np.asarray(exact[name]) for name in parts}
    return {
        name: as_declared(np.trunc(a) if a.dtype.kind == "f" else a, parts[name]).astype(np.int64)
        for name, a in arrays.items()
    }
