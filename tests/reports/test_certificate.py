"""The egress certificate: what it binds, how it decides, and that nothing in it can be changed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from privfed.accountants.pure import PureEpsilon
from privfed.attacks.finding import Finding
from privfed.errors import InputError, Note
from privfed.exchange.signing import Signer
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import accountant_of
from privfed.questions.exact import shown
from privfed.reports import check_certificate
from privfed.reports.account import ClientAccount, PolicyAccount
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.certificate import Thresholds, certificate, signed
from privfed.reports.check_certificate import canonical, criteria, decide, faults
from privfed.study import Study

pytest.importorskip("cryptography")
THRESHOLDS = """
max_epsilon = 3.0
attacks = ["membership"]
min_audit_power = 0.2
consent = true
[owners]
north = "letter of 2026-11-20"
south = "letter of 2026-11-21"
"""


def found(**changed: Any) -> dict[str, Any]:
    """One attack's outcome."""
    plain = {
        "attack": "membership",
        "metric": "share of the used records on a list found",
        "measure": "found at 1 %",
        "value": 0.02,
    }
    rest = {"of": 1.0, "low": 0.0, "high": 0.05, "baseline": 0.01, "severity": "none"}
    return {**plain, **rest, "state": "looked", "why_not": "", **changed}


def owner(name: str, **changed: Any) -> dict[str, Any]:
    """One owner's line."""
    plain = {"owner": name, "head": f"9:{'ab' * 32}", "intact": True, "epsilon": 2.0, "delta": 1e-5}
    rest = {"unprotected": 0, "secure_noise": True, "over_budget": False}
    return {**plain, **rest, **changed}


def made(tmp_path: Path) -> dict[str, Any]:
    """A certificate's plain data, every criterion met, unsigned."""
    (tmp_path / "thresholds.toml").write_text(THRESHOLDS)
    held = Thresholds.from_toml(tmp_path / "thresholds.toml")
    limits = {name: getattr(held, name) for name in vars(held) if name != "owners"}
    plain: dict[str, Any] = {
        "format": check_certificate.FORMAT,
        "policy": "private",
        "model": {"file": "model.json", "sha256": check_certificate.digest(b"model"), "bytes": 5},
        "claim": {"unit": "record"},
        "owners": [owner("north"), owner("south")],
        "breaches": [],
        "audited": [{"subject": "gaussian", "proven": 0.3, "claimed": 0.5}],
        "attacked": [found()],
        "thresholds": {**limits, "units": list(held.units), "attacks": list(held.attacks)},
        "thresholds_sha256": check_certificate.digest(THRESHOLDS.encode()),
        "consent": dict(held.owners),
        "approval": {"person": "D. Officer", "date": "2026-11-23"},
    }
    plain["criteria"] = criteria(plain)
    plain["decision"] = decide(plain["criteria"])
    return plain


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """An officer's key."""
    Signer.generate(tmp_path / "officer.key")
    return tmp_path / "officer.key"


@pytest.fixture
def certified(tmp_path: Path, key: Path) -> tuple[dict[str, Any], bytes]:
    """A signed certificate, and the public key."""
    return json.loads(json.dumps(signed(made(tmp_path), key))), Signer.from_file(key, "").public


def test_a_sound_certificate_passes(certified: tuple[dict[str, Any], bytes]) -> None:
    """With its model, thresholds and heads as they were."""
    plain, public = certified
    heads = {"north": f"9:{'ab' * 32}"}
    assert list(faults(plain, b"model", public, THRESHOLDS.encode(), heads)) == []


def test_policies_that_read_the_same_records_are_held_to_their_total(tmp_path: Path) -> None:
    """A page says that no card of theirs holds alone: neither does the figure that lets a model out."""
    (tmp_path / "thresholds.toml").write_text(THRESHOLDS)
    (tmp_path / "model.json").write_bytes(b"model")
    account = {"released": 1, "epsilon": 2.0, "ceiling": 2.0, "total": (Fraction(2), Fraction(0))}
    each = tuple(
        PolicyReport(
            PolicyAccount(
                Policy({}, name=name, budget=Budget.of("2")),
                PureEpsilon(),
                (ClientAccount("north", **account),),  # type: ignore[arg-type]
                (),
            )
        )
        for name in ("private", "other")
    )
    for together, epsilon in ((False, 2.0), (True, 4.0)):
        report = Report(replace(Study.built_in(), together=together), each)
        told = certificate(report, "private", tmp_path / "model.json", tmp_path / "thresholds.toml")
        assert [own["epsilon"] for own in told["owners"]] == [epsilon]
        (row,) = (row for row in told["criteria"] if row["criterion"] == "claimed epsilon")
        assert (row["state"] == "met") == (not together)


