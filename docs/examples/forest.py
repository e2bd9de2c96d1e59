"""
A federated forest, and what it costs
=====================================

The same learner as its paper releases it, and under a finite budget.
"""

from sklearn.metrics import mean_absolute_error

from privfed import LocalDisclosure
from privfed.learners import FedForestRegressor
from privfed.testing.hospitals import NUMERIC, patients

frame = patients(6000)
train, test = frame[1000:], frame[:1000]
learner = FedForestRegressor(n_estimators=20, max_depth=6)
for policy in (learner.published(), learner.private(epsilon=4)):
    federation = LocalDisclosure.from_frame(
        train, target="days", client="hospital", schema=NUMERIC, policy=policy
    )
    error = mean_absolute_error(test["days"], learner.fit(federation).predict(test))
    print(f"mean absolute error {error:.2f}; spent {federation.budget()['spent'].max()}")
