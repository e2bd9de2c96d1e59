"""Tables: the public data dictionary, encoded records, sources, and partitions among owners."""
