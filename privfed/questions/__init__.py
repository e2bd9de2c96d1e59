"""Queries: parts with derived sensitivities, disjoint cells, trees, deterministic serialization."""
