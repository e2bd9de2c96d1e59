"""
Noise once for all owners
=========================

Ten owners, each adding all of the noise, or each a share of it behind masks that cancel in the sum.
"""

import numpy as np

from privfed import LocalDisclosure
from privfed.learners import RuleFitRegressor
from privfed.testing.hospitals import NUMERIC, patients

frame = patients(6000)
frame["owner"] = np.random.default_rng(0).integers(0, 10, len(frame)).astype(str)
frame = frame.drop(columns="hospital")
train, test = frame[1000:], frame[:1000]
learner = RuleFitRegressor()
alone = learner.private(epsilon=1)
for name, policy in {
    "each owner adds all noise": alone,
    "masked": alone.masked_among(sorted(set(frame["owner"]))),
}.items():
    federation = LocalDisclosure.from_frame(
        train, target="days", client="owner", schema=NUMERIC, policy=policy
    )
    print(f"{name:26} R2 {learner.fit(federation).score(test, test['days']):.3f}")
