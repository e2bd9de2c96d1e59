"""What audits convict of planted faults, ten games each, and how often they accuse honest noise.

    python benchmarks/faults.py            # everything
    python benchmarks/faults.py honest     # 2,000 honest studies; the other sections: see SECTIONS

Of each fault the audits that a study makes by default are tried one after the other, at a study's settings, until
one convicts in ten games of ten. A row is written into `results/faults.csv` as soon as it is known, and
is not measured again while it stands there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pandas as pd
from result_rows import RESULTS, arguments, read_rows, write_rows

from privfed.attacks.finding import Finding
from privfed.attacks.worst_record import WorstRecord
from privfed.audits import guards
from privfed.audits.gates import audit_gate
from privfed.audits.noise import FAMILY_WISE, audit_noise, noise_tests
from privfed.engines.local import LocalDisclosure
from privfed.errors import NobodyAnswered
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.base import Planned
from privfed.learners.fuzzy_tree.linear import Moments, Residuals
from privfed.learners.fuzzy_tree.queries import Level
from privfed.ledger import Ledger
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.owner.noise_monitor import NoiseMonitor, NoiseSums, OtherOwners
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import Law
from privfed.privacy.mechanism import BoundedPart, Cells, Mechanism, Protected, Protection, unmasked
from privfed.privacy.noise import Noise, SecureNoise, TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query
from privfed.tables.schema import Column, Schema
from privfed.tables.sources import Dataset, load
from privfed.testing import faulty
from privfed.testing.queries import Histogram, LevelSums

GAMES, HONEST, OWNERS = 10, 2000, 5
TABLE, KEYS = "faults", ("fault",)
#: What a fault remembers from call to call: its own, and by data owner.
State = dict[Any, Any]
#: Makes a release of a part's exact cells: state, part, exact, law, source.
Plant = Callable[[State, str, np.ndarray, Law, Noise], np.ndarray]


class Planted(Gaussian):
    """Gaussian noise of an honest price, released with a planted fault."""

    name: ClassVar[str] = "faulty-planted"

    def __init__(self, plant: Plant) -> None:
        self.plant, self.state = plant, State()

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        self.state["cells"] = sum(array.size for array in exact.values())
        self.state["parity"] = int(next(iter(exact.values())).ravel()[:1].sum()) & 1
        self.state["call"] = self.state.get("call", 0) + 1
        released = {}
        for name, array in exact.items():
            told = self.plant(self.state, name, array.ravel(), priced.laws[name], noise)
            released[name] = unmasked(np.asarray(told).astype(np.int64).reshape(array.shape))
        return released


def drawn(law: Law, noise: Noise, cells: int, narrower: float = 1.0) -> np.ndarray:
    return type(law)(law.parameter / narrower).draw(noise, cells)


def scaled(narrower: Callable[[State, np.ndarray, Law], Any]) -> Plant:
    """Noise that is divided, by one factor or by one for each cell."""

    def plant(s: State, name: str, x: np.ndarray, law: Law, noise: Noise) -> np.ndarray:
        return np.asarray(x + np.rint(drawn(law, noise, len(x)) / narrower(s, x, law)))

    return plant


def altered(change: Callable[[np.ndarray, State, np.ndarray, Law], np.ndarray]) -> Plant:
    """Honest noise, then changed: noise, state, exact, law."""
    return lambda s, name, x, law, noise: x + change(drawn(law, noise, len(x)), s, x, law)


def finished(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Plant:
    """An honest release, then changed: release, exact."""
    return lambda s, name, x, law, noise: change(x + drawn(law, noise, len(x)), x)


def kept(key: Callable[[State, str, np.ndarray, Noise], Any]) -> Plant:
    """The same noise wherever a key is the same."""

    def plant(s: State, name: str, x: np.ndarray, law: Law, noise: Noise) -> np.ndarray:
        at = ("kept", key(s, name, x, noise))
        if at not in s:
            s[at] = drawn(law, noise, len(x)) / law.parameter
        return x + np.rint(np.resize(s[at], len(x)) * law.parameter)

    return plant


def round_of(s: State, name: str, noise: Noise) -> int:
    """How often this owner was asked this part."""
    at = ("round", name, id(noise))
    s[at] = s.get(at, 0) + 1
    return int(s[at])


def some(once_in: int) -> Plant:
    rng = np.random.default_rng(once_in)
    return altered(lambda n, s, x, law: np.where(rng.random(len(n)) < 1 / once_in, 0, n))


def truncated(deviations: float) -> Plant:
    def plant(s: State, name: str, x: np.ndarray, law: Law, noise: Noise) -> np.ndarray:
        n = drawn(law, noise, len(x))
        while (far := np.abs(n) > deviations * law.parameter).any():
            n[far] = drawn(law, noise, int(far.sum()))
        return np.asarray(x + n)

    return plant


def shaped(draw: Callable[[np.random.Generator, int], np.ndarray]) -> Plant:
    rng = np.random.default_rng(7)
    return altered(lambda n, s, x, law: np.rint(draw(rng, len(n)) * law.parameter))


def edges(first: float, last: float) -> Plant:
    def narrower(s: State, x: np.ndarray, law: Law) -> np.ndarray:
        factor = np.ones(len(x))
        factor[0], factor[-1] = first, last if len(x) > 1 else first
        return factor

    return scaled(narrower)


def owners_alike(number: int) -> Plant:
    """The first few owners share their noise."""

    def key(s: State, name: str, x: np.ndarray, noise: Noise) -> Any:
        seen = s.setdefault("owners", [])
        if id(noise) not in seen:
            seen.append(id(noise))
        group = 0 if seen.index(id(noise)) < number else id(noise)
        return name, round_of(s, name, noise), group

    return kept(key)


def exact_minimum(n: np.ndarray, s: State, x: np.ndarray, law: Law) -> np.ndarray:
    n = n.copy()
    if s["call"] % 200 == 7:
        n[np.argmin(x)] = 0
    return n


FAULTS: dict[str, Callable[[], Plant]] = {
    "half the scale in calls below 5,000 cells": lambda: scaled(
        lambda s, x, law: 2 if s["cells"] < 5000 else 1
    ),
    "every pair of neighbouring cells shares its noise": lambda: altered(
        lambda n, s, x, law: np.repeat(n[::2], 2)[: len(n)]
    ),
    "every owner gets the same noise": lambda: owners_alike(OWNERS),
    "two of five owners get the same noise": lambda: owners_alike(2),
    "release rounded to float32": lambda: finished(lambda r, x: r.astype(np.float32)),
    "noise rounded to eights": lambda: altered(lambda n, s, x, law: n // 8 * 8),
    "scale / 1.2": lambda: scaled(lambda s, x, law: 1.2),
    "scale / 1.1": lambda: scaled(lambda s, x, law: 1.1),
    "scale / 1.05": lambda: scaled(lambda s, x, law: 1.05),
    "scale / sqrt 2: half the charge": lambda: scaled(lambda s, x, law: 2**0.5),
    "scale depends on a parity of the data": lambda: scaled(
        lambda s, x, law: 1.5 if s["parity"] else 1.0
    ),
    "exact cell, one in 50": lambda: some(50),
    "exact cell, one in 200": lambda: some(200),
    "exact cell, one in 1,000": lambda: some(1000),
    "exact minimum, once in 200 calls": lambda: altered(exact_minimum),
    "noise absent above 30 scales": lambda: altered(
        lambda n, s, x, law: np.where(np.abs(x) > 30 * law.parameter, 0, n)
    ),
    "noise reused from round to round": lambda: kept(
        lambda s, name, x, noise: (name, len(x), id(noise))
    ),
    "noise shared by the parts of a release": lambda: kept(
        lambda s, name, x, noise: (s["call"], id(noise))
    ),
    "one noise for a whole part": lambda: altered(lambda n, s, x, law: np.full(len(n), n[0])),
    "noise alternates in sign between neighbours": lambda: altered(
        lambda n, s, x, law: np.repeat(n[::2], 2)[: len(n)] * np.resize([1, -1], len(n))
    ),
    "last cell of each part has a third": lambda: edges(1, 3),
    "first cell of each part has a third": lambda: edges(3, 1),
    "cells near zero have half": lambda: scaled(
        lambda s, x, law: np.where(np.abs(x) < law.parameter, 2, 1)
    ),
    "truncated at 2 deviations": lambda: truncated(2),
    "truncated at 3 deviations": lambda: truncated(3),
    "truncated at 3.5 deviations": lambda: truncated(3.5),
    "truncated at 4 deviations": lambda: truncated(4),
    "low bit tells the answer's parity": lambda: finished(lambda r, x: r - (r & 1) + (x & 1)),
    "release clamped at zero": lambda: finished(lambda r, x: np.maximum(r, 0)),
    "mean of two answers": lambda: altered(
        lambda n, s, x, law: (n + drawn(law, TestNoise(s["call"]), len(n))) // 2
    ),
    "Laplace noise of the same deviation": lambda: shaped(
        lambda rng, cells: rng.laplace(0, 0.5**0.5, cells)
    ),
    "uniform noise of the same deviation": lambda: shaped(
        lambda rng, cells: rng.uniform(-(3**0.5), 3**0.5, cells)
    ),
    "a tenth of a deviation's bias": lambda: altered(
        lambda n, s, x, law: n + np.rint(law.parameter / 10)
    ),
    "no noise in one call of ten": lambda: altered(
        lambda n, s, x, law: n if s["call"] % 10 else 0 * n
    ),
    "half the scale from the 20th call on": lambda: scaled(
        lambda s, x, law: 2 if s["call"] >= 20 else 1
    ),
    "cells in the order of the answers": lambda: finished(
        lambda r, x: np.sort(r)[np.argsort(np.argsort(x))]
    ),
    "generator seeded anew for each call": lambda: (
        lambda s, name, x, law, noise: x + drawn(law, TestNoise(0), len(x))
    ),
}
#: What is no fault of the noise drawn: the law, or what is charged for it, is wrong, and other checks see it.
OTHERS = {
    "replace-one taken for add-or-remove: half the L2 sensitivity": lambda: (
        faulty.UnderstatingGaussian(2)
    ),
    "half of the charge, as if amplified by sampling": faulty.HalfChargeGaussian,
    "none: honest Gaussian noise": Gaussian,
}


@lru_cache
def clinics() -> tuple[pd.DataFrame, Dataset]:
    data = load("diabetes", None)
    return data.frame.assign(clinic=np.arange(len(data.frame)) % OWNERS), data


def federate(mechanism: Mechanism, seed: int) -> LocalDisclosure:
    frame, data = clinics()
    policy = FuzzyTreeRegressor().private(4, delta=1e-5, schema=data.schema)
    return LocalDisclosure.from_frame(
        frame,
        target=data.target,
        client="clinic",
        schema=data.schema,
        seed=seed,
        policy=faulty.with_mechanism(policy, mechanism),
    )


#: What an audit says of one game.
Verdict = Callable[[int], Sequence[Finding]]


def tried(fault: str, audits: Mapping[str, Verdict]) -> None:
    """Play a fault's games before one audit after the other, and write the row of the best."""
    known = read_rows(RESULTS / f"{TABLE}.csv")
    if fault in {row["fault"] for row in known}:
        return
    told: list[tuple[int, str, str]] = []
    begun = time.process_time()
    for name, verdict in audits.items():
        try:
            found = [verdict(seed) for seed in range(GAMES)]
        except NobodyAnswered:
            told.append((GAMES, "the gate's own price", "refused before data are read"))
            break
        caught = [
            convicted[0]
            for each in found
            if (convicted := [one for one in each if one.severity == "breach"])
        ]
        by = pd.Series([_by(each) for each in caught], dtype=str).mode()
        told.append((len(caught), name, str(by.iloc[0]) if len(by) else ""))
        if len(caught) == GAMES:
            break
    most, audit, what = max(told, key=lambda one: one[0])
    beside = ", ".join(f"{name} {number}" for number, name, _ in told if name != audit)
    seconds = (time.process_time() - begun) / GAMES
    print(f"{fault:60} {most:2} of {GAMES} {seconds:6.2f} s  {audit}: {what}; {beside}", flush=True)
    row: dict[str, str] = {
        "fault": fault,
        "convicted of 10": str(most),
        "audit": audit,
        "by": what,
        "others": beside,
    }
    write_rows([*known, row], TABLE, KEYS, seed="0 to 9")


