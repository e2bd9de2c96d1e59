"""Tables and what is public of them: the data dictionary, records encoded to it, sources, division."""
