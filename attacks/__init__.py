"""Attacks of privfed."""
