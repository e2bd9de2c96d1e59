"""What each attack and audit is to reach, and what it reaches.

    python benchmarks/attack_goals.py [lists worst ...]

Writes benchmarks/results/attacks.csv, part by part; with parts named (see PARTS), only their rows anew.
Five clients share scikit-learn's diabetes and breast cancer data; all else is simulated. The goals are
those that the toolkit was built to.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import audit
import model_readers
import numpy as np
import pandas as pd
from attack_pool import divided
from attack_speed import made_up
from linkage import SETTINGS, halves
from result_rows import RESULTS, arguments, commit, machine, read_rows, today, write_rows
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from privfed.attacks.candidate_inference import NAMED, CandidateInference
from privfed.attacks.contingency import ranges
from privfed.attacks.finding import Finding
from privfed.attacks.leave_one_out import LeaveOneOut
from privfed.attacks.linkage import LINKED, Linkage
from privfed.attacks.shadow_models import Train, shadows
from privfed.attacks.subset_sums import rebuilt_bits
from privfed.attacks.verbatim import Verbatim
from privfed.attacks.worst_record import WorstRecord
from privfed.audits.guards import FAMILY_WISE
from privfed.audits.mechanisms import audit as audit_mechanism
from privfed.audits.one_run import audit_one_run
from privfed.audits.trainings import audit_learner, roomy_schema
from privfed.engines.cohort import CohortDisclosure
from privfed.engines.local import LocalDisclosure
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    GeneticTreeClassifier,
    GeneticTreeRegressor,
    RuleFitClassifier,
    RuleSearch,
)
from privfed.learners.rule_search.generator import PROFILES, generate
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.privacy.policy import Policy
from privfed.study.simulation import CANARIES
from privfed.tables.schema import Schema
from privfed.tables.sources import load
from privfed.testing import faulty

PATH = RESULTS / "attacks.csv"
#: Seeds of a median, and outputs of an audit.
SEEDS, OUTPUTS = 10, 100_000


class Figure(NamedTuple):
    """One goal: by whom, on what, which measure, what it is to be, and what it is."""

    part: str
    attack: str
    on: str
    measure: str
    goal: str
    reached: float
    note: str = ""


def released(learner: Any, policy: Policy, frame: pd.DataFrame, target: str, schema: Schema) -> Any:
    """A transcript, the truth and the schema."""
    if policy.budget is not None:
        schema = replace(schema, inferred=False)  # as if its bounds had been public
    owned, truth = divided(frame, schema)
    federation = LocalDisclosure.from_frame(
        owned, target, client="owner", schema=schema, policy=policy, seed=0
    )
    learner.fit(federation)
    return federation.transcript(), truth, schema


def diabetes() -> tuple[pd.DataFrame, str, Schema]:
    frame = load_diabetes(as_frame=True, scaled=False).frame
    return frame, "target", Schema.infer(frame, "target")


def cancer() -> tuple[pd.DataFrame, str, Schema]:
    data = load("breast_cancer")
    assert data.schema is not None
    return data.frame, data.target, data.schema


def lists() -> Iterator[Figure]:
    """Members and outcomes out of a list of candidates."""
    found, outcomes = "members found at 1 % false positives", "outcomes told"
    for name, strict, size, goal in (
        ("published", False, 442, "1"),
        ("strict", True, 442, "0.21 or more"),
        ("strict", True, 178, "0.55 or more"),
    ):
        tree = FuzzyTreeRegressor()
        told = released(tree, tree.published(strict=strict), *diabetes())
        one, *_ = CandidateInference(time_limit=600, unknown=[""], max_candidates=size).run(*told)
        yield Figure(
            "lists",
            "pool",
            f"fuzzy tree `{name}`, diabetes, a list of {size}",
            found,
            goal,
            one.value,
        )
    rules = RuleFitClassifier(n_rounds=100, random_state=0)
    forest, trees = FedForestClassifier(random_state=0), FedForestRegressor(random_state=0)
    for on, learner, policy, data, goals in (
        (
            "RuleFit `published`, breast cancer",
            rules,
            rules.published(1),
            cancer(),
            ("0.99 or more", "0.98 or more"),
        ),
        (
            "FedForest `published`, breast cancer, bins alone",
            forest,
            forest.published(),
            cancer(),
            ("", ""),
        ),
        (
            "FedForest `published`, diabetes, bins alone",
            trees,
            trees.published(),
            diabetes(),
            ("", ""),
        ),
    ):
        transcript, truth, schema = released(learner, policy, *data)
        kept = transcript.of("forest.bins") if "bins" in on else transcript
        run = CandidateInference(time_limit=600, max_unknowns=1200).run(kept, truth, schema)
        both = [one for one in run if one.metric != NAMED]
        for one, measure, goal in zip(both, (found, outcomes), goals, strict=True):
            yield Figure("lists", "pool", on, measure, goal, one.value)


def again() -> Iterator[Figure]:
    """Answers that are no sums."""
    learner = GeneticTreeRegressor(generations=20, random_state=0)
    told = released(learner, learner.published(), *diabetes())
    (one,) = LeaveOneOut(time_limit=200).run(*told)
    on = "FedGA-Tree `published`, diabetes, 20 generations: depths, structures, votes, fitness"
    yield Figure("again", "leave_one_out", on, "area under the curve", "", one.value, one.partial)


def worst() -> Iterator[Figure]:
    """The schema's worst record beside the charge."""
    tree, rules = FuzzyTreeRegressor(max_depth=2), RuleFitClassifier(random_state=0)
    for on, learner, data in (
        ("fuzzy tree, epsilon 8, diabetes", tree, diabetes()),
        ("RuleFit, epsilon 8, breast cancer", rules, cancer()),
    ):
        one, *_ = WorstRecord().run(*released(learner, learner.private("8"), *data))
        assert one.share is not None
        yield Figure("worst", "worst_record", on, "share of the charge", "0.9 or more", one.share)


