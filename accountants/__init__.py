"""Accountants: each composes losses under one stated relation and unit, without access to data."""
