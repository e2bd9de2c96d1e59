"""
A short rule list under epsilon 4
=================================

Private RuleFit keeps at most twenty terms; here it keeps six, each a rule on public cut-offs or one line.
"""

from privfed import LocalDisclosure
from privfed.learners import RuleFitRegressor
from privfed.testing.hospitals import NUMERIC, patients

learner = RuleFitRegressor(max_terms=6)
policy = learner.private(epsilon=4)
federation = LocalDisclosure.from_frame(
    patients(6000), target="days", client="hospital", schema=NUMERIC, policy=policy
)
print(learner.fit(federation).describe())
