"""Raw values in what left: one engine, with two entrances (an attack, and an assertion for tests).

- ``reading``: takes whatever left apart, down to arrays, texts and bytes, each with its path.
- ``artefact``: what left as an index: numbers by precision, phrases, lines of neighbouring cells.
- ``table``: the raw table, each column by its kind; re-drawn tables of the same shape.
- ``evidence``: one rule's score, in nats, and its place among re-drawn tables.
- ``cells``, ``functions``, ``arithmetic``: numbers that are raw values, or functions of few.
- ``rows``, ``directions``, ``columns``: whole records and columns, in any unit.
- ``lines``: several cells of one record side by side; ``words``: texts that name records.
- ``binary``: raw values as the bytes of floats, digits without points, digests.
- ``scan``: all rules, and what they find beyond chance.
"""
