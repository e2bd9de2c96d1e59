"""
A fuzzy regression tree
=======================

Three hospitals, linguistic rules, and what each hospital has spent.
"""

from privfed import LocalDisclosure
from privfed.learners import FuzzyTreeRegressor
from privfed.testing.hospitals import NUMERIC, patients

learner = FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=1)
policy = learner.private(epsilon=2)
fed = LocalDisclosure.from_frame(
    patients(6000), target="days", client="hospital", schema=NUMERIC, policy=policy
)
print(learner.fit(fed).describe())
print(fed.budget().T)
