"""The engine of private learners: noisy sums over bins and leaves, and the resulting :class:`PrivateModel`."""

from privfed.learners.private.model import PrivateModel
from privfed.learners.private.planning import QUERIES, private, schedule
from privfed.learners.private.target_link import Outcome
from privfed.learners.private.training import learn

__all__ = ["QUERIES", "Outcome", "PrivateModel", "learn", "private", "schedule"]
