"""Membership by likelihood ratio: as strong as theory says on noisy sums, and idle on wide noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privfed.attacks.base import HELD_OUT
from privfed.attacks.membership import (
    LikelihoodRatios,
    Membership,
    auc,
    auc_std,
    between_draws,
    compare_scores,
    other_groups,
    pairwise_aucs,
)
from privfed.attacks.roc import RocCurve, discrete
from privfed.engines.local import LocalDisclosure
from privfed.exchange.messages import Request
from privfed.exchange.transcript import Transcript
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.privacy.laws import DiscreteGaussian, Unknown
from privfed.privacy.policy import Guard, Policy
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

SCHEMA = Schema(
    (Column("a", lower=0, upper=8), Column("b", lower=-1, upper=1)), Column("y", lower=0, upper=10)
)
LOWER, UPPER = np.array([1.0, -0.5]), np.array([7.0, 0.9])
NODES = (((0, 1),), ((0, 2), (1, 3)), ((0, 2), (1, 4)))
QUERIES: tuple[Query, ...] = (
    Histogram(0, (0.0, 1.0, 3.0, 8.0)),
    Scaling(16),
    Level(((),), 5, LOWER, UPPER, (0, 1)),
    Level(NODES, 5, LOWER, UPPER, (1,)),
    Leaves(NODES, 5, LOWER, UPPER, (0, 1)),
    Leaves(NODES, 5, LOWER, UPPER, (1,)),
    Activations(NODES, 5, LOWER, UPPER),
)


def table(count: int, seed: int) -> Records:
    """Records over the whole schema, bounds and peaks included."""
    rng = np.random.default_rng(seed)
    x = rng.uniform([0, -1], [8, 1], (count, 2))
    x[rng.random(count) < 0.3, 0] = 4.0
    return Records(SCHEMA, x, rng.uniform(0, 10, count))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), query=st.sampled_from(QUERIES))
def test_contributions_add_up_to_the_query(seed: int, query: Query) -> None:
    """What a query says of one record is what it gives of it alone, and all are summed."""
    view = View(table(12, seed), SCHEMA)
    exact, alone = query.evaluate(view), Query.contribution(query, view)
    parts = query.contribution(view)
    assert parts.keys() == alone.keys() == exact.keys()
    for name, moved in parts.items():
        assert np.array_equal(moved, alone[name])
        assert np.array_equal(moved.sum(axis=0), exact[name])


def test_a_contribution_of_nobody() -> None:
    """A client without records: no rows, in the part's own shape."""
    view = View(table(0, 0), SCHEMA)
    for query in QUERIES:
        for name, part in query.parts(SCHEMA).items():
            for found in (query.contribution(view), Query.contribution(query, view)):
                assert found[name].shape == (0, *part.shape)


def test_kinds_that_nobody_installed_are_not_read() -> None:
    """Of a stranger's kind nothing is known, and nothing is built from its name."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    strange = Transcript(
        tuple(
            replace(entry, kind="os.system") for entry in released(QUERIES[0], owners, "open", None)
        )
    )
    assert not Membership().attackable(strange)
    assert Membership().run(strange, owners, SCHEMA) == []


def released(
    query: Query,
    owners: Mapping[str, Records],
    mechanism: str,
    spend: str | None,
    seed: int = 3,
    times: int = 1,
) -> Transcript:
    """Answers of several clients through one mechanism, so many of each."""
    frames = [
        pd.DataFrame({"a": r.x[:, 0], "b": r.x[:, 1], "y": r.y, "owner": name})
        for name, r in owners.items()
    ]
    policy = Policy({query.kind: (Guard.of(mechanism, spend=spend),)}, accountant="zcdp")
    federation = LocalDisclosure.from_frame(
        pd.concat(frames), "y", client="owner", schema=SCHEMA, policy=policy, seed=seed
    )
    for number, (name, gate) in product(range(times), federation.gates.items()):
        gate.answer(Request.of(f"request {number} {name}", query))
    return federation.transcript()


def test_gaussian_power_is_what_theory_says() -> None:
    """Histograms of 60 clients: a record's two hypotheses lie mu = 1 / sigma apart."""
    owners = {f"c{i}": table(15, i) for i in range(60)}
    rho = 0.5
    transcript = released(QUERIES[0], owners, "gaussian", str(rho))
    (found,) = Membership().run(transcript, owners, SCHEMA)
    mu = math.sqrt(2 * rho)
    assert found.value == pytest.approx(norm.cdf(mu / math.sqrt(2)), abs=0.04)
    assert found.low is not None and found.low > 0.5 and found.severity == "some"


