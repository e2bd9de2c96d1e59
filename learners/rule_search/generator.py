"""Simulated populations of client rules with the published marginals (DP-RuL, Tables 2 and 3).

The paper prints no frequencies; here the rule of rank r has about N f r^-s holders, at least one; f
= 60 %, and s gives the published number of client rules. Holders of rules are independent of all
else. Only right-nested structures are drawn; variables and connectives follow power laws. All rules
start with one of a number of stems (two operators with their left atoms): few for "very similar"
rules, many for "highly disparate" ones, an assumption that affects a search's success.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from privfed.errors import InputError
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar


@dataclass(frozen=True)
class Profile:
    """Marginals of a population."""

    people: int  #: individuals
    rules: int  #: client rules, over all individuals
    distinct: int  #: distinct structures among them
    variables: int  #: features that rules may use
    operators: float  #: mean number of operators of a client rule
    most_operators: int = 6  #: most operators of one rule
    top: float = 0.6  #: fraction of individuals who hold the most frequent rule
    skew: float = 1.0  #: exponent of the variables' power law
    stems: int = 150  #: number of stems

    def scaled(self, factor: float) -> Profile:
        """Return a population of a fraction of the size, with the same rules per individual."""
        return replace(
            self,
            people=max(1, round(self.people * factor)),
            rules=max(1, round(self.rules * factor)),
            distinct=max(1, round(self.distinct * factor)),
        )

    @property
    def grammar(self) -> Grammar:
        """Return a grammar of variables named by number, with bounds 0 to 1."""
        names = (f"v{number:02d}" for number in range(self.variables))
        variables = tuple((name, 0.0, 1.0) for name in names)
        return Grammar(variables, most_operators=self.most_operators, horizon=10)


#: DP-RuL, Tables 2 and 3.
PROFILES = {
    "icu": Profile(8_000, 598_699, 34_208, 57, 2.51),
    "sepsis": Profile(40_336, 4_420_910, 2_344_179, 35, 2.97, stems=40),
    "t1d": Profile(34_013, 2_105_755, 1_353_598, 40, 4.35, stems=600),
}


def generate(profile: Profile, seed: int, values: bool = False) -> RuleIndex:
    """Draw a population, with parameters (a beta distribution per structure) if ``values``.

    InputError: more distinct rules than client rules, or than the grammar has.
    """
    rng = np.random.default_rng(seed)
    counts = _frequencies(profile)
    shape = (profile.stems, 2)
    stems = _signs(profile.grammar, shape, rng), _atoms(profile.grammar, profile, shape, rng)
    table = _structures(profile, stems, rng)
    counts = _shortest_first(counts, (table > profile.grammar.atoms).sum(axis=1), profile, rng)
    starts = np.concatenate([[0], np.cumsum(counts)])
    holders = _holders(counts, profile.people, rng)
    index = RuleIndex(profile.grammar, profile.people, table, starts, holders)
    return _with_values(index, rng) if values else index


def _frequencies(profile: Profile) -> np.ndarray:
    """Return the number of holders of each rule by rank, summing to the number of client rules."""
    if not 1 <= profile.distinct <= profile.rules:
        raise InputError("a population needs at least as many client rules as distinct rules")
    ranks = np.arange(1, profile.distinct + 1, dtype=float)

    def frequencies(exponent: float) -> np.ndarray:
        return np.asarray(np.maximum(1, np.rint(profile.people * profile.top * ranks**-exponent)))

    low, high = 0.0, 20.0
    exponent = (
        brentq(lambda s: frequencies(s).sum() - profile.rules, low, high, xtol=1e-9)
        if frequencies(low).sum() > profile.rules > frequencies(high).sum()
        else low
    )
    counts = frequencies(float(exponent)).astype(np.int64)
    return _correct_total(counts, profile)


def _correct_total(counts: np.ndarray, profile: Profile) -> np.ndarray:
    """Distribute the rounding's remainder over the ranks from the middle on."""
    missing = profile.rules - int(counts.sum())
    ranks = np.flatnonzero((counts < profile.people) if missing > 0 else (counts > 1))
    if missing and len(ranks):
        np.add.at(counts, np.resize(ranks, abs(missing)), int(np.sign(missing)))
    return np.asarray(np.clip(counts, 1, profile.people))


def _shortest_first(
    counts: np.ndarray, operators: np.ndarray, profile: Profile, rng: np.random.Generator
) -> np.ndarray:
    """Assign frequent ranks to rules with few operators, as far as the published mean requires."""
    ranked = np.sort(counts)[::-1]
    normal = rng.normal(size=len(operators))

    def assign(std: float) -> np.ndarray:
        counts_by_rule = np.empty_like(ranked)
        counts_by_rule[np.argsort(operators + std * normal, kind="stable")] = ranked
        return np.asarray(counts_by_rule)

    low, high = 0.0, 50.0
    for _ in range(14):
        middle = (low + high) / 2
        mean = float(assign(middle) @ operators) / profile.rules
        low, high = (low, middle) if mean > profile.operators else (middle, high)
    return assign((low + high) / 2)


