"""What the audit of the noise drawn convicts: planted faults in one training each, and honest studies.

    python benchmarks/noise_faults.py            # everything
    python benchmarks/noise_faults.py honest     # 2,000 honest studies
    python benchmarks/noise_faults.py faults     # the private fuzzy tree over five clinics, ten times a fault
    python benchmarks/noise_faults.py guards     # those that show in no residual, by the audit of the guards

A fault of ten out of ten is convicted at a study's defaults; fewer are its power.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from privfed.attacks.finding import Finding
from privfed.attacks.worst_record import WorstRecord
from privfed.audits.guards import audit_guards
from privfed.audits.noise import audit_noise, noise_tests
from privfed.engines.local import LocalDisclosure
from privfed.errors import NobodyAnswered
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.linear import Moments, Residuals
from privfed.learners.fuzzy_tree.queries import Level
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.owner.noise_monitor import NoiseMonitor, NoiseSums, OtherOwners
from privfed.privacy.laws import Law
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protected, Protection, unmasked
from privfed.privacy.noise import Noise, TestNoise
from privfed.privacy.policy import Policy
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query
from privfed.tables.schema import Schema
from privfed.tables.sources import Dataset, load
from privfed.testing import faulty

GAMES, HONEST, OWNERS = 10, 2000, 5
#: What a fault remembers from call to call: its own, and by data owner.
State = dict[Any, Any]
#: Makes a release of a part's exact cells: state, part, exact, law, source.
Plant = Callable[[State, str, np.ndarray, Law, Noise], np.ndarray]


class Planted(Gaussian):
    """Gaussian noise of an honest price, released with a planted fault."""

    name: ClassVar[str] = "faulty-planted"

    def __init__(self, plant: Plant) -> None:
        self.plant, self.state = plant, State()

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        priced: Protection,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
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
#: Faults that fewer than ten of ten trainings convict by the noise drawn.
HIDDEN = (
    "scale / 1.05",
    "exact minimum, once in 200 calls",
    "noise absent above 30 scales",
    "truncated at 4 deviations",
)
#: What is no fault of the noise drawn: the law, or what is charged for it, is wrong, and other checks see it.
OTHERS = {
    "L2 sensitivity / 2 (replace-one taken for add-or-remove)": lambda: faulty.UnderstatingGaussian(
        2
    ),
    "half of the charge, as if amplified by sampling": faulty.HalfChargeGaussian,
    "honest Gaussian": Gaussian,
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
        policy=with_mechanism(policy, mechanism),
    )


def trained(mechanism: Mechanism, seed: int) -> list[Finding] | None:
    """One training of the private fuzzy tree whose guards all name one mechanism; none if every gate refuses it."""
    federation = federate(mechanism, seed)
    try:
        FuzzyTreeRegressor().fit(federation)
    except NobodyAnswered:
        return None
    return audit_noise(federation.noise)


def faults() -> None:
    """How many of ten trainings convict each fault, and by what."""
    rows: dict[str, Callable[[], Mechanism]] = {
        name: lambda make=make: Planted(make())  # type: ignore[misc]
        for name, make in FAULTS.items()
    }
    for name, build in {**rows, **OTHERS}.items():
        begun, found = time.perf_counter(), [trained(build(), seed) for seed in range(GAMES)]
        caught = [each[0] for each in found if each and each[0].severity == "breach"]
        if None in found:
            print(f"{name:58} refused by every gate, before any data are read", flush=True)
            continue
        by = pd.Series([each.detail["by"] for each in caught]).mode().tolist()[:1] if caught else []
        seconds = (time.perf_counter() - begun) / GAMES
        print(f"{name:58} {len(caught):2} of {GAMES}  {seconds:5.2f} s  {' '.join(by)}", flush=True)


def guards() -> None:
    """How many of ten audits of the guards, at a study's defaults, convict what residuals do not."""
    schema, learner = clinics()[1].schema, FuzzyTreeRegressor()
    assert schema is not None
    policy = learner.private(4, delta=1e-5, schema=schema)
    for name, build in {**{name: FAULTS[name] for name in HIDDEN}, "honest": None}.items():
        begun, caught = time.perf_counter(), 0
        for _ in range(GAMES):
            mechanism = Gaussian() if build is None else Planted(build())
            adopted = with_mechanism(policy, mechanism)
            found = audit_guards(learner.plan(schema, policy), schema, adopted)
            caught += any(finding.severity == "breach" for finding in found)
        seconds = (time.perf_counter() - begun) / GAMES
        print(f"{name:58} {caught:2} of {GAMES}  {seconds:5.1f} s  audit of the guards", flush=True)


def with_mechanism(policy: Policy, mechanism: Mechanism) -> Policy:
    kinds = policy.guards.items()
    guards = {k: tuple(replace(guard, mechanism=mechanism) for guard in own) for k, own in kinds}
    return replace(policy, guards=guards)


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
    """How often the search for the worst record convicts a declared sensitivity of half."""
    _, data = clinics()
    for kind in (Level, Moments, Residuals):
        caught = 0
        for seed in range(GAMES):
            with half_the_sensitivity(kind):
                federation = federate(Gaussian(), seed)
                FuzzyTreeRegressor().fit(federation)
                found = WorstRecord().run(federation.transcript(), {}, data.schema)
            caught += any(finding.severity == "breach" for finding in found)
        print(
            f"half the sensitivity of {kind.kind:34} {caught:2} of {GAMES}  worst record",
            flush=True,
        )


def bits() -> None:
    """Faults of randomized response, in one release of 20 questions to 500 individuals."""
    part = BoundedPart(Part(PartType.BITS, ("bit", "unit"), (20, 500)), Bound(20, 20))
    for name, mechanism in (
        ("bits: honest", RandomizedResponse()),
        ("bits: one coin leans to yes", faulty.YesLeaningResponse()),
        ("bits: the spend is not shared", faulty.UnsharedResponse()),
        ("bits: the first one is told", faulty.OpenBitResponse()),
    ):
        caught = 0
        for seed in range(GAMES):
            monitor = NoiseMonitor(secret=bytes([seed]))
            priced = mechanism.price({"bits": part}, Fraction(20))
            truth = np.random.default_rng(seed).random((20, 500)) < 0.2
            released = priced.protect({"bits": truth}, TestNoise(seed))
            monitor.observe("bits", "", priced, {"bits": truth}, released)
            caught += audit_noise({"cohort": monitor.tally})[0].severity == "breach"
        print(f"{name:58} {caught:2} of {GAMES}", flush=True)


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
    print(f"honest studies accused: {accused} of {HONEST} (stated: 1 in 1,000)")
    print(f"share of {tests} owners' tests with p below .05, .001, .00001: {shares}")
    print(f"{seconds / HONEST * 1000:.1f} ms a study")


if __name__ == "__main__":
    sections = (honest, faults, guards, sensitivities, bits)
    for section in sections:
        if section.__name__ in (sys.argv[1:] or [each.__name__ for each in sections]):
            section()
