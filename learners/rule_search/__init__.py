"""Rule search under local differential privacy (DP-RuL): queries, searches, and what they cost."""
