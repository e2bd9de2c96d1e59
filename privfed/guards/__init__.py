"""Conformance tests of other frameworks' guards, which protect a model's update or a table."""
