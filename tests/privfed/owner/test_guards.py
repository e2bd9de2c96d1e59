"""What the checks before a release hold: caps on units, sizes that tell, parts that are no parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from privfed import Gate, Guard, Ledger, Policy, Records, Schema
from privfed.accountants.pure import PureEpsilon
from privfed.errors import PluginError
from privfed.exchange.messages import Reason, Release, Request
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.owner.guards import KEPT, capped, guards_of, is_local
from privfed.owner.opendp_maps import checked
from privfed.privacy.laws import BitFlips, Charged, SumOfGaussians
from privfed.privacy.loss import Loss, lost
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection, joint
from privfed.questions.part import Bound, Part, PartType, Sensitivity, as_declared
from privfed.questions.query import Query, View
from privfed.testing.queries import LevelSums
from tests.asked_gate import Watched, events, reason, reply


@pytest.mark.parametrize(("cap", "kept"), [(1, 1), (20, 20), (50, 50), (60, 50)])
def test_a_client_of_more_records_than_its_cap(
    watched: Callable[..., Gate], cap: int, kept: int
) -> None:
    """Where the unit is a client, no more of its records than the cap are in the view."""
    seen: list[int] = []
    gate = watched(
        behave=lambda view: seen.append(len(view.table)) or np.array([1]), unit="client", cap=cap
    )
    assert reason(gate, Request.of("1", Watched())) is None
    assert seen == [kept]


def test_a_clients_exact_count_stops_at_its_cap(watched: Callable[..., Gate]) -> None:
    """Released as it is, a count of fifty records under a cap of twenty is twenty."""
    guards = {Watched.kind: (Guard.of("open"),)}
    released = reply(watched(guards=guards, unit="client", cap=20), Request.of("1", Watched()))
    assert isinstance(released, Release)
    assert released["counts"].tolist() == [20]


def test_what_is_cut_depends_on_unit_and_cap(records: Records) -> None:
    """Records are a unit each and never cut; clients and persons are, and only under a cap."""
    left = {
        (unit, cap): len(capped(records, Policy({}, unit=unit, cap=cap)))
        for unit in ("client", "individual")
        for cap in (None, 1, 7)
    }
    assert left == {
        ("client", None): 50,
        ("client", 1): 1,
        ("client", 7): 7,
        ("individual", None): 50,
        ("individual", 1): 25,
        ("individual", 7): 50,
    }
    assert len(capped(records, Policy({}))) == 50


@dataclass(frozen=True)
class Sized(Query):
    """A plugin's count whose declared shape a test sets, beside a sensitivity of one.

    Sensitivity: claimed to be one; with a size that follows the data it cannot be true.
    """

    shape: tuple[int, ...]
    kind: ClassVar[str] = "test.sized"
    evaluated: ClassVar[list[int]] = []

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One part of that shape."""
        axes = ("a", "b")[: len(self.shape)]
        return {
            "counts": Part(PartType.COUNTS, axes, self.shape, Sensitivity(Bound(1, 1))),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """As many cells as there are records, where the size is left open."""
        self.evaluated.append(len(view.table))
        return {"counts": np.zeros([len(view.table) if n < 0 else n for n in self.shape])}


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 3), (3, -1), (-1, -1)])
def test_noise_hides_no_size(
    make_gate: Callable[..., Gate],
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
    shape: tuple[int, ...],
) -> None:
    """A part whose size follows the data is refused under noise, uncharged and unevaluated."""
    monkeypatch.setattr(Sized, "evaluated", [])
    guards = {Sized.kind: (Guard.of(mechanism, spend="0.1"),)}
    gate = make_gate(guards, queries=(Sized,), accountant="zcdp")
    assert reason(gate, Request.of("1", Sized(shape))) == Reason.UNSUPPORTED
    assert events(gate) == ["refused"]
    assert Sized.evaluated == []
    assert reason(gate, Request.of("2", Sized(tuple(abs(n) for n in shape)))) is None