def test_a_shared_draw_of_noise_ranks_nobody() -> None:
    """Two clients of equal records: within a draw every member would beat every outsider."""
    rho, same = 0.1, Records(SCHEMA, np.zeros((10, 2)), np.zeros(10))
    owners = {"one": same, "two": same}
    told = released(QUERIES[0], owners, "gaussian", str(rho), times=200)
    draws = zip(*(told.of(client=name) for name in owners), strict=True)
    areas = [Membership().run(Transcript(draw), owners)[0].value for draw in draws]
    assert len(areas) == 200
    assert np.mean(areas) == pytest.approx(norm.cdf(math.sqrt(rho)), abs=0.06)


def test_ratios_of_laplace_are_bounded_by_epsilon() -> None:
    """No log ratio exceeds what was spent, for members and outsiders alike."""
    owners = {"one": table(40, 1), "two": table(40, 2)}
    transcript = released(QUERIES[0], owners, "laplace", "0.7")
    for name in owners:
        known = LikelihoodRatios(owners, SCHEMA)
        known.read(transcript.of(client=name))
        for scores in known.of(name).values():
            assert np.abs(scores).max() <= 0.7 + 1e-9
            assert np.abs(scores).max() > 0.1


def test_little_noise_gives_members_away_and_much_is_chance() -> None:
    """The power twin: at rho 50 members are known, at rho 0.0001 they are not."""
    owners = {f"c{i}": table(30, i) for i in range(4)}
    loud, quiet = (
        Membership().run(released(QUERIES[2], owners, "gaussian", rho), owners, SCHEMA)[0]
        for rho in ("50", "0.0001")
    )
    assert loud.value > 0.99 and loud.severity == "some"
    assert quiet.value == pytest.approx(0.5, abs=0.1) and quiet.severity == "none"


def test_exact_releases_tell_everybody() -> None:
    """Whoever knows all other records only has to subtract; a record that adds nothing is a guess."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    (found,) = Membership().run(released(QUERIES[0], owners, "open", None), owners, SCHEMA)
    assert (found.value, found.low, found.severity) == (1.0, 1.0, "some")
    assert found.metric.endswith("by exact numbers")


def test_suppressed_cells_are_not_read() -> None:
    """A withheld zero says nothing: with every cell withheld, all are ties."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    transcript = released(QUERIES[0], owners, "open", None)
    hidden = []
    for entry in transcript:
        part = entry.release.parts["counts"]
        blank = replace(part, units=part.units * 0, mask=np.ones(part.units.shape, bool))
        hidden.append(replace(entry, release=replace(entry.release, parts={"counts": blank})))
    (found,) = Membership().run(Transcript(tuple(hidden)), owners, SCHEMA)
    assert found.value == 0.5


def test_only_known_laws_are_read() -> None:
    """A mechanism of a law that the attack does not know leaves it nothing to work on."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    transcript = released(QUERIES[0], owners, "laplace", "1")
    strange = []
    for entry in transcript:
        part = entry.release.parts["counts"]
        assert part.noise is not None
        other = replace(part, noise=Unknown("staircase", "1.0"))
        strange.append(replace(entry, release=replace(entry.release, parts={"counts": other})))
    assert Membership().attackable(transcript)
    assert not Membership().attackable(Transcript(tuple(strange)))
    assert Membership().run(Transcript(tuple(strange)), owners, SCHEMA) == []


def test_without_the_truth_nothing_is_found() -> None:
    """This attacker knows all other records."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    assert Membership().run(Transcript(()), owners, SCHEMA) == []
    assert Membership().run(released(QUERIES[0], owners, "laplace", "1")) == []


def test_private_diabetes(diabetes) -> None:  # type: ignore[no-untyped-def]
    """At epsilon 8 a member ranks above an outsider more often than not, and far from always."""
    trained = diabetes("private")
    (found,) = Membership().run(trained.transcript, trained.truth, trained.schema)
    assert 0.5 < found.value < 0.9
    names = ("scaling", "level", "moments", "residuals", "residuals_by_set")
    kinds = {f"fuzzy_tree.{name}" for name in names}
    assert set(found.releases) == kinds


def test_area_under_the_curve() -> None:
    """By hand, with ties; its deviation shrinks with the groups."""
    assert auc(np.array([2.0, 3.0]), np.array([1.0, 2.0])) == 0.875
    assert auc(np.array([]), np.array([1.0])) == 0.5
    assert 0 < auc_std(0.7, 1000, 1000) < auc_std(0.7, 10, 10) < 0.2