def _holders(counts: np.ndarray, people: int, rng: np.random.Generator) -> np.ndarray:
    """Draw distinct individuals for each rule: every k-th from a random start, k coprime to N."""
    coprime = np.array([step for step in range(1, people + 1) if np.gcd(step, people) == 1])
    starts = np.repeat(rng.integers(0, people, len(counts)), counts)
    steps = np.repeat(rng.choice(coprime, len(counts)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.arange(len(first)) - first
    return np.asarray((starts + ranks * steps) % people, dtype=np.int32)


_Stems = tuple[np.ndarray, np.ndarray]  #: Operators and left atoms, shape (stems, 2) each


def _begin(stems: _Stems, signs: np.ndarray, atoms: np.ndarray, rng: np.random.Generator) -> None:
    size, width = len(stems[0]), min(2, signs.shape[1])
    drawn = rng.choice(size, len(signs), p=_weights(size, 0.5))
    signs[:, :width] = stems[0][drawn, :width]
    atoms[:, :width] = stems[1][drawn, :width]


def _signs(grammar: Grammar, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    number = len(grammar.operators)
    return np.asarray(rng.choice(number, shape, p=_weights(number, 0.5)))


def _structures(profile: Profile, stems: _Stems, rng: np.random.Generator) -> np.ndarray:
    """Draw distinct canonical structures in lexicographic order, shape (distinct, length)."""
    rows = np.zeros((0, 2 * profile.most_operators + 1), dtype=np.uint16)
    for _ in range(60):
        more = _draw(profile, stems, 2 * (profile.distinct - len(rows)) + 100, rng)
        rows = _distinct(np.concatenate([rows, more]))
        if len(rows) >= profile.distinct:
            kept = np.sort(rng.choice(len(rows), profile.distinct, replace=False))
            return np.ascontiguousarray(rows[kept])
    raise InputError("the grammar has too few rules for so many distinct ones")


def _distinct(table: np.ndarray) -> np.ndarray:
    """Return sorted distinct rows, by comparing big-endian bytes."""
    rows = np.ascontiguousarray(table.astype(">u2"))
    key = f"S{rows.shape[1] * 2}"
    keys = np.unique(rows.view(key).ravel())
    distinct = np.frombuffer(keys.astype(key).tobytes(), ">u2").reshape(len(keys), -1)
    return np.asarray(distinct.astype(np.uint16))


def _draw(profile: Profile, stems: _Stems, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw right-nested structures: operator, left atom (if binary), operator, ..., last atom."""
    grammar = profile.grammar
    counts = _operator_counts(profile, size, rng)
    max_operators = profile.most_operators
    signs = _signs(grammar, (size, max_operators), rng)
    atoms = _atoms(grammar, profile, (size, max_operators + 1), rng)
    _begin(stems, signs, atoms, rng)
    signs[np.arange(max_operators)[None] >= counts[:, None]] = -1
    binary = (signs >= 0) & (signs < 3)
    _sort_operands(signs, atoms, counts, binary)
    table = np.zeros((size, 2 * max_operators + 1), dtype=np.uint16)
    end, rows = np.zeros(size, dtype=np.int64), np.arange(size)
    for step in range(max_operators):
        used = step < counts
        table[rows[used], end[used]] = grammar.atoms + 1 + signs[used, step]
        end += used
        two = used & binary[:, step]
        table[rows[two], end[two]] = atoms[two, step]
        end += two
    table[rows, end] = atoms[rows, counts]
    return table


def _operator_counts(profile: Profile, size: int, rng: np.random.Generator) -> np.ndarray:
    trials = profile.most_operators - 1
    probability = min(1.0, max(0.0, (profile.operators - 1) / trials)) if trials else 0.0
    return np.asarray(1 + rng.binomial(trials, probability, size))


def _atoms(
    grammar: Grammar, profile: Profile, shape: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    weights = _weights(profile.variables, profile.skew)
    variables = rng.choice(profile.variables, shape, p=weights)
    return np.asarray(1 + 2 * variables + rng.integers(0, 2, shape))


def _weights(size: int, skew: float) -> np.ndarray:
    weights = np.arange(1, size + 1, dtype=float) ** -skew
    return np.asarray(weights / weights.sum())


def _sort_operands(
    signs: np.ndarray, atoms: np.ndarray, counts: np.ndarray, binary: np.ndarray
) -> None:
    """Sort neighbouring atoms under one connective in place, into canonical order."""
    rows = np.arange(len(signs))
    last = counts - 1
    tail = binary[rows, last] & (signs[rows, last] < 2)
    for _ in range(signs.shape[1] + 1):
        ends = rows[tail & (atoms[rows, last] > atoms[rows, counts])]
        _swap(atoms, ends, last[ends], counts[ends])
        for step in range(signs.shape[1] - 1):
            chained = (signs[:, step] == signs[:, step + 1]) & binary[:, step]
            chained &= (signs[:, step] < 2) & (atoms[:, step] > atoms[:, step + 1])
            _swap(atoms, rows[chained], np.full(int(chained.sum()), step), step + 1)


def _swap(atoms: np.ndarray, rows: np.ndarray, first: np.ndarray, second: np.ndarray | int) -> None:
    atoms[rows, first], atoms[rows, second] = atoms[rows, second].copy(), atoms[rows, first].copy()


def _with_values(index: RuleIndex, rng: np.random.Generator) -> RuleIndex:
    widths = _widths(index)
    counts = np.diff(index.starts)
    offsets = np.concatenate([[0], np.cumsum(widths * counts)])
    centres = np.repeat(rng.uniform(0.2, 0.8, len(widths)), widths * counts)
    values = rng.beta(8 * centres, 8 * (1 - centres)).astype(np.float32)
    return replace(index, values=values, offsets=offsets)


def _widths(index: RuleIndex) -> np.ndarray:
    table, atoms = index.structures, index.grammar.atoms
    temporal = [
        s for s in range(atoms + 1, index.grammar.size + 1) if index.grammar.operator(s) in "UFG"
    ]
    width = ((table > 0) & (table <= atoms)).sum(axis=1) + 2 * np.isin(table, temporal).sum(axis=1)
    return np.asarray(width, dtype=np.int64)