@pytest.mark.parametrize("dtype", ["uint64", "int64", "uint8", "float64"])
def test_cells_are_cut_before_they_wrap_around(dtype: str) -> None:
    """Neighbouring answers on both sides of 2^63 stay as near as they were; small ones are untouched."""
    part = Part(PartType.COUNTS, ("cell",), (3,), Sensitivity(Bound(1, 1)))
    info = np.iinfo(dtype) if dtype != "float64" else np.finfo(dtype)
    cells = np.array([info.min, 7, info.max], dtype)
    told = as_declared(cells, part)
    assert told.dtype == np.int64
    assert told.tolist() == [max(int(info.min), -(2**53)), 7, min(int(info.max), 2**53)]
    assert as_declared(cells[[0, 1, 1]], part).tolist() == told[[0, 1, 1]].tolist()
    if dtype == "uint64":
        near = [as_declared(np.full(3, 2**63 - 1 + step, dtype), part)[0] for step in (0, 1)]
        assert near[0] == near[1] == 2**53


@pytest.mark.parametrize("sign", [1, -1])
def test_cutting_cells_moves_no_neighbours_apart(sign: int) -> None:
    """Of all pairs of cells about 2^53 that one record may move by one: declared, they differ by one at most."""
    part = Part(PartType.COUNTS, ("cell",), (2,), Sensitivity(Bound(1, 1)))
    about = range(2**53 - 2, 2**53 + 5)
    for one, other in product(about, about):
        told = [as_declared(sign * np.array([one + step, other]), part) for step in (0, 1)]
        assert np.abs(told[0] - told[1]).sum() <= 1, (one, other)


@pytest.mark.parametrize("anything", [Bound(1, 1), None])
def test_bits_are_local_only_where_anything_of_an_individual_is_covered(
    anything: Bound | None,
) -> None:
    """Bits of which only a record's change is bounded have the guarantee of a record, and the ledger says so."""
    every = Bound(3, 3)
    part = Part(PartType.BITS, ("individual",), (3,), Sensitivity(every, every, anything))
    group = {"bits": BoundedPart(part, every)}
    flips = Protection(RandomizedResponse(), group, Fraction(1), {"bits": BitFlips(Fraction(1, 4))})
    assert is_local([flips]) is (anything is not None)


@dataclass(frozen=True)
class Kept(Query):
    """A count of held-out records, which remembers what it saw."""

    kind: ClassVar[str] = "test.kept"
    held_out: ClassVar[bool] = True

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One count."""
        return {"counts": Part(PartType.COUNTS, ("all",), (1,), Sensitivity(Bound(1, 1)))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count, once a view."""
        return {"counts": np.array([view.cache.setdefault("size", len(view.table))])}


