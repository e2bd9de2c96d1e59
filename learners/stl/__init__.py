"""Signal Temporal Logic: formulas, templates, robustness, and a client's own rule learner.

No part of it knows a federation: a client learns its rules from its own trajectories, and what may
be asked about them is the business of ``privfed.learners.rule_search``.
"""
