"""
Rules of a cohort, one bit at a time
====================================

DP-RuL: three thousand individuals each hold rules about their own signals, and answer yes-or-no questions by randomized
response. What two thirds of them share is found; who holds it is not.
"""

import numpy as np

from privfed.engines.cohort import CohortDisclosure
from privfed.learners import RuleSearch
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse

grammar = Grammar((("hr", 20, 220), ("map", 20, 200)), most_operators=2, horizon=10)
rng = np.random.default_rng(0)
rules = {
    f"phone-{n}": [
        parse(f"hr >= {rng.normal(98, 3):.1f}" if rng.random() < 0.66 else "map <= 61.5")
    ]
    for n in range(3000)
}
search = RuleSearch(
    "uct", epsilon="6", parameter_epsilon="4", min_support=0.1, horizon=10, max_operators=2
)
cohort = CohortDisclosure.of(RuleIndex.of(rules, grammar), search.private("10"))
print(search.fit(cohort).describe())
print(cohort.budget()[["people", "epsilon", "spent"]].T)
