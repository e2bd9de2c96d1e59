"""What a pickle holds, read off its opcodes: nothing is ever loaded, so that nothing runs.

Numbers, texts and bytes stand in a pickle as arguments of opcodes, in order. An array of NumPy is a
type's name (``f8``), a mark for its byte order, and its bytes; the last type named before bytes is
what they are read as, and the plain bytes are handed on as well.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

#: Opcodes whose argument is no datum: names of modules, classes, memo slots, frames, versions.
_STRUCTURE = {"PROTO", "FRAME", "GLOBAL", "INST", "PUT", "BINPUT", "LONG_BINPUT"}
_STRUCTURE |= {"GET", "BINGET", "LONG_BINGET", "EXT1", "EXT2", "EXT4"}
_TYPE = re.compile(r"^[<>|=]?([fiucV][0-9]{1,2})$")
_SWAPPED = ">"


def is_pickle(data: bytes) -> bool:
    """Whether bytes begin as a pickle of protocol 2 or later and end as one."""
    return len(data) > 3 and data[0] == 0x80 and 2 <= data[1] <= 5 and b"." in data[-1:]


def opcodes_hold(data: bytes) -> Iterator[object]:
    """Every datum of a pickle, runs of numbers together, arrays as arrays.

    Raises:
        ValueError: these are no opcodes (from the first foreign byte on).
    """
    numbers: list[float] = []
    kind, order = "", "<"
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _STRUCTURE or argument is None:
            continue
        if isinstance(argument, bool | int | float):
            numbers.append(argument)
            continue
        if isinstance(argument, str):
            named = _TYPE.match(argument)
            kind = named[1] if named else kind
            order = argument if argument in ("<", ">") else order
            yield argument
            if not argument.isascii() and max(argument) <= "\xff":
                yield from _array(
                    argument.encode("latin-1"), kind, order
                )  # bytes, before protocol 3
        elif isinstance(argument, bytes | bytearray):
            yield from _array(bytes(argument), kind, order)
    yield numbers


def _array(data: bytes, kind: str, order: str) -> Iterator[object]:
    """The bytes as numbers of the type that was named last, where they fit, and as they are."""
    if kind and kind[0] in "fiuc" and kind not in ("f1", "c1"):
        width = int(kind[1:])
        if width in (1, 2, 4, 8, 16) and len(data) % width == 0 and len(data) > 0:
            with suppress(TypeError):  # a type that NumPy does not know
                yield np.frombuffer(data, np.dtype(order + kind))
    yield data
