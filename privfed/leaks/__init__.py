"""Searches outputs for raw values; used by an attack and by an assertion for tests.

- ``reading``: flattens outputs to arrays, texts and bytes, each with its path.
- ``artefact``: indexes the outputs: numbers by precision, phrases, lines of neighbouring cells.
- ``table``: the raw table, each column by its kind; redrawn tables of the same shape.
- ``evidence``: one rule's score, in nats, and its rank among redrawn tables.
- ``cells``, ``functions``, ``arithmetic``: numbers that are raw values, or functions of few.
- ``rows``, ``directions``, ``columns``: whole records and columns, in any unit.
- ``lines``: several cells of one record side by side; ``words``: texts that name records.
- ``binary``: raw values as the bytes of floats, digits without points, digests.
- ``scan``: runs all rules and keeps the matches that chance does not explain.
"""
