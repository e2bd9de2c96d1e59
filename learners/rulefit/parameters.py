"""What RuleFit's parameters may be, and what the paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privfed.learners.parameters import Boolean, Constraints, Integers, Reals, StrOptions
from privfed.learners.rulefit.cutoffs import MOST_CUTS

ALLOWED: Constraints = {
    "n_bins": [Integers(at_least=2, at_most=100_000)],
    "n_quantiles": [Integers(at_least=1, at_most=MOST_CUTS)],
    "n_estimators": [Integers(at_least=1, at_most=10_000)],
    "tree_size": [Reals(at_least=2, at_most=64)],
    "learning_rate": [Reals(above=0, at_most=1)],
    "subsample": [Reals(at_least=0, at_most=1)],
    "min_samples_leaf": [Integers(at_least=1, at_most=10**9)],
    "max_rules": [Integers(at_least=1), None],
    "include_linear": [Boolean()],
    "alpha": [Reals(at_least=0, at_most=10**6)],
    "solver": [StrOptions("gradient", "averaging")],
    "n_rounds": [Integers(at_least=1, at_most=10**6)],
    "local_steps": [Integers(at_least=1, at_most=1_000)],
    "server_learning_rate": [Reals(above=0, at_most=10)],
    "client_learning_rate": [Reals(above=0, at_most=10), None],
    "clients_per_round": [Integers(at_least=1), None],
    "reference_rounds": [Integers(at_least=0, at_most=10**6)],
    "max_terms": [Integers(at_least=1, at_most=1_000), None],
    "stable": [Boolean()],
    "random_state": [Integers(at_least=0), None],
}

#: What the paper prints (Section 3.1) where the defaults differ. Its dual averaging by small steps needs
#: 300 rounds of 20, which lead clients that are unlike apart; 80 accelerated gradients come closer to the
#: pooled optimum, and half the penalty keeps more terms there. Algorithm 1 keeps all rules, fits every
#: tree to all records and knows no least size of a leaf.
#: Its "mean depth 2" would make every tree a stump, which the rules of its Table 1 are not: it is read as
#: the defaults' four leaves.
PAPER: Mapping[str, Any] = {
    "alpha": 0.01,
    "solver": "averaging",
    "n_rounds": 300,
    "local_steps": 20,
    "client_learning_rate": 0.01,
    "max_rules": None,
    "min_samples_leaf": 1,
    "subsample": 1,
}
