"""Rules by which something that left is held against the raw table, and what chance explains.

- ``table``: the raw values, by record and column.
- ``released``: all that left, its numbers sorted by precision.
- ``precision``: how much a released number says by itself.
- ``chance``: how likely a match is by chance.
- ``match``: one finding of a rule.
- ``values``: released numbers against raw values, as they are and through functions of them.
- ``functions``: those functions: of one value, of a column, of two records, of a small group.
- ``arithmetic``: released numbers that give a raw value away together.
- ``records``: rows that left in order, rounded or scaled.
- ``columns``: vectors as long as the table that order or divide the records as a column does.
- ``binary``: raw values as the bytes of floats, anywhere.
- ``words``: raw texts, digits and digests in texts.
- ``search``: all rules, one after the other.
"""
