"""What audits prove, how often they are wrong, and what they convict.

    python benchmarks/audit.py                    # everything
    python benchmarks/audit.py faults gates       # some of it: see SECTIONS

Medians over seeds at 95 % confidence. The peer of each proven epsilon is the true one; that of each
share of wrong bounds the stated alpha; that of each number of convictions the number of games.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from result_rows import PaperRows, arguments
from scipy.special import ndtr

from privfed.attacks.finding import Finding
from privfed.attacks.roc import clopper_pearson, discrete, gaussian_auc, gaussian_tpr
from privfed.audits.bounds import (
    epsilon_from_event,
    mu_from_event,
    right_guesses,
    right_guesses_mu,
)
from privfed.audits.gates import MakeGate, audit_gate, plain_gate
from privfed.audits.groups import audit_guarded
from privfed.audits.mechanisms import Group, audit
from privfed.audits.one_run import audit_one_run, one_run_epsilon, one_run_mu
from privfed.audits.trainings import audit_learner, roomy_schema
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    RuleFitClassifier,
)
from privfed.learners.base import FederatedLearner
from privfed.ledger import Ledger
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import DiscreteGaussian
from privfed.privacy.mechanism import BoundedPart, Mechanism
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import Bound, Part, PartType
from privfed.tables.schema import Schema
from privfed.testing import faulty
from privfed.testing.faulty import AnewGate, LaxCapGate, with_mechanism
from privfed.testing.hospitals import NUMERIC
from privfed.testing.queries import Histogram

SEEDS, GAMES, HONEST, ALPHA, DELTA = 20, 10, 200, 0.05, 1e-5
#: Spend of Gaussian noise at which epsilon at DELTA is 1.001.
RHO = Fraction("0.036")
SUM = BoundedPart(Part(PartType.SUMS, ("cell",), (4,)), Bound(2**30, 2**60))
SUMS: Group = {"linear": SUM, "squares": SUM}
COUNTS: Group = {"counts": BoundedPart(Part(PartType.COUNTS, ("bin",), (4,)), Bound(1, 1))}
BITS: Group = {"bits": BoundedPart(Part(PartType.BITS, ("bit", "unit"), (3, 2)), Bound(3, 3))}
#: Outputs on one cell and on the group: for faults that show at once, and for small ones.
FEW, MANY = (40_000, 4_000), (175_000, 25_000)


class Case(NamedTuple):
    """A mechanism on a group, and how many outputs its audit takes."""

    name: str
    build: Callable[[], Mechanism]
    group: Group = SUMS
    trials: tuple[int, int] = FEW


FAULTS = (
    Case("Laplace scale / 1.1", lambda: faulty.ThinnerLaplace(1.1), trials=MANY),
    Case("Gaussian scale / 1.1", lambda: faulty.ThinnerGaussian(1.1), trials=MANY),
    Case("Laplace scale / 1.5", lambda: faulty.ThinnerLaplace(1.5)),
    Case("Gaussian scale / 1.5", lambda: faulty.ThinnerGaussian(1.5)),
    Case("L1 sensitivity / sqrt 2", lambda: faulty.UnderstatingLaplace(math.sqrt(2))),
    Case("L2 sensitivity / sqrt 2", lambda: faulty.UnderstatingGaussian(math.sqrt(2))),
    Case("L1 sensitivity / 2", lambda: faulty.UnderstatingLaplace(2)),
    Case("L2 sensitivity / 2", lambda: faulty.UnderstatingGaussian(2)),
    Case("sensitivity of the first part", faulty.FirstPartLaplace),
    Case("noise shared between parts", faulty.SharedBetweenPartsLaplace),
    Case("noise shared between cells", faulty.SharedBetweenCellsLaplace),
    Case("seeded noise", faulty.SeededLaplace),
    Case("one thin cell", faulty.ThinCellLaplace),
    Case("two answers for one charge", faulty.TwoAnswersLaplace),
    Case("float noise", faulty.FloatLaplace, COUNTS),
    Case("float noise, rounded to 1e-3", faulty.RoundedLaplace, COUNTS),
    Case("truncated at 5 scales", faulty.TruncatedLaplace),
    Case("no noise above 30 scales", faulty.NearLaplace),
    Case("no noise once in 1,000", faulty.ForgetfulLaplace, trials=MANY),
    Case("bits that do not share", faulty.UnsharedResponse, BITS),
)
OUT_OF_REACH = (Case("Gaussian truncated at 4 sigma", faulty.TruncatedGaussian, trials=MANY),)
INNOCENT = (
    Case("Laplace on sums", Laplace),
    Case("Laplace on counts", Laplace, COUNTS),
    Case("Gaussian on sums", Gaussian),
    Case("Gaussian on counts", Gaussian, COUNTS),
    Case("randomized response", RandomizedResponse, BITS),
)


def line(name: str, text: str, seconds: float) -> None:
    print(f"{name:32} {text} {seconds:8.2f} s", flush=True)


def tightness() -> None:
    """What honest mechanisms prove of their epsilon, from two inputs and from one run."""
    for trials in (10_000, 100_000, 1_000_000):
        for mechanism, steps in ((Laplace(), 1), (RandomizedResponse(), 1), (Gaussian(), 256)):
            began, found = time.perf_counter(), []
            gaussian = isinstance(mechanism, Gaussian)
            for seed in range(SEEDS):
                spend, delta = (RHO, DELTA) if gaussian else (1, 0.0)
                noise = TestNoise(seed)
                settings = {"delta": delta, "steps": steps, "trials": trials}
                found.append(audit(mechanism, spend, noise=noise, **settings))  # type: ignore[arg-type]
            ratio = np.median([f.value / (f.of or 1) for f in found])
            each = (time.perf_counter() - began) / SEEDS
            line(mechanism.name, f"N={trials:>9,} proven / true {ratio:.3f}", each)
        for name, scores in (("laplace", laplace_scores), ("randomized response", bit_scores)):
            one_run(f"one run, {name}", trials, scores)


def one_run(name: str, canaries: int, scores: Callable[..., np.ndarray]) -> None:
    began, proven = time.perf_counter(), []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        coins = rng.random(canaries) < 0.5
        proven.append(audit_one_run(coins, scores(coins, rng), 1.0).value)
    each = (time.perf_counter() - began) / SEEDS
    line(name, f"m={canaries:>9,} proven / true {np.median(proven):.3f}", each)


def laplace_scores(coins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return coins - 0.5 + rng.laplace(0, 1, len(coins))


def bit_scores(coins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    truthful = rng.random(len(coins)) < 1 / (1 + math.exp(-1))
    return np.where(truthful, coins, ~coins).astype(float)


def coverage(games: int = 2000, size: int = 2000) -> None:
    """How often each bound exceeds the truth, at a stated 5 %."""
    rng = np.random.default_rng(1)
    for rate in (0.001, 0.05, 0.5):
        low, high = clopper_pearson(rng.binomial(size, rate, games), size, ALPHA)
        print(
            f"wrong at a rate of {rate}: low {np.mean(low > rate):.3f}, "
            f"high {np.mean(high < rate):.3f}"
        )
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        truth = 1 / (1 + math.exp(-epsilon))
        right = rng.binomial(size, truth, games)
        inside, outside = (rng.binomial(size // 2, p, games) for p in (truth, 1 - truth))
        two = epsilon_from_event(
            inside, outside, trials=size // 2, trials_outside=size // 2, delta=0.0, alpha=ALPHA
        )
        single = right_guesses(right, np.full(games, size), ALPHA)
        run = [
            one_run_epsilon(size, size, right=int(v), delta=0.0, alpha=ALPHA) for v in right[:500]
        ]
        shares = (np.mean(np.asarray(bound) > epsilon) for bound in (two, single, run))
        text = ", ".join(f"{n} {s:.3f}" for n, s in zip(PURE, shares, strict=True))
        print(f"wrong at epsilon {epsilon}: {text}")
    for mu in (0.25, 0.5, 1.0, 2.0):
        guessed = rng.binomial(size, ndtr(mu / 2), games)
        alarms, misses = (rng.binomial(size // 2, ndtr(-mu / 2), games) for _ in range(2))
        half = size // 2
        event = mu_from_event(
            alarms[:300], misses[:300], trials_without=half, trials_with=half, alpha=ALPHA
        )
        single = right_guesses_mu(guessed, np.full(games, size), ALPHA)
        run = [one_run_mu(size, size, right=int(v), alpha=ALPHA) > mu for v in guessed[:100]]
        print(
            f"wrong at mu {mu}: event {np.mean(event > mu):.3f}, guesses {np.mean(single > mu):.3f}, "
            f"one run of any mechanism {np.mean(run):.3f}"
        )


PURE = ("event", "guesses", "one run")


def audited(case: Case, seed: int, trials: tuple[int, int]) -> Finding:
    gaussian = case.build().currency == "rho"
    return audit_guarded(
        case.build,
        case.group,
        RHO if gaussian else Fraction(1),
        delta=DELTA if gaussian else 0.0,
        trials=trials,
        alpha=ALPHA,
        noise=TestNoise(seed),
    )


def table(case: Case, games: int, trials: tuple[int, int]) -> None:
    began = time.perf_counter()
    found = [audited(case, seed, trials) for seed in range(games)]
    convicted = sum(finding.severity == "breach" for finding in found)
    median = sorted(found, key=lambda finding: finding.value)[games // 2]
    told = f"{median.detail['move']}, {median.detail['event']}"
    text = f"{convicted:>3}/{games} proven {median.value:6.3f} of {median.of:.3f} ({told})"
    line(case.name, f"N={sum(trials):>7,} {text}", (time.perf_counter() - began) / games)


def faults() -> None:
    """Planted faults, each from at most 200,000 outputs."""
    for case in (*FAULTS, *OUT_OF_REACH):
        table(case, GAMES, case.trials)


def honest() -> None:
    """Innocent mechanisms, convicted at most as often as alpha says."""
    for case in INNOCENT:
        table(case, HONEST, (10_000, 1_000))


def gates() -> None:
    """Whole gates in one run of 4,000 canaries."""

    def policy(unit: str = "individual", mechanism: str | Mechanism = "laplace") -> Policy:
        pure = mechanism == "laplace"
        return Policy(
            {Histogram.kind: (Guard.of(mechanism, spend="1" if pure else "0.125"),)},
            unit=unit,  # type: ignore[arg-type]
            cap=2 if unit == "individual" else None,
            accountant="pure" if pure else "zcdp",
            budget=Budget.of("20", "0" if pure else "1e-5"),
        )

    def made(kind: type[Gate]) -> MakeGate:
        return lambda owner, records, adopted, noise: kind(
            owner, records, adopted, Ledger(None, owner), noise=noise, queries=(Histogram,)
        )

    thin = policy(mechanism=faulty.ThinnerGaussian(1.5))
    for name, adopted, gate, clients, records in (
        ("gate, cap 2", policy(), plain_gate, 1, None),
        ("gate, cap off by one", policy(), made(LaxCapGate), 1, None),
        ("gate, two answers", policy(), made(AnewGate), 1, None),
        ("gates, budget by client", policy(), plain_gate, 2, None),
        ("gate, 5 records, unit record", policy("record"), plain_gate, 1, 5),
        ("gate, Gaussian", policy(mechanism="gaussian"), plain_gate, 1, None),
        ("gate, Gaussian, mu x 1.5", thin, plain_gate, 1, None),
    ):
        began, found = time.perf_counter(), []
        for seed in range(GAMES):
            settings = {"clients": clients, "records": records, "gate": gate, "seed": seed}
            source = partial(seeded, 1000 * seed)
            found.append(audit_gate(adopted, noise=source, **settings))  # type: ignore[arg-type]
        told(name, found, began)


def seeded(seed: int, client: int) -> TestNoise:
    return TestNoise(seed + client)


def told(name: str, found: list[Finding], began: float) -> None:
    convicted = sum(finding.severity == "breach" for finding in found)
    proven, claimed = np.median([f.value for f in found]), found[0].of
    text = f"{convicted:>3}/{len(found)} proven {proven:6.3f} of {claimed:.3f}"
    line(name, text, (time.perf_counter() - began) / len(found))


def learners() -> None:
    """Whole learners by canary records; then the same with half the noise."""
    warnings.simplefilter("ignore")
    few, many = {"canaries": 4, "others": 60, "runs": 60}, {"others": 1000, "runs": 4}
    chosen: tuple[tuple[str, FederatedLearner, Schema, dict[str, Any]], ...] = (
        ("fuzzy tree", FuzzyTreeRegressor(), NUMERIC, few),
        ("RuleFit", RuleFitClassifier(n_estimators=40, n_rounds=20), roomy_schema(), many),
        ("FedForest", FedForestClassifier(), roomy_schema(), many),
        ("FedForest, a number", FedForestRegressor(), roomy_schema(number=True), many),
    )
    for name, learner, schema, size in chosen:
        policy = learner.private("8", "1e-5")
        thin = with_mechanism(policy, faulty.ThinnerGaussian(2))
        for what, adopted in ((name, policy), (f"{name}, noise / 2", thin)):
            began = time.perf_counter()
            found = [
                audit_learner(learner, adopted, schema, seed=100 * s, noise=TestNoise(s), **size)
                for s in range(3)
            ]
            told(what, found, began)


#: Faults of FedForest's private training: what they are called, the mechanism, on which questions.
TRAINING: tuple[tuple[str, Callable[[], Mechanism] | None, tuple[str, ...]], ...] = (
    ("as it is", None, ()),
    ("half the noise", lambda: faulty.ThinnerGaussian(2), ()),
    ("noise / 1.5", lambda: faulty.ThinnerGaussian(1.5), ()),
    ("half the gradients' noise", lambda: faulty.ThinnerGaussian(2), ("private.gradient",)),
    (
        "one histogram of three without noise",
        lambda: faulty.SilentGaussian(3),
        ("private.histogram",),
    ),
)


def training() -> None:
    """FedForest's private training as a whole, and with faults: the table of the results page."""
    warnings.simplefilter("ignore")
    rows = PaperRows("FedForest", "0, 100, 200")
    for epsilon, runs, games in (("8", 4, 3), ("2", 40, 1)):
        for name, build, kinds in TRAINING if games > 1 else TRAINING[:2]:
            learner, began, found = FedForestClassifier(), time.perf_counter(), []
            policy = learner.private(epsilon, "1e-5")
            for seed in range(games):
                adopted = policy if build is None else with_mechanism(policy, build(), kinds)
                size: dict[str, Any] = {"runs": runs, "others": 1000, "seed": 100 * seed}
                noise = TestNoise(seed)
                found.append(audit_learner(learner, adopted, roomy_schema(), noise=noise, **size))
            told(f"{name}, epsilon {epsilon}", found, began)
            _noted(rows, f"{name}, epsilon {epsilon}", found)
    rows.write("forest_audit")


