"""The ledger: a durable, hash-chained record of every charge, release and refusal.

``ledger`` is what a gate calls, ``storage`` one SQLite file of chained rows, ``chain`` their form;
``charge``, ``total`` and ``terms`` are what is charged, added up and in force; ``verification`` and
``statement`` read it for others.
"""

from privfed.ledger.chain import Entry
from privfed.ledger.charge import Charge, Spent
from privfed.ledger.ledger import Ledger

__all__ = ["Charge", "Entry", "Ledger", "Spent"]
