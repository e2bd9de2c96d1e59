"""The data owner's side: the one gate, its guards, what it repeats and what it keeps to itself."""