def test_a_misspelt_owner_is_told(tmp_path: Path) -> None:
    """Her consent is not found; what stands there instead is named, with the owner that it is like."""
    (tmp_path / "thresholds.toml").write_text(THRESHOLDS.replace("north", "nort"))
    (tmp_path / "model.json").write_bytes(b"model")
    clients = tuple(ClientAccount(name, released=1) for name in ("north", "south"))
    account = PolicyAccount(Policy({}, name="private"), PureEpsilon(), clients, ())
    report = Report(Study.built_in(), (PolicyReport(account),))
    with pytest.warns(
        Note, match="names 'nort', and this study has no such owner; did you mean 'north'"
    ):
        told = certificate(report, "private", tmp_path / "model.json", tmp_path / "thresholds.toml")
    (row,) = (row for row in told["criteria"] if row["criterion"] == "owners' consent")
    assert (row["state"], row["found"]) == (check_certificate.FAILED, "not: north")


def test_a_misspelt_attack_is_told(tmp_path: Path) -> None:
    """It never looked, nor will it; where no attack was carried out, nothing is known of their names."""
    (tmp_path / "thresholds.toml").write_text(THRESHOLDS.replace("membership", "memberschip"))
    (tmp_path / "model.json").write_bytes(b"model")
    client = ClientAccount("north", released=1)
    account = PolicyAccount(Policy({}, name="private"), PureEpsilon(), (client,), ())
    looked = Finding("membership", "Was it there?", "share of pairs told apart", 0.5, of=1.0)
    files = ("private", tmp_path / "model.json", tmp_path / "thresholds.toml")
    with pytest.warns(Note, match="attacks names 'memberschip', .* did you mean 'membership'"):
        certificate(Report(Study.built_in(), (PolicyReport(account, (looked,)),)), *files)
    with warnings.catch_warnings(record=True) as noted:
        certificate(Report(Study.built_in(), (PolicyReport(account),)), *files)
    assert not [one for one in noted if "attacks names" in str(one.message)]


def test_a_model_of_masked_sums_is_held_to_what_remains_without_masks(tmp_path: Path) -> None:
    """Five owners at a budget that is within the officer's epsilon while nobody tells the server her secrets."""
    (tmp_path / "thresholds.toml").write_text(THRESHOLDS)
    (tmp_path / "model.json").write_bytes(b"model")
    budget, owners = Budget.of("2", "1e-5"), ["north", "south", "a", "b", "c"]
    plain = Policy({}, name="private", accountant="zcdp", budget=budget)
    client = ClientAccount("north", released=1, epsilon=2.0, ceiling=2.0, delta=1e-5)
    for policy in (plain, plain.masked_among(owners)):
        account = PolicyAccount(policy, accountant_of(policy), (client,), ())
        report = Report(Study.built_in(), (PolicyReport(account),))
        told = certificate(report, "private", tmp_path / "model.json", tmp_path / "thresholds.toml")
        states = {row["criterion"]: row["state"] for row in told["criteria"]}
        assert states["claimed epsilon"] == check_certificate.MET
        alone = told["claim"]["epsilon if masks fail"]
        assert (alone is None) == (policy is plain)
        if alone is None:  # a certificate without masks has the criteria that it had
            assert "epsilon if masks fail" not in states
        else:
            assert alone > 3
            assert states["epsilon if masks fail"] == check_certificate.FAILED


def test_what_changed_around_it_is_refused(certified: tuple[dict[str, Any], bytes]) -> None:
    """Another model, threshold file or ledger; another officer's key, or none."""
    plain, public = certified
    assert any("another file" in text for text in faults(plain, b"other", public))
    changed = THRESHOLDS.replace("3.0", "4.0").encode()
    assert any("thresholds" in text for text in faults(plain, b"model", public, changed))
    head = {"south": f"10:{'cd' * 32}"}
    assert any("south" in text for text in faults(plain, b"model", public, heads=head))
    assert any("not signed by this key" in text for text in faults(plain, b"model", bytes(32)))
    assert any("no public key" in text for text in faults(plain, b"model", None))


def paths(plain: Any, *before: Any) -> Iterator[tuple[Any, ...]]:
    """Where each value of plain data stands."""
    inside = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for name, value in inside:
        if isinstance(value, dict | list):
            yield from paths(value, *before, name)
        else:
            yield (*before, name)


