"""Takes bytes apart: archives, compression, NumPy files, databases, pickles, MessagePack, text.

Every decoder is tried in turn; the first that fits says what the bytes are. Nothing in them is ever
run, and nothing grows beyond ``LARGEST`` bytes.
"""

import bz2
import io
import lzma
import pickletools
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from privfed.leaks.reading.leaf import Unread
from privfed.leaks.reading.stored import joblib_arrays, sqlite_tables

LARGEST = 1 << 30  #: Most bytes that anything is unpacked to
PLACES = 4000  #: Most places inside foreign bytes at which a compressed stream is tried
PROBED = 1024  #: How many bytes of a stream are tried before all of it is
PACKED = 1 << 26  #: Largest bytes of which MessagePack is tried as a whole
SANE = 0.9  #: Share of sane numbers from which bytes are read as floats
_STREAMS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b\x08")
#: What a text begins with that says its encoding, the longer ones first.
_MARKS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
#: What no text has: a terminal's bell, backspace and escape it may have.
_CONTROL = re.compile(rb"[\0-\x06\x0e-\x1a\x1c-\x1f]")
_LONE = re.compile("[\udc80-\udcff]")  #: A byte that is no UTF-8, as Python hides it in a text
FOREIGN = (
    0.25  #: Most of a text's bytes that are no UTF-8, as letters with accents of Latin-1 are none
)
#: What reads as text inside foreign bytes: so many printable ones in a row stand there by chance once in 10 MB.
_PRINTED = re.compile(rb"[\t\n\r -~]{16,}")
#: Opcodes whose argument is no datum: names of modules, classes, memo slots, frames, versions.
_STRUCTURE = {"PROTO", "FRAME", "GLOBAL", "INST", "PUT", "BINPUT", "LONG_BINPUT"}
_STRUCTURE |= {"GET", "BINGET", "LONG_BINGET", "EXT1", "EXT2", "EXT4"}
_TYPE = re.compile(r"^[<>|=]?([fiucV][0-9]{1,2})$")

HEAD = 4096  #: Bytes of a text among which no control character may be
LIKELY = "likely text"  #: What bytes are taken for that may be numbers all the same
NEAR = 40  #: Within how many opcodes of an array's bytes its type and shape stand
Step = tuple[str, Any]  #: An opcode's name and argument
Decoded = Iterator[tuple[str, object]]  #: What was found: how it was encoded, and what it is


def decoded(data: bytes) -> Decoded:
    """What bytes hold, by the first decoder that fits; nothing where none does."""
    for decoder in _DECODERS:
        found = list(_safely(decoder, data))
        if found:
            yield from found
            return


def streams_inside(data: bytes) -> Decoded:
    """Compressed streams and NumPy files that begin somewhere inside bytes."""
    tried, view = 0, memoryview(data)  # slices of bytes would be copies
    for mark in (*_STREAMS, b"\x93NUMPY"):
        place = data.find(mark, 1)
        while place >= 0 and tried < PLACES:
            tried += 1
            name = f"bytes from {place}"
            probed = list(_safely(_compressed, view[place : place + PROBED]))
            if mark[0] != 0x93 and not probed:  # a failed try would copy all that follows
                place = data.find(mark, place + 1)
                continue
            for how, found in _safely(_numpy if mark[0] == 0x93 else _compressed, view[place:]):
                if not how.endswith(", rest"):  # which is looked through from here on
                    yield f"{name}, {how}", found
            place = data.find(mark, place + 1)


def texts_inside(data: bytes) -> Decoded:
    """What is printable inside foreign bytes, such as a picture's comment."""
    if found := _PRINTED.findall(data):
        yield "its texts", b"\n".join(found).decode("ascii")


def _safely(decoder: Callable[[Any], Decoded], data: bytes | memoryview) -> Decoded:
    """What a decoder finds; whatever goes wrong inside means that the bytes are something else."""
    try:
        yield from decoder(data)
    except Exception:  # noqa: BLE001  # a malformed file raises anything
        return


def _numpy(data: bytes | memoryview) -> Decoded:
    if data[:6] == b"\x93NUMPY":
        stream = io.BytesIO(data)
        major, minor = np.lib.format.read_magic(stream)
        read = getattr(np.lib.format, f"read_array_header_{major}_{minor}")
        shape, fortran, dtype = read(stream)
        rest = memoryview(data)[stream.tell() :]
        if dtype.hasobject:
            yield "NumPy file", bytes(rest)
            return
        count = int(np.prod(shape, dtype=np.int64))
        flat = np.frombuffer(rest, dtype, count=count)
        yield "NumPy file", flat.reshape(shape, order="F" if fortran else "C")
        if flat.nbytes < len(rest):
            yield "NumPy file, rest", bytes(rest[flat.nbytes :])


