"""The data owner's file: what it accepts, what it says of its own mistakes, what it digests."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from privfed import Budget, Guard, Policy
from privfed.errors import InputError, PolicyError
from privfed.mechanisms.unprotected import Nullify
from privfed.privacy.limit import Limit
from privfed.privacy.masked_sums import MaskedSums


def lines(**fields: object) -> dict[str, object]:
    """A guard's line with some fields replaced."""
    return {"query": "q", "mechanism": "laplace", "spend": "0.1"} | fields


def policy() -> Policy:
    """A policy that uses every field."""
    guards = {
        "q": (
            Guard.of("laplace", "counts", spend="0.1", cap="0.2", times=3),
            Guard.of("nullify", strict=True),
        ),
        "keep": (),
    }
    return Policy(
        guards, "individual", "replace-one", 5, "zcdp", Budget.of("2", "1e-5"), "strict", 1000
    )


def test_file_round_trip(tmp_path: Path) -> None:
    """A policy written as TOML is read back equal, with the same digest."""
    policy().to_toml(tmp_path / "policy.toml")
    again = Policy.from_toml(tmp_path / "policy.toml")
    assert again == policy()
    assert again.digest == policy().digest


def test_lists_and_single_guards_are_what_a_file_gives() -> None:
    """A policy of one guard, or of lists, is equal to that of tuples, and has its digest."""
    guard, limit = Guard.of("laplace", spend="0.1"), Limit(("study",), Budget.of(1))
    per: Any = "study"
    guards: Any = {"q": [guard], "r": guard}
    limits: Any = [Limit(per, Budget.of(1))]
    listed = Policy(guards, limits=limits)
    assert listed == Policy({"q": (guard,), "r": (guard,)}, limits=(limit,))
    assert listed == Policy.from_dict(listed.to_dict())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"guards": [Guard.of("laplace")]}, "guards are listed by kind of query; write {"),
        ({"guards": {"q": "laplace"}}, "query 'q': write its guards as"),
        ({"guards": {"q": ["laplace"]}}, "query 'q': write its guards as"),
        ({"guards": {}, "limits": Limit(("study",), Budget.of(1))}, "limits are a list; write"),
        ({"guards": {}, "limits": ["study"]}, "limits are a list; write"),
        ({"guards": {}, "budget": 3}, "budget must be a Budget or None; write budget = Budget.of"),
        ({"guards": {}, "masked": ["a"]}, "masked must be a MaskedSums or None"),
        ({"guards": {}, "shuffled": 100}, "shuffled must be a TrustedShuffler or None"),
    ],
)
def test_what_is_no_guard_or_limit(fields: dict[str, Any], says: str) -> None:
    """A policy built in Python says what to write, as one of a file does."""
    with pytest.raises(PolicyError, match=says):
        Policy(**fields)


@pytest.mark.parametrize("fields", [(5, Budget.of(1)), (["study"], 3)])
def test_what_is_no_limit_or_has_no_keys(fields: Any) -> None:
    """A limit, and owners of masked sums, say what to write, too."""
    with pytest.raises(PolicyError, match="a limit is per aspects and has a budget; write Limit"):
        Limit(*fields)
    owners: Any = ["a", "b", "c"]
    with pytest.raises(PolicyError, match="owners have keys; write MaskedSums"):
        MaskedSums(owners)


