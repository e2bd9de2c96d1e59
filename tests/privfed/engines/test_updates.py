"""A gate around somebody's model: what leaves is bounded, charged, and the gate's own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import guard_examples
import numpy as np
import pytest
from guard_examples import CLAIM, gate
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privfed.engines.updates import ModelUpdate, TrainedRecords, UpdateGate, mean_update
from privfed.errors import InputError, PolicyError, PrivfedError, QueryError
from privfed.exchange.messages import Reason, Refusal, Release, Request
from privfed.guards import checks
from privfed.guards.adapters import _flare, _flower
from privfed.guards.trial import GuardTrial
from privfed.ledger import Ledger
from privfed.mechanisms.unprotected import Training
from privfed.owner.masking import MaskingKey
from privfed.privacy.accountant import Budget
from privfed.privacy.loss import Loss, basis_in_words
from privfed.privacy.masked_sums import MaskedSums
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions import wire
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("age", lower=0, upper=100),))
UPDATES = arrays(float, 5, elements=st.floats(allow_nan=True, allow_infinity=True))
CLIPS = st.floats(1e-6, 1e6)


def left(update: np.ndarray, clip: float) -> tuple[np.ndarray, ModelUpdate]:
    """What would leave of an update, without noise."""
    records = TrainedRecords.beside(None)
    records.trained["update"] = update
    query = ModelUpdate(update.size, clip)
    return query.evaluate(View(records, records.schema))["update"], query


def squared(units: np.ndarray) -> int:
    """Squared L2 norm, exactly."""
    return sum(int(each) ** 2 for each in units)


@given(UPDATES, UPDATES, CLIPS)
def test_no_pair_of_updates_is_further_apart_than_the_derived_sensitivity(
    one: np.ndarray, other: np.ndarray, clip: float
) -> None:
    """Add-or-remove of a client against nothing, and any two updates; both norms, in whole numbers."""
    (u, query), (v, _) = left(one, clip), left(other, clip)
    sensitivity = query.parts(SCHEMA)["update"].sensitivity
    assert sensitivity is not None
    for moved, unit, relation in (
        (u, "client", "add-or-remove"),
        (u - v, "client", "replace-one"),
        (u - v, "record", "add-or-remove"),
        (u - v, "individual", "add-or-remove"),
    ):
        bound = sensitivity.under(unit, relation, None)  # type: ignore[arg-type]
        assert squared(moved) <= bound.l2_squared
        assert int(np.abs(moved).sum()) <= bound.l1


@given(CLIPS)
def test_the_bounds_are_attained_but_for_the_grid(clip: float) -> None:
    """A sensitivity far above what can happen would waste budget: u against nothing, and against -u."""
    u, query = left(np.full(4, 1e9), clip)
    assert squared(u) > (1 - 1e-6) * query.most
    assert squared(u - left(np.full(4, -1e9), clip)[0]) > (1 - 1e-6) * 4 * query.most


def table() -> Records:
    """A client's table."""
    return Records(SCHEMA, np.array([[30.0], [60.0]]))


def both_kinds(budget: str) -> UpdateGate:
    """A gate for updates and for histograms, both to protect the client."""
    guards = {
        "model.update": (Guard.of("gaussian", spend="0.01"),),
        "small.histogram": (Guard.of("gaussian", spend="0.01"),),
    }
    policy = Policy(
        guards, unit="client", cap=2, accountant="zcdp", budget=Budget.of(budget, "1e-5")
    )
    return UpdateGate(
        "a", policy, Ledger(), clip=1.0, records=table(), queries=(Histogram,), noise=TestNoise(1)
    )


