"""
A score card
============

Whole points that a person adds up by hand.
"""

import numpy as np
import pandas as pd

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import RuleFitClassifier

rng = np.random.default_rng(1)
frame = pd.DataFrame(
    {"age": rng.uniform(20, 90, 4000), "bmi": rng.normal(27, 4, 4000).clip(15, 45)}
)
risk = 0.05 * (frame["age"] - 60) + 0.15 * (frame["bmi"] - 28)
frame["readmitted"] = np.where(rng.random(4000) < 1 / (1 + np.exp(-risk)), "yes", "no")
frame["clinic"] = rng.integers(0, 3, 4000).astype(str)
schema = Schema(
    (
        Column("age", lower=0, upper=100),
        Column("bmi", lower=10, upper=50),
        Column("readmitted", kind="category", categories=("no", "yes")),
    ),
    target="readmitted",
)
learner = RuleFitClassifier(max_terms=6)
federation = LocalDisclosure.from_frame(
    frame, target="readmitted", client="clinic", schema=schema, policy=learner.private(epsilon=4)
)
print(learner.fit(federation).scorecard())