def people() -> Iterator[Figure]:
    """Individuals of a rule search."""
    members, strangers = halves(generate(PROFILES["sepsis"].scaled(0.1), 1))
    for strategy, epsilon, goal in (
        ("levels", "1", "0.22 or more"),
        ("levels", "8", "1"),
        ("equal", "1", "0.01"),
    ):
        search = RuleSearch(strategy, epsilon=epsilon, **SETTINGS)  # type: ignore[arg-type]
        cohort = CohortDisclosure.of(members, search.private(epsilon), seed=1)
        search.fit(cohort)
        truth: Any = {"cohort": members, "strangers": strangers}
        found = {one.metric: one for one in Linkage().run(cohort.transcript(), truth)}
        on = f"rule search, {strategy}, epsilon {epsilon}, {members.people} people"
        yield Figure(
            "people", "linkage", on, "linked at 1 % false links", goal, found[LINKED].value
        )


def rebuilt() -> Iterator[Figure]:
    """Bits out of subset sums, and tables out of their margins."""
    shares, spent = [], 0.0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        secret, weights = rng.random(128) < 0.5, (rng.random((512, 128)) < 0.5).astype(float)
        answers, begun = weights @ secret + rng.laplace(0, 2, 512), time.process_time()
        found = rebuilt_bits(weights, answers)
        assert found is not None
        spent += time.process_time() - begun
        shares.append(float(np.mean(found == secret)))
    on = "128 bits, 512 subset sums, noise 2"
    yield Figure(
        "rebuilt", "reconstruction", on, "bits right", "0.95 or more", float(np.mean(shares))
    )
    yield Figure("rebuilt", "reconstruction", on, "processor seconds", "below 1", spent / SEEDS)
    shape = (2, 4, 10)
    index = np.indices(shape).reshape(3, -1)
    pairs = [
        (a, b, i, j)
        for a in range(3)
        for b in range(a)
        for i in range(shape[a])
        for j in range(shape[b])
    ]
    design = np.array([(index[a] == i) & (index[b] == j) for a, b, i, j in pairs], dtype=float)
    whole = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cells = [rng.integers(0, size, 10) for size in shape]
        counts = np.bincount(np.ravel_multi_index(cells, shape), minlength=80)
        told = ranges(design, low=design @ counts, high=design @ counts)
        whole.append(told is not None and bool(told.determined.all()))
    on = "2 x 4 x 10 table of 10 people, its two-way margins, 20 draws"
    yield Figure(
        "rebuilt", "reconstruction", on, "rebuilt whole", "0.85 or more", float(np.mean(whole))
    )


def models() -> Iterator[Figure]:
    """Readers of a model alone."""
    frame, target, _ = diabetes()
    x, y = frame.drop(columns=target).to_numpy(), frame[target].to_numpy()

    def forest(x: np.ndarray, y: np.ndarray) -> Any:
        return RandomForestRegressor(100, random_state=0).fit(x, y)

    ways: tuple[tuple[str, Train, str], ...] = (
        ("random forest, diabetes", forest, "0.92 or more"),
        ("RuleFit, diabetes", model_readers.rule_fit(frame, target), "0.74 or more"),
    )
    for on, train, goal in ways:
        known = shadows(train, x=x, y=y, number=model_readers.SHADOWS, time_limit=400)
        area, _ = model_readers.judged(known, "lira")
        note = f"{len(known.scores)} shadows"
        yield Figure("models", "LiRA", on, "area under the curve", goal, area, note)


def tightness() -> Iterator[Figure]:
    """How much of the true epsilon an audit proves, in the median."""
    ways: tuple[tuple[Any, str], ...] = (
        (Laplace(), "0.96 or more"),
        (RandomizedResponse(), "0.978 or more"),
        (Gaussian(), "0.90 or more"),
    )
    for mechanism, goal in ways:
        gaussian = isinstance(mechanism, Gaussian)
        spend, delta = (audit.RHO, audit.DELTA) if gaussian else (1, 0.0)
        settings: Any = {"delta": delta, "steps": 256 if gaussian else 1, "trials": OUTPUTS}
        proven = [
            audit_mechanism(mechanism, spend, noise=TestNoise(seed), **settings)
            for seed in range(SEEDS)
        ]
        share = float(np.median([one.value / (one.of or 1) for one in proven]))
        yield Figure(
            "tightness",
            "audit",
            f"{mechanism.name}, epsilon 1",
            "proven of the true epsilon",
            goal,
            share,
        )
    runs = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        coins = rng.random(OUTPUTS) < 0.5
        runs.append(audit_one_run(coins, audit.laplace_scores(coins, rng), 1.0).value)
    on = "Laplace, epsilon 1, one run"
    yield Figure(
        "tightness",
        "audit",
        on,
        "proven of the true epsilon",
        "0.985 or more",
        float(np.median(runs)),
    )


