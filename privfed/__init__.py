"""privfed: a privacy-auditing toolkit for federated, interpretable learning.

Names are imported on first use, so that a learner does not import the gate.
"""

from typing import TYPE_CHECKING

from privfed.lazy import attach

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
__getattr__, __dir__, __all__ = attach(__name__, __file__)