def _by(finding: Finding) -> str:
    """What convicts: a test of the noise, or an event that outputs differ in."""
    return str(finding.detail.get("by", finding.detail.get("event", "")))


def trained(mechanism: Mechanism, seed: int) -> list[Finding]:
    """The noise of one training of the private fuzzy tree whose guards all name one mechanism."""
    federation = federate(mechanism, seed)
    FuzzyTreeRegressor().fit(federation)
    return audit_noise(federation.noise)


def by_default(
    build: Callable[[], Mechanism], policy: Policy, plan: Sequence[Planned], schema: Schema
) -> dict[str, Verdict]:
    """The audits of a study's guards and of its owners' sources, by game; a guard's name builds it anew."""

    def asked() -> tuple[Sequence[Planned], Schema, Policy]:
        return plan, schema, faulty.with_mechanism(policy, build())

    def guarded(seed: int) -> list[Finding]:
        with patch.object(guards, "mechanism_of", lambda guard: build()):
            return guards.audit_guards(*asked(), TestNoise(seed))

    return {
        "owners' sources": lambda seed: guards.audit_sources(
            *asked(), lambda n: TestNoise(2 * seed + n)
        ),
        "guards": guarded,
    }


def noise() -> None:
    """Faults of the noise in a private fuzzy tree over five clinics at epsilon 4."""
    rows: dict[str, Callable[[], Mechanism]] = {
        name: lambda make=make: Planted(make())  # type: ignore[misc]
        for name, make in FAULTS.items()
    }
    schema, learner = clinics()[1].schema, FuzzyTreeRegressor()
    assert schema is not None
    policy = learner.private(4, delta=1e-5, schema=schema)
    plan = learner.plan(schema, policy)
    for name, build in {**rows, **OTHERS}.items():
        drawn: dict[str, Verdict] = {"noise drawn": lambda seed, b=build: trained(b(), seed)}  # type: ignore[misc]
        tried(name, drawn | by_default(build, policy, plan, schema))


