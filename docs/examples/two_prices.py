"""
A price before anything is read
===============================

What a policy lets a learner ask, and what each question costs.
"""

from privfed.learners import RuleFitClassifier
from privfed.tables.schema import Column, Schema

schema = Schema(
    (
        Column("age", lower=0, upper=100),
        Column("smoker", kind="category", categories=("no", "yes")),
        Column("ill", kind="category", categories=("no", "yes")),
    ),
    target="ill",
)
policy = RuleFitClassifier().private(epsilon=2, schema=schema)
for kind, guards in policy.guards.items():
    print(
        f"{kind:24} {guards[0].mechanism:10} rho {float(guards[0].spend):.4f}, {guards[0].times} times"
    )
