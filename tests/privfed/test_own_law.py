"""A law of one's own from price to page, and what is on a plugin's word, told in every total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance

from privfed import LocalDisclosure
from privfed.accountants import pld, rdp
from privfed.attacks.roc import discrete
from privfed.attacks.worst_record import WorstRecord
from privfed.errors import PluginError
from privfed.exchange.messages import Failure, Reason, Release, Request
from privfed.extend import (
    Bound,
    BoundedPart,
    DiscreteLaplace,
    Law,
    Loss,
    Mechanism,
    OpenDPMechanism,
    Part,
    PartType,
    Protection,
)
from privfed.learners.base import Planned
from privfed.ledger import Ledger
from privfed.ledger.statement import Line
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.unprotected import Nullify
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import Charged, law_of
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions import plugins
from privfed.reports.account import read
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.page import page
from privfed.reports.text import summary
from privfed.study import Study
from privfed.study.ledger_commands import budget as budget_lines
from privfed.study.price import price
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.testing.check_mechanism import (
    MechanismCase,
    check_all_cells,
    check_group,
    check_mechanism,
    groups,
)
from privfed.testing.queries import Histogram
from tests.asked_gate import reason, reply
from tests.own_law import (
    FALSE,
    EuclideanLaplace,
    HeavyTails,
    MixtureNoise,
    OneDrawLaplace,
    Spread,
    StaircaseNoise,
)

FRAME = pd.DataFrame({"x": np.linspace(0, 1, 40), "y": np.linspace(0, 1, 40)})
SCHEMA = replace(Schema.infer(FRAME, "y"), inferred=False)
STATES = "on the sensitivity that test.spread states, not derived here"
WORD = f"{STATES}; on the word of mixture, not derived here"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The laws and the question are installed, as a plugin's entry points would."""
    known = plugins.available
    own = {
        "laws": {"mixture": "Mixture", "staircase": "Staircase"},
        "queries": {Spread.kind: "Spread"},
    }

    def available(group: str) -> dict[str, EntryPoint]:
        points = {
            name: EntryPoint(name, f"tests.own_law:{value}", f"privfed.{group}")
            for name, value in own.get(group, {}).items()
        }
        return {**known(group), **points}

    monkeypatch.setattr(plugins, "available", available)
    law_of.cache_clear()
    yield
    law_of.cache_clear()


def policy(mechanism: Mechanism | str, accountant: str = "pure", delta: str = "0") -> Policy:
    """One epsilon for each of ten answers at most, out of eight."""
    guard = Guard.of(mechanism, spend="1", cap="1", times=10)
    limit = Budget.of("8", delta)
    return Policy({Spread.kind: (guard,)}, name="own", accountant=accountant, budget=limit)


def gate(tmp_path: Path, mechanism: Mechanism | str, **changes: Any) -> Gate:
    """A gate over forty records, with its ledger in a file."""
    records = Records.from_frame(FRAME, SCHEMA)
    ledger = Ledger(tmp_path / "own.db", "own")
    noise = TestNoise(1)
    return Gate("own", records, policy(mechanism, **changes), ledger, queries=[Spread], noise=noise)


def test_a_law_of_ones_own_goes_from_price_to_page(tmp_path: Path) -> None:
    """Price, gate, ledger, statement, attack, curves and page: each says on whose word, the query's author's too."""
    mechanism = MixtureNoise()
    planned = price([Planned(Spread(), 3)], SCHEMA, policy(mechanism))
    assert planned.epsilon == 3 and planned.basis == WORD
    own = gate(tmp_path, mechanism)
    released = reply(own, Request.of("1", Spread()))
    assert isinstance(released, Release)
    law = released.parts["counts"].noise
    assert law is not None and law.name == "mixture"
    own.ledger.verify()
    row = next(entry for entry in own.ledger.entries() if entry.event == "reserved")
    loss = Loss.from_dict(row.body["loss"])
    assert loss.laws == (Charged(law, 4),) and loss.basis == (
        "claimed:mixture",
        "query:test.spread",
    )
    spent = own.ledger.spent(own.accountant)
    assert (spent.total[0], spent.basis) == (1, ("claimed:mixture", "query:test.spread"))
    (line,) = own.ledger.budget(None)
    assert isinstance(line, Line) and line.basis == WORD
    assert discrete(law, 4).at(0.01) == pytest.approx(0.01 * np.e, rel=0.1)
    assert 0.9 < pld.epsilon_at([loss], 1e-9) <= 1
    assert rdp.epsilon_at([loss] * 3, 1e-6) > 1
    own.ledger.close()
    with closing(Ledger.read(tmp_path / "own.db")) as held:
        assert WORD in budget_lines(held, None)
    account = read(own.policy, {"own": Ledger(tmp_path / "own.db", "own")}, {})
    account = replace(account, clients=tuple(replace(c, secure=True) for c in account.clients))
    report = Report(Study.built_in(), (PolicyReport(account),))
    assert f"This holds {WORD}." in page(report)
    assert f"epsilon 8 ({WORD})" in summary(report) or WORD in summary(report)
    assert report.to_dict()["policies"][0]["basis"] == WORD


