"""The index agrees with a naive match of every rule."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners.rule_search.generator import PROFILES, Profile, generate
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.canonical import canonical
from privfed.learners.stl.formula import RuleError
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse
from privfed.learners.stl.rule_file import parse_rules

SMALL = Profile(people=60, rules=900, distinct=400, variables=4, operators=2.0, stems=6)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_index_agrees_with_a_naive_match(seed: int) -> None:
    """Every template over three levels has the holders that a scan of all rules finds."""
    book = generate(SMALL, seed)
    entries = book.entries()
    rng = np.random.default_rng(seed)
    for _ in range(60):
        structure = entries[int(rng.integers(len(entries)))][0]
        template = structure[: int(rng.integers(len(structure) + 1))]
        naive = {person for held, person, _ in entries if held[: len(template)] == template}
        assert np.flatnonzero(book.answers(template)).tolist() == sorted(naive)
    assert book.count((book.grammar.size, book.grammar.size, book.grammar.size)) == 0


def test_a_mapping_of_rules_becomes_an_index() -> None:
    """Rules are matched by structure; values are scaled by the public bounds."""
    grammar = Grammar((("hr", 0.0, 200.0), ("bp", 0.0, 100.0)), horizon=4)
    rules = {
        "ann": parse_rules(["hr <= 50 & bp >= 25", "bp >= 100"], grammar),
        "bob": parse_rules(["bp >= 75 & hr <= 100"], grammar),
        "eve": [],
    }
    book = RuleIndex.of(rules, grammar)
    structure = grammar.structure(canonical(parse("hr <= 1 & bp >= 1")))
    assert (len(book), book.rules, book.count(structure)) == (3, 3, 2)
    assert book.parameters(structure, 2).tolist() == [[0.25, 0.75, 0.5], [0.25, 0.5, 0.5]]
    assert book.valid(2) == {structure: 2}


def test_nobody_is_no_cohort() -> None:
    """An empty cohort is one clear error."""
    with pytest.raises(InputError, match="empty"):
        RuleIndex.of({}, SMALL.grammar)


def test_a_rule_outside_the_grammar_is_refused() -> None:
    """Rules of another grammar are no records of this cohort."""
    with pytest.raises(RuleError, match="outside the grammar"):
        RuleIndex.of({"ann": [canonical(parse("speed <= 3"))]}, SMALL.grammar)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_generated_populations_have_the_published_marginals(name: str) -> None:
    """At a tenth (a hundredth) of the size: individuals, rules, distinct rules, operators."""
    profile = PROFILES[name].scaled(0.1 if name == "icu" else 0.01)
    book = generate(profile, 5)
    counts = np.diff(book.starts)
    operators = (book.structures > book.grammar.atoms).sum(axis=1)
    assert (book.people, book.rules, len(book.structures)) == (
        profile.people,
        profile.rules,
        profile.distinct,
    )
    assert float(counts @ operators) / book.rules == pytest.approx(profile.operators, rel=0.03)


def test_generated_rules_are_canonical_distinct_and_held_once_each() -> None:
    """Structures are canonical forms of the grammar; nobody holds one twice."""
    book = generate(SMALL, 3, values=True)
    entries = book.entries()
    assert len({(structure, person) for structure, person, _ in entries}) == len(entries)
    for structure, _, values in entries[::7]:
        rule = book.grammar.formula(structure, values)
        assert book.grammar.structure(canonical(rule)) == structure
        assert len(values) == len(book.grammar.ranges(structure))


def test_more_distinct_rules_than_rules() -> None:
    """A profile that cannot be met is refused."""
    with pytest.raises(InputError, match="at least as many"):
        generate(Profile(10, 5, 6, 3, 2.0), 1)
