"""Baselines: what the learners are measured against."""
