"""The data owner's side: the gate, its guards, cached releases and local storage."""
