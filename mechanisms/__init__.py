"""Mechanisms: each protects a group of parts jointly, independent of learners and accountants."""