class SourceOf(SecureNoise):
    """An owner's source whose Gaussian noise is altered."""

    def __init__(self, narrower: float = 1.0, rounded: bool = False) -> None:
        self.narrower, self.rounded = narrower, rounded

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """Gaussian noise, too narrow, or rounded to single precision."""
        told = super().gaussian(size, scale / self.narrower)
        return told.astype(np.float32).astype(np.int64) if self.rounded else told


class Anew(TestNoise):
    """A source that starts anew at each call."""

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """The first draws of the same generator."""
        return TestNoise(0).gaussian(size, scale)


def sources() -> None:
    """Faults of the owners' own sources."""
    schema, learner = clinics()[1].schema, FuzzyTreeRegressor()
    assert schema is not None
    policy = learner.private(4, delta=1e-5, schema=schema)
    faults: dict[str, Callable[[int, int], Noise]] = {
        "an owner's source too narrow by 1.2": lambda seed, owner: SourceOf(1.2),
        "an owner's source too narrow by 1.03": lambda seed, owner: SourceOf(1.03),
        "an owner's source rounds to float32": lambda seed, owner: SourceOf(rounded=True),
        "an owner's source starts anew at each call": lambda seed, owner: Anew(owner),
        "two owners' sources are the same": lambda seed, owner: TestNoise(seed),
        "none: secure sources": lambda seed, owner: SecureNoise(),
    }
    plan = learner.plan(schema, policy)
    for name, source in faults.items():

        def verdict(seed: int, own: Callable[[int, int], Noise] = source) -> list[Finding]:
            return guards.audit_sources(plan, schema, policy, lambda owner: own(seed, owner))

        tried(name, {"owners' sources": verdict})


