"""What may be asked: parts with derived sensitivities, disjoint cells, trees, queries, deterministic bytes."""