def test_models_and_tables_share_one_ledger_and_one_budget() -> None:
    """What is spent on the one is gone for the other."""
    asked: list[Any] = []
    own = both_kinds("1")
    question = Request.of("q", Histogram(0, (0.0, 50.0, 100.0)))
    assert isinstance(own.gate.answer(question).open(), Release)
    while own.release([np.ones(3)], round=len(asked)) is not None:
        asked.append(1)
    late = own.gate.answer(Request.of("late", Histogram(0, (0.0, 40.0, 100.0)))).open()
    assert isinstance(late, Refusal) and late.reason == Reason.BUDGET
    alone = both_kinds("1")
    without = 0
    while alone.release([np.ones(3)], round=without) is not None:
        without += 1
    assert 0 < len(asked) < without


def test_a_round_asked_again_gets_the_same_bytes_and_is_charged_once() -> None:
    """Even if another update was trained meanwhile; a new round is a new charge."""
    own = gate()
    first = own.release([np.ones((2, 2)), np.array(3.0)], round=1)
    again = own.release([np.zeros((2, 2)), np.array(0.0)], round=1)
    assert first is not None and again is not None
    assert [a.tobytes() for a in first] == [b.tobytes() for b in again]
    assert [each.shape for each in first] == [(2, 2), ()]
    assert own.release([np.ones((2, 2)), np.array(3.0)], round=2) is None
    assert [e.event for e in own.gate.ledger.entries()].count("reserved") == 1


def test_an_update_stays_with_the_query_that_releases_it() -> None:
    """Between two releases the gate holds none."""
    own = gate()
    own.release([np.ones(3)])
    assert own._records.trained == {}