def test_an_attack_reads_a_law_of_ones_own() -> None:
    """The worst record moves what left by what was charged for, and no more."""
    fed = LocalDisclosure.from_frame(
        FRAME.assign(c="own"),
        target="y",
        client="c",
        schema=SCHEMA,
        policy=policy(MixtureNoise()),
        queries=[Spread],
        seed=1,
    )
    fed.ask(Spread())
    assert fed.budget()["basis"].tolist() == [WORD]
    (worst,) = WorstRecord().run(fed.transcript(), None, fed.schema)
    assert worst.value == pytest.approx(worst.of) == pytest.approx(1)
    assert worst.severity == "none"


def test_an_honest_law_of_ones_own_passes_the_kit() -> None:
    """All thirteen checks, as many as for ours."""
    assert len(check_mechanism(MixtureNoise(), 1)) == 13


def test_what_a_law_with_heavy_tails_loses_is_found() -> None:
    """Its reach of thousands of deviations hides nothing of its mass: deviation and loss, to a thousandth."""
    law = HeavyTails(2.0**20)
    assert law.std == pytest.approx(law.parameter, rel=1e-3)
    assert 0.999 < law.worst(1) / float(law.loses(1)) <= 1


@pytest.mark.parametrize("false", FALSE)
def test_a_false_mechanism_is_refused_or_marked(tmp_path: Path, false: type[Mechanism]) -> None:
    """A law that its own probabilities or our proofs refute is refused; what draws itself is told."""
    own = gate(tmp_path, false())
    refused = reason(own, Request.of("1", Spread()))
    if false in (StaircaseNoise, EuclideanLaplace):
        assert refused == Reason.UNSOUND
        assert own.ledger.spent(own.accountant).total[0] == 0
        return
    assert refused is None
    (line,) = own.ledger.budget(None)
    assert line.basis == f"{STATES}; on the word of {false.name}, not derived here"
    own.ledger.verify()


@pytest.mark.parametrize("false", FALSE)
def test_a_false_mechanism_is_rejected_by_the_kit(false: type[Mechanism]) -> None:
    """By moving several cells alone, whatever it says of its law; the seed is the kit's own."""
    bench = MechanismCase(false(), Fraction(1), groups=groups())
    with pytest.raises(AssertionError, match=r"beats epsilon 1|proves epsilon"):
        (check_group if false is OneDrawLaplace else check_all_cells)(bench)


class Stateless(Laplace):
    """A planted fault: forgets to name a law."""

    name = "stateless"

    def price(self, group: Any, spend: Any) -> Protection:
        """A finite cost, and nothing to draw."""
        return Protection(self, group, spend, stated=Loss.pure(spend))


class Suppressing(Nullify):
    """A planted fault: masks by the data, and states a finite cost."""

    name = "suppressing"
    currency = "epsilon"

    def price(self, group: Any, spend: Any) -> Protection:
        """Honest noise beside the masks."""
        return replace(Laplace().price(group, spend), mechanism=self)


class Wide(Laplace):
    """A planted fault: noise that a sampler of 64-bit integers cannot hold."""

    name = "wide"

    def scale(self, bound: Any, spend: Any) -> float:
        """Beyond the widest."""
        return 1e300


class Shrinking(Laplace):
    """A planted fault: hands back another group, which a record moves less."""

    name = "shrinking"

    def price(self, group: Any, spend: Any) -> Protection:
        """For a bound of one."""
        return super().price(
            {name: replace(g, bound=Bound(1, 1)) for name, g in group.items()}, spend
        )


class Forging(Laplace):
    """A planted fault: a law of ours with a method of its own."""

    name = "forging"

    def price(self, group: Any, spend: Any) -> Protection:
        """It says that it loses nothing."""
        law = DiscreteLaplace(0.1)
        law.loses = lambda units: Fraction(0)  # type: ignore[method-assign]
        return Protection(self, group, spend, dict.fromkeys(group, law))


