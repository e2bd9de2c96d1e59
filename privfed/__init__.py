"""privfed: a privacy-auditing toolkit for federated, interpretable learning.

Names are imported on first use, so that a learner never drags the gate into its process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.engines.local import LocalDisclosure as LocalDisclosure
    from privfed.exchange.disclosure import Disclosure as Disclosure
    from privfed.ledger import Ledger as Ledger
    from privfed.owner.gate import Gate as Gate
    from privfed.privacy.accountant import Budget as Budget
    from privfed.privacy.policy import Guard as Guard
    from privfed.privacy.policy import Policy as Policy
    from privfed.questions.query import Query as Query
    from privfed.tables.records import Records as Records
    from privfed.tables.schema import Column as Column
    from privfed.tables.schema import Schema as Schema

__version__ = "0.1.0"
_HOMES = {
    "Budget": "privacy.accountant",
    "Column": "tables.schema",
    "Disclosure": "exchange.disclosure",
    "Gate": "owner.gate",
    "Guard": "privacy.policy",
    "Ledger": "ledger",
    "LocalDisclosure": "engines.local",
    "Policy": "privacy.policy",
    "Query": "questions.query",
    "Records": "tables.records",
    "Schema": "tables.schema",
}
__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privfed' has no attribute {name!r}")
    return getattr(import_module(f"privfed.{_HOMES[name]}"), name)
