"""Assertions for anybody's test suite, in any framework; ``privfed.testing`` has their names.

- ``no_raw``: no raw value left, nor a function of too few.
- ``support``: every released number depends on many records, or is noised.
- ``audit``: outputs do not contradict a claimed epsilon.
- ``ledger``: whatever left has been accounted for.
- ``budget``: beyond its budget a system refuses.
- ``alpha``: one false-alarm rate for a whole suite, split over its assertions.
"""