@pytest.mark.parametrize("lying", [Stateless, Suppressing, Wide, Shrinking, Forging])
def test_what_the_core_cannot_derive_is_no_finite_cost(
    tmp_path: Path, lying: type[Mechanism]
) -> None:
    """Parts without noise, masks by the data, noise that saturates: refused, and nothing is charged."""
    own = gate(tmp_path, lying())
    assert reason(own, Request.of("1", Spread())) == Reason.UNSOUND
    assert own.ledger.spent(own.accountant).total[0] == 0


@pytest.mark.parametrize(
    "finish",
    [
        lambda cells: {name: array.ravel()[:1] for name, array in cells.items()},
        lambda cells: {name: array * np.nan for name, array in cells.items()},
        lambda cells: {name: array.astype(str) for name, array in cells.items()},
        lambda cells: {},
        lambda cells: None,
    ],
)
def test_what_is_finished_in_another_form_never_leaves(tmp_path: Path, finish: Any) -> None:
    """One cell in place of four was an answer, and no number was one: it is charged, and the gate is closed."""

    class Finishing(Laplace):
        name = "finishing"

        def finish(self, noisy: Any, priced: Any) -> Any:
            return finish(noisy)

    own = gate(tmp_path, Finishing())
    assert isinstance(reply(own, Request.of("1", Spread())), Failure)
    assert own.ledger.spent(own.accountant).total[0] == 1
    assert reason(own, Request.of("2", Spread())) == Reason.CLOSED


def test_a_mechanism_has_a_name_and_a_currency_of_its_own(tmp_path: Path) -> None:
    """By another's name pages and policies would speak of the other; a misspelt currency was told as a false price."""

    class Wider(Laplace):
        """Without a name of its own it calls itself as its base does."""

    with pytest.raises(PluginError, match="'laplace': another one is installed by this name"):
        gate(tmp_path, Wider())

    class Misspelt(Laplace):
        name, currency = "misspelt", "eps"

    with pytest.raises(PluginError, match="'misspelt': currency is 'epsilon', 'rho' or None"):
        gate(tmp_path, Misspelt())


def test_a_question_has_a_kind_of_its_own() -> None:
    """Of another's kind, attacks and replays would read its answers as answers to the other's question."""

    class Namesake(Histogram):
        """Of a kind that it inherits."""

    guards = {Histogram.kind: (Guard.of("laplace", spend=1),)}
    records = Records.from_frame(FRAME, SCHEMA)
    with pytest.raises(PluginError, match=r"'small\.histogram': another one is installed"):
        Gate("own", records, Policy(guards), Ledger(), queries=[Namesake])


def test_what_an_instance_holds_is_never_called() -> None:
    """Methods of an instance's own are passed over: the class draws, and the class is what is told."""
    mechanism, quiet = Laplace(), DiscreteLaplace(4.0)
    mechanism.draw = lambda law, noise, cells: np.zeros(cells)  # type: ignore[method-assign]
    mechanism.protect = None  # type: ignore[assignment, method-assign]
    quiet.draw = lambda noise, cells: np.zeros(cells)  # type: ignore[method-assign]
    group = {"counts": counts(Bound(4, 4))}
    priced = mechanism.price(group, Fraction(1))
    exact = {"counts": np.zeros(4, np.int64)}
    honest = Laplace().price(group, Fraction(1)).protect(exact, TestNoise(1))
    assert np.array_equal(priced.protect(exact, TestNoise(1))["counts"], honest["counts"])
    again = replace(priced, laws={"counts": quiet}).protect(exact, TestNoise(1))
    assert np.array_equal(again["counts"], honest["counts"])
    assert priced.loss.basis == ()
    assert OneDrawLaplace().price(group, Fraction(1)).loss.basis == ("claimed:one_draw_laplace",)


def counts(bound: Bound) -> BoundedPart:
    """Four counts with a bound."""
    return BoundedPart(Part(PartType.COUNTS, ("cell",), (4,)), bound)


class Clamped(Laplace):
    """Finishes: no count is below zero."""

    name = "clamped"
    seen: ClassVar[list[Any]] = []

    def finish(
        self, noisy: Mapping[str, np.ndarray], priced: Protection
    ) -> Mapping[str, np.ndarray]:
        """Clamp."""
        self.seen.append({name: array.copy() for name, array in noisy.items()})
        return {name: np.maximum(array, 0) for name, array in noisy.items()}


