"""Learners: one module or subpackage for each paper, written against ``Disclosure`` alone."""
