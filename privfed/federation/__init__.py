"""Federations that run: all gates in this process, or a cohort of individuals."""