def test_finishing_sees_noisy_values_alone_and_costs_nothing() -> None:
    """The loss is derived, and no exact value comes by."""
    group = {"counts": counts(Bound(4, 4))}
    priced = Clamped().price(group, Fraction(1))
    exact = {"counts": np.zeros(4, np.int64)}
    released = priced.protect(exact, TestNoise(1))["counts"]
    noisy = Laplace().price(group, Fraction(1)).protect(exact, TestNoise(1))["counts"]
    assert np.array_equal(Clamped.seen[-1]["counts"], noisy)
    assert np.array_equal(released, np.maximum(noisy, 0)) and priced.loss.basis == ()
    assert len(check_mechanism(Clamped(), 1, skip={"law_is_kept": "it is clamped"})) == 12


class Mapped(OpenDPMechanism):
    """OpenDP's own Laplace measurement, at its own map."""

    name = "mapped"
    currency = "epsilon"
    factor: float = 1.0

    def measurement(self, bound: Bound, spend: Fraction) -> Any:
        """Of a scale that its map puts at the spend, or hardly above."""
        space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
        return make_laplace(*space, scale=bound.l1 / float(spend) * self.factor)


class MappedGaussian(Mapped):
    """The same in rho."""

    name = "mapped_gaussian"
    currency = "rho"

    def measurement(self, bound: Bound, spend: Fraction) -> Any:
        """Sigma^2 = L2^2 / (2 rho)."""
        space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
        return make_gaussian(*space, scale=(bound.l2_squared / (2 * float(spend))) ** 0.5)


class Overriding(Mapped):
    """Puts the exact values out all the same."""

    name = "overriding"

    def protect(self, exact, priced, noise, reveals):  # type: ignore[no-untyped-def]
        """As they are."""
        return {name: np.ma.MaskedArray(array) for name, array in exact.items()}


@pytest.mark.parametrize("mechanism", [Mapped(), MappedGaussian()])
def test_a_measurement_of_opendps_is_charged_by_its_map(
    tmp_path: Path, mechanism: OpenDPMechanism
) -> None:
    """Rounded up, and every total says whose map it is."""
    own = gate(tmp_path, mechanism, accountant="zcdp", delta="1e-5")
    assert isinstance(reply(own, Request.of("1", Spread())), Release)
    (line,) = own.ledger.budget(None)
    assert line.basis == f"by OpenDP's map of {mechanism.name}; {STATES}"
    priced = mechanism.price({"counts": counts(Bound(4, 4))}, Fraction(1))
    charged = getattr(priced.loss, str(mechanism.currency))
    assert 1 <= charged <= Fraction(1000001, 1000000)
    exact = {"counts": np.full(4, 1000)}
    told = np.array([priced.protect(exact, TestNoise(1))["counts"] for _ in range(500)])
    assert told.mean() == pytest.approx(1000, abs=1.5)
    skip = dict.fromkeys(["all_cells", "group", "audit", "law_is_kept"], "slow through OpenDP")
    skip["noise_is_the_sources"] = "its noise is OpenDP's own"
    assert len(check_mechanism(mechanism, 1, skip=skip)) == 8


def test_overriding_a_wrapped_measurement_is_on_its_authors_word() -> None:
    """And what gives no measurement is refused."""
    group = {"counts": counts(Bound(4, 4))}
    assert Overriding().price(group, Fraction(1)).loss.basis == ("claimed:overriding",)


def test_a_claimed_cost_of_nothing_is_told_too(tmp_path: Path) -> None:
    """Free, by its word: the total still says so."""

    class Free(OneDrawLaplace):
        name = "free"

        def price(self, group: Any, spend: Any) -> Protection:
            return Protection(self, group, spend, stated=Loss.free())

    own = gate(tmp_path, Free())
    assert reason(own, Request.of("1", Spread())) is None
    (line,) = own.ledger.budget(None)
    assert line.basis == f"{STATES}; on the word of free, not derived here"


def test_laws_are_derived_and_not_taken_from_a_statement() -> None:
    """What a stated loss says of laws and basis is overwritten."""
    group = {"counts": counts(Bound(4, 4))}
    false = Loss.pure(1, Charged(DiscreteLaplace(1e6), 1))
    priced = Protection(Laplace(), group, Fraction(1), {"counts": DiscreteLaplace(4.0)}, false)
    assert priced.loss.laws == (Charged(DiscreteLaplace(4.0), 4),)
    law: Law = DiscreteLaplace(4.0)
    assert replace(priced, stated=None).loss == Loss.pure(1, Charged(law, 4))