def test_held_out_records_are_capped_and_share_nothing_with_the_others(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of a person's are counted than the cap, and what a query remembers of the others stays with them."""
    guards = {kind: (Guard.of("open"),) for kind in (Watched.kind, Kept.kind)}
    gate = Gate(
        "clinic",
        records,
        Policy(guards, unit="individual", cap=1),
        Ledger(None),
        queries=(Watched, Kept),
        held_out=records.take(np.arange(10)),
    )
    monkeypatch.setattr(
        Watched, "behave", lambda view: np.array([view.cache.setdefault("size", len(view.table))])
    )
    told = [reply(gate, Request.of(q.kind, q)) for q in (Watched(), Kept())]
    counts = [one["counts"].tolist() for one in told if isinstance(one, Release)]
    assert counts == [[25], [5]]


def test_an_open_size_is_released_without_a_guarantee(make_gate: Callable[..., Gate]) -> None:
    """The owner may let it out as it is; the ledger then counts a release without a guarantee."""
    gate = make_gate({Sized.kind: (Guard.of("open"),)}, queries=(Sized,))
    assert reason(gate, Request.of("1", Sized((-1,)))) is None
    assert gate.ledger.spent(gate.accountant).unprotected == 1


def test_a_gate_charges_the_laws_of_both_grids(
    make_gate: Callable[..., Gate], records: Records, schema: Schema
) -> None:
    """A ready query of a count and a sum under one guard: useful, and OpenDP's maps add up."""
    guards = {LevelSums.kind: (Guard.of("laplace", spend="4"),)}
    gate = make_gate(guards, queries=(LevelSums,), budget="4")
    said = reply(gate, Request.of("1", LevelSums(((),))))
    assert isinstance(said, Release)
    assert abs(int(said.parts["counts"].units[0]) - len(records)) < 5
    assert abs(float(said["sums"][0]) - float(records.target.sum())) < 5
    row = next(entry for entry in gate.ledger.entries() if entry.event == "reserved")
    assert [law["law"] for law in row.body["loss"]["laws"]] == ["laplace", "laplace"]
    assert [cost for _, cost in row.body["maps"]] == pytest.approx([2.0, 2.0])
    assert gate.ledger.spent(gate.accountant).total[0] == 4


class Spendthrift(Laplace):
    """A planted fault: each grid gets the whole spend, which is charged once."""

    name = "spendthrift"

    def price(self, group, spend):  # type: ignore[no-untyped-def]
        """Noise and laws for two spends, at the price of one."""
        twice = super().price(group, spend * len(group))
        return Protection(self, group, spend, twice.laws, Loss(spend, spend**2 / 2))


class Forgetful(Laplace):
    """A planted fault: forgets the sensitivity of the second grid."""

    name = "forgetful"

    def scale(self, bound, spend):  # type: ignore[no-untyped-def]
        """For one unit, whatever the bound."""
        return float(1 / spend)


@pytest.mark.parametrize("lying", [Spendthrift(), Forgetful()])
def test_laws_of_several_grids_are_held_to_their_sum(
    lying: Laplace, make_gate: Callable[..., Gate]
) -> None:
    """What each law says alone fits the charge; what they say together does not."""
    gate = make_gate({LevelSums.kind: (Guard.of(lying, spend="1"),)}, queries=(LevelSums,))
    assert reason(gate, Request.of("1", LevelSums(((),)))) == Reason.UNSOUND


def test_equal_questions_are_quoted_once(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pricing follows from parts and proposals alone: equal ones share one quote, others do not."""
    asked: list[str] = []
    price = Laplace.price

    def counted(self: Laplace, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        asked.append(str(spend))
        return price(self, group, spend)

    monkeypatch.setattr(Laplace, "price", counted)
    gate = watched(guards={Watched.kind: (Guard.of("laplace", spend="0.1", cap="1"),)})
    for number in range(3):
        assert reason(gate, Request.of(str(number), Watched(number))) is None
    assert reason(gate, Request.of("4", Watched(4), spend=Fraction(1, 5))) is None
    assert asked == ["1/10", "1/5"]
    losses = [e.body["loss"]["epsilon"] for e in gate.ledger.entries() if e.event == "reserved"]
    assert losses == ["0.1", "0.1", "0.1", "0.2"]


def test_proposals_of_a_servers_choice_fill_no_memory(make_gate: Callable[..., Gate]) -> None:
    """Each is another quote; a few hundred are kept."""
    gate = make_gate({LevelSums.kind: (Guard.of("laplace", spend="1"),)})
    for number in range(1, KEPT + 10):
        gate.dry_run(Request.of(str(number), LevelSums(((),)), spend=Fraction(number, 1000)))
    assert 1 <= len(gate._guards._kept) <= KEPT


def test_a_part_made_of_lists_is_quoted_all_the_same(make_gate: Callable[..., Gate]) -> None:
    """A query's author may write a list for a shape: quoted, though not kept."""
    gate = make_gate({Sized.kind: (Guard.of("laplace", spend="0.1"),)}, queries=(Sized,))
    object.__setattr__(shaped := Sized((3,)), "shape", (3,))
    assert reason(gate, Request.of("1", shaped)) is None


class WishfulGaussian(Gaussian):
    """A planted fault: Gaussian noise of a true rho, called (1e-9, 1e-9) for those who count epsilon."""

    name: ClassVar[str] = "wishful"

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """The noise's own rho, and an epsilon out of thin air."""
        priced, hope = super().price(group, spend), Fraction(1, 10**9)
        return replace(priced, stated=Loss(hope, spend, hope))


class FewCells(Gaussian):
    """A planted fault: the law of a masked sum, said to hide one cell of however many there are."""

    name: ClassVar[str] = "few_cells"

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """The rho of one cell."""
        law = SumOfGaussians(0.8, 2, 2, 1)
        charged = lost(Charged(law, law.units(joint(group))))
        return Protection(self, group, spend, dict.fromkeys(group, law), replace(charged, laws=()))


def test_what_a_mechanism_states_with_a_delta_is_its_word(watched: Callable[..., Gate]) -> None:
    """No law is held to it, so every total that contains it says whose word it is."""
    guards = {Watched.kind: (Guard.of(WishfulGaussian(), spend="0.5"),)}
    gate = watched(behave=lambda view: np.array([1]), guards=guards, accountant="pure")
    assert reason(gate, Request.of("1", Watched())) is None
    assert gate.ledger.spent(gate.accountant).basis == ("claimed:wishful", "query:test.watched")


def test_the_law_of_a_masked_sum_hides_no_more_cells_than_it_says() -> None:
    """Its loss grows with the cells that are masked together."""
    for cells, fine in ((1, True), (1000, False)):
        part = Part(PartType.COUNTS, ("cell",), (cells,))
        group = {"counts": BoundedPart(part, Bound(cells, cells))}
        if fine:
            assert checked(FewCells(), group, Fraction(1)).loss.rho
        else:
            with pytest.raises(PluginError, match="for 1 cells, and hides 1000"):
                checked(FewCells(), group, Fraction(1))


class OneOfTwo(Laplace):
    """A planted fault: adds noise to the first part alone, and states what noise on all of them costs."""

    name: ClassVar[str] = "one_of_two"

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """A law of one part."""
        noisy = super().price(group, spend)
        first = dict(list(noisy.laws.items())[:1])
        return Protection(self, group, spend, first, Loss(spend))


class Masking(Laplace):
    """A planted fault: adds noise, and masks what the records say."""

    name: ClassVar[str] = "masking"
    suppresses: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("mechanism", "told"),
    [
        (OneOfTwo(), "leaves part 'two' without noise, and states a finite cost"),
        (Masking(), "masks cells by the data, which is not differential privacy"),
    ],
)
def test_no_cost_is_finite_where_something_leaves_without_noise(
    mechanism: Laplace, told: str
) -> None:
    """Neither a part that was forgotten, nor which cells are masked."""
    group = {
        name: BoundedPart(Part(PartType.COUNTS, ("cell",), (3,)), Bound(1, 1))
        for name in ("one", "two")
    }
    assert checked(Laplace(), group, Fraction(1)).loss.finite
    with pytest.raises(PluginError, match=told):
        checked(mechanism, group, Fraction(1))
    unmoved = {**group, "two": BoundedPart(group["two"].part, Bound(0, 0))}
    if isinstance(mechanism, OneOfTwo):  # what no record can change needs no noise
        assert checked(mechanism, unmoved, Fraction(1)).loss.finite


def test_gates_of_one_policy_quote_a_query_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred owners price what one prices; a mechanism of another package is priced by each gate."""

    class Foreign(Laplace):
        name: ClassVar[str] = "foreign"

    Foreign.__module__ = "another"
    priced: list[str] = []

    def counted(mechanism: Mechanism, *more: Any) -> Protection:
        priced.append(mechanism.name)
        return checked(mechanism, *more)

    monkeypatch.setattr("privfed.owner.guards.checked", counted)
    parts = {"sums": Part(PartType.SUMS, ("cell",), (3,), Sensitivity.of(1))}
    for mechanism, times in (("laplace", 1), (Foreign(), 3)):
        policy = Policy({Watched.kind: (Guard.of(mechanism, spend="0.1"),)})
        made = [guards_of(policy, PureEpsilon()) for _ in range(3)]
        quotes = [guards.quote(Watched, parts, None) for guards in made]
        assert len(priced) == times and len({quote.loss.epsilon for quote in quotes}) == 1
        priced.clear()
