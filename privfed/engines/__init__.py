"""Federations of several processes: the owner's gate behind a socket, and engines that carry bytes.

An engine carries one batch of messages to each client and brings back one batch of replies. It holds
no data, no policy and no ledger: those stay in the owner's process.
"""
