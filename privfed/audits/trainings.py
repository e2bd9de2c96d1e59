"""An audit of a whole training in a few runs, by canary records.

Every canary is in by a fair coin of its own. The auditor knows all other records and what each
query would release about each canary alone, and scores the canaries by each answer along directions
of their own, and by all answers together. Guesses by these scores are held against the ledger's
charges, of each answer and of the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.bounds import verdict
from privfed.audits.one_run import audit_one_run
from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError
from privfed.exchange.transcript import TranscriptEntry
from privfed.learners.base import FederatedLearner
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.conversion import gaussian_epsilon, to_epsilon
from privfed.privacy.loss import Loss
from privfed.privacy.noise import Noise, SecureNoise
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import kinds_of
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

#: Secret of the client, whose local randomness the auditor is taken to know.
SECRET = b"an auditor's secret"
TOGETHER = 0.5  #: Fraction of alpha for all answers together; the rest is divided among the answers


@dataclass(frozen=True)
class Planted:
    """All canaries, which are in, shape (canaries,), and records that are certainly there."""

    canaries: Records
    coins: np.ndarray
    others: Records

    @property
    def held(self) -> Records:
        """What the client holds."""
        return _joined(self.others, self.canaries.take(np.flatnonzero(self.coins)))


def audit_learner(  # noqa: PLR0913 - by name after the first few
    learner: FederatedLearner,
    policy: Policy,
    schema: Schema,
    *,
    canaries: int = 100,
    others: int = 400,
    runs: int = 4,
    noise: Noise | None = None,
    alpha: float = 0.05,
    seed: int = 0,
) -> Finding:
    """Let a learner learn from records that hold canaries, and guess from its releases who is in.

    It convicts a query that moves by more than it was charged for, an answer that tells more than
    its own charge, or all of them telling more than the ledger's total. Canaries hide each other
    where they share cells: :func:`roomy_schema` has a cell for each.

    Args:
        learner: any federated learner; it is fitted.
        policy: the owner's policy; its unit must be a record, added or removed.
        schema: the public data dictionary.
        canaries: number of canaries in each run; the fewer, the less they hide each other.
        others: number of records that are certainly there.
        runs: how often the learner learns anew, from other canaries under other coins.
        noise: the client's source of noise; secure unless given.
        alpha: how often an innocent learner may be convicted.
        seed: of coins and records; never the noise's source.

    Returns:
        a finding whose value is the epsilon that the releases prove at least, out of the ledger's:
        of all answers together, or of the first answer that breaks its own charge.
    """
    if (policy.unit, policy.relation) != ("record", "add-or-remove"):
        raise InputError("canary records are added or removed; audit a policy of unit 'record'")
    source, name = noise or SecureNoise(), type(learner).__name__
    games = [
        _play(learner, policy, plant(schema, canaries, others, seed + run), source)
        for run in range(runs)
    ]
    delta = float(policy.budget.delta) if policy.budget is not None else 0.0
    whole = _judged(name, [game.whole for game in games], games, delta, alpha * TOGETHER)
    told = _by_answer(games)
    level = alpha * (1 - TOGETHER) / max(len(told), 1)
    each = [_judged(f"{name}, {at}", told[at], games, delta, level) for at in told]
    each += [_moved(f"{name}, {at}", told[at], delta) for at in told if delta]
    breach = next((found for found in (whole, *each) if found.severity == "breach"), whole)
    reached = {at: round(max(own.reach for own in told[at]), 4) for at in told}
    breach.detail.update(runs=runs, answers=len(games[0].answers), reach=reached)
    if breach is whole and all(game.whole.gaussian for game in games):
        breach.detail["assumes"] = "canaries that share cells stay independent over adaptive rounds"
    return replace(breach, releases=tuple(sorted({answer.kind for answer in games[0].answers})))


@dataclass(frozen=True)
class CanaryScores:
    """Log-likelihood ratios of "in", shape (canaries,), by an answer of some kind or by all
    together.

    Beside them the ledger's charge, whether all noise is Gaussian, and the farthest that a canary
    moves the answer, in standard deviations of the published noise.
    """

    kind: str
    scores: np.ndarray
    charged: Loss
    gaussian: bool
    farthest: float

    @property
    def reach(self) -> float:
        """The fraction of the charge that the worst canary uses; Gaussian noise only, else 0."""
        rho = float(self.charged.rho or 0)
        return self.farthest**2 / (2 * rho) if self.gaussian and rho else 0.0

    def claimed(self, delta: float) -> float:
        """Epsilon at delta."""
        if self.charged.epsilon is not None and not self.gaussian:
            return float(self.charged.epsilon)
        return to_epsilon(float(self.charged.rho or 0), delta)


@dataclass(frozen=True)
class Game:
    """One run of a learner over canaries: coins, scores by answer, epsilon spent."""

    coins: np.ndarray
    answers: Sequence[CanaryScores]
    spent: float

    @property
    def whole(self) -> CanaryScores:
        """All answers together."""
        charged = Loss.free()
        for answer in self.answers:
            charged += answer.charged
        scores = np.sum([answer.scores for answer in self.answers], axis=0)
        gaussian = all(answer.gaussian for answer in self.answers)
        return CanaryScores("", scores, charged, gaussian, 0.0)


def _by_answer(games: Sequence[Game]) -> dict[str, list[CanaryScores]]:
    """Answers that every run has, named by kind and number within the kind."""
    found: list[dict[str, CanaryScores]] = []
    for game in games:
        number: Counter[str] = Counter()
        found.append({})
        for answer in game.answers:
            number[answer.kind] += 1
            found[-1][f"{answer.kind} {number[answer.kind]}"] = answer
    return {at: [own[at] for own in found] for at in found[0] if all(at in own for own in found)}


def _judged(
    name: str, told: Sequence[CanaryScores], games: Sequence[Game], delta: float, alpha: float
) -> Finding:
    """Guess every coin by its score, and hold the right guesses against the greatest charge.

    Gaussian scores have independent noise (:func:`scores_of`), and then the right guesses are at
    most binomial: within one answer, and over adaptive rounds where canaries share no cell. Where
    they do, that the rounds keep them independent is assumed.
    """
    gaussian = delta > 0 and all(own.gaussian for own in told)
    whole = not told[0].kind
    claimed = max(
        game.spent if whole else own.claimed(delta) for own, game in zip(told, games, strict=True)
    )
    return audit_one_run(
        np.concatenate([game.coins for game in games]),
        np.concatenate([own.scores for own in told]),
        claimed,
        delta=delta,
        alpha=alpha,
        noise="independent gaussian" if gaussian else "any",
        centre=0.0,
        name=name,
    )


def _moved(name: str, told: Sequence[CanaryScores], delta: float) -> Finding:
    """Hold how far a canary moves an answer, in its published noise, against the charge.

    Deterministic: a query whose sensitivity is too small is convicted by a canary that moves it
    further, provided that the noise is as stated.
    """
    farthest = max(told, key=lambda own: own.reach)
    proven = gaussian_epsilon(farthest.farthest, delta) if farthest.reach else 0.0
    about = {"delta": delta, "deviations": farthest.farthest}
    return verdict(f"{name}, sensitivity", proven, farthest.claimed(delta), about)


def _play(learner: FederatedLearner, policy: Policy, planted: Planted, noise: Noise) -> Game:
    """Let the learner learn, and score every canary by what left."""
    ledger, kinds = Ledger(None, "client"), kinds_of(policy, learner.queries)
    named: dict[str, Any] = {"noise": noise, "queries": learner.queries, "secret": SECRET}
    gate = Gate("client", planted.held, policy, ledger, **named)
    federation = LocalDisclosure({"client": gate})
    learner.fit(federation)
    losses = {
        entry.request: Loss.from_dict(entry.body["loss"])
        for entry in ledger.entries()
        if "loss" in entry.body
    }
    answers = [
        scored(entry, kinds[entry.kind], planted, losses[entry.release.request])
        for entry in federation.transcript()
    ]
    return Game(planted.coins, answers, float(federation.budget()["spent"].iloc[0]))


def roomy_schema(columns: int = 8, values: int = 120, *, number: bool = False) -> Schema:
    """A schema in which canaries have cells of their own: columns of many categories.

    Args:
        columns: number of features.
        values: categories of each; at least as many as canaries.
        number: whether the target is a number from 0 to 1, else yes or no.
    """
    categories = tuple(f"v{value}" for value in range(values))
    features = (Column(f"x{at}", "category", categories=categories) for at in range(columns))
    yes_or_no = Column("y", "category", categories=("no", "yes"))
    return Schema(tuple(features), Column("y", "number", 0, 1) if number else yes_or_no)


def plant(schema: Schema, canaries: int, others: int, seed: int) -> Planted:
    """Canaries under coins of their own, and others, all from the schema's box.

    The canaries' features form a Latin hypercube, so that each has cells to itself where a query
    has enough of them; their targets lie at the ends of the range, where records weigh most.
    """
    rng, columns = np.random.default_rng([seed, canaries, others]), len(schema.columns)
    places = np.array([rng.permutation(canaries) for _ in range(columns)]).T
    spread = (places + rng.random(places.shape)) / canaries
    if schema.target is not None:
        spread[:, -1] = rng.integers(0, 2, canaries)
    table = _in_box(schema, np.concatenate([spread, rng.random((others, columns))]))
    coins = rng.random(canaries) < 0.5
    return Planted(_records(schema, table[:canaries]), coins, _records(schema, table[canaries:]))


def _in_box(schema: Schema, shares: np.ndarray) -> np.ndarray:
    """Values at fractions of the columns' ranges; each integer of a range has an equal fraction."""
    low, high = np.array([column.bounds for column in schema.columns], dtype=float).T
    inside = low + (high - low) * shares
    whole = [not column.numeric or column.kind == "integer" for column in schema.columns]
    first, last = np.ceil(low), np.floor(high)
    counted = np.minimum(first + np.floor(shares * (last - first + 1)), last)
    return np.asarray(np.where(whole, counted, inside))


