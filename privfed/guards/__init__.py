"""Conformance of other stacks' guards: whatever turns a model's update, or a table, into what leaves."""