def test_ties_are_broken_by_a_coin() -> None:
    """Counts that a record moves by one deviation: a strict bar would find .06 of .083."""
    rng = np.random.default_rng(0)
    outside = np.rint(rng.normal(0, 1, 200_000))
    inside = np.rint(rng.normal(0, 1, 200_000)) + 1
    expected = discrete(DiscreteGaussian(1.0), 1).at(0.01)
    assert expected == pytest.approx(0.083, abs=0.01)
    assert RocCurve.of(inside, outside).at(0.01) == pytest.approx(expected, abs=0.01)


def test_few_draws_convict_nobody() -> None:
    """Two clients share their draws of noise, so that their interval is held to no bound."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    limits = [
        Membership().run(released(QUERIES[0], owners, mechanism, spend), owners, SCHEMA)[0].limit
        for mechanism, spend in (("gaussian", "1"), ("open", None))
    ]
    assert limits == ["", "area"]


def test_a_draw_whose_law_is_not_named_convicts_nobody_either() -> None:
    """What is not what the records come to was drawn, and two clients are two draws."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    transcript = unnamed(released(QUERIES[0], owners, "laplace", "1"), QUERIES[0].kind)
    (found,) = Membership().run(transcript, owners, SCHEMA)
    assert found.metric.endswith("by noisy numbers of undeclared meaning")
    assert found.limit == ""


