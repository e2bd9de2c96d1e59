"""Masked sums through real gates: totals, charges, crashes, and what a cheating server gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import masked_epsilon
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_diabetes

from privfed import Budget, Guard, LocalDisclosure, Policy, Schema
from privfed.engines.journal import Journal
from privfed.engines.owner_side import OwnerSide
from privfed.engines.remote import RemoteDisclosure
from privfed.errors import ChannelError, InputError, NobodyAnswered, PolicyError
from privfed.exchange.channel import RetryLimits
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.exchange.masked_totals import summed, total_of
from privfed.exchange.messages import Envelope, Reason, Release, Request
from privfed.exchange.survivors import OPENING, SURVIVORS
from privfed.learners.forest import FedForestClassifier
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor
from privfed.learners.genetic_tree import GeneticTreeClassifier
from privfed.learners.rulefit import RuleFitClassifier
from privfed.owner.gate import Gate, open_reply
from privfed.owner.masking import MaskingKey
from privfed.privacy.laws import SumOfGaussians
from privfed.privacy.noise import TestNoise
from privfed.questions import wire
from privfed.questions.exact import shown
from privfed.tables.schema import Column
from privfed.testing.queries import Histogram
from tests.asked_gate import events, reason, reply

pytest.importorskip("cryptography")
BINS = Histogram(0, (0.0, 0.25, 0.5, 0.75, 1.0))
SCHEMA = Schema((Column("a", lower=0, upper=1),), Column("y", lower=0, upper=1))
OWNERS = ("ashford", "briar", "cedar", "dunes", "elm")


class Silence(TestNoise):
    """No noise at all."""

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """Zeros."""
        return np.zeros(size, np.int64)


def table(owners: Sequence[str] = OWNERS, records: int = 100) -> pd.DataFrame:
    """Uniform numbers, dealt out in turn."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.uniform(0, 1, (records, 2)), columns=["a", "y"])
    return frame.assign(owner=[owners[i % len(owners)] for i in range(records)])


def policy(colluding: int = 0, budget: str = "8", **more: Any) -> Policy:
    """Gaussian noise on the histogram, masked among all owners."""
    guards = {BINS.kind: (Guard.of("gaussian", spend="0.05"),)}
    plain = Policy(guards, accountant="zcdp", budget=Budget.of(budget, "1e-5"))
    return plain.masked_among(OWNERS, colluding, **more)


def federation(allowed: Any = None, seed: int | None = 3, **more: Any) -> LocalDisclosure:
    """Five owners in this process."""
    return LocalDisclosure.from_frame(
        table(), "y", client="owner", schema=SCHEMA, policy=allowed or policy(), seed=seed, **more
    )


def silent(federation: LocalDisclosure) -> LocalDisclosure:
    """The same without noise."""
    for gate in federation.gates.values():
        gate._noise = Silence(0)
    return federation


def test_a_total_stands_for_all_owners() -> None:
    """One release with the exact sum, less noise; its law says how much, and who is in it."""
    answer = silent(federation()).ask(BINS).only
    (release,) = answer.releases.values()
    assert release.owners == OWNERS and release.client == "total of 5 owners"
    assert_array_equal(answer.total("counts"), np.histogram(table()["a"], BINS.edges)[0])
    law = release.parts["counts"].noise
    assert isinstance(law, SumOfGaussians) and (law.owners, law.counted) == (5, 5)
    alone = federation(replace(policy(), masked=None)).ask(BINS)
    assert answer.deviation("counts") == pytest.approx(alone.deviation("counts") / np.sqrt(5))


def test_each_share_by_itself_is_uniform() -> None:
    """What the server holds of one owner are integers of 64 random bits."""
    held = federation()
    held.ask(BINS)
    for gate in held.gates.values():
        ((_, entry),) = gate.ledger.disclosed()
        assert entry.release.view
        assert np.abs(entry.release.parts["counts"].units).max() > 2**40


