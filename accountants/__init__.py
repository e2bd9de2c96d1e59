"""Accountants: each composes losses under one stated relation and unit, and never sees data."""
