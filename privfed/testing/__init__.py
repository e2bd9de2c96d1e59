"""What third parties need to test their own code and plugins, and what privfed's tests stand on.

Assertions for any test suite, in any framework (the names of ``__all__``, imported on first use):

- ``assertions``: no raw value left, support, audits, ledgers, budgets.
- ``left``: takes whatever left apart; ``rules``: what is looked for in it.
- ``sentinel_tables``: made-up tables whose values are recognised in any form.
- ``strategies``: neighbouring tables, divisions, schedules and hostile schemas for Hypothesis.
- ``plugin``: fixtures and a marker for pytest.

Kits, each a list of checks that must hold for every newcomer:

- ``check_mechanism``: costs, shapes, noise from the source alone, the published law, audits by
  drawing.
- ``check_accountant``: exact sums, sharp ceilings, guarantees held against exact composition.
- ``check_query``: declared sensitivities held against neighbours that are searched for, hostile fields,
  order, grid, sums (needs hypothesis: ``pip install privfed[test]``).
- ``check_learner``: scikit-learn's manners, honest policies, a model that releases alone explain.
- ``check_sharing``: any function that shares something of a table: nothing raw, nothing of few.
- ``conformance``: runs a kit, check by check, the skipped ones with a reason.

Audits of mechanisms, gates and trainings: :mod:`privfed.audits`.

Small things to test with:

- ``hospitals``: simulated patients of three hospitals, their schemas, a federation of them.
- ``rows``: rows of awkward values, out of which neighbouring tables are made.
- ``hostile_fields``: a query's public values, changed for the worse.
- ``queries``: three small queries of three styles, which show how one is written.
- ``gates``: asks a gate by bytes, reads its ledger's events, and a query that tells when it is read.
- ``faulty``, ``faulty_gates``: mechanisms and gates with planted faults, which an audit must convict.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.testing.assertions.alpha import spending as spending
    from privfed.testing.assertions.audit import assert_dp as assert_dp
    from privfed.testing.assertions.budget import (
        assert_refuses_over_budget as assert_refuses_over_budget,
    )
    from privfed.testing.assertions.ledger import assert_ledger as assert_ledger
    from privfed.testing.assertions.no_raw import Powerless as Powerless
    from privfed.testing.assertions.no_raw import RawValueLeft as RawValueLeft
    from privfed.testing.assertions.no_raw import assert_no_raw as assert_no_raw
    from privfed.testing.assertions.support import assert_support as assert_support
    from privfed.testing.left.walk import flatten as flatten
    from privfed.testing.sentinel_tables import sentinels as sentinels

_HOMES = {
    "Powerless": "assertions.no_raw",
    "RawValueLeft": "assertions.no_raw",
    "assert_dp": "assertions.audit",
    "assert_ledger": "assertions.ledger",
    "assert_no_raw": "assertions.no_raw",
    "assert_refuses_over_budget": "assertions.budget",
    "assert_support": "assertions.support",
    "flatten": "left.walk",
    "sentinels": "sentinel_tables",
    "spending": "assertions.alpha",
}
__all__ = [*sorted(_HOMES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privfed.testing' has no attribute {name!r}")
    return getattr(import_module(f"privfed.testing.{_HOMES[name]}"), name)