def test_no_value_in_it_can_be_changed(certified: tuple[dict[str, Any], bytes]) -> None:
    """Each of them is signed: a change of any is refused."""
    plain, public = certified
    places = [place for place in paths(plain) if place != ("signature",)]
    assert len(places) > 80
    for place in places:
        changed = deepcopy(plain)
        inside: Any = changed
        for name in place[:-1]:
            inside = inside[name]
        old = inside[place[-1]]
        inside[place[-1]] = (not old) if isinstance(old, bool) else f"{old}x"
        assert canonical(changed) != canonical(plain), place
        signature = (text for text in _first(changed, public))
        assert next(signature, "") != "", place


def _first(plain: dict[str, Any], public: bytes) -> Iterator[str]:
    try:
        yield from faults(plain, b"model", public)
    except (TypeError, ValueError, KeyError) as error:  # main says that it cannot be checked
        yield str(error)


def test_a_reader_that_did_not_look_leaves_a_ceiling_unexamined(tmp_path: Path) -> None:
    """Its interval's end of 1 is no figure; one that looked and lies above is still not met."""
    plain = made(tmp_path)
    blind = found(attack="model reader lira", high=1.0, state="not looked")
    plain["attacked"].append(blind)
    (row,) = (row for row in criteria(plain) if row["criterion"] == "members at 1 %")
    assert row["state"] == check_certificate.UNKNOWN
    assert row["found"] == "0.05; not looked: model reader lira"
    assert decide(criteria(plain)) == "refuse"
    blind["attack"] = "pool (by an owner)"
    plain["attacked"].append(found(attack="pool", high=0.04))
    assert decide(criteria(plain)) == "release"  # her totals are of what the server saw
    plain["attacked"].append(found(attack="pool", high=0.2))
    states = {row["criterion"]: row["state"] for row in criteria(plain)}
    assert states["members at 1 %"] == check_certificate.FAILED


@pytest.mark.parametrize(
    ("criterion", "change"),
    [
        ("ledgers", lambda p: p["owners"][0].update(intact=False)),
        ("ledgers", lambda p: p.update(owners=[])),
        ("noise", lambda p: p["owners"][1].update(secure_noise=False)),
        ("unprotected releases", lambda p: p["owners"][0].update(unprotected=1)),
        ("claimed epsilon", lambda p: p["owners"][0].update(epsilon=3.001)),
        ("claimed epsilon", lambda p: p["owners"][0].update(epsilon=None)),
        ("epsilon if masks fail", lambda p: p["claim"].update({"epsilon if masks fail": 3.001})),
        ("claimed delta", lambda p: p["owners"][0].update(delta=1e-4)),
        ("unit of privacy", lambda p: p["claim"].update(unit="rule")),
        ("budgets", lambda p: p["owners"][0].update(over_budget=True)),
        ("owners' consent", lambda p: p["consent"].pop("south")),
        ("guarantees", lambda p: p.update(breaches=["private: pool violates a finite guarantee"])),
        ("attacks", lambda p: p.update(attacked=[found(attack="pool")])),
        ("attacks", lambda p: p["attacked"][0].update(state="not looked")),
        ("attacks", lambda p: p["attacked"].append(found(state="not looked"))),
        ("people or values", lambda p: p["attacked"][0].update(severity="breach")),
        ("members at 1 %", lambda p: p["attacked"][0].update(high=0.11)),
        ("members at 1 %", lambda p: p["attacked"][0].update(measure="something else")),
        ("audit: proven over claimed", lambda p: p["audited"][0].update(proven=0.05)),
        ("audit: proven over claimed", lambda p: p.update(audited=[])),
        ("audits of epsilon", lambda p: p["audited"][0].update(proven=0.6)),
    ],
)
def test_each_criterion_decides(
    tmp_path: Path, criterion: str, change: Callable[[dict[str, Any]], object]
) -> None:
    """One that is not met, or was not examined, refuses; no such certificate is signed."""
    plain = made(tmp_path)
    assert decide(criteria(plain)) == "release"
    change(plain)
    rows = criteria(plain)
    states = {row["criterion"]: row["state"] for row in rows}
    assert states[criterion] != check_certificate.MET
    assert decide(rows) == "refuse"


def test_no_figure_is_rounded_to_its_threshold(tmp_path: Path) -> None:
    """A bound that is not met is not shown as one that is, and agrees with the ledger's, which is rounded up."""
    plain = made(tmp_path)
    limit = plain["thresholds"]["max_epsilon"]
    plain["owners"][0].update(epsilon=limit + 1e-6)
    plain["audited"][0].update(proven=0.29999 * plain["audited"][0]["claimed"])
    told = {row["criterion"]: row for row in criteria(plain)}
    assert told["claimed epsilon"]["state"] == check_certificate.FAILED
    assert told["claimed epsilon"]["found"] == shown(limit + 1e-6) != f"{limit:g}"
    assert told["audit: proven over claimed"]["found"] == "0.299"


