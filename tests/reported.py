"""A policy of epsilon 8 under zCDP, of which one owner spent little: what the pages' tests start from."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from privfed.accountants.risk import Risk
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.finding import Finding
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Policy
from privfed.reports.account import ClientAccount, KindLine, PolicyAccount
from privfed.reports.budget import PolicyReport

BUDGET, SPENT = Budget.of("8", "1e-5"), (Fraction(1, 10), Fraction(0))
NOISY = KindLine("small.level", "Sums.", {"sums": "gaussian"}, 1, ("rho 0.1",), True, ())
EXACT = replace(NOISY, parts={}, losses=("no finite guarantee",), protected=False)
HAD = Finding("recovery", "Which?", "records recovered", 7, 331, severity="breach")


def client_of(client: str = "north", **changes: Any) -> ClientAccount:
    """An owner who was asked once and spent epsilon 2.5."""
    plain: dict[str, Any] = {
        "released": 1,
        "epsilon": 2.5,
        "delta": 1e-5,
        "budget": 8.0,
        "ceiling": 8.0,
        "total": SPENT,
        "risk": Risk({0.001: 0.02, 0.01: 0.2, 0.1: 0.5}, 0.4, 0.01, 0.17, 0.2),
    }
    return ClientAccount(client, **(plain | changes))


def report_of(
    line: KindLine = NOISY,
    found: tuple[Finding, ...] = (),
    metrics: Mapping[str, Any] | None = None,
    **changes: Any,
) -> PolicyReport:
    """The policy's report, one kind of question asked; whether the line is protected, the owner's account tells."""
    room = ZeroConcentrated().left(SPENT, BUDGET)
    client = client_of(**({"room": room, "unprotected": int(not line.protected)} | changes))
    policy = Policy({}, name="one", accountant="zcdp", budget=BUDGET)
    account = PolicyAccount(policy, ZeroConcentrated(), (client,), (line,))
    return PolicyReport(account, found, metrics or {}, {"membership": "Was it there?"})
