"""Each client of each federation has a secret of its own, from which its own randomness comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from privfed import Guard, LocalDisclosure, Policy, Schema
from privfed.engines.cohort import CohortDisclosure
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.queries import Asked, TemplateBits
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View


@dataclass(frozen=True)
class Drawn(Query):
    """What a client's own stream and coins give for a purpose, let out to be looked at.

    Sensitivity: none is stated; the records are not read.
    """

    label: str
    kind: ClassVar[str] = "test.drawn"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Eight numbers, and the sum of the records' coins."""
        return {"drawn": Part(PartType.VALUES, ("number",), (9,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Draw them."""
        tossed = float(np.sum(view.coins(self.label) / 2**64))
        return {"drawn": np.append(view.rng(self.label).random(8), tossed)}


POLICY = Policy({Drawn.kind: (Guard.of("open"),)})


def _federation(schema: Schema, **options: Any) -> LocalDisclosure:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.random((12, 3)), columns=["a", "b", "y"])
    return LocalDisclosure.from_frame(
        frame.assign(clinic=["north", "south", "east"] * 4),
        "y",
        client="clinic",
        schema=schema,
        policy=POLICY,
        queries=(Drawn,),
        **options,
    )


def _drawn(federation: LocalDisclosure, label: str = "a purpose") -> list[tuple[float, ...]]:
    return [tuple(each) for each in federation.ask(Drawn(label)).each("drawn").values()]


def test_secrets_differ_between_clients_and_federations(schema: Schema) -> None:
    """Without a seed, three clients of each of three federations draw nine different things."""
    drawn = [one for _ in range(3) for one in _drawn(_federation(schema))]
    assert len(set(drawn)) == 9


def test_a_secret_lasts_and_serves_each_purpose_apart(schema: Schema) -> None:
    """The same client draws the same for one purpose again, and something else for another."""
    federation = _federation(schema)
    first = _drawn(federation)
    assert _drawn(federation) == first
    assert not set(first) & set(_drawn(federation, "another"))


@pytest.mark.parametrize(("seed", "shared"), [(1, 3), (2, 0)])
def test_a_seed_repeats_secrets_client_by_client(schema: Schema, seed: int, shared: int) -> None:
    """A federation of the same seed draws the same, of another seed nothing of it."""
    one, other = _drawn(_federation(schema, seed=1)), _drawn(_federation(schema, seed=seed))
    assert len(set(one)) == 3
    assert len(set(one) & set(other)) == shared


def test_a_secret_outlives_the_process_where_its_ledger_does(
    schema: Schema, tmp_path: Path
) -> None:
    """Opened again over the same folder, each client draws as before; over another, anew."""
    drawn = []
    for folder in ("one", "one", "other"):
        federation = _federation(schema, ledgers=tmp_path / folder)
        drawn.append(_drawn(federation))
        federation.close()
    assert drawn[0] == drawn[1]
    assert not set(drawn[0]) & set(drawn[2])


def test_secrets_of_cohorts_differ(tmp_path: Path) -> None:
    """Two cohorts without a seed or a common ledger draw different things in secret."""
    book = generate(Profile(20, 60, 20, 3, 1.5, 3, stems=4), 1)
    policy = Policy(
        {TemplateBits.kind: (Guard.of("randomized_response", spend="0.1"),)}, unit="individual"
    )
    query = TemplateBits(
        Asked.everybody(20), book.grammar.digest, tuple(book.grammar.continuations(())[:1])
    )
    secrets = set()
    for seed, ledger in ((None, None), (None, "a.db"), (None, "a.db"), (1, None), (1, None)):
        path = None if ledger is None else tmp_path / ledger
        cohort = CohortDisclosure.of(book, policy, seed=seed, ledger=path)
        cohort.ask(query)
        gate = cohort.gates["cohort"]
        secrets.add(gate._view.secret)
        assert len(gate._view.secret) >= 13
        cohort.close()
    assert len(secrets) == 3
