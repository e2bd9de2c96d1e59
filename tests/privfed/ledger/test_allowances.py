"""Amounts in whole units, and rows whose questions nobody can read any more."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.accountants.pure import PureEpsilon
from privfed.errors import LedgerError
from privfed.learners.rule_search.queries import CohortSample, TemplateBits
from privfed.ledger import Entry
from privfed.ledger.allowances import (
    BEYOND,
    UNITS,
    Allowances,
    asked_in,
    ceiling_in_units,
    in_units,
)
from privfed.ledger.study_blocks import StudyBlock
from privfed.privacy.loss import Loss

QUERY = TemplateBits(CohortSample(6, 2, 5), "g", ((1,),))


def _row(kind: str = QUERY.kind, event: str = "reserved", **facts: Any) -> Entry:
    body = {"kind": kind, "loss": Loss.pure(Fraction(1, 2)).to_dict(), **facts}
    return Entry(1, "", event, "server", "r", body, QUERY.fields, "")


@given(st.lists(st.fractions(0, 5), min_size=1, max_size=6), st.fractions(0, 20))
def test_rounding_never_lets_an_individual_overspend(
    amounts: list[Fraction], ceiling: Fraction
) -> None:
    """Amounts are rounded up and ceilings down: what fits in units fits exactly."""
    each = Allowances(1, 1)
    limit = ceiling_in_units((ceiling,))
    paid = Fraction(0)
    for amount in amounts:
        units = in_units((amount,))
        if each.fits(slice(None), units, limit):
            each.charge(slice(None), units)
            paid += amount
    assert paid <= each.most[0] <= ceiling
    assert each.most[0] - paid <= Fraction(len(amounts), UNITS)


LARGE = st.sampled_from([2**60, 2**61 - 1, 2**61, 2**62, 2**63, 10**30]) | st.integers(0, 2**64)


@given(st.lists(LARGE, max_size=6), st.lists(LARGE, max_size=3), LARGE)
def test_no_amount_wraps_around(paid: list[int], shares: list[int], ceiling: int) -> None:
    """A charge beyond what is counted fits no ceiling and is told as an error; what is reserved stays above 0."""
    each, sum_ = Allowances(2, 1), 0
    blocks = [StudyBlock(str(n), (Fraction(one, UNITS),)) for n, one in enumerate(shares)]
    for amount in paid:
        units, most = in_units((Fraction(amount, UNITS),)), Fraction(ceiling, UNITS)
        named = {block.study: block for block in blocks}
        fits = each.fits(slice(None), units, ceiling_in_units((most,)), "", named)
        assert fits <= (sum_ + amount + sum(shares) <= min(ceiling, BEYOND - 1))
        if sum_ + amount < BEYOND:
            each.charge(slice(None), units)
            sum_ += amount
        else:
            with pytest.raises(LedgerError, match="charged more than 2,305,843 in all"):
                each.charge(slice(None), units)
    assert each.most == (Fraction(sum_, UNITS),)
    assert each.most_with(blocks) >= each.most


def test_a_row_that_says_more_than_is_counted_is_an_error() -> None:
    """However it comes to it: by the amount, or by how often it was reserved."""
    each = Allowances(6, len(PureEpsilon.components))
    for row in (
        _row(loss=Loss.pure(10**7).to_dict(), people=6),
        _row(event="block", count=2**62 + 1),
    ):
        with pytest.raises(LedgerError, match="verify the ledger"):
            each.follow(row, PureEpsilon())
    assert each.most[0] == 0


STUDIES = ("a", "b", "c")
ASKED = st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)
STEPS = st.lists(st.tuples(st.sampled_from(STUDIES), ASKED, st.integers(1, 4)), max_size=12)


@given(
    STEPS, st.lists(st.integers(0, 6), min_size=3, max_size=3), st.sets(st.sampled_from(STUDIES))
)
def test_shares_of_studies_are_each_individuals(
    steps: list[tuple[str, list[int], int]], shares: list[int], sealed: set[str]
) -> None:
    """As a naive book for each: her charges within each share, and all that is charged or reserved within 9."""
    blocks = {
        study: StudyBlock(study, (Fraction(share),), study in sealed)
        for study, share in zip(STUDIES, shares, strict=True)
    }
    each, ceiling = Allowances(4, 1), ceiling_in_units((Fraction(9),))
    books = [dict.fromkeys(STUDIES, 0) for _ in range(4)]

    def taken(book: dict[str, int], but: str = "") -> int:
        kept = [s for s in STUDIES if s != but and s not in sealed]
        return sum(book.values()) + sum(max(int(blocks[s].share[0]) - book[s], 0) for s in kept)

    for study, asked, cost in steps:
        fits = study not in sealed and all(
            books[i][study] + cost <= blocks[study].share[0] and taken(books[i], study) + cost <= 9
            for i in asked
        )
        units, who = in_units((Fraction(cost),)), np.array(asked)
        assert each.fits(who, units, ceiling, study, blocks) == fits
        if fits:
            each.charge(who, units, study)
            for i in asked:
                books[i][study] += cost
    assert each.most_with(blocks.values()) == (Fraction(max(map(taken, books))),)
    assert each.most_of("a") == (Fraction(max(book["a"] for book in books)),)


def test_a_row_falls_on_those_it_asked() -> None:
    """Three of six are charged; without the cohort's size, or for a block, everybody is."""
    each = Allowances(6, len(PureEpsilon.components))
    each.follow(_row(people=6), PureEpsilon())
    assert each.spent[:, 0].tolist() == [0, 0, UNITS // 2, UNITS // 2, UNITS // 2, 0]
    each.follow(_row("unknown", "block", count=3), PureEpsilon())
    assert each.spent[:, 0].min() == 3 * UNITS // 2
    assert each.most[0] == Fraction(2)


@pytest.mark.parametrize("event", ["released", "drawn", "refused", "policy"])
def test_other_rows_cost_nothing(event: str) -> None:
    """Only a charge is charged, and a draw from a block was charged with the block."""
    each = Allowances(6, len(PureEpsilon.components))
    each.follow(_row(event=event, people=6), PureEpsilon())
    assert each.most[0] == Fraction(0)


@pytest.mark.parametrize(
    "row",
    [
        _row("gone.plugin", people=6),
        _row(),
        _row(people=7),
        Entry(1, "", "reserved", "s", "r", {"kind": QUERY.kind, "people": 6}, b"\xff", ""),
    ],
    ids=["no such kind", "no cohort", "another size", "no question"],
)
def test_a_question_that_cannot_be_read_asked_everybody(row: Entry) -> None:
    """No charge is forgotten because its plugin or its bytes are gone."""
    assert asked_in(row) == slice(None)
