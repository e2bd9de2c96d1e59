"""Flattens outputs, any nesting of objects, to the arrays, texts and bytes that they hold.

- ``leaf``: one array, text or byte string, and its path.
- ``walk``: reads objects (containers, arrays, tables, models, exceptions, logs, files).
- ``package_objects``: reads other libraries' objects, without importing those libraries.
- ``encodings``: decodes bytes (archives, compression, NumPy files, pickles, MessagePack).
- ``texts``: reads texts (numbers, dates, encoded bytes).
"""