def test_every_owner_is_charged_once_and_asked_again_for_nothing() -> None:
    """The same request gets the same bytes; a row says both prices."""
    held = federation()
    request = Request.of("1", BINS)
    first = {name: gate.serve(_encoded(request)) for name, gate in held.gates.items()}
    for name, gate in held.gates.items():
        before = gate.ledger.spent(gate.accountant).total
        assert gate.serve(_encoded(request)) == first[name]
        assert gate.ledger.spent(gate.accountant).total == before
        (row,) = [entry for entry in gate.ledger.entries() if entry.event == "reserved"]
        assert row.body["loss"]["rho"] == "0.05"
        assert float(row.body["unmasked"]["rho"].split("/")[0]) > 0
        gate.ledger.verify()
    budget = held.budget()
    assert (budget["unmasked"] > budget["spent"]).all()


def test_a_statement_adds_up_both_prices() -> None:
    """What rows cost with and without masks, as two epsilons of each line; with all spent, the budget's two."""
    held = federation(policy(colluding=1))
    for _ in range(3):
        held.ask(BINS)
    gate = held.gates["elm"]
    terms, accountant = gate.policy.masked, gate.accountant
    assert terms is not None and gate.policy.budget is not None
    (line,) = gate.ledger.budget()
    assert line.spent[0] == 3 * Fraction("0.05")
    without = accountant.guarantee((line.spent[0] * 4, Fraction(0)), line.delta)[0]
    certain = terms.epsilon_unmasked(accountant, gate.policy.budget)
    assert line.epsilon is not None and line.unmasked is not None and certain is not None
    assert without < line.unmasked <= certain and line.epsilon < line.unmasked
    assert (
        f"; if the masks fail, at most epsilon {shown(line.unmasked)} so far" in line.basis_in_words
    )
    for kind in gate.ledger.budget("kind")[1:]:
        assert "if the masks fail, by itself at most epsilon" in kind.basis_in_words
    assert held.budget().set_index("client")["unmasked"]["elm"] == pytest.approx(
        float(line.unmasked)
    )
    alone = federation(replace(policy(), masked=None))
    alone.ask(BINS)
    assert alone.gates["elm"].ledger.budget()[0].unmasked is None


def test_a_gate_whose_policy_masks_nothing_does_not_open() -> None:
    """Laplace noise is added by each owner; a policy that says masked beside it alone is a mistake."""
    guards = {BINS.kind: (Guard.of("laplace", spend="0.1"),)}
    with pytest.raises(PolicyError, match="nothing would be masked"):
        federation(replace(policy(), guards=guards))


def _encoded(request: Request) -> bytes:
    from privfed.questions.wire import encode

    return encode(request)


def test_without_one_owner_nobody_learns_anything() -> None:
    """Late means wait: the error names who is missing, and what was sent stays as it was."""
    held = federation()
    with pytest.raises(NobodyAnswered, match="elm gave none"):
        held.ask(BINS, clients=OWNERS[:4])
    assert len(held.transcript()) == 0


def gone(held: LocalDisclosure, *owners: str) -> LocalDisclosure:
    """The same federation, in which some owners cannot be reached."""

    def unreachable(_: bytes) -> bytes:
        raise ChannelError("gone")

    held._patience = RetryLimits(deadline=0.01)
    for owner in owners:
        held._channels[owner] = unreachable
    return held


def test_some_owners_may_be_missing() -> None:
    """Whoever is left opens their own total, for two more rows each; its law counts them, and so do learners."""
    held = gone(silent(federation(policy(1, least=4))), "cedar")
    answer = held.ask(BINS).only
    (release,) = answer.releases.values()
    left = table()[table()["owner"] != "cedar"]
    assert release.client == "total of 4 owners" and "cedar" not in release.owners
    assert_array_equal(answer.total("counts"), np.histogram(left["a"], BINS.edges)[0])
    law = release.parts["counts"].noise
    assert isinstance(law, SumOfGaussians) and (law.owners, law.counted) == (4, 3)
    for name, gate in held.gates.items():
        gate.ledger.verify()
        rows = [e.body["loss"] for e in gate.ledger.entries() if e.event == "reserved"]
        assert [row.get("rho", "0") for row in rows] == ["0.05", "0", "0"][: len(rows)]
        assert len(rows) == (0 if name == "cedar" else 3)
    with pytest.raises(NobodyAnswered, match="needs 4 of its 5 owners, and cedar, elm gave none"):
        gone(held, "elm").ask(BINS)