@pytest.mark.parametrize(("unit", "cap"), [("client", 3), ("client", 30), ("individual", 2)])
def test_a_cap_of_records_leaves_the_update_as_it_is(unit: Any, cap: int) -> None:
    """It failed for whoever had more of them, which closed her gate."""
    policy = Policy(
        {"model.update": (Guard.of("gaussian", spend=10**6),)},
        unit=unit,
        cap=cap,
        accountant="zcdp",
    )
    nine = Records(SCHEMA, np.linspace(0, 99, 9)[:, None], individual=np.arange(9) // 3)
    own = UpdateGate("a", policy, Ledger(), clip=5.0, records=nine)
    for round in range(2):
        told = own.release([np.array([3.0, 4.0])], round=round)
        assert told is not None
        np.testing.assert_allclose(told[0], [3.0, 4.0], atol=0.1)
    assert not own.gate.breaches and own._records.trained == {}


@pytest.mark.parametrize("clip", [1.0, 2.0**-50])
@pytest.mark.parametrize("size", [1.7e308, 1e308, 1e-100, 5e-324])
def test_what_is_far_beyond_the_clip_is_clipped_and_keeps_its_direction(
    size: float, clip: float
) -> None:
    """A norm that overflowed made an update zero, and a factor that underflowed cost hours of small steps."""
    units, query = left(np.full(3, size), clip)
    assert squared(units) <= query.most and len(set(units.tolist())) == 1
    assert squared(units) > 0.999 * query.most or size < clip


@pytest.mark.parametrize("clip", [0.1, 0.7, 3.3])
def test_a_model_of_one_number_has_a_gate_at_any_clip(clip: float) -> None:
    """Its L1 bound is a whole number, below the clip's own in grid units; no such gate opened."""
    policy = Policy({"model.update": (Guard.of("gaussian", spend=10**6),)}, accountant="zcdp")
    told = UpdateGate("a", policy, Ledger(), clip=clip).release([np.array([1e9])])
    assert told is not None
    np.testing.assert_allclose(told[0], clip, atol=0.1)


def test_an_update_that_no_message_carries_is_refused_before_it_is_charged() -> None:
    """Whatever the policy's cells allow: the reply would be over the limit of what is decoded."""
    policy = Policy(
        {"model.update": (Guard.of("gaussian", spend="1"),)}, accountant="zcdp", cells=10**8
    )
    own = UpdateGate("a", policy, Ledger(), clip=1.0)
    for cells, refused in ((wire.LIMIT // 8, Reason.OVERSIZED), (wire.LIMIT // 9, None)):
        assert own.gate.dry_run(Request.of("1", ModelUpdate(cells, 1.0))) == refused


def test_what_training_protected_costs_what_its_accountant_says_and_every_total_says_so() -> None:
    """An update of private training leaves as it was made, clipped; the gate derives none of its epsilon."""
    policy = Policy(
        {"model.update": (Guard.of(Training(delta="1e-6"), spend="0.5"),)},
        accountant="approximate",
        budget=Budget.of("8", "1e-5"),
    )
    own, left = UpdateGate("a", policy, Ledger(), clip=5.0), 0
    told = own.release([np.array([3.0, 4.0, 0.0]), np.array(12.0)])
    assert told is not None
    np.testing.assert_allclose(
        np.concatenate([*map(np.ravel, told)]), np.array([3, 4, 0, 12]) * 5 / 13, rtol=1e-6
    )
    loss = Loss.from_dict(next(own.gate.ledger.entries(events=("reserved",))).body["loss"])
    assert (loss.epsilon, loss.delta, loss.laws) == (Fraction(1, 2), Fraction("1e-6"), ())
    spent = own.gate.ledger.spent(own.gate.accountant)
    assert basis_in_words(spent.basis) == "on the word of training, not derived here"
    while own.release([np.ones(3)], round=left + 1) is not None:
        left += 1
    assert left == 4  # five deltas of 1e-6 are half of the budget's; the other half converts rho


SETTINGS: dict[str, Any] = {"delta": "1e-6", "noise": "2.5", "rate": "0.0417", "steps": 24}


def test_many_rounds_of_training_with_known_settings_add_up_by_their_rho() -> None:
    """Each costs what its accountant says; four together a quarter of what four such epsilons would."""

    def four(**settings: Any) -> float:
        policy = Policy(
            {"model.update": (Guard.of("training", spend="0.41", **settings),)},
            accountant="approximate",
            budget=Budget.of("8", "1e-5"),
        )
        own = UpdateGate("a", Policy.from_dict(policy.to_dict()), Ledger(), clip=5.0)
        for number in range(4):
            assert own.release([np.ones(3)], round=number) is not None
        row = next(own.gate.ledger.entries(events=("reserved",)))
        assert Loss.from_dict(row.body["loss"]).epsilon == Fraction("0.41")
        spent = own.gate.ledger.spent(own.gate.accountant).total
        return float(own.gate.accountant.odometer(spent, Fraction("1e-5"))[0])

    assert 0.8 < four(**SETTINGS) < four(delta="1e-6") / 4


def test_training_whose_settings_cost_more_than_it_says_opens_no_gate() -> None:
    """Its own word is held against its settings, which are all given or none."""
    cheap = Guard.of("training", spend="0.1", **SETTINGS)
    with pytest.raises(PolicyError, match=r"cost epsilon 0\.39.* and spend says 0\.1"):
        UpdateGate(
            "a", Policy({"model.update": (cheap,)}, accountant="approximate"), Ledger(), clip=5.0
        )
    sound = {"model.update": (Guard.of("training", spend="0.41", **SETTINGS),)}
    others: list[dict[str, Any]] = [{"relation": "replace-one"}, {"unit": "client"}]
    for other in others:
        policy = Policy(sound, accountant="approximate", **other)
        with pytest.raises(PolicyError, match="leave noise, rate and steps out"):
            UpdateGate("a", policy, Ledger(), clip=5.0)
    for lacking in SETTINGS:
        with pytest.raises(InputError, match="noise, rate and steps, with a delta"):
            Training(**{**SETTINGS, lacking: 0})


def test_an_accountant_that_has_no_rho_for_it_refuses_what_training_protected() -> None:
    """Nothing leaves, and nothing is charged."""
    guard = Guard.of(Training(delta="1e-6"), spend="0.5")
    own = UpdateGate("a", Policy({"model.update": (guard,)}, accountant="zcdp"), Ledger(), clip=5.0)
    assert own.release([np.ones(3)]) is None
    assert "reserved" not in {entry.event for entry in own.gate.ledger.entries()}


def squares(total: int) -> list[int]:
    """Four whole numbers whose squares add up to a number, found greedily."""
    for first in range(math.isqrt(total), -1, -1):
        for second in range(math.isqrt(total - first**2), -1, -1):
            left = total - first**2 - second**2
            for third in range(math.isqrt(left), max(-1, math.isqrt(left) - 60), -1):
                last = math.isqrt(left - third**2)
                if last**2 == left - third**2:
                    return [first, second, third, last]
    raise AssertionError("every whole number is a sum of four squares")


def test_a_norm_that_floats_take_for_the_clip_is_held_in_whole_numbers() -> None:
    """Updates on the grid whose squared norm is one unit beyond the clip's: floats pass some of sixty."""
    query, rng = ModelUpdate(2004, 1.999999), np.random.default_rng(0)
    for _ in range(60):
        drawn = np.abs(rng.normal(size=2000))
        most = np.trunc(drawn / np.linalg.norm(drawn) * math.sqrt(query.most) * 0.999)
        beyond = np.append(most, squares(query.most + 1 - squared(most)))
        assert squared(left(beyond * float(query.grid), query.clip)[0]) <= query.most


@pytest.mark.parametrize("cells", [1, 2, 10_000])
def test_noise_is_by_the_clip_whatever_the_number_of_cells(cells: int) -> None:
    """In L2 an update of any size moves by its clip; in L1 by no more than sqrt(cells) times that."""
    query = ModelUpdate(cells, 3.0)
    bound = query.parts(SCHEMA)["update"].sensitivity
    assert bound is not None and bound.client is not None
    clip = Fraction(3) / query.grid
    assert clip**2 - 2 * clip < bound.client.l2_squared <= clip**2
    assert bound.client.l1**2 <= cells * clip**2 < (bound.client.l1 + 1) ** 2
    assert bound.add_or_remove == bound.replace_one == bound.anything == bound.client.times(2)


def test_sizes_that_make_no_sense_are_refused() -> None:
    """Clips of zero, below, NaN; no cells."""
    for clip in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PrivfedError):
            UpdateGate("a", gate().gate.policy, Ledger(), clip=clip)
    with pytest.raises(QueryError):
        ModelUpdate(0, 1.0).parts(SCHEMA)


@pytest.mark.parametrize("stack", ["flwr", "nvflare"])
def test_both_engines_guards_pass_the_check_of_guards(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes, scalars, clipping, fresh noise in whole numbers, of the scale that the claim needs."""
    pytest.importorskip(stack)
    monkeypatch.setattr(guard_examples, "SEEDS", [np.random.default_rng(1)])
    monkeypatch.setattr(checks, "DRAWS", 30)
    made = {
        "flwr": lambda: _flower(guard_examples.gated_mod()),
        "nvflare": lambda: _flare(guard_examples.gated_filter()),
    }[stack]
    case = GuardTrial(made, CLAIM)
    quick = (
        checks.check_shapes,
        checks.check_untouched,
        checks.check_clipping,
        checks.check_fresh,
        checks.check_law,
        checks.check_low_bits,
    )
    found = [check(case) for check in quick]
    assert {each.attack: each.state for each in found} == {each.attack: "looked" for each in found}


def test_training_that_fails_at_a_flower_node_is_an_update_of_zero(tmp_path: Path) -> None:
    """Neither the error's text nor the failure itself leaves."""
    pytest.importorskip("flwr")
    from flower_grid import become_a_task
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict

    become_a_task()

    def fails(message: Message, context: Context) -> Message:
        raise RuntimeError("SECRET=42")

    content = RecordDict({"arrays": ArrayRecord({"0": Array(np.zeros(3))})})
    reply = guard_examples.gated_mod()(
        Message(content, 1, "train"), Context(1, 1, {}, RecordDict(), {}), fails
    )
    assert not reply.has_error() and "SECRET" not in repr(reply)
    (told,) = reply.content["arrays"].to_numpy_ndarrays()
    assert told.shape == (3,) and told.any()


def test_what_asks_for_no_training_is_neither_charged_nor_answered() -> None:
    """An evaluation's metrics are the records'; of a round that was evaluated first the update is the trained one."""
    pytest.importorskip("flwr")
    from flower_grid import become_a_task
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Context,
        Message,
        MetricRecord,
        RecordDict,
    )

    from privfed.engines.flower import guard

    become_a_task()
    policy = Policy({"model.update": (Guard.of("open"),)}, unit="client")
    own, context = UpdateGate("a", policy, Ledger(), clip=8.0), Context(1, 1, {}, RecordDict(), {})
    sent = ArrayRecord({"0": Array(np.zeros(3))})
    content = RecordDict({"arrays": sent, "config": ConfigRecord({"server-round": 2})})

    def reply(message: Message, _: Context) -> Message:
        made = {"arrays": ArrayRecord({"0": Array(np.ones(3))})}
        measured = {"metrics": MetricRecord({"loss": 42.5})}
        trains = message.metadata.message_type.startswith("train")
        return Message(RecordDict(made if trains else measured), reply_to=message)

    for kind in ("evaluate", "query.loss"):
        said = guard(own)(Message(content, 1, kind), context, reply)
        assert not said.has_content() and said.error.reason == "the gate answers nothing"
        assert own.gate.ledger.spent(own.gate.accountant).unprotected == 0
    told = guard(own)(Message(content, 1, "train.again"), context, reply).content
    (update,) = told["arrays"].to_numpy_ndarrays()
    np.testing.assert_allclose(update, 1.0, atol=1e-5)


def test_a_client_whose_gate_refuses_is_passed_over_and_the_others_train_on() -> None:
    """By Flower's own averaging; neither a round without her nor an evaluation that nobody answers ends the run."""
    pytest.importorskip("flwr")
    from flower_grid import become_a_task
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp.strategy import FedAvg

    from privfed.engines.flower import guard

    become_a_task()

    class Nodes:
        def get_node_ids(self) -> list[int]:
            return [1, 2, 3]

    def train(message: Message, _: Context) -> Message:
        made = ArrayRecord({"0": Array(np.full(3, float(message.metadata.dst_node_id)))})
        return Message(RecordDict({"arrays": made}), reply_to=message)

    def gate(name: str, times: int) -> UpdateGate:
        guards = {"model.update": (Guard.of("open", times=times),)}
        return UpdateGate(name, Policy(guards, unit="client"), Ledger(None, name), clip=8.0)

    mods = {node: guard(gate(str(node), 1 if node == 1 else 2)) for node in (1, 2, 3)}
    context, strategy = Context(1, 1, {}, RecordDict(), {}), FedAvg()

    def replies(asked: Iterable[Message]) -> list[Message]:
        return [mods[each.metadata.dst_node_id](each, context, train) for each in asked]

    model = ArrayRecord({"0": Array(np.zeros(3))})
    for number, mean in ((1, 2.0), (2, 2.5)):
        asked = strategy.configure_train(number, model, ConfigRecord(), Nodes())
        averaged, _ = strategy.aggregate_train(number, replies(asked))
        assert averaged is not None
        np.testing.assert_allclose(averaged.to_numpy_ndarrays()[0], mean, atol=1e-5)
        measured = strategy.configure_evaluate(number, model, ConfigRecord(), Nodes())
        assert strategy.aggregate_evaluate(number, replies(measured)) is None


def masked_gates(spend: str = "1e6", **terms: Any) -> list[UpdateGate]:
    """Three owners' gates whose updates only their total shows, with next to no noise."""
    secrets = {name: name.encode().ljust(32) for name in "abc"}
    keys = {name: MaskingKey(secret).public for name, secret in secrets.items()}
    policy = Policy(
        {"model.update": (Guard.of("gaussian", spend=spend),)},
        unit="client",
        accountant="zcdp",
        masked=MaskedSums(keys, **terms),
    )
    return [
        UpdateGate(name, policy, Ledger(None, name), clip=8.0, secret=secret, noise=TestNoise(n))
        for n, (name, secret) in enumerate(secrets.items())
    ]


UPDATES_OF_THREE = [[np.full((2, 2), n), np.array(1.0 - n)] for n in range(3)]
MEAN = [np.full((2, 2), 1.0), np.array(0.0)]


def test_of_masked_updates_only_the_mean_of_all_owners_shows() -> None:
    """A share by itself lies far outside what the clip allows; with one missing there is no mean."""
    pytest.importorskip("cryptography")
    gates = masked_gates()
    told = [
        gate.answer(update, round=1) for gate, update in zip(gates, UPDATES_OF_THREE, strict=True)
    ]
    shares = [wire.encode(share) for share in told]
    shapes = [(2, 2), ()]
    mean = mean_update(shares, shapes)
    assert mean is not None
    for got, right in zip(mean, MEAN, strict=True):
        np.testing.assert_allclose(got, right, atol=0.01)
    for share in told:
        assert share is not None and float(np.abs(share["update"]).max()) > 1e6
    assert mean_update(shares[:2], shapes) is None and mean_update([], shapes) is None
    later = gates[0].answer(UPDATES_OF_THREE[0], round=2)
    with pytest.raises(PolicyError, match="do not cancel"):
        mean_update([*shares[1:], wire.encode(later)], shapes)


def test_masked_updates_are_not_taken_for_arrays_and_need_all_owners() -> None:
    """What is a share is not handed on as a model; a round of training has no steps to open a total."""
    pytest.importorskip("cryptography")
    with pytest.raises(PolicyError, match="as a share"):
        masked_gates()[0].release([np.ones(3)])
    with pytest.raises(PolicyError, match="leave least out"):
        masked_gates(least=3)


@pytest.mark.parametrize("silent", [False, True])
def test_flower_averages_masked_updates(silent: bool) -> None:
    """The model and the mean of three nodes' updates; the model as it was, where one of them is silent."""
    pytest.importorskip("flwr")
    from flower_grid import become_a_task
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

    from privfed.engines.flower import MaskedFedAvg, guard

    become_a_task()

    def record(arrays: list[np.ndarray]) -> ArrayRecord:
        return ArrayRecord({str(n): Array(np.asarray(each)) for n, each in enumerate(arrays)})

    class Nodes:
        def get_node_ids(self) -> list[int]:
            return [1, 2, 3]

    before = [np.full((2, 2), 5.0), np.array(7.0)]
    strategy = MaskedFedAvg()
    asked = strategy.configure_train(4, record(before), ConfigRecord(), Nodes())
    replies = []
    for own, message, update in zip(masked_gates(), asked, UPDATES_OF_THREE, strict=True):
        made = [old + new for old, new in zip(before, update, strict=True)]

        def train(message: Message, _: Context, made: list[np.ndarray] = made) -> Message:
            return Message(RecordDict({"arrays": record(made)}), reply_to=message)

        replies.append(guard(own)(message, Context(1, 1, {}, RecordDict(), {}), train))
    assert not any(reply.content.array_records for reply in replies)
    replies.append(replies[1])  # comes twice, and counts once
    arrays, told = strategy.aggregate_train(4, replies[silent:])
    if silent:
        assert arrays is None
        return
    assert arrays is not None and told is not None and told["num-examples"] == 3
    for got, old, mean in zip(arrays.to_numpy_ndarrays(), before, MEAN, strict=True):
        np.testing.assert_allclose(got, old + mean, atol=0.01)


def test_flare_averages_masked_updates() -> None:
    """A difference with the mean of three sites' differences; without arrays where one is missing."""
    pytest.importorskip("nvflare")
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable

    from privfed.engines.flare_filter import GateFilter, MaskedAggregator

    added, asked = MaskedAggregator(), Shareable()
    asked.set_header(MetaKey.CURRENT_ROUND, 4)
    told = []
    for own, update in zip(masked_gates(), UPDATES_OF_THREE, strict=True):
        dxo = DXO(DataKind.WEIGHT_DIFF, data=dict(zip("wb", update, strict=True)))
        told.append(GateFilter(own).process_dxo(dxo, asked, FLContext()).to_shareable())
    assert all(added.accept(share, FLContext()) for share in told)
    mean = from_shareable(added.aggregate(FLContext())).data
    assert list(mean) == ["w", "b"]
    for got, right in zip(mean.values(), MEAN, strict=True):
        np.testing.assert_allclose(got, right, atol=0.01)
    assert all(added.accept(share, FLContext()) for share in told[1:])
    assert from_shareable(added.aggregate(FLContext())).data == {}
    empty = DXO(DataKind.WEIGHT_DIFF, data={}).to_shareable()  # of a site whose policy refused
    assert not added.accept(empty, FLContext())


def test_on_flare_a_result_without_its_round_is_of_its_task() -> None:
    """Some executors say no round: each task is a new charge, sent again the same bytes."""
    pytest.importorskip("nvflare")
    from nvflare.apis.dxo import DXO, DataKind, from_shareable
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.fl_context import FLContext

    from privfed.engines.flare_filter import GateFilter

    policy = Policy({"model.update": (Guard.of("open"),)}, unit="client")
    own = UpdateGate("a", policy, Ledger(), clip=8.0)
    left = []
    for task, update in (("one", 1.0), ("two", 2.0), ("one", 3.0)):
        context = FLContext()
        context.set_prop(FLContextKey.TASK_ID, task, private=True, sticky=False)
        result = DXO(DataKind.WEIGHT_DIFF, data={"w": np.full(2, update)}).to_shareable()
        left.append(from_shareable(GateFilter(own).process(result, context)).data["w"])
    np.testing.assert_allclose(left, [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]], atol=1e-5)
    assert own.gate.ledger.spent(own.gate.accountant).unprotected == 2


def test_nothing_but_a_gated_difference_leaves_a_flare_site() -> None:
    """Whole weights, metrics, several things, other entries, a failed task: FLARE passes them on unfiltered."""
    pytest.importorskip("nvflare")
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable

    raw, meta = {"w": np.full(3, 42.5)}, {MetaKey.INITIAL_METRICS: {"loss": 42.5}}
    difference = DXO(DataKind.WEIGHT_DIFF, data=raw, meta=meta)
    beside, failed = difference.to_shareable(), difference.to_shareable()
    beside["own"] = raw
    beside.set_header("own", 42.5)
    beside.set_header(MetaKey.CURRENT_ROUND, 3)
    failed.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
    told = {
        "weights": DXO(DataKind.WEIGHTS, data=raw).to_shareable(),
        "metrics": DXO(DataKind.METRICS, data={"loss": 42.5}).to_shareable(),
        "several": DXO(
            DataKind.COLLECTION, data={"a": DXO(DataKind.WEIGHTS, data=raw)}
        ).to_shareable(),
        "metadata": DXO(DataKind.WEIGHT_DIFF, data={}, meta=meta).to_shareable(),
        "no dxo": Shareable({"own": raw}),
        "failed": failed,
        "beside": beside,
    }
    for name, result in told.items():
        left = guard_examples.gated_filter().process(result, FLContext())
        assert "42.5" not in repr(left), name
        dxo = from_shareable(left)
        assert (dxo.data_kind, bool(dxo.data)) == (DataKind.WEIGHT_DIFF, name == "beside")
    assert left.get_header(MetaKey.CURRENT_ROUND) == 3
