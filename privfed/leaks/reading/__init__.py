"""What left: any nesting of objects, as the arrays, texts and bytes that it holds.

- ``leaf``: one array, text or string of bytes, and the path to it.
- ``walk``: takes objects apart (containers, arrays, tables, models, exceptions, logs, files).
- ``package_objects``: what other libraries' objects hold, without importing those libraries.
- ``encodings``: takes bytes apart (archives, compression, NumPy files, pickles, MessagePack).
- ``texts``: what a text holds (numbers, dates, encoded bytes).
"""