def test_totals_of_changing_survivors_are_replayed() -> None:
    """The transcript holds each total with its owners' names, in time, whoever was there."""
    held = silent(federation(policy(0, least=3)))
    told = [held.ask(BINS).total("counts")]
    for missing in ("cedar", "elm"):
        told.append(gone(held, missing).ask(BINS).total("counts"))
    transcript = held.transcript()
    assert [len(entry.release.owners) for entry in transcript] == [5, 4, 3]
    replayed = ReplayDisclosure(SCHEMA, transcript)
    for exact in told:
        assert_array_equal(replayed.ask(BINS).total("counts"), exact)


@pytest.mark.parametrize("spoiled", ["share", "seed", "confirmation", "all"])
def test_an_owner_who_tells_too_little_opens_nothing(
    spoiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an answer lacks what was to be told she counts as gone, or the total does not open."""
    held = silent(federation(policy(0, least=4)))
    kinds = {"share": BINS.kind, "confirmation": SURVIVORS, "seed": OPENING}
    serve = held._channels["briar"]

    def less(data: bytes) -> bytes:
        said = open_reply(serve(data))
        assert isinstance(said, Release)
        if kinds.get(spoiled, said.kind) == said.kind:
            said = replace(said, told={})
        return wire.encode(Envelope.seal(said))

    held._channels["briar"] = less
    held.heads.clear()
    left = table()[table()["owner"] != "briar"] if spoiled in ("share", "all") else table()
    assert_array_equal(held.ask(BINS).total("counts"), np.histogram(left["a"], BINS.edges)[0])


@pytest.mark.parametrize("sent", [1, 2, 3])
def test_a_server_that_is_killed_stands_by_its_list(sent: int, tmp_path: Path) -> None:
    """Killed after any of its three messages, it goes on with the same survivors, though another is back."""
    held = silent(federation(policy(0, least=4)))
    sides = {name: OwnerSide(gate) for name, gate in held.gates.items()}
    away, left = {"cedar"}, [sent]

    def carry(batches: Mapping[str, bytes], _: float) -> Mapping[str, bytes]:
        told = {n: sides[n].answer(b, "server") for n, b in batches.items() if n not in away}
        left[0] -= bool(told)
        if left[0] == 0:
            raise KeyboardInterrupt
        return told

    patience = RetryLimits(deadline=0.05)
    journal = Journal(tmp_path / "journal")
    with pytest.raises(KeyboardInterrupt):
        RemoteDisclosure(SCHEMA, OWNERS, carry, patience=patience, journal=journal).ask(BINS)
    journal.close()
    away.clear()
    journal = Journal(tmp_path / "journal")
    answer = RemoteDisclosure(SCHEMA, OWNERS, carry, patience=patience, journal=journal).ask(BINS)
    missing = () if sent == 1 else ("cedar",)  # before a list there is none to stand by
    exact = table()[~table()["owner"].isin(missing)]
    assert_array_equal(answer.total("counts"), np.histogram(exact["a"], BINS.edges)[0])
    assert [entry.release.owners for entry in journal.transcript] == [
        tuple(owner for owner in OWNERS if owner not in missing)
    ]
    journal.close()


def test_owners_who_disagree_give_no_total() -> None:
    """Another spend, or another number of colluders: masks do not cancel, and the error says why."""
    other = replace(policy(), guards={BINS.kind: (Guard.of("gaussian", spend="0.06"),)})
    for odd in (other, policy(colluding=1)):
        policies = {**dict.fromkeys(OWNERS, policy()), "cedar": odd}
        with pytest.raises(PolicyError, match="policies differ"):
            federation(policies).ask(BINS)


def test_an_invented_owner_is_refused_at_the_gate() -> None:
    """The roster is the owner's policy; a gate opens only if its own key stands in it."""
    known = federation().gates["ashford"].policy
    assert known.masked is not None
    invented = {**known.masked.keys, "ashford": MaskingKey(b"the server's").public}
    wrong = replace(known, masked=replace(known.masked, keys=invented))
    with pytest.raises(PolicyError, match="public masking key"):
        federation(wrong)


def test_a_roster_with_an_owner_without_a_key_opens_no_gate() -> None:
    """Her share would never come; a question would fail after its charge, and close the gate."""
    lacking = replace(policy(), masked=policy().masked_among([*OWNERS, "nobody"]).masked)
    with pytest.raises(PolicyError, match="no masking key of 'nobody'"):
        federation(lacking)


def test_a_roster_with_a_key_that_is_none_opens_no_gate() -> None:
    """Of a point of small order: no share could be hidden, and a question would fail after its charge."""
    known = federation().gates["ashford"].policy
    assert known.masked is not None
    keys = {**known.masked.keys, "cedar": "00" * 32}
    with pytest.raises(InputError, match="not an X25519 key"):
        federation(replace(known, masked=replace(known.masked, keys=keys)))


def test_colluding_owners_who_subtract_their_own_leave_the_priced_noise() -> None:
    """Two of five hand the server their shares: three shares of noise remain, as was priced."""
    guards = {BINS.kind: (Guard.of("gaussian", spend="0.0005"),)}
    allowed = replace(policy(colluding=2), guards=guards)
    left = []
    for seed in range(60):
        held = federation(allowed, seed=seed)
        (release,) = held.ask(BINS).only.releases.values()
        noise = release.parts["counts"].values.data - np.histogram(table()["a"], BINS.edges)[0]
        for owner in OWNERS[:2]:  # who know their own noise: drawn again from the same seed
            law, own = release.parts["counts"].noise, TestNoise(seed + 7919 * OWNERS.index(owner))
            assert isinstance(law, SumOfGaussians)
            noise = noise - law.share.draw(own, 4) * float(release.parts["counts"].grid)
        left.append(noise)
    law = release.parts["counts"].noise
    assert law is not None
    wanted = law.parameter * float(release.parts["counts"].grid)
    assert wanted == pytest.approx(np.sqrt(1000), rel=1e-9)
    assert np.std(left) == pytest.approx(wanted, rel=0.12)


def test_a_share_interrupted_after_its_charge_is_finished_under_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes that were not durable never left: the same request is answered, and charged no more."""
    held = federation()
    gate, request = held.gates["cedar"], Request.of("1", BINS)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Gate, "_evaluate", _killed)
        gate.answer(request)
    spent = gate.ledger.spent(gate.accountant).total
    assert isinstance(reply(gate, request), Release)
    assert gate.ledger.spent(gate.accountant).total == spent
    assert events(gate)[-2:] == ["reserved", "released"]
    gate.ledger.verify()


def test_an_interrupted_share_is_not_finished_at_another_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that proposes to spend more the second time gets nothing for the first charge."""
    guards = {BINS.kind: (Guard.of("gaussian", spend="0.05", cap="1"),)}
    gate = federation(replace(policy(), guards=guards)).gates["cedar"]
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Gate, "_evaluate", _killed)
        gate.answer(Request.of("1", BINS))
    dearer = replace(Request.of("1", BINS), spend=policy().budget.epsilon / 8)  # type: ignore[union-attr]
    assert reason(gate, dearer) == Reason.INTERRUPTED


