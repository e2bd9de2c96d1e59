"""Mechanisms: each protects a group of parts jointly, and knows neither learner nor accountant."""
