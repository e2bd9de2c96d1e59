"""privfed: a privacy-auditing toolkit for federated, interpretable learning.

Names are imported on first use, so that a learner never drags the gate into its process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.accountant import Budget as Budget
    from privfed.disclosure import Disclosure as Disclosure
    from privfed.gate import Gate as Gate
    from privfed.ledger import Ledger as Ledger
    from privfed.local import LocalDisclosure as LocalDisclosure
    from privfed.policy import Guard as Guard
    from privfed.policy import Policy as Policy
    from privfed.query import Query as Query
    from privfed.records import Records as Records
    from privfed.schema import Column as Column
    from privfed.schema import Schema as Schema

__version__ = "0.1.0"
_HOMES = {
    "Budget": "accountant",
    "Column": "schema",
    "Disclosure": "disclosure",
    "Gate": "gate",
    "Guard": "policy",
    "Ledger": "ledger",
    "LocalDisclosure": "local",
    "Policy": "policy",
    "Query": "query",
    "Records": "records",
    "Schema": "schema",
}
__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privfed' has no attribute {name!r}")
    return getattr(import_module(f"privfed.{_HOMES[name]}"), name)