#: Faults of mechanisms for pure epsilon, on a histogram of eight bins and the sums of four nodes.
PURE: dict[str, Callable[[], Mechanism]] = {
    "Laplace scale / 1.1": lambda: faulty.ThinnerLaplace(1.1),
    "L1 sensitivity / sqrt 2": lambda: faulty.UnderstatingLaplace(2**0.5),
    "a group's noise by its first part's sensitivity": faulty.FirstPartLaplace,
    "Laplace noise shared between parts": faulty.SharedBetweenPartsLaplace,
    "Laplace noise shared between cells": faulty.SharedBetweenCellsLaplace,
    "a generator of its own, seeded at each start": faulty.SeededLaplace,
    "a third of the noise in the last cell": faulty.ThinCellLaplace,
    "two answers for one charge": faulty.TwoAnswersLaplace,
    "noise in floating point": faulty.FloatLaplace,
    "noise in floating point, rounded to 1e-3": faulty.RoundedLaplace,
    "Laplace tails cut at 5 scales": faulty.TruncatedLaplace,
    "Laplace noise absent above 30 scales": faulty.NearLaplace,
    "no Laplace noise once in 200 draws": lambda: faulty.ForgetfulLaplace(200),
    "no Laplace noise once in 1,000 draws": faulty.ForgetfulLaplace,
    "noise of the answer before": faulty.ReusedLaplace,
    "the last bit tells a parity of all cells": faulty.ParityLaplace,
    "a third of the noise where the first cell holds anything": faulty.AnswerScaledLaplace,
    "none: honest Laplace noise": Laplace,
}


