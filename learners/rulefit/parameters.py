"""What RuleFit's parameters may be, and what the paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privfed.learners.parameters import Boolean, Constraints, Integers, Reals, StrOptions
from privfed.learners.rulefit.cutoffs import MOST_CUTS

ALLOWED: Constraints = {
    "bins": [Integers(at_least=2, at_most=100_000)],
    "cutoffs": [Integers(at_least=1, at_most=MOST_CUTS)],
    "trees": [Integers(at_least=1, at_most=10_000)],
    "leaves": [Reals(at_least=2, at_most=64)],
    "shrinkage": [Reals(above=0, at_most=1)],
    "subsample": [Reals(at_least=0, at_most=1)],
    "min_leaf": [Integers(at_least=1, at_most=10**9)],
    "max_rules": [Integers(at_least=1), None],
    "linear": [Boolean()],
    "penalty": [Reals(at_least=0, at_most=10**6)],
    "estimation": [StrOptions("gradient", "averaging")],
    "rounds": [Integers(at_least=1, at_most=10**6)],
    "local_steps": [Integers(at_least=1, at_most=1_000)],
    "server_step": [Reals(above=0, at_most=10)],
    "client_step": [Reals(above=0, at_most=10), None],
    "clients_per_round": [Integers(at_least=1), None],
    "reference_rounds": [Integers(at_least=0, at_most=10**6)],
    "random_state": [Integers(at_least=0), None],
}

#: What the paper prints (Section 3.1) where the defaults differ. Its dual averaging by small steps needs
#: 300 rounds of 20, which lead clients that are unlike apart; 80 accelerated gradients come closer to the
#: pooled optimum, and half the penalty keeps more terms there. Algorithm 1 keeps all rules, fits every
#: tree to all records and knows no least size of a leaf.
#: Its "mean depth 2" would make every tree a stump, which the rules of its Table 1 are not: it is read as
#: the defaults' four leaves.
PAPER: Mapping[str, Any] = {
    "penalty": 0.01,
    "estimation": "averaging",
    "rounds": 300,
    "local_steps": 20,
    "client_step": 0.01,
    "max_rules": None,
    "min_leaf": 1,
    "subsample": 1,
}