def _killed(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_a_query_that_fails_gives_a_masked_share_of_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total still opens; one owner's failure costs the others nothing."""
    held = silent(federation())
    evaluate = Histogram.evaluate

    def failing(self: Histogram, view: Any) -> Mapping[str, np.ndarray]:
        if view is held.gates["briar"]._view:
            raise MemoryError
        return evaluate(self, view)

    monkeypatch.setattr(Histogram, "evaluate", failing)
    others = table()[table()["owner"] != "briar"]
    assert_array_equal(held.ask(BINS).total("counts"), np.histogram(others["a"], BINS.edges)[0])


def test_a_replay_of_totals_answers_alike() -> None:
    """The transcript holds one total a question, in time; single shares are not in it."""
    held = federation()
    told = held.ask(BINS).total("counts")
    transcript = held.transcript()
    assert [entry.client for entry in transcript] == ["total of 5 owners"]
    assert_array_equal(ReplayDisclosure(SCHEMA, transcript).ask(BINS).total("counts"), told)
    shares = [entry for gate in held.gates.values() for _, entry in gate.ledger.disclosed()]
    assert_array_equal(total_of([s.release for s in shares])["counts"].data, told)
    assert len(summed(replace(transcript, entries=tuple(shares[:3])))) == 0


def test_an_audit_of_one_run_finds_what_a_total_costs_and_no_more() -> None:
    """Of 2,000 canaries; the exact epsilon lies between what is proven and what is stated."""
    each, rho = masked_epsilon.shares("4", 3, 2000)
    exact = masked_epsilon.exact_epsilon(each.drawn["counts"].parameter, 3, each.refined["counts"])
    coins = np.random.default_rng(7).random(2000) < 0.5
    told = masked_epsilon.through_gates(3, rho, coins, seed=1)
    assert 2.5 < masked_epsilon.proven(told, coins, 4.0) < exact < 4.0
    two = masked_epsilon.exact_epsilon(each.drawn["counts"].parameter, 2, each.refined["counts"])
    assert two > 4.0 * 1.1  # the planted fault: a share is missing


def test_ledgers_and_keys_last(tmp_path: Path) -> None:
    """Opened again, an owner has the same key, and the same request the same bytes."""
    first = federation(seed=None, ledgers=tmp_path)
    request = _encoded(Request.of("1", BINS))
    told = {name: gate.serve(request) for name, gate in first.gates.items()}
    keys = first.gates["elm"].policy
    first.close()
    second = federation(seed=None, ledgers=tmp_path)
    assert second.gates["elm"].policy == keys
    assert {name: gate.serve(request) for name, gate in second.gates.items()} == told
    second.close()


def test_the_price_if_masks_fail_is_held_against_its_limit() -> None:
    """A gate whose budget would exceed it does not open."""
    federation(policy(unmasked=Budget.of("30", "1e-5")))
    with pytest.raises(PolicyError, match="if the masks fail"):
        federation(policy(unmasked=Budget.of("9", "1e-5")))


@pytest.mark.parametrize(
    "learner", [RuleFitClassifier, FedForestClassifier, GeneticTreeClassifier, FuzzyTreeRegressor]
)
def test_without_noise_five_masked_owners_learn_what_one_does(learner: Any) -> None:
    """Bit for bit: predictions of the model from masked totals are those from all records at once."""
    features, target = load_diabetes(return_X_y=True, as_frame=True)
    number = learner is FuzzyTreeRegressor
    frame = features.iloc[:200, :4].assign(y=target if number else (target > 140).astype(int))
    schema = _public(frame)
    answers = []
    for owners in (OWNERS[:1], OWNERS):
        dealt = frame.assign(owner=[owners[i % len(owners)] for i in range(len(frame))])

        def allowed(known: Schema, owners: Sequence[str] = owners) -> Policy:
            made: Policy = learner().private(4, schema=known)
            return made.masked_among(owners) if len(owners) > 1 else made

        held = LocalDisclosure.from_frame(
            dealt, "y", client="owner", schema=schema, policy=allowed, seed=1
        )
        model = learner(random_state=0).fit(silent(held))
        predict = model.predict if number else model.predict_proba
        answers.append(np.asarray(predict(features.iloc[200:300, :4])))
    one, masked = answers
    assert_array_equal(masked, one)


def _public(frame: pd.DataFrame) -> Schema:
    """Bounds from this table, taken as public ones."""
    columns = [Column(name, lower=-0.2, upper=0.2) for name in frame.columns[:-1]]
    if frame["y"].nunique() == 2:
        return Schema(tuple(columns), Column("y", "category", categories=("0", "1")))
    return Schema(tuple(columns), Column("y", lower=0, upper=400))
