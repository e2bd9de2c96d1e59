"""The ledger: a durable, hash-chained record of every charge, release and refusal.

``ledger`` is what a gate calls, ``store`` the rows' form and what keeps them (``sqlite_store`` does, in
one file); ``charge`` is what is charged and added up, ``policy_constraints`` what is in force;
``verification`` and ``statement`` read it for others.
"""

from privfed.ledger.charge import Charge, Reserved, Spent
from privfed.ledger.ledger import Ledger
from privfed.ledger.store import Entry

__all__ = ["Charge", "Entry", "Ledger", "Reserved", "Spent"]
