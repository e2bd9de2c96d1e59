"""An audit of a whole training in a few runs, by canary records.

Every canary is included by an independent fair coin. The auditor knows all other records and each
canary's contribution to each query, and scores the canaries by each answer along separate
directions, and by all answers together. Guesses by these scores are tested against the ledger's
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

#: Secret of the client, whose local randomness the auditor is assumed to know.
SECRET = b"an auditor's secret"
#: Coins of an audit, over all its runs, if no number of runs is given: fewest, and most; and
#: the fraction of the claim that they should prove with searched canaries.
COINS, MOST_COINS, AIM = 1000, 8000, 0.5
#: Candidates among which canaries are searched, and the fraction of the farthest one's distance that each has
#: in a separate direction.
POOL, REACH = 600, 0.7
REHEARSALS = 3  #: Trainings that measure how far canaries move one
POWER = 0.8  #: Probability at which an audit's power is stated
SURELY = 0.95  #: Probability with which the coins of :func:`coins_needed` prove :data:`AIM`
TOGETHER = 0.5  #: Fraction of alpha for all answers together; the rest is divided among the answers


@dataclass(frozen=True)
class Planted:
    """All canaries, their coins, shape (canaries,), and records that are always included."""

    canaries: Records
    coins: np.ndarray
    others: Records

    @property
    def records(self) -> Records:
        """The client's records."""
        return _concatenate(self.others, self.canaries.take(np.flatnonzero(self.coins)))


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
    """Train a learner on records with canaries, and guess from its releases which ones are included.

    It detects a query that moves by more than its charge, an answer that discloses more than
    its charge, or all answers that disclose more than the ledger's total. Canaries that share cells hide
    each other: :func:`roomy_schema` has a cell for each.

    Args:
        learner: any federated learner; it is fitted.
        policy: the owner's policy; its unit must be a record, added or removed.
        schema: the public data dictionary.
        canaries: number of canaries in each run; the fewer, the less they hide each other.
        others: number of records that are always included.
        runs: number of trainings; by default for :data:`COINS` coins, or as :func:`rehearse` returns.
        search: whether the canaries are those that move a training farthest (:func:`farthest`), at most
            ``canaries``; otherwise they are redrawn for each run.
        noise: the client's source of noise; secure by default.
        alpha: probability of rejecting a correct learner's claim.
        seed: of coins and records; never the noise's source.

    Returns:
        a finding whose value is the epsilon that the releases prove at least, out of the ledger's:
        of all answers together, or of the first answer that exceeds its charge.
    """
    if (policy.unit, policy.relation) != ("record", "add-or-remove"):
        raise InputError("canary records are added or removed; audit a policy of unit 'record'")
    source, name = noise or SecureNoise(), type(learner).__name__
    worst, counted = None, -(-COINS // canaries)
    if search:
        worst = farthest(learner, policy, schema, canaries, others, source, seed)
        worst, counted = rehearse(learner, policy, worst, others, source, alpha * TOGETHER, seed)
    runs = runs or counted
    games = [
        _run_game(learner, policy, plant(schema, canaries, others, seed + run, worst), source)
        for run in range(runs)
    ]
    delta = float(policy.budget.delta) if policy.budget is not None else 0.0
    whole = _guess_coins(name, [game.whole for game in games], games, delta, alpha * TOGETHER)
    answers = _by_answer(games)
    level = alpha * (1 - TOGETHER) / max(len(answers), 1)
    findings = [_guess_coins(f"{name}, {k}", answers[k], games, delta, level) for k in answers]
    findings += [_sensitivity(f"{name}, {k}", answers[k], delta) for k in answers if delta]
    breach = next((f for f in (whole, *findings) if f.severity == "breach"), whole)
    reach = {k: round(max(scores.reach for scores in answers[k]), 4) for k in answers}
    breach.detail.update(runs=runs, answers=len(games[0].answers), reach=reach)
    if breach is whole and delta and all(game.whole.gaussian for game in games):
        breach.detail.update(_power(whole, games, delta, alpha * TOGETHER))
    return replace(breach, releases=tuple(sorted({answer.kind for answer in games[0].answers})))


def _power(whole: Finding, games: Sequence[Game], delta: float, alpha: float) -> dict[str, str]:
    """Assumptions and power of the audit of all answers together."""
    lengths = np.concatenate([game.whole.lengths for game in games])
    factor = detectable_factor(lengths, float(whole.of or 0), delta, alpha)
    return {
        "assumes": "canaries that share cells stay independent over adaptive rounds",
        "note": f"noise smaller by a factor of {factor:.2g} is convicted with probability {POWER:g}",
    }


@dataclass(frozen=True)
class CanaryScores:
    """Log-likelihood ratios of "in", shape (canaries,), by an answer of some kind or by all
    together.

    Also the ledger's charge, whether all noise is Gaussian, the farthest that a canary moves the
    answer, in standard deviations of the published noise, and the distance of each in its scoring
    direction, shape (canaries,).
    """

    kind: str
    scores: np.ndarray
    charged: Loss
    gaussian: bool
    farthest: float
    lengths: np.ndarray

    @property
    def reach(self) -> float:
        """The fraction of the charge that the worst canary uses; 0 unless all noise is Gaussian."""
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
    runs: list[dict[str, CanaryScores]] = []
    for game in games:
        number: Counter[str] = Counter()
        runs.append({})
        for answer in game.answers:
            number[answer.kind] += 1
            runs[-1][f"{answer.kind} {number[answer.kind]}"] = answer
    return {k: [run[k] for run in runs] for k in runs[0] if all(k in run for run in runs)}


def _guess_coins(
    name: str, answers: Sequence[CanaryScores], games: Sequence[Game], delta: float, alpha: float
) -> Finding:
    """Guess every coin by its score, and test the right guesses against the greatest charge.

    Gaussian scores have independent noise (:func:`scores_of`), and then the right guesses are at
    most binomial: within one answer, and over adaptive rounds if canaries share no cell. If
    they do, independence over the rounds is an assumption.
    """
    gaussian = delta > 0 and all(answer.gaussian for answer in answers)
    whole = not answers[0].kind
    claimed = max(
        game.spent if whole else answer.claimed(delta)
        for answer, game in zip(answers, games, strict=True)
    )
    return audit_one_run(
        np.concatenate([game.coins for game in games]),
        np.concatenate([answer.scores for answer in answers]),
        claimed,
        delta=delta,
        alpha=alpha,
        noise="independent gaussian" if gaussian else "any",
        centre=0.0,
        name=name,
    )


def _sensitivity(name: str, answers: Sequence[CanaryScores], delta: float) -> Finding:
    """Compare how far a canary moves an answer, in its published noise, with the charge.

    Deterministic: a sensitivity that is too small is refuted by a canary that moves the answer
    further, provided that the noise is as stated.
    """
    farthest = max(answers, key=lambda answer: answer.reach)
    proven = gaussian_epsilon(farthest.farthest, delta) if farthest.reach else 0.0
    about = {"delta": delta, "deviations": farthest.farthest}
    return verdict(f"{name}, sensitivity", proven, farthest.claimed(delta), about)


def _run_game(learner: FederatedLearner, policy: Policy, planted: Planted, noise: Noise) -> Game:
    """Train the learner, and score every canary by the releases."""
    federation = _train(learner, policy, planted.records, noise)
    kinds = kinds_of(policy, learner.queries)
    losses = {
        entry.request: Loss.from_dict(entry.body["loss"])
        for entry in federation.gates["client"].ledger.entries()
        if "loss" in entry.body
    }
    answers = [
        score_canaries(entry, kinds[entry.kind], planted, losses[entry.release.request])
        for entry in federation.transcript()
    ]
    return Game(planted.coins, answers, float(federation.budget()["spent"].iloc[0]))


def _train(
    learner: FederatedLearner, policy: Policy, records: Records, noise: Noise
) -> LocalDisclosure:
    """Fit the learner on a federation of one client, and return the federation."""
    named: dict[str, Any] = {"noise": noise, "queries": learner.queries, "secret": SECRET}
    federation = LocalDisclosure(
        {"client": Gate("client", records, policy, Ledger(None, "client"), **named)}
    )
    learner.fit(federation)
    return federation


def farthest(
    learner: FederatedLearner,
    policy: Policy,
    schema: Schema,
    max_records: int,
    others: int,
    noise: Noise,
    seed: int = 0,
) -> Records:
    """The records of a schema that move one training farthest, each in a separate direction.

    Candidates are corners of the schema's box and a Latin hypercube (:func:`select_apart`). The training has none
    of them. Other arguments as in :func:`audit_learner`.

    Returns:
        at least one record and at most ``max_records``, by distance in directions orthogonal to those before.
    """
    drawn = plant(schema, POOL // 2, others, seed)
    corners = np.random.default_rng([seed, POOL]).integers(0, 2, (POOL // 2, len(schema.columns)))
    pool = _concatenate(drawn.canaries, _records(schema, _in_box(schema, corners)))
    kinds = kinds_of(policy, learner.queries)
    planted = Planted(pool, np.zeros(len(pool), bool), drawn.others)
    transcript = _train(learner, policy, drawn.others, noise).transcript()
    moves = [canary_moves(entry, kinds[entry.kind], planted)[0] for entry in transcript]
    return pool.take(np.array(list(select_apart(moves, max_records))))


def rehearse(
    learner: FederatedLearner,
    policy: Policy,
    worst: Records,
    others: int,
    noise: Noise,
    alpha: float,
    seed: int = 0,
) -> tuple[Records, int]:
    """Choose how many of the searched canaries to plant, the first ones, and the number of trainings.

    More canaries take fewer trainings, and hide each other more. All, half and a quarter of them are tried in
    :data:`REHEARSALS` trainings each, which no verdict uses. Other arguments as in :func:`audit_learner` and
    :func:`coins_needed`.
    """
    options = []
    for divisor in (1, 2, 4):
        few = worst.take(np.arange(-(-len(worst) // divisor)))
        games = [
            _run_game(learner, policy, plant(few.schema, len(few), others, game_seed, few), noise)
            for game_seed in range(seed + MOST_COINS, seed + MOST_COINS + REHEARSALS)
        ]
        coins = coins_needed(np.concatenate([game.whole.lengths for game in games]), policy, alpha)
        options.append((coins == MOST_COINS, -(-coins // len(few)), few))
    _, runs, few = min(options, key=lambda option: option[:2])
    return few, runs


def select_apart(moves: Sequence[np.ndarray], max_records: int) -> dict[int, float]:
    """Select the records that move several answers farthest, with each one's distance orthogonal to those before.

    Gram-Schmidt in each answer separately, since a direction may not depend on later answers: the longest
    remainder over all answers is next, while it is at least :data:`REACH` of the first.

    Args:
        moves: each record's contribution to an answer, in standard deviations of the noise, shape (records, cells) each.
        max_records: largest number of records.
    """
    remaining, distances, first = [np.array(rows) for rows in moves], dict[int, float](), 0.0
    while len(distances) < max_records:
        lengths = np.sqrt(sum((rows**2).sum(axis=1) for rows in remaining))
        best = int(np.argmax(lengths))
        first = first or float(lengths[best])
        if distances and lengths[best] < REACH * first:
            break
        distances[best] = float(lengths[best])
        for rows in remaining:
            along = rows[best] / max(float(np.linalg.norm(rows[best])), 1e-12)
            rows -= np.outer(rows @ along, along)
    return distances


def coins_needed(lengths: np.ndarray, policy: Policy, alpha: float) -> int:
    """Number of coins that prove :data:`AIM` of the policy's claim for a correct learner with probability :data:`SURELY`.

    At most :data:`MOST_COINS`, and :data:`COINS` if the claim is not Gaussian.

    Args:
        lengths: of the canaries, as in :func:`detectable_factor`.
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


def detectable_factor(lengths: np.ndarray, claimed: float, delta: float, alpha: float) -> float:
    """Factor by which Gaussian noise must be too small to be detected with probability :data:`POWER`.

    A canary of length m is guessed rightly with probability Phi(f m / 2) if the noise is smaller by f.

    Args:
        lengths: of all canaries of all runs, in standard deviations of the charged noise, shape (coins,).
        claimed: epsilon at delta.
        alpha: level of the audit.
    """

    def excess(factor: float) -> float:
        rate = float(norm.cdf(factor * lengths / 2).mean())
        right = binom.ppf(1 - POWER, len(lengths), rate)
        mu = float(right_guesses_mu(right, len(lengths), alpha))
        return (gaussian_epsilon(mu, delta) if 0 < mu < np.inf else mu) - claimed

    factors = np.geomspace(0.5, 64, 200)
    return next((float(f) for f in factors if excess(f) > 0), float("inf"))


def roomy_schema(columns: int = 8, values: int = 120, *, number: bool = False) -> Schema:
    """A schema with a separate cell for each canary: columns of many categories.

    Args:
        columns: number of features.
        values: categories of each; at least as many as canaries.
        number: whether the target is a number from 0 to 1, else yes or no.
    """
    categories = tuple(f"v{value}" for value in range(values))
    features = (Column(f"x{index}", "category", categories=categories) for index in range(columns))
    yes_or_no = Column("y", "category", categories=("no", "yes"))
    return Schema(tuple(features), Column("y", "number", 0, 1) if number else yes_or_no)


def plant(
    schema: Schema, canaries: int, others: int, seed: int, worst: Records | None = None
) -> Planted:
    """Canaries with independent coins, and others, all from the schema's box.

    The canaries are the ``worst`` records, if given. Otherwise their features form a Latin hypercube, so
    that each has separate cells if a query has enough of them; their targets lie at the ends of the
    range, where records weigh most.
    """
    rng, columns = np.random.default_rng([seed, canaries, others]), len(schema.columns)
    strata = np.array([rng.permutation(canaries) for _ in range(columns)]).T
    uniform = (strata + rng.random(strata.shape)) / canaries
    if schema.target is not None:
        uniform[:, -1] = rng.integers(0, 2, canaries)
    table = _in_box(schema, np.concatenate([uniform, rng.random((others, columns))]))
    chosen = _records(schema, table[:canaries]) if worst is None else worst
    return Planted(chosen, rng.random(len(chosen)) < 0.5, _records(schema, table[canaries:]))


def _in_box(schema: Schema, fractions: np.ndarray) -> np.ndarray:
    """Values at fractions of the columns' ranges; each integer of a range has an equal fraction."""
    low, high = np.array([column.bounds for column in schema.columns], dtype=float).T
    inside = low + (high - low) * fractions
    integral = [not column.numeric or column.kind == "integer" for column in schema.columns]
    first, last = np.ceil(low), np.floor(high)
    counted = np.minimum(first + np.floor(fractions * (last - first + 1)), last)
    return np.asarray(np.where(integral, counted, inside))


def canary_moves(
    entry: TranscriptEntry, kind: type[Query], planted: Planted
) -> tuple[np.ndarray, np.ndarray]:
    """Each canary's contribution to an answer, shape (canaries, cells), and the answer minus the others' part.

    Both in standard deviations of the noise; cells without noise or value are left out.
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
        contribution = added[name].reshape(len(planted.coins), -1)[:, seen]
        rows.append(contribution / part.noise.std)
        excess.append((part.units - base[name]).ravel()[seen] / part.noise.std)
    return np.concatenate(rows, axis=1), np.concatenate(excess)


def score_canaries(
    entry: TranscriptEntry, kind: type[Query], planted: Planted, charged: Loss
) -> CanaryScores:
    """Score every canary by one answer to a query of some kind, with the ledger's charge."""
    moves, excess = canary_moves(entry, kind, planted)
    laws = {part.noise.name if part.noise else None for part in entry.release.parts.values()}
    scores, lengths = scores_of(moves, excess, planted.coins)
    largest = float(np.sqrt((moves**2).sum(axis=1).max(initial=0.0)))
    return CanaryScores(entry.kind, scores, charged, laws == {"gaussian"}, largest, lengths)


def scores_of(
    moves: np.ndarray, excess: np.ndarray, coins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Score canaries by an answer, each along a separate direction.

    With moves' = QR the rotated answer Q' excess is R coins plus noise, which a rotation leaves
    independent if it is Gaussian. R is upper triangular, so that canary i is scored
    by the i-th number minus the contribution of later canaries, whose coins are known by then. By
    Cauchy and Schwarz the diagonal is no longer than the canary's own move.

    Args:
        moves: each canary's contribution, in standard deviations of the noise, shape (canaries, cells).
        excess: the answer minus the others' part, in the same unit, shape (cells,).
        coins: whether included, shape (canaries,).

    Returns:
        log-likelihood ratios of "in", 0 for canaries without a remaining direction, and the canaries'
        lengths along their directions, shape (canaries,) each.
    """
    directions, triangle = np.linalg.qr(moves.T)
    length = np.diagonal(triangle)
    later = np.triu(triangle, 1) @ coins
    scores, lengths = np.zeros(len(coins)), np.zeros(len(coins))
    scores[: len(length)] = length * (directions.T @ excess - later) - length**2 / 2
    lengths[: len(length)] = np.abs(length)
    return scores, lengths


def _records(schema: Schema, table: np.ndarray) -> Records:
    features = len(schema.features)
    return Records(schema, table[:, :features], table[:, -1] if schema.target else None)


def _concatenate(first: Records, second: Records) -> Records:
    y = None if first.y is None or second.y is None else np.concatenate([first.y, second.y])
    return Records(first.schema, np.concatenate([first.x, second.x]), y)
