"""Do marked terms of short lists vanish under another draw of the noise, and unmarked ones come back? Real tables.

    PRIVFED_DATA=FOLDER python benchmarks/rulefit_alternatives.py [--data electricity ...] [--epsilons 1 4]
        [--draws 20] [--results private_alternatives]

A term is marked if its list names alternatives (privfed.learners.rulefit.alternatives). Draws have the same records,
owners and random trees, and other noise. Each term of each draw is looked for in every other draw: by its columns, and
as the same term, with the same sides and categories, and thresholds that at most a sixteenth of the records lie
between. A marked term that vanished is replaced by a named alternative if that draw has the same rule with its
thresholds within the stated ranges, or the named other term (up to a sixteenth of the records).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
from league import DELTA, gates_of, load, schema_of
from result_rows import PRIVATE_KEYS, arguments, progress, write_rows

from privfed import Schema
from privfed.learners import private
from privfed.learners.private import PrivateModel
from privfed.learners.rulefit.alternatives import Alternatives, Term, form_of
from privfed.learners.rulefit.short import shortened
from privfed.tables.records import Records

FORMS = {"20 terms": (20, False), "10 stable terms": (10, True)}
MOST, OWNERS, FIRST = 15_000, 5, 1000  #: Records, their owners, and the first seed of the noise
NEAR = 1 / 16  #: Fraction of the records between thresholds that count as the same
#: None of them had a part in the choice of the probability.
HELD_OUT = ["electricity", "default_credit_card", "abalone"]
NOTE = "fractions over terms and pairs of draws; spread: standard error over draws"
List = list[tuple[Term, Alternatives]]


def learnt(name: str, epsilon: str, draw: int) -> tuple[PrivateModel, np.random.Generator]:
    """The private engine's model of all records, and the generator that goes on."""
    frame, schema = table(name)
    policy = private.private(epsilon, DELTA)
    held = gates_of(frame, schema, policy, FIRST + draw, OWNERS)
    rng = np.random.default_rng(0)
    number = schema.target is not None and schema.target.kind == "number"
    return private.learn(held, private.Outcome.of(schema, number), rng), rng


def table(name: str) -> tuple[pd.DataFrame, Schema]:
    """At most :data:`MOST` records of a table, and the schema."""
    frame, number = load(name)
    frame = frame if len(frame) <= MOST else frame.sample(MOST, random_state=0)
    return frame, schema_of(frame, number, 1)


def lists(name: str, epsilon: str, draw: int) -> dict[str, List]:
    """Terms with a coefficient and their alternatives, by form."""
    engine, rng = learnt(name, epsilon, draw)
    found = {}
    for form, (most, stable) in FORMS.items():
        (model,) = shortened(engine, most, deepcopy(rng).spawn(1)[0], stable=stable)
        names = [model.schema.names[k] for k in model.terms.linear]
        assert model.alternatives is not None
        terms: list[Term] = [*model.rules, *names]
        every = zip(terms, model.alternatives, model.weights[1:], strict=True)
        found[form] = [(term, alike) for term, alike, weight in every if weight]
    return found


class Likeness:
    """Compares terms by the records between their thresholds."""

    def __init__(self, name: str) -> None:
        frame, self.schema = table(name)
        columns = Records.from_frame(frame, self.schema).x.T
        categories = {c.name for c in self.schema.features if c.kind == "category"}
        self.form = cache(lambda term: form_of(term, categories))
        self.values = dict(zip(self.schema.names, map(np.sort, columns), strict=False))

    def below(self, column: str, value: float) -> float:
        """The fraction of the records below a value."""
        own = self.values[column]
        return float(np.searchsorted(own, value) / len(own))

    def same(self, own: Term, other: Term, alike: Alternatives | None = None) -> bool:
        """Whether they are one term, the other's thresholds close to the own ones, or to the stated ranges."""
        (form, ends), (known, others) = map(self.form, (own, other))
        if form != known:
            return False
        ranges = () if alike is None else alike.cutoffs
        for (name, cut), (_, found) in zip(ends, others, strict=True):
            stated = [(a, b) for n, a, b in ranges if n == name and a <= cut <= b]
            low, high = stated[0] if stated else (cut, cut)
            at = self.below(name, found)
            if not self.below(name, low) - NEAR <= at <= self.below(name, high) + NEAR:
                return False
        return True

    def replaced(self, own: Term, other: Term, alike: Alternatives) -> bool:
        """Whether the other is one that is named in the place of the own term."""
        named = alike.best is not None and self.same(alike.best, other)
        return named or (bool(alike.cutoffs) and self.same(own, other, alike))


def columns_of(term: Term) -> set[str]:
    """The columns of a rule or a linear term."""
    return {term} if isinstance(term, str) else set(term.features)


def outcomes(drawn: Sequence[List], like: Likeness) -> pd.DataFrame:
    """What becomes of each term in each other draw: a row for each."""
    rows = []
    for (draw, own), (other, terms) in permutations(enumerate(drawn), 2):
        for term, alike in own:
            same = any(like.same(term, one) for one, _ in terms)
            rows.append(
                {
                    "draw": draw,
                    "other": other,
                    "mark": kind_of(alike),
                    "columns": any(columns_of(term) == columns_of(one) for one, _ in terms),
                    "same": same,
                    "replaced": any(like.replaced(term, one, alike) for one, _ in terms),
                }
            )
    return pd.DataFrame(rows)


def kind_of(alike: Alternatives) -> str:
    """What a term's mark names."""
    if not alike:
        return "none"
    return "others" if alike.best is not None else "cut-offs"


def figures(found: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Means of these outcomes, and their standard errors over draws."""
    marked = found["mark"] != "none"
    vanished = marked & ~found["same"]
    parts = {
        "marked": (marked, found["mark"] != ""),
        "marked with cut-offs only": (found["mark"] == "cut-offs", found["mark"] != ""),
        "same columns, marked": (found["columns"], marked),
        "same columns, marked with cut-offs only": (found["columns"], found["mark"] == "cut-offs"),
        "same columns, not marked": (found["columns"], ~marked),
        "same term, marked": (found["same"], marked),
        "same term, not marked": (found["same"], ~marked),
        "vanished, replaced": (found["replaced"], vanished),
        "came back, another fits the description": (found["replaced"], marked & found["same"]),
    }
    for metric, (what, of) in parts.items():
        each = what[of].groupby(found["draw"]).mean()
        if len(each):
            error = each.std() / np.sqrt(len(each)) if len(each) > 1 else np.nan
            yield {"metric": metric, "value": what[of].mean(), "spread": error}


def main() -> None:
    """Measure each table, epsilon and form."""
    parser = arguments(__doc__, data=HELD_OUT, epsilons=["1", "4"])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--results", help="name of the table in benchmarks/results")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, epsilon in progress(list(product(given.data, given.epsilons)), "tables"):
        like = Likeness(name)
        drawn = [lists(name, epsilon, draw) for draw in range(given.draws)]
        for form in FORMS:
            found = outcomes([own[form] for own in drawn], like)
            factors = {"set": name, "epsilon": epsilon, "learner": form}
            rows += [factors | row for row in figures(found)]
    print(pd.DataFrame(rows).to_string())
    if given.results:
        seeds = f"noise {FIRST} to {FIRST + given.draws - 1}"
        write_rows(rows, given.results, PRIVATE_KEYS, seed=seeds, note=NOTE, float_format="%.4g")


if __name__ == "__main__":
    main()