def scored(
    entry: TranscriptEntry, kind: type[Query], planted: Planted, charged: Loss
) -> CanaryScores:
    """Score every canary by one answer to a query of some kind, charged so by the ledger."""
    canaries, others = (
        View(records, records.schema, SECRET) for records in (planted.canaries, planted.others)
    )
    query = kind.from_fields(entry.fields)
    base, added = query.evaluate(others), query.contribution(canaries)
    rows, excess = [np.zeros((len(planted.coins), 0))], [np.zeros(0)]
    for name, part in entry.release.parts.items():
        if part.noise is None or name not in added:
            continue
        seen = ~part.values.mask.ravel()
        own = added[name].reshape(len(planted.coins), -1)[:, seen]
        rows.append(own / part.noise.std)
        excess.append((part.units - base[name]).ravel()[seen] / part.noise.std)
    moves = np.concatenate(rows, axis=1)
    laws = {part.noise.name if part.noise else None for part in entry.release.parts.values()}
    return CanaryScores(
        entry.kind,
        scores_of(moves, np.concatenate(excess), planted.coins),
        charged,
        laws == {"gaussian"},
        float(np.sqrt((moves**2).sum(axis=1).max(initial=0.0))),
    )


def scores_of(moves: np.ndarray, excess: np.ndarray, coins: np.ndarray) -> np.ndarray:
    """Score canaries by an answer, each along a direction of its own.

    With moves' = QR the rotated answer Q' excess is R coins plus noise, which a rotation leaves
    independent where it is Gaussian. R has nothing below its diagonal, so that canary i is scored
    by the i-th number less what the canaries after it, whose coins are known by then, put in. By
    Cauchy and Schwarz the diagonal is no longer than the canary's own move.

    Args:
        moves: what each canary adds, in standard deviations of the noise, shape (canaries, cells).
        excess: the answer less the others' part, in the same unit, shape (cells,).
        coins: who is in, shape (canaries,).

    Returns:
        log-likelihood ratios of "in", shape (canaries,); 0 for canaries without a direction left.
    """
    directions, triangle = np.linalg.qr(moves.T)
    length = np.diagonal(triangle)
    later = np.triu(triangle, 1) @ coins
    found = np.zeros(len(coins))
    found[: len(length)] = length * (directions.T @ excess - later) - length**2 / 2
    return found


def _records(schema: Schema, table: np.ndarray) -> Records:
    features = len(schema.features)
    return Records(schema, table[:, :features], table[:, -1] if schema.target else None)


def _joined(one: Records, other: Records) -> Records:
    y = None if one.y is None or other.y is None else np.concatenate([one.y, other.y])
    return Records(one.schema, np.concatenate([one.x, other.x]), y)