def _zip(data: bytes) -> Decoded:
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
            yield "zip, its names", "\n".join(info.filename for info in listed)
            yield "zip, its comment", archive.comment
            for info in listed:
                if not info.is_dir():
                    yield from _entry(
                        "zip", info.filename, info.file_size, partial(archive.read, info)
                    )


def _tar(data: bytes) -> Decoded:
    if data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            yield "tar, its names", "\n".join(archive.getnames())
            for member in archive:
                if (file := archive.extractfile(member)) is not None:
                    yield from _entry("tar", member.name, member.size, file.read)


def _entry(archive: str, name: str, size: int, read: Callable[[], bytes]) -> Decoded:
    """What an archive holds; an encrypted or broken entry, or too large a one, is told."""
    found: object = Unread(f"entry of a {archive} file, too large, encrypted or broken")
    if size <= LARGEST:
        with suppress(Exception):
            found = read()
    yield f"{archive} entry {name!r}", found


def _compressed(data: bytes | memoryview) -> Decoded:
    """Compressed streams in a row, the last perhaps cut short, and what follows them."""
    if data[:3] == b"\x1f\x8b\x08":
        yield from _streams("gzip", data, 3, partial(zlib.decompressobj, zlib.MAX_WBITS | 16))
    elif len(data) > 5 and data[0] & 15 == 8 and (data[0] * 256 + data[1]) % 31 == 0:
        yield from _streams("zlib", data, 0, zlib.decompressobj)
    elif data[:3] == b"BZh":
        yield from _streams("bz2", data, 3, bz2.BZ2Decompressor)
    elif data[:6] == b"\xfd7zXZ\x00" or data[:3] == b"\x5d\x00\x00":
        yield from _streams("lzma", data, 6, lzma.LZMADecompressor)


def _streams(how: str, data: bytes | memoryview, mark: int, make: Callable[[], Any]) -> Decoded:
    """All streams that begin with the same bytes, so many, as the first."""
    found: list[bytes] = []
    size, rest = 0, data
    while len(rest) and (not found or (mark and rest[:mark] == data[:mark])):
        stream = make()
        try:
            found.append(stream.decompress(rest, LARGEST - size))
        except Exception:
            if not found:
                raise
            break
        size, rest = size + len(found[-1]), stream.unused_data
        full = getattr(stream, "unconsumed_tail", b"") or not getattr(stream, "needs_input", True)
        if size >= LARGEST or (full and not stream.eof):
            yield how, Unread(f"compressed bytes of more than {LARGEST >> 30} GiB")
            break
    yield how, b"".join(found)
    yield f"{how}, rest", bytes(rest)


def _raw_deflate(data: bytes) -> Decoded:
    """A stream without a header; only one that ends where the bytes end counts."""
    if 8 < len(data) <= PACKED:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        found = stream.decompress(data, LARGEST)
        if stream.eof and not stream.unused_data and len(found) > len(data) // 2:
            yield "deflate", found


def _pickle(data: bytes) -> Decoded:
    """Every datum of a pickle, read off its opcodes: nothing is ever loaded.

    Numbers, texts and bytes stand there as arguments, in order. An array of NumPy is a type's name
    (``f8``), a mark for its byte order, and its bytes (which protocol 5 has first); the last type named is what
    they are read as, in the shape that stands near; without one the plain bytes are handed on as well.
    """
    if len(data) > 3 and data[-1:] == b"." and (data[0] == 0x80 or _old(data)):
        yield from (("pickle", found) for found in _arguments(data))


def _old(data: bytes) -> bool:
    """Whether it is a pickle of protocol 0 or 1, which has no mark of its own: all of it reads as one that remembers something."""
    stream = io.BytesIO(data)
    names = {opcode.name for opcode, *_ in pickletools.genops(stream)}
    return stream.tell() == len(data) and not names.isdisjoint(("PUT", "BINPUT"))


def _arguments(data: bytes) -> Iterator[object]:
    numbers: list[float] = []
    columns: dict[int, list[np.ndarray]] = {}  # of pandas, each a matrix of one row
    kind, order, record = "", "<", 0
    steps = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(data)]
    said = [one for (_, one), (name, _) in pairwise(steps) if name == "MEMOIZE"]
    for at, (name, argument) in enumerate(steps):
        if name in _STRUCTURE or argument is None:
            continue
        if isinstance(argument, bool | int | float):
            numbers.append(argument)
            continue
        if isinstance(argument, str):
            named = _TYPE.match(argument)
            kind = named[1] if named else kind
            record = int(kind[1:]) if kind[:1] == "V" else record
            order = argument if argument in ("<", ">") else order
            yield argument
            if argument.isascii() or max(argument) > "\xff":
                continue
            argument = argument.encode("latin-1")  # bytes, before protocol 3
        if isinstance(argument, bytes | bytearray):
            yield from _fields(bytes(argument), record)
            shape = _shape(steps[max(0, at - NEAR) : at])
            if data[1] == 5:  # type and shape follow
                near = list(takewhile(_no_bytes, steps[at + 1 : at + NEAR]))
                types = [_TYPE.match(one) for _, one in near if isinstance(one, str)]
                kind = next((one[1] for one in types if one), kind)
                shape = _shape(near, said) or shape
            for found in _array(bytes(argument), kind, order, shape):
                if isinstance(found, np.ndarray) and found.ndim == 2 and len(found) == 1:
                    columns.setdefault(found.size, []).append(found)
                else:
                    yield found
    yield from map(np.vstack, columns.values())
    yield numbers


