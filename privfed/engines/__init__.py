"""Federations of several processes: the owner's gate behind a door, and engines that carry bytes.

An engine carries one batch of messages to each client and brings one batch of replies back. It holds
no data, no policy and no ledger: those are on the owner's side of the door.
"""
