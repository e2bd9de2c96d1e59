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
from scipy.stats import binom, norm

from privfed.attacks.finding import Finding
from privfed.audits.bounds import right_guesses_mu, verdict
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
#: Coins of an audit, over all its runs, where no number of runs is given: so many at least, and at most; and
#: the share of the claim that they are to prove of canaries that were searched.
COINS, MOST_COINS, AIM = 1000, 8000, 0.5
#: Candidates among which canaries are searched, and the share of the farthest one's distance that each reaches
#: in a direction of its own.
POOL, REACH = 600, 0.7
REHEARSALS = 3  #: Trainings that tell how far canaries move one
POWER = 0.8  #: Probability at which an audit's power is stated
SURELY = 0.95  #: Probability with which the coins that :func:`enough` counts prove :data:`AIM`
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
    runs: int | None = None,
    search: bool = False,
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
        runs: how often the learner learns anew; unless given, for :data:`COINS` coins, or as :func:`rehearsed`.
        search: whether the canaries are those that move a training farthest (:func:`farthest`), at most
            so many; else they are drawn anew for each run.
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
    worst, counted = None, -(-COINS // canaries)
    if search:
        worst = farthest(learner, policy, schema, canaries, others, source, seed)
        worst, counted = rehearsed(learner, policy, worst, others, source, alpha * TOGETHER, seed)
    runs = runs or counted
    games = [
        _play(learner, policy, plant(schema, canaries, others, seed + run, worst), source)
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
    if breach is whole and delta and all(game.whole.gaussian for game in games):
        breach.detail.update(_power(whole, games, delta, alpha * TOGETHER))
    return replace(breach, releases=tuple(sorted({answer.kind for answer in games[0].answers})))


def _power(whole: Finding, games: Sequence[Game], delta: float, alpha: float) -> dict[str, str]:
    """What the audit of all answers together rests on, and what it would have convicted."""
    lengths = np.concatenate([game.whole.lengths for game in games])
    factor = convicted_from(lengths, float(whole.of or 0), delta, alpha)
    return {
        "assumes": "canaries that share cells stay independent over adaptive rounds",
        "note": f"noise smaller by a factor of {factor:.2g} is convicted with probability {POWER:g}",
    }


@dataclass(frozen=True)
class CanaryScores:
    """Log-likelihood ratios of "in", shape (canaries,), by an answer of some kind or by all
    together.

    Beside them the ledger's charge, whether all noise is Gaussian, the farthest that a canary moves the
    answer, in standard deviations of the published noise, and how far each does in the direction that it
    is scored along, shape (canaries,).
    """

    kind: str
    scores: np.ndarray
    charged: Loss
    gaussian: bool
    farthest: float
    lengths: np.ndarray

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
        paid = [answer for answer in self.answers if answer.charged.rho or answer.charged.epsilon]
        gaussian = all(answer.gaussian for answer in paid)
        lengths = np.sqrt(np.sum([answer.lengths**2 for answer in self.answers], axis=0))
        return CanaryScores("", scores, charged, gaussian, 0.0, lengths)


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
    federation, kinds = (
        _taught(learner, policy, planted.held, noise),
        kinds_of(policy, learner.queries),
    )
    losses = {
        entry.request: Loss.from_dict(entry.body["loss"])
        for entry in federation.gates["client"].ledger.entries()
        if "loss" in entry.body
    }
    answers = [
        scored(entry, kinds[entry.kind], planted, losses[entry.release.request])
        for entry in federation.transcript()
    ]
    return Game(planted.coins, answers, float(federation.budget()["spent"].iloc[0]))


def _taught(
    learner: FederatedLearner, policy: Policy, held: Records, noise: Noise
) -> LocalDisclosure:
    """A federation of one client that the learner has learned from."""
    named: dict[str, Any] = {"noise": noise, "queries": learner.queries, "secret": SECRET}
    federation = LocalDisclosure(
        {"client": Gate("client", held, policy, Ledger(None, "client"), **named)}
    )
    learner.fit(federation)
    return federation


def farthest(
    learner: FederatedLearner,
    policy: Policy,
    schema: Schema,
    most: int,
    others: int,
    noise: Noise,
    seed: int = 0,
) -> Records:
    """The records of a schema that move one training farthest, each in a direction of its own.

    Candidates are corners of the schema's box and a Latin hypercube (:func:`apart`). The training holds none
    of them. Other arguments as in :func:`audit_learner`.

    Returns:
        at least one record and at most ``most``, the farthest first in directions that those before it leave free.
    """
    drawn = plant(schema, POOL // 2, others, seed)
    corners = np.random.default_rng([seed, POOL]).integers(0, 2, (POOL // 2, len(schema.columns)))
    pool = _joined(drawn.canaries, _records(schema, _in_box(schema, corners)))
    kinds = kinds_of(policy, learner.queries)
    planted = Planted(pool, np.zeros(len(pool), bool), drawn.others)
    told = _taught(learner, policy, drawn.others, noise).transcript()
    moves = [moved(entry, kinds[entry.kind], planted)[0] for entry in told]
    return pool.take(np.array(list(apart(moves, most))))


def rehearsed(
    learner: FederatedLearner,
    policy: Policy,
    worst: Records,
    others: int,
    noise: Noise,
    alpha: float,
    seed: int = 0,
) -> tuple[Records, int]:
    """How many of the searched canaries to plant, the first ones, and in how many trainings.

    Many take fewer trainings, and hide each other the more. All, half and a quarter of them are tried in
    :data:`REHEARSALS` trainings each, which no verdict reads. Other arguments as in :func:`audit_learner` and
    :func:`enough`.
    """
    tried = []
    for share in (1, 2, 4):
        few = worst.take(np.arange(-(-len(worst) // share)))
        games = [
            _play(learner, policy, plant(few.schema, len(few), others, at, few), noise)
            for at in range(seed + MOST_COINS, seed + MOST_COINS + REHEARSALS)
        ]
        coins = enough(np.concatenate([game.whole.lengths for game in games]), policy, alpha)
        tried.append((coins == MOST_COINS, -(-coins // len(few)), few))
    _, runs, few = min(tried, key=lambda one: one[:2])
    return few, runs


def apart(moves: Sequence[np.ndarray], most: int) -> dict[int, float]:
    """Which records move several answers farthest, and how far each beside what those before it move.

    Gram-Schmidt in every answer by itself, for a direction may not depend on later answers: the longest
    remainder over all answers is next, while it is at least :data:`REACH` of the first.

    Args:
        moves: what each record adds to an answer, in deviations of the noise, shape (records, cells) each.
        most: number of records, at most.
    """
    left, found, first = [np.array(each) for each in moves], dict[int, float](), 0.0
    while len(found) < most:
        lengths = np.sqrt(sum((each**2).sum(axis=1) for each in left))
        best = int(np.argmax(lengths))
        first = first or float(lengths[best])
        if found and lengths[best] < REACH * first:
            break
        found[best] = float(lengths[best])
        for each in left:
            along = each[best] / max(float(np.linalg.norm(each[best])), 1e-12)
            each -= np.outer(each @ along, along)
    return found


def enough(lengths: np.ndarray, policy: Policy, alpha: float) -> int:
    """How many coins prove :data:`AIM` of the policy's claim of an honest learner with probability :data:`SURELY`.

    At most :data:`MOST_COINS`, and :data:`COINS` where a claim is not Gaussian.

    Args:
        lengths: of the canaries, as in :func:`convicted_from`.
        policy: with a budget, at whose delta the claim is.
        alpha: level of the audit.
    """
    if policy.budget is None or not policy.budget.delta:
        return COINS
    rate, delta = float(norm.cdf(lengths / 2).mean()), float(policy.budget.delta)
    for coins in np.geomspace(COINS, MOST_COINS, 25).astype(int):
        mu = float(right_guesses_mu(binom.ppf(1 - SURELY, coins, rate), coins, alpha))
        if mu > 0 and gaussian_epsilon(mu, delta) >= AIM * float(policy.budget.epsilon):
            return int(coins)
    return MOST_COINS


def convicted_from(lengths: np.ndarray, claimed: float, delta: float, alpha: float) -> float:
    """By what factor Gaussian noise must be too small to be convicted with probability :data:`POWER`.

    A canary of length m is guessed rightly with probability Phi(f m / 2) if the noise is smaller by f.

    Args:
        lengths: of all canaries of all runs, in deviations of the charged noise, shape (coins,).
        claimed: epsilon at delta.
        alpha: level of the audit.
    """

    def excess(factor: float) -> float:
        rate = float(norm.cdf(factor * lengths / 2).mean())
        right = binom.ppf(1 - POWER, len(lengths), rate)
        mu = float(right_guesses_mu(right, len(lengths), alpha))
        return (gaussian_epsilon(mu, delta) if 0 < mu < np.inf else mu) - claimed

    tried = np.geomspace(0.5, 64, 200)
    return next((float(each) for each in tried if excess(each) > 0), float("inf"))


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


def plant(
    schema: Schema, canaries: int, others: int, seed: int, worst: Records | None = None
) -> Planted:
    """Canaries under coins of their own, and others, all from the schema's box.

    The canaries are the ``worst`` records, if there are any. Else their features form a Latin hypercube, so
    that each has cells to itself where a query has enough of them; their targets lie at the ends of the
    range, where records weigh most.
    """
    rng, columns = np.random.default_rng([seed, canaries, others]), len(schema.columns)
    places = np.array([rng.permutation(canaries) for _ in range(columns)]).T
    spread = (places + rng.random(places.shape)) / canaries
    if schema.target is not None:
        spread[:, -1] = rng.integers(0, 2, canaries)
    table = _in_box(schema, np.concatenate([spread, rng.random((others, columns))]))
    held = _records(schema, table[:canaries]) if worst is None else worst
    return Planted(held, rng.random(len(held)) < 0.5, _records(schema, table[canaries:]))


def _in_box(schema: Schema, shares: np.ndarray) -> np.ndarray:
    """Values at fractions of the columns' ranges; each integer of a range has an equal fraction."""
    low, high = np.array([column.bounds for column in schema.columns], dtype=float).T
    inside = low + (high - low) * shares
    whole = [not column.numeric or column.kind == "integer" for column in schema.columns]
    first, last = np.ceil(low), np.floor(high)
    counted = np.minimum(first + np.floor(shares * (last - first + 1)), last)
    return np.asarray(np.where(whole, counted, inside))


def moved(
    entry: TranscriptEntry, kind: type[Query], planted: Planted
) -> tuple[np.ndarray, np.ndarray]:
    """What each canary adds to an answer, shape (canaries, cells), and the answer less the others' part.

    Both in deviations of the noise; cells without noise or value are left out.
    """
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
    return np.concatenate(rows, axis=1), np.concatenate(excess)


def scored(
    entry: TranscriptEntry, kind: type[Query], planted: Planted, charged: Loss
) -> CanaryScores:
    """Score every canary by one answer to a query of some kind, charged so by the ledger."""
    moves, excess = moved(entry, kind, planted)
    laws = {part.noise.name if part.noise else None for part in entry.release.parts.values()}
    scores, lengths = scores_of(moves, excess, planted.coins)
    most = float(np.sqrt((moves**2).sum(axis=1).max(initial=0.0)))
    return CanaryScores(entry.kind, scores, charged, laws == {"gaussian"}, most, lengths)


def scores_of(
    moves: np.ndarray, excess: np.ndarray, coins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
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
        log-likelihood ratios of "in", 0 for canaries without a direction left, and the canaries'
        lengths along their directions, shape (canaries,) each.
    """
    directions, triangle = np.linalg.qr(moves.T)
    length = np.diagonal(triangle)
    later = np.triu(triangle, 1) @ coins
    found, lengths = np.zeros(len(coins)), np.zeros(len(coins))
    found[: len(length)] = length * (directions.T @ excess - later) - length**2 / 2
    lengths[: len(length)] = np.abs(length)
    return found, lengths


def _records(schema: Schema, table: np.ndarray) -> Records:
    features = len(schema.features)
    return Records(schema, table[:, :features], table[:, -1] if schema.target else None)


def _joined(one: Records, other: Records) -> Records:
    y = None if one.y is None or other.y is None else np.concatenate([one.y, other.y])
    return Records(one.schema, np.concatenate([one.x, other.x]), y)