def test_a_refusal_or_a_nobody_is_not_signed(tmp_path: Path, key: Path) -> None:
    """The rule decides, and then a person."""
    for changed in ({"decision": "refuse"}, {"approval": {"person": "", "date": ""}}):
        with pytest.raises(InputError, match="only for a release"):
            signed({**made(tmp_path), **changed}, key)
    reasons = check_certificate.faults(made(tmp_path), b"", b"k" * 32)
    assert "it is not signed" in list(reasons)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_delta = 1e-5", "max_epsilon is missing"),
        ("max_epsilon = '3'", "got str at max_epsilon; write max_epsilon = 3.0"),
        ("max_epsilon = true", "got bool at max_epsilon; write max_epsilon = 3.0"),
        ("max_epsilon = 3\nmax_epsilom = 2", "did you mean 'max_epsilon'"),
        (
            "max_epsilon = 3\nattacks = 'pool'",
            r'expected list, got str at attacks; write attacks = \["',
        ),
        ("max_epsilon = 3\nunits = ['recrod']", r'invalid enum .* write units = \["record"\]'),
        ("max_epsilon = 3\nmax_area = 'no'", 'write max_area = 0.7, or "none"'),
        ("max_epsilon = ", "is not TOML: Invalid value"),
        ("max_epsilon = 3\nmax_area = nan", "max_area must be finite"),
        ("max_epsilon = inf", "max_epsilon must be finite"),
    ],
)
def test_bad_thresholds_are_refused(tmp_path: Path, text: str, told: str) -> None:
    """With what is wrong, and what to write."""
    (tmp_path / "thresholds.toml").write_text(text)
    with pytest.raises(InputError, match=told):
        Thresholds.from_toml(tmp_path / "thresholds.toml")
    with pytest.raises(InputError, match=r"no such file or directory\); check its path"):
        Thresholds.from_toml(tmp_path / "elsewhere.toml")


def test_no_audit_is_told_as_none(tmp_path: Path) -> None:
    """Where nobody audited, nothing is said of what audits found; wording of older certificates still stands."""
    plain = made(tmp_path)
    assert criteria(plain)[-1]["found"] == "all 1 agree"
    plain["criteria"][-1]["found"] = "none does"
    assert "its decision does not follow from its figures" not in faults(plain, b"model", None)
    plain["audited"] = []
    assert criteria(plain)[-1]["found"] == "there are none"


def test_what_is_none_is_not_asked(tmp_path: Path) -> None:
    """A figure that nothing measured, as of owners' own machines, can be left out by the officer."""
    (tmp_path / "thresholds.toml").write_text(
        'max_epsilon = 3\nmax_tpr_at_1_percent = "none"\nmin_audit_power = "none"'
    )
    held = Thresholds.from_toml(tmp_path / "thresholds.toml")
    assert held.max_tpr_at_1_percent is held.min_audit_power is None
    (tmp_path / "thresholds.toml").write_text('max_epsilon = "none"')
    with pytest.raises(InputError, match=r"write max_epsilon = 3.0$"):
        Thresholds.from_toml(tmp_path / "thresholds.toml")


def test_the_checker_needs_nothing_of_privfed() -> None:
    """Some two hundred lines that an outsider reads."""
    source = Path(check_certificate.__file__).read_text()
    assert "privfed." not in source and "import privfed" not in source
    assert source.count("\n") <= 205


def test_what_cannot_be_checked_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that are missing, or no certificate."""
    (tmp_path / "model").write_bytes(b"model")
    (tmp_path / "no.json").write_text("[]")
    for name, told in (
        ("missing.json", "No such file or directory"),
        ("no.json", "no certificate"),
    ):
        path = tmp_path / name
        assert check_certificate.main([str(path), str(tmp_path / "model")]) == 2
        assert capsys.readouterr().err == f"cannot be checked: {path}: {told}\n"


def test_a_head_that_is_none_is_not_the_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A head without its hash refuses, and is no fault of the certificate."""
    (tmp_path / "model").write_bytes(b"model")
    (tmp_path / "made.json").write_text(json.dumps(made(tmp_path)))
    given = [str(tmp_path / "made.json"), str(tmp_path / "model"), "--head", "north"]
    assert check_certificate.main(given) == 1
    assert "the ledger of north is not at the certificate's head" in capsys.readouterr().out
