"""Federations that run: gates in one process, or behind a door of their own with engines between.

An engine carries one batch of messages to each client and brings one batch of replies back. It holds
no data, no policy and no ledger: those are on the owner's side of the door.
"""