def _no_bytes(step: Step) -> bool:
    return not isinstance(step[1], bytes | bytearray)


def _shape(near: Sequence[Step], said: Sequence[object] = ()) -> tuple[int, int] | None:
    """The shape of a matrix of NumPy, as its bytes lie: two whole numbers in a tuple, and whether it is Fortran's.

    Behind the bytes that is a letter, perhaps one that the pickle ``said`` before; in front of them a yes or a no.
    """
    for at in range(len(near) - 1, 1, -1):
        pair = near[at - 2][1], near[at - 1][1]
        if near[at][0] == "TUPLE2" and all(type(one) is int for one in pair):
            rest = [step for step in near[at + 1 :] if step[0] != "MEMOIZE"]
            if said:
                told: object = rest[0][1] if rest else ""
                again = isinstance(told, int) and rest[0][0] == "BINGET" and told < len(said)
                fortran = (said[int(rest[0][1])] if again else told) == "F"
            else:
                fortran = [name for name, _ in rest if name.startswith("NEW")][-1:] == ["NEWTRUE"]
            return (pair[1], pair[0]) if fortran else pair
    return None


def _fields(data: bytes, width: int) -> Iterator[np.ndarray]:
    """Of records of a fixed width, as a tree's nodes are, the fields that are floats by their sizes."""
    if width and width % 8 == 0 and data and len(data) % width == 0:
        words = np.abs(np.frombuffer(data, "<f8").reshape(-1, width // 8))
        floats = (((words > 1e-6) & (words < 1e9)) | (words == 0)).mean(axis=0) > SANE
        floats &= (words > 0).any(axis=0)
        if 0 < floats.sum() < len(floats):
            yield words[:, floats]


def _array(data: bytes, kind: str, order: str, shape: tuple[int, int] | None) -> Iterator[object]:
    """The bytes as numbers of the type that was named last, where they fit, and as they are."""
    if kind and kind[0] in "fiuc" and kind not in ("f1", "c1"):
        width = int(kind[1:])
        if width in (1, 2, 4, 8, 16) and len(data) % width == 0 and len(data) > 0:
            with suppress(TypeError):  # a type that NumPy does not know
                flat = np.frombuffer(data, np.dtype(order + kind))
                if shape and shape[0] * shape[1] == flat.size:  # the type was no guess
                    yield flat.reshape(shape)
                    return
                yield flat
                if width == 1:  # which is taken for bytes too
                    return
    yield data


def _text(data: bytes) -> Decoded:
    coding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    if coding != "utf-8" or not _CONTROL.search(data, 0, HEAD):
        yield "text", data.decode(coding)


def _likely_text(data: bytes) -> Decoded:
    """Text whose encoding is a guess: UTF-16 without a mark; or UTF-8 with zeros between, and bytes of Latin-1."""
    head = np.frombuffer(data[: HEAD & ~1], np.uint8)
    zeros = [float((head[at::2] == 0).mean()) for at in (0, 1) if len(data) % 2 == 0]
    if zeros and min(zeros) < 0.5 < max(zeros):
        found = data.decode("utf-16-le" if zeros[0] < zeros[1] else "utf-16-be")
        if not _CONTROL.search(found[:HEAD].encode()):
            yield LIKELY, found
    elif not _CONTROL.search(data[:HEAD].replace(b"\0", b"")):
        found = data.replace(b"\0", b"\n").decode(errors="surrogateescape")
        if len(_LONE.sub("", found)) > len(data) * (1 - FOREIGN):
            yield LIKELY, _LONE.sub(lambda one: chr(ord(one[0]) - 0xDC00), found)


def _msgpack(data: bytes) -> Decoded:
    """MessagePack whose whole is a container; other bytes are hardly ever one by chance."""
    if data and len(data) <= PACKED and (0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF):
        import msgspec  # not there: these bytes are looked through as they are

        yield "MessagePack", msgspec.msgpack.decode(data)


_DECODERS = (
    *(_numpy, _zip, _tar, _compressed, sqlite_tables, joblib_arrays, _pickle),
    *(_text, _msgpack, _raw_deflate, _likely_text),
)