def pure() -> None:
    """Faults of Laplace noise, in guards of two questions at epsilon 1 and 1/2."""
    schema = Schema((Column("age", lower=0, upper=100),), Column("risk", lower=0, upper=1))
    counts = Histogram(0, tuple(np.linspace(0, 100, 9).tolist()))
    sums = LevelSums((((0, 0),), ((0, 1),)))
    named = {
        counts.kind: (Guard.of("laplace", spend="1"),),
        sums.kind: (Guard.of("laplace", spend="0.5"),),
    }
    policy, plan = Policy(named, budget=Budget.of("20")), (Planned(counts, 3), Planned(sums, 2))
    for name, build in PURE.items():
        tried(name, by_default(build, policy, plan, schema))


@contextmanager
def half_the_sensitivity(kind: type[Query]) -> Iterator[None]:
    """A question that declares half of what a record adds, as when clipping is halved in one place alone."""
    honest = kind.parts

    def parts(self: Query, schema: Schema) -> dict[str, Part]:
        def halved(part: Part) -> Part:
            assert part.sensitivity is not None
            bound = part.sensitivity.add_or_remove
            half = Bound(-(-bound.l1 // 2), -(-bound.l2_squared // 4))
            return replace(part, sensitivity=Sensitivity(half))

        return {name: halved(part) for name, part in honest(self, schema).items()}

    kind.parts = parts  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.parts = honest  # type: ignore[method-assign]


def sensitivities() -> None:
    """A declared sensitivity of half, before the search for the worst record."""
    _, data = clinics()
    for kind in (Level, Moments, Residuals):

        def verdict(seed: int, kind: type[Query] = kind) -> list[Finding]:
            with half_the_sensitivity(kind):
                federation = federate(Gaussian(), seed)
                FuzzyTreeRegressor().fit(federation)
                return WorstRecord().run(federation.transcript(), {}, data.schema)

        tried(
            f"half the sensitivity of {kind.kind}, as when a clip is halved",
            {"worst record": verdict},
        )


def bits() -> None:
    """Faults of randomized response, in one release of 20 questions to 500 individuals."""
    part = BoundedPart(Part(PartType.BITS, ("bit", "unit"), (20, 500)), Bound(20, 20))
    for name, mechanism in (
        ("none: honest randomized response", RandomizedResponse()),
        ("a wrong coin: it leans to yes", faulty.YesLeaningResponse()),
        ("a wrong coin: the spend is not shared among bits", faulty.UnsharedResponse()),
        ("the first of 20 bits is told", faulty.OpenBitResponse()),
    ):

        def verdict(seed: int, mechanism: Mechanism = mechanism) -> list[Finding]:
            monitor = NoiseMonitor(secret=bytes([seed]))
            priced = mechanism.price({"bits": part}, Fraction(20))
            truth = np.random.default_rng(seed).random((20, 500)) < 0.2
            released = priced.protect({"bits": truth}, TestNoise(seed))
            monitor.observe("bits", "", priced, {"bits": truth}, released)
            return audit_noise({"cohort": monitor.tally})

        tried(name, {"noise drawn": verdict})


def gates() -> None:
    """Faults of a gate itself, which test suites convict: no study makes this audit."""
    named = {Histogram.kind: (Guard.of("laplace", spend="1"),)}
    policy = Policy(named, unit="individual", cap=2, budget=Budget.of("20"))
    for name, kind in (
        ("a cap off by one", faulty.LaxCapGate),
        ("a retry answered anew, uncharged", faulty.AnewGate),
    ):

        def verdict(seed: int, kind: Any = kind) -> list[Finding]:
            def made(owner: str, records: Any, adopted: Policy, noise: Noise) -> Any:
                ledger = Ledger(None, owner)
                return kind(owner, records, adopted, ledger, noise=noise, queries=(Histogram,))

            return [
                audit_gate(policy, gate=made, seed=seed, noise=lambda n: TestNoise(1000 * seed + n))
            ]

        tried(name, {"gate, in a test suite": verdict})


def honest_study(seed: int) -> dict[str, NoiseSums]:
    """Noise of a study's releases: five owners, nine questions of three parts, of two laws."""
    rng, others = np.random.default_rng([seed, 1]), OtherOwners()
    found = {}
    for owner in range(OWNERS):
        monitor, noise = NoiseMonitor(secret=bytes([owner])), TestNoise(seed * OWNERS + owner)
        monitor.others = others
        for question in range(9):
            mechanism: Mechanism = Gaussian() if (question + seed) % 2 else Laplace()
            steps = (1, 2**30)[question % 3 > 0]
            sizes = [1 + question * 4, 60, 2]
            group = {
                f"part {at}": BoundedPart(
                    Part(PartType.SUMS, ("cell",), (size,)), Bound(steps, steps**2)
                )
                for at, size in enumerate(sizes)
            }
            exact = {
                name: np.rint(rng.normal(0, 40 * steps, size)).astype(np.int64)
                for name, size in zip(group, sizes, strict=True)
            }
            priced = mechanism.price(group, Fraction(1, 5))
            released = priced.protect(exact, noise)
            monitor.observe(f"kind {question}", str(question), priced, exact, released)
        found[str(owner)] = monitor.tally
    return found


def honest() -> None:
    """How often honest noise is accused, and how its p-values are spread."""
    begun, accused, small = time.perf_counter(), 0, np.zeros(3)
    tests = 0
    for seed in range(HONEST):
        tallies = honest_study(seed)
        accused += audit_noise(tallies)[0].severity == "breach"
        p = np.array([test.p for tally in tallies.values() for test in noise_tests(tally)])
        small += [(p < level).sum() for level in (0.05, 0.001, 0.00001)]
        tests += len(p)
    shares = ", ".join(f"{share:.2g}" for share in small / tests)
    seconds = time.perf_counter() - begun
    print(f"honest studies accused: {accused} of {HONEST} (stated: {FAMILY_WISE:g})")
    print(f"share of {tests} owners' tests with p below .05, .001, .00001: {shares}")
    print(f"{seconds / HONEST * 1000:.1f} ms a study")


SECTIONS = (honest, noise, sources, pure, sensitivities, bits, gates)

if __name__ == "__main__":
    sections = {section.__name__: section for section in SECTIONS}
    for name in arguments(__doc__, parts=sections).parse_args().parts:
        sections[name]()
