"""Signal Temporal Logic: formulas, templates, robustness, and a client's own rule learner."""