def test_time_that_is_up_is_told() -> None:
    """Nothing was read, and the finding says so."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    transcript = released(QUERIES[0], owners, "laplace", "1")
    (found,) = Membership(time_limit=1e-9).run(transcript, owners, SCHEMA)
    assert found.partial.startswith("0 of 2 releases") and found.value == 0.5


def test_clients_that_share_nothing_but_chance_are_not_accused() -> None:
    """The interval over draws: three clients prove little, one nothing."""
    assert between_draws(np.array([0.6])) == 1.0
    assert between_draws(np.array([0.55, 0.6, 0.65])) == pytest.approx(0.124, abs=0.001)


@pytest.mark.parametrize("sizes", [[30] * 5, [300, *[30] * 4], [300, *[5] * 20], [40, 5]])
def test_the_interval_over_draws_of_unequal_clients_holds_what_it_should(sizes: list[int]) -> None:
    """A mean by records of one draw a client: with one large client hardly more is known than of one draw."""
    rng, runs, missed = np.random.default_rng(0), 400, 0
    weights = np.array(sizes, float)
    for _ in range(runs):
        drawn = rng.normal(0.5, 0.1, len(sizes))
        half = between_draws(drawn, weights=weights)
        missed += abs(float(np.average(drawn, weights=weights)) - 0.5) > half
    assert missed / runs <= 0.07
    assert between_draws(np.array([0.55, 0.6, 0.65]), weights=np.ones(3)) == pytest.approx(
        between_draws(np.array([0.55, 0.6, 0.65]))
    )


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_the_interval_over_draws_holds_what_it_should(shared: float) -> None:
    """A draw moves a client's members and its outsiders, alike or not: most intervals hold 1/2.

    Measured by the members' side alone, too few do where the two sides share nothing.
    """
    rng, clients, runs = np.random.default_rng(0), 20, 200
    held = narrow = 0
    for _ in range(runs):
        common, own, others = rng.normal(size=(3, clients, 1))
        people = rng.normal(size=(2, clients, 2)) / 3
        sides = [
            list(shared * common + (1 - shared) * each + each_one)
            for each, each_one in zip((own, others), people, strict=True)
        ]
        told = compare_scores(sides[0], sides[1], drawn=True)
        assert told is not None
        held += told.low <= 0.5 <= told.high
        areas = [
            auc(side, rest) for side, rest in zip(sides[0], other_groups(sides[1]), strict=True)
        ]
        narrow += bool(abs(np.mean(areas) - 0.5) <= between_draws(np.array(areas)))
    assert held / runs >= 0.9
    assert shared or narrow / runs < 0.88


@pytest.mark.parametrize("records", [1, 20])
@pytest.mark.parametrize("clients", [3, 4, 5])
def test_few_clients_told_apart_by_chance_are_no_proof(clients: int, records: int) -> None:
    """Scores that tell nothing: at each level no more findings than it allows."""
    rng, runs, chances = np.random.default_rng(1), 1000, []
    for _ in range(runs):
        own = list(rng.normal(size=(clients, records)))
        rest = list(rng.normal(size=(clients, (clients - 1) * records)))
        told = compare_scores(own, rest, drawn=True)
        assert told is not None
        if told.low > 0.5:
            chances.append(told.p_value)
    for level in (0.05, 0.01, 0.0025):
        assert sum(chance <= level for chance in chances) <= runs * level


def unnamed(transcript: Transcript, kind: str) -> Transcript:
    """The same releases, those of a kind by a mechanism that names no noise."""
    entries = []
    for entry in transcript:
        parts = {
            name: replace(part, noise=None if entry.kind == kind else part.noise)
            for name, part in entry.release.parts.items()
        }
        entries.append(replace(entry, release=replace(entry.release, parts=parts)))
    return Transcript(tuple(entries))


def test_noise_that_nobody_named_is_judged_by_draws_of_it() -> None:
    """Two clients of different people: half the draws fit both, and without any information nothing is found."""
    rng, query, accused = np.random.default_rng(0), QUERIES[0], 0
    for seed in range(40):
        owners = {
            name: Records(SCHEMA, rng.uniform([low, -1], [high, 1], (30, 2)), np.zeros(30))
            for name, low, high in (("one", 0.0, 1.9), ("two", 1.1, 8.0))
        }
        transcript = unnamed(released(query, owners, "laplace", "0.001", seed), query.kind)
        accused += any(f.severity != "none" for f in Membership().run(transcript, owners, SCHEMA))
    assert accused == 0


def test_exact_numbers_beside_noise_that_nobody_named_are_proofs_still() -> None:
    """Each is judged for itself: the exact ones tell everybody apart, whatever stands beside them."""
    owners = {"one": table(10, 1), "two": table(10, 2)}
    noisy = released(QUERIES[0], owners, "laplace", "0.001")
    open_ = released(QUERIES[2], owners, "open", None)
    kind, other = QUERIES[0].kind, QUERIES[2].kind
    exact, drawn = Membership().run(unnamed(Transcript((*noisy, *open_)), kind), owners, SCHEMA)
    assert exact.metric.endswith("by exact numbers") and exact.value == 1.0
    assert exact.severity == "some" and exact.releases == (other,)
    assert drawn.metric.endswith("by noisy numbers of undeclared meaning")
    assert drawn.severity == "none" and drawn.releases == (kind,)
    (alone,) = Membership().run(unnamed(Transcript((*open_, *noisy)), kind), owners, SCHEMA)
    assert alone.releases == (other,)  # which told all apart, so that nothing else was read


@pytest.mark.parametrize("sizes", [[300, *[5] * 20], [300, *[5] * 4]])
def test_one_large_client_s_draw_is_one_draw(sizes: list[int]) -> None:
    """Of unequal clients whose people differ, a draw of wide noise ranks members above or below all others."""
    rng, runs, accused = np.random.default_rng(0), 200, 0
    for _ in range(runs):
        middle = (len(sizes) - 1) / 2
        people = [rng.normal(3 * (at - middle), 1, size) for at, size in enumerate(sizes)]
        signs = rng.choice([-1.0, 1.0], len(sizes))
        own = [sign * each for sign, each in zip(signs, people, strict=True)]
        rest = [sign * each for sign, each in zip(signs, other_groups(people), strict=True)]
        told = compare_scores(own, rest, drawn=True)
        assert told is not None
        accused += told.low > 0.5
    assert accused / runs <= 0.07


def test_areas_above_outsiders_elsewhere_are_those_of_each_pair() -> None:
    """Beside the area of every pair of clients, ties and unequal sizes included."""
    rng = np.random.default_rng(0)
    own, rest = ([rng.integers(0, 6, size).astype(float) for size in (1, 4, 9)] for _ in range(2))
    expected = [
        [auc(a, b) if i != j else np.nan for j, b in enumerate(rest)] for i, a in enumerate(own)
    ]
    assert pairwise_aucs(own, rest) == pytest.approx(np.array(expected), nan_ok=True)
    told = compare_scores(own, rest, drawn=True)
    assert told is not None and told.roc_auc == pytest.approx(np.nanmean(expected))


def test_a_single_owner_s_records_are_compared_with_those_held_out() -> None:
    """Exact numbers tell the used from the held-out; without any, and of one draw of noise, nobody looked."""
    owners, name = {"one": table(10, 1)}, "one" + HELD_OUT
    held = {name: table(10, 2)}
    exact = released(QUERIES[0], owners, "open", None)
    (found,) = Membership().run(exact, {**owners, **held}, SCHEMA)
    assert (found.value, found.severity) == (1.0, "some")
    assert (found.detail["members"], found.detail["outsiders"]) == (10, 10)
    noisy = released(QUERIES[0], owners, "laplace", "1")
    for transcript, truth, why in (
        (exact, owners, "none are held out"),
        (noisy, {**owners, **held}, "drawn only once"),
    ):
        (blind,) = Membership().run(transcript, truth, SCHEMA)
        assert blind.state == "not looked" and why in blind.why_not