@pytest.mark.parametrize(
    "change",
    [
        {"cap": 4},
        {"name": "other"},
        {"relation": "add-or-remove"},
        {"budget": {"epsilon": "2", "delta": "0.00002"}},
        {"guard": [lines()]},
    ],
)
def test_every_field_is_in_the_digest(change: dict[str, object]) -> None:
    """A digest in the ledger pins what was allowed."""
    assert Policy.from_dict(policy().to_dict() | change).digest != policy().digest


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"gard": []}, r"unknown key 'gard'; did you mean 'guard'\? Known are accountant"),
        ({"unit": "person"}, "unit must be one of record"),
        ({"relation": "swap"}, "relation must be one of add-or-remove"),
        ({"cap": 0}, "cap must be"),
        ({"cap": "2"}, "cap must be"),
        ({"cells": "many"}, "cells must be"),
        ({"cap": 10**400}, "cap must be"),
        ({"name": 5}, "name is text"),
        ({"masked": {"with": [[]]}}, "the noise of 0 of the owners counts"),
        ({"accountant": 3}, "accountant must be a name"),
        ({"local": "keep"}, "local must be a list"),
        ({"guard": lines()}, r"\[\[guard\]\]"),
        ({"guard": ["q"]}, "table of keys"),
        ({"guard": [lines(query=3)]}, "needs query"),
        ({"guard": [{"query": "q"}]}, "needs mechanism"),
        ({"guard": [lines(spendd="1")]}, "unknown key 'spendd'"),
        ({"guard": [lines(parts="counts")]}, "parts are a list"),
        ({"guard": [lines(parts=[])]}, "needs parts"),
        ({"guard": [lines(parts=3)]}, "parts are a list"),
        ({"guard": [lines(times=0)]}, "times must be at least 1"),
        ({"guard": [lines(times="3")]}, "times must be at least 1"),
        ({"guard": [lines(options=3)]}, "options are a table"),
        ({"guard": [lines(cap="0.05")]}, "cap is the most"),
        ({"guard": [lines(), lines(mechanism="open")]}, "guarded twice"),
        ({"budget": 3}, "table of keys"),
        ({"budget": {}}, "needs epsilon"),
        ({"budget": {"epsilon": "1", "detla": "0"}}, "unknown key 'detla'"),
        ({"budget": {"epsilon": "1", "delta": "1"}}, 'below 1; write delta = "1e-5"'),
        ({"budget": {"epsilon": "1", "delta": "0.99999999999999999999"}}, "below 1; write delta"),
        ({"guard": [lines(), lines(query=3)]}, "^policy: guard 2: every"),
        ({"guard": [lines(), lines(tmes=1)]}, r"^policy: guard 2: \[\[guard\]\]: unknown key"),
    ],
)
def test_mistakes_in_a_file(plain: dict[str, object], says: str) -> None:
    """One line that says what, where and what to write instead."""
    with pytest.raises(PolicyError, match=says) as caught:
        Policy.from_dict(plain)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "amount", [0, "0", -1, "-0.5", "nan", float("nan"), "inf", "1,0", "", True]
)
def test_amounts_that_are_none(amount: object) -> None:
    """Epsilon zero, negative, NaN, infinite or with a comma is refused everywhere."""
    for plain in ({"budget": {"epsilon": amount}}, {"guard": [lines(spend=amount)]}):
        with pytest.raises(InputError, match=r"write for example '0\.5'"):
            Policy.from_dict(plain)
    with pytest.raises(InputError):
        Guard.of("laplace", spend=amount)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [(float("nan"),), (1.0,), (Fraction(0),), (Fraction(1), Fraction(1)), (Fraction(1), 0.1)],
)
def test_budgets_are_exact(fields: tuple[object, ...]) -> None:
    """A budget built by hand is held to the same rules; NaN fails."""
    with pytest.raises(PolicyError, match="budget needs"):
        Budget(*fields)  # type: ignore[arg-type]


def test_unreadable_file(tmp_path: Path) -> None:
    """A missing or broken file is named."""
    with pytest.raises(PolicyError, match=r"policy\.toml"):
        Policy.from_toml(tmp_path / "policy.toml")
    (tmp_path / "policy.toml").write_text("unit = ")
    with pytest.raises(PolicyError, match=r"policy\.toml"):
        Policy.from_toml(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("spend", "cap", "proposed", "amount"),
    [
        ("0.5", None, None, "0.5"),
        ("0.5", None, "0.9", "0.5"),
        ("0.5", None, "0.2", "0.2"),
        ("0.5", "0.8", "0.9", "0.8"),
        ("0.5", "0.8", "0.7", "0.7"),
        ("0.5", "0.8", None, "0.5"),
    ],
)
def test_proposals_are_capped(
    spend: str, cap: str | None, proposed: str | None, amount: str
) -> None:
    """The asking side may propose; the owner's cap, or spend, is the most it gets."""
    guard = Guard.of("laplace", spend=spend, cap=cap)
    assert guard.amount(None if proposed is None else Fraction(proposed)) == Fraction(amount)


def test_no_proposals_make_a_total_that_is_too_long_to_read() -> None:
    """Each prime denominator lengthened it by twelve digits, and after 360 of them nothing could be charged."""
    guard = Guard.of("laplace", spend="0.5")
    assert guard.amount(Fraction(1, 3)) == Fraction(1, 3)
    asked = [Fraction(1, 10**12 - odd) for odd in range(1, 4000, 2)]
    asked += [Fraction(1, small) for small in range(2, 2000)]
    amounts = [guard.amount(each) for each in asked]
    assert all(amount <= each for amount, each in zip(amounts, asked, strict=True))
    assert len(str(sum(amounts))) < 1000


def test_union() -> None:
    """Policies join under one unit and budget, and never silently override one another."""
    one = Policy({"a": (Guard.of("open"),)})
    other = Policy({"b": (Guard.of("nullify"),)})
    assert set(one.union(other).guards) == {"a", "b"}
    assert one.union(one) == one
    with pytest.raises(PolicyError, match="one unit"):
        one.union(Policy({}, unit="client"))
    with pytest.raises(PolicyError, match="'a' differently"):
        one.union(Policy({"a": (Guard.of("nullify"),)}))


def test_objects_are_pinned_as_names_are() -> None:
    """A mechanism object with other parameters is another policy; the same ones are the same."""
    strict, loose = (Policy({"q": (Guard(Nullify(strict=s)),)}) for s in (True, False))
    assert strict.digest != loose.digest
    assert strict.digest == Policy({"q": (Guard.of("nullify", strict=True),)}).digest
    assert Policy.from_dict(strict.to_dict()).digest == strict.digest


def test_a_mechanism_s_class_is_no_mechanism() -> None:
    """An author who forgets the brackets, or the name, is told so; not that nothing is installed by it."""
    with pytest.raises(PolicyError, match=r"derived from Mechanism, such as Laplace\(\); a class"):
        Guard.of(Nullify)  # type: ignore[arg-type]

    class Nameless(Nullify):
        name = None  # type: ignore[assignment]

    with pytest.raises(PolicyError, match="name is text; write name = "):
        Guard.of(Nameless())
