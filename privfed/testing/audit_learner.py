"""An audit of a whole learner in a few runs: canary records, found in all that a client released.

Every canary is in by a fair coin of the auditor's own. The auditor knows the other records and what
each question would release about each canary alone; from all noisy answers together it estimates
who is in, and its surest guesses are held against what the ledger says was spent in the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from privfed.attacks.finding import Finding
from privfed.attacks.one_run import audit_one_run
from privfed.errors import InputError
from privfed.exchange.transcript import Disclosed
from privfed.federation.local import LocalDisclosure
from privfed.learners.base import FederatedLearner
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.noise import Noise, SecureNoise
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import kinds_of
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema

#: Variance of a fair coin: what is known of a canary before anything is released.
PRIOR = 0.25
#: Secret of the client, whose local randomness the auditor is taken to know.
SECRET = b"an auditor's secret"


@dataclass(frozen=True)
class Planted:
    """The records of an audit.

    Args:
        canaries: all canaries, in or not.
        coins: which of them are in, shape (canaries,).
        others: records that are there for sure.
    """

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
    canaries: int = 10,
    others: int = 200,
    runs: int = 20,
    noise: Noise | None = None,
    alpha: float = 0.05,
    seed: int = 0,
) -> Finding:
    """Let a learner learn from records that hold canaries, and guess who is in from its releases.

    Args:
        learner: any federated learner; it is fitted.
        policy: the owner's policy; its unit must be a record, added or removed.
        schema: the public data dictionary.
        canaries: number of canaries in each run; the fewer, the less they hide each other.
        others: number of records that are there for sure.
        runs: how often the learner learns anew, from other canaries under other coins.
        noise: the client's source of noise; secure unless given.
        alpha: how often an innocent learner may be convicted.
        seed: of coins and records; never what the noise comes from.

    Returns:
        a finding whose value is the epsilon that the releases prove at least, out of the ledger's.
    """
    if (policy.unit, policy.relation) != ("record", "add-or-remove"):
        raise InputError("canary records are added or removed; audit a policy of unit 'record'")
    source, kinds = noise or SecureNoise(), kinds_of(policy, learner.queries)
    games = []
    for run in range(runs):
        planted = plant(schema, canaries, others, seed + run)
        games.append(_play(learner, policy, planted, source, kinds))
    delta = float(policy.budget.delta) if policy.budget is not None else 0.0
    found = audit_one_run(
        np.concatenate([game.coins for game in games]),
        np.concatenate([game.scores for game in games]),
        max(game.spent for game in games),
        delta=delta,
        alpha=alpha,
        noise="gaussian" if delta > 0 and all(game.gaussian for game in games) else "any",
        centre=0.5,
        name=type(learner).__name__,
    )
    found.detail.update(runs=runs, releases=games[0].entries)
    return replace(found, releases=games[0].kinds)


@dataclass(frozen=True)
class Game:
    """One run of a learner over canaries: their coins and scores, and what the ledger says."""

    coins: np.ndarray
    scores: np.ndarray
    spent: float
    gaussian: bool
    entries: int
    kinds: tuple[str, ...]


def _play(
    learner: FederatedLearner,
    policy: Policy,
    planted: Planted,
    noise: Noise,
    kinds: Mapping[str, type[Query]],
) -> Game:
    """Let the learner learn, and score every canary by what left."""
    gate = Gate(
        *("client", planted.held, policy, Ledger(None, "client")),
        noise=noise,
        queries=learner.queries,
        secret=SECRET,
    )
    federation = LocalDisclosure({"client": gate})
    learner.fit(federation)
    entries = list(federation.transcript())
    return Game(
        planted.coins,
        estimate(entries, kinds, planted, planted.others.schema),
        float(federation.budget()["spent"].iloc[0]),
        _all_gaussian(entries),
        len(entries),
        tuple(sorted({entry.kind for entry in entries})),
    )


def plant(schema: Schema, canaries: int, others: int, seed: int) -> Planted:
    """Canaries under coins of their own, and others, all drawn from the schema's box.

    Half of a canary's values lie at an end of their range, where records weigh most.
    """
    rng = np.random.default_rng([seed, canaries, others])
    drawn = _drawn(schema, canaries + others, rng)
    ends = rng.integers(0, 2, (canaries, drawn.shape[1]))
    bounds = np.array([column.bounds for column in schema.columns], dtype=float)
    extreme = np.take_along_axis(bounds.T, ends, axis=0)
    peculiar = np.where(rng.random(extreme.shape) < 0.5, extreme, drawn[:canaries])
    coins = rng.random(canaries) < 0.5
    return Planted(_records(schema, peculiar), coins, _records(schema, drawn[canaries:]))


def _drawn(schema: Schema, records: int, rng: np.random.Generator) -> np.ndarray:
    """Records drawn uniformly from the box, whole numbers where the schema has them."""
    low, high = np.array([column.bounds for column in schema.columns], dtype=float).T
    inside = low + (high - low) * rng.random((records, len(low)))
    whole = [not column.numeric or column.kind == "integer" for column in schema.columns]
    return np.asarray(np.where(whole, np.rint(inside), inside))


def estimate(
    entries: list[Disclosed],
    kinds: Mapping[str, type[Query]],
    planted: Planted,
    schema: Schema,
) -> np.ndarray:
    """How far each canary seems to be in, by least squares over all noisy numbers together.

    Each number is taken as the others' part, plus the coins times what the question would release
    about each canary alone, plus noise of the published deviation; coins have mean 1/2 and variance
    1/4. Questions that are not linear in records are left aside, and the guess is only poorer.

    Returns:
        shape (canaries,), about 0 to 1.
    """
    gram = np.eye(len(planted.coins)) / PRIOR
    moment = np.zeros(len(planted.coins))
    for rows, excess in _equations(entries, kinds, planted, schema):
        gram += rows @ rows.T
        moment += rows @ (excess - rows.sum(axis=0) / 2)
    return np.asarray(0.5 + np.linalg.solve(gram, moment))


def _equations(
    entries: list[Disclosed],
    kinds: Mapping[str, type[Query]],
    planted: Planted,
    schema: Schema,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each noisy part: what each canary adds, shape (canaries, cells), and what was released.

    Both are in units of the noise's deviation, and without the others' part.
    """
    canaries, others = (
        View(records, schema, SECRET) for records in (planted.canaries, planted.others)
    )
    for entry in entries:
        noisy = {n: p for n, p in entry.release.parts.items() if p.noise is not None}
        if not noisy:
            continue
        query = kinds[entry.kind].from_fields(entry.fields)
        base, added = query.evaluate(others), query.contribution(canaries)
        for name in (name for name in noisy if name in added):
            part, law = noisy[name], noisy[name].noise
            assert law is not None
            seen = ~part.values.mask.ravel()
            rows = added[name].reshape(len(added[name]), -1)[:, seen]
            excess = (part.units - base[name]).ravel()[seen]
            yield rows / law.deviation, excess / law.deviation


def _records(schema: Schema, table: np.ndarray) -> Records:
    features = len(schema.features)
    return Records(schema, table[:, :features], table[:, -1] if schema.target else None)


def _joined(one: Records, other: Records) -> Records:
    y = None if one.y is None or other.y is None else np.concatenate([one.y, other.y])
    return Records(one.schema, np.concatenate([one.x, other.x]), y)


def _all_gaussian(entries: list[Disclosed]) -> bool:
    """Whether every number that left carries Gaussian noise."""
    laws = {
        None if part.noise is None else part.noise.law
        for entry in entries
        for part in entry.release.parts.values()
    }
    return laws == {"gaussian"}