def trainings() -> Iterator[Figure]:
    """How much of the ledger's total whole trainings on planted records prove, at a study's defaults."""
    ways: tuple[tuple[Any, str, Schema], ...] = (
        (FuzzyTreeRegressor(), "fuzzy tree, diabetes", replace(diabetes()[2], inferred=False)),
        (GeneticTreeClassifier(), "FedGA-Tree, 400 categories", roomy_schema(values=400)),
        (RuleFitClassifier(), "RuleFit, 120 categories", roomy_schema()),
        (FedForestClassifier(), "FedForest, 120 categories", roomy_schema()),
    )
    for learner, on, schema in ways:
        policy = learner.private("4", "1e-5")
        one = audit_learner(
            learner,
            policy,
            schema,
            search=True,
            canaries=CANARIES,
            noise=TestNoise(0),
            alpha=FAMILY_WISE,
        )
        note = f"{one.detail['canaries']:,} coins in {one.detail['runs']} trainings"
        measure = "proven of the ledger's epsilon, whole trainings"
        share = one.value / (one.of or 1)
        yield Figure("trainings", "audit", f"{on}, epsilon 4", measure, "0.5 or more", share, note)


def faults() -> Iterator[Figure]:
    """Planted faults, and innocent mechanisms."""
    for case in audit.FAULTS:
        found = [audit.audited(case, seed, case.trials) for seed in range(audit.GAMES)]
        note = f"{sum(case.trials):,} outputs"
        yield Figure(
            "faults",
            "audit",
            f"planted: {case.name}",
            "convicted of 10",
            "9 or more",
            _convicted(found),
            note,
        )
    for case in audit.INNOCENT:
        found = [audit.audited(case, seed, (10_000, 1_000)) for seed in range(audit.HONEST)]
        share = _convicted(found) / audit.HONEST
        yield Figure(
            "faults",
            "audit",
            f"innocent: {case.name}",
            "share convicted of 200",
            "0.05 or less",
            share,
        )


def floats() -> Iterator[Figure]:
    """Naive floating-point noise."""
    begun = time.process_time()
    naive = audit_mechanism(faulty.FloatLaplace(), "1", trials=200_000)
    whole = audit_mechanism(Laplace(), "1", trials=200_000, noise=SecureNoise())
    spent = time.process_time() - begun
    yield Figure(
        "floats",
        "audit",
        "numpy's Laplace noise, epsilon 1",
        "epsilon proven",
        "above 1",
        naive.value,
    )
    yield Figure(
        "floats",
        "audit",
        "OpenDP's Laplace noise, epsilon 1",
        "epsilon proven",
        "1 or less",
        whole.value,
    )
    yield Figure("floats", "audit", "both", "processor seconds", "below 30", spent)


def speed() -> Iterator[Figure]:
    """The scan for raw values."""
    frame, schema = made_up(8000)
    learner = FuzzyTreeRegressor()
    told = released(learner, learner.published(), frame, "y", schema)
    begun, attack = time.process_time(), Verbatim()
    attack.run(*told)
    on = f"8,000 rows, {len(told[0])} releases"
    yield Figure(
        "speed", "verbatim", on, "processor seconds", "below 10", time.process_time() - begun
    )


def _convicted(found: list[Finding]) -> int:
    return sum(one.severity == "breach" for one in found)


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    part.__name__: part
    for part in (
        lists,
        again,
        worst,
        people,
        rebuilt,
        models,
        tightness,
        trainings,
        faults,
        floats,
        speed,
    )
}


def write(part: str, figures: list[Figure]) -> None:
    """Put a part's rows in the place of those that were there."""
    source = {"commit": commit(), "date": today(), "seed": "0 up", "machine": machine()}
    rows: list[dict[str, str]] = [row for row in read_rows(PATH) if row["part"] != part]
    rows += [{**one._asdict(), "reached": f"{one.reached:.4g}", **source} for one in figures]
    order = list(PARTS)
    rows.sort(key=lambda row: order.index(row["part"]))
    write_rows(rows, PATH, ("part", "attack", "on", "measure", "goal"), seed="0 up")


def main() -> None:
    warnings.simplefilter("ignore")
    for name in arguments(__doc__, parts=PARTS).parse_args().parts:
        figures = []
        for one in PARTS[name]():
            print(*one, sep="; ", flush=True)
            figures.append(one)
        write(name, figures)


if __name__ == "__main__":
    main()
