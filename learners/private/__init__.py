"""What private learners share: one engine of noisy sums over bins and leaves.

A learner asks :func:`learn` for a fitted :class:`PrivateModel` and writes it as rules or as a forest.
"""

from privfed.learners.private.model import PrivateModel
from privfed.learners.private.planning import QUERIES, private, schedule
from privfed.learners.private.target_link import Outcome
from privfed.learners.private.training import learn

__all__ = ["QUERIES", "Outcome", "PrivateModel", "learn", "private", "schedule"]