def _noted(rows: PaperRows, name: str, found: list[Finding]) -> None:
    """A row of the table: how many audits convict, and what they prove of which claim."""
    title = "Audit of the private training (ours)"
    median = sorted(found, key=lambda own: own.value / (own.of or 1))[len(found) // 2]
    told_by = "all answers" if "," not in median.attack else median.attack.split(", ", 1)[1]
    numbers = {
        "convicted, share of the audits": np.mean([f.severity == "breach" for f in found]),
        "canaries of an audit": median.detail["canaries"],
        "epsilon claimed": median.of,
        "epsilon proven at least": median.value,
    }
    note = "a hundred canaries a run, alpha .05, delta 1e-5; claimed by the ledger for all answers, or for the one that convicts"
    for column, value in numbers.items():
        rows.add(title, f"{name} ({told_by})", column=column, ours=float(value), note=note)


def floating_point(trials: int = 200_000) -> None:
    """numpy's naive Laplace noise is flagged, OpenDP's passed."""
    began = time.perf_counter()
    naive = audit(faulty.FloatLaplace(), "1", trials=trials)
    integer = audit(Laplace(), "1", trials=trials, noise=SecureNoise())
    text = (
        f"naive {naive.value:.2f} ({naive.severity}), OpenDP's {integer.value:.3f} "
        f"({integer.severity})"
    )
    line("floating point", text, time.perf_counter() - began)


def expected() -> None:
    """What the best attacker can expect, in closed form, on whole numbers and on fine grids."""
    for sigma in (1, 2, 5, 50):
        found = discrete(DiscreteGaussian(sigma), sigma)
        print(
            f"mu 1 at sigma {sigma}: TPR at 1 % {found.at(0.01):.4f} (continuous "
            f"{gaussian_tpr(1, 0.01):.4f}), AUC {found.auc:.4f} ({gaussian_auc(1):.4f})"
        )


SECTIONS = {
    "tightness": tightness,
    "coverage": coverage,
    "faults": faults,
    "honest": honest,
    "gates": gates,
    "learners": learners,
    "training": training,
    "floating_point": floating_point,
    "expected": expected,
}

if __name__ == "__main__":
    for name in arguments(__doc__, parts=SECTIONS).parse_args().parts:
        SECTIONS[name]()
