"""Reports of privfed."""
