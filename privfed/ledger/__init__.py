"""The ledger: a durable, hash-chained record of every charge, release and refusal.

``ledger`` is the gates' interface; ``store`` the form and storage of rows (``sqlite_store``: in one file); ``charge``
the charges and their totals; ``policy_constraints`` the terms in force; ``verification`` and ``statement`` read a
ledger for reports.
"""

from privfed.ledger.charge import Charge, Reserved, Spent
from privfed.ledger.ledger import Ledger
from privfed.ledger.store import Entry

__all__ = ["Charge", "Entry", "Ledger", "Reserved", "Spent"]
