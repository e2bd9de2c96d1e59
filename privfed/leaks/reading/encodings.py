"""Decodes bytes: archives, compression, NumPy files, databases, pickles, MessagePack, text.

Decoders are tried in turn, up to the first that succeeds. Nothing in the bytes is executed, and nothing
is unpacked beyond ``LARGEST`` bytes.
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
from privfed.leaks.reading.stored import arrow_tables, joblib_arrays, sqlite_tables, stata_tables

LARGEST = 1 << 30  #: Most bytes that anything is unpacked to
PLACES = 4000  #: Most offsets in unknown bytes at which a compressed stream is tried
PROBED = 1024  #: Bytes of a stream that are tried first
PACKED = 1 << 26  #: Most bytes that are tried as MessagePack or raw deflate
SANE = 0.9  #: Fraction of plausible numbers from which bytes are read as floats
_STREAMS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b\x08")
#: Byte order marks of text encodings, the longer ones first.
_MARKS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
#: Control characters that texts do not contain; a terminal's bell, backspace and escape are allowed.
_CONTROL = re.compile(rb"[\0-\x06\x0e-\x1a\x1c-\x1f]")
_LONE = re.compile("[\udc80-\udcff]")  #: A byte that is not UTF-8, as a surrogate escape
FOREIGN = 0.25  #: Largest fraction of bytes that are not UTF-8 in a text, such as accented Latin-1 letters
#: Text in unknown bytes: a run of this many printable ones occurs by chance once in 10 MB.
_PRINTED = re.compile(rb"[\t\n\r -~]{16,}")
#: Opcodes whose argument is not data: names of modules, classes, memo slots, frames, versions.
_STRUCTURE = {"PROTO", "FRAME", "GLOBAL", "INST", "PUT", "BINPUT", "LONG_BINPUT"}
_STRUCTURE |= {"GET", "BINGET", "LONG_BINGET", "EXT1", "EXT2", "EXT4"}
_TYPE = re.compile(r"^[<>|=]?([fiucV][0-9]{1,2})$")

HEAD = 4096  #: First bytes of a text, without control characters
LIKELY = "likely text"  #: Name of an encoding that is a guess: the bytes may also be numbers
NEAR = 40  #: Distance, in opcodes, within which an array's type and shape are from its bytes
Step = tuple[str, Any]  #: An opcode's name and argument
Decoded = Iterator[tuple[str, object]]  #: Name of the encoding, and content


def decoded(data: bytes) -> Decoded:
    """Yield the contents of bytes by the first decoder that succeeds, if any."""
    for decoder in _DECODERS:
        contents = list(_safely(decoder, data))
        if contents:
            yield from contents
            return


def streams_inside(data: bytes) -> Decoded:
    """Yield compressed streams and NumPy files at any offset inside bytes."""
    n_tried, view = 0, memoryview(data)  # slices of bytes would be copies
    for mark in (*_STREAMS, b"\x93NUMPY"):
        offset = data.find(mark, 1)
        while offset >= 0 and n_tried < PLACES:
            n_tried += 1
            name = f"bytes from {offset}"
            probed = list(_safely(_compressed, view[offset : offset + PROBED]))
            if mark[0] != 0x93 and not probed:  # a failed attempt would copy the rest
                offset = data.find(mark, offset + 1)
                continue
            for codec, part in _safely(_numpy if mark[0] == 0x93 else _compressed, view[offset:]):
                if not codec.endswith(", rest"):  # the rest is searched by this loop
                    yield f"{name}, {codec}", part
            offset = data.find(mark, offset + 1)


def texts_inside(data: bytes) -> Decoded:
    """Yield printable text inside unknown bytes, such as an image's comment."""
    if texts := _PRINTED.findall(data):
        yield "its texts", b"\n".join(texts).decode("ascii")


def _safely(decoder: Callable[[Any], Decoded], data: bytes | memoryview) -> Decoded:
    """Yield what a decoder returns; any exception means that the bytes have another encoding."""
    try:
        yield from decoder(data)
    except Exception:  # noqa: BLE001  # a malformed file raises anything
        return


def _numpy(data: bytes | memoryview) -> Decoded:
    if data[:6] == b"\x93NUMPY":
        stream = io.BytesIO(data)
        major, minor = np.lib.format.read_magic(stream)
        read_header = getattr(np.lib.format, f"read_array_header_{major}_{minor}")
        shape, fortran, dtype = read_header(stream)
        body = memoryview(data)[stream.tell() :]
        if dtype.hasobject:
            yield "NumPy file", bytes(body)
            return
        count = int(np.prod(shape, dtype=np.int64))
        flat = np.frombuffer(body, dtype, count=count)
        yield "NumPy file", flat.reshape(shape, order="F" if fortran else "C")
        if flat.nbytes < len(body):
            yield "NumPy file, rest", bytes(body[flat.nbytes :])


def _zip(data: bytes) -> Decoded:
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            yield "zip, its names", "\n".join(info.filename for info in entries)
            yield "zip, its comment", archive.comment
            for info in entries:
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
    """Yield an entry of an archive, or :class:`Unread` if it is encrypted, broken or too large."""
    content: object = Unread(f"entry of a {archive} file, too large, encrypted or broken")
    if size <= LARGEST:
        with suppress(Exception):
            content = read()
    yield f"{archive} entry {name!r}", content


def _compressed(data: bytes | memoryview) -> Decoded:
    """Yield consecutive compressed streams, the last possibly truncated, and the bytes after them."""
    if data[:3] == b"\x1f\x8b\x08":
        yield from _streams("gzip", data, 3, partial(zlib.decompressobj, zlib.MAX_WBITS | 16))
    elif len(data) > 5 and data[0] & 15 == 8 and (data[0] * 256 + data[1]) % 31 == 0:
        yield from _streams("zlib", data, 0, zlib.decompressobj)
    elif data[:3] == b"BZh":
        yield from _streams("bz2", data, 3, bz2.BZ2Decompressor)
    elif data[:6] == b"\xfd7zXZ\x00" or data[:3] == b"\x5d\x00\x00":
        yield from _streams("lzma", data, 6, lzma.LZMADecompressor)


def _streams(codec: str, data: bytes | memoryview, mark: int, make: Callable[[], Any]) -> Decoded:
    """Yield all streams that begin with the same ``mark`` bytes as the first, joined, and the rest."""
    chunks: list[bytes] = []
    size, remaining = 0, data
    while len(remaining) and (not chunks or (mark and remaining[:mark] == data[:mark])):
        stream = make()
        try:
            chunks.append(stream.decompress(remaining, LARGEST - size))
        except Exception:
            if not chunks:
                raise
            break
        size, remaining = size + len(chunks[-1]), stream.unused_data
        full = getattr(stream, "unconsumed_tail", b"") or not getattr(stream, "needs_input", True)
        if size >= LARGEST or (full and not stream.eof):
            yield codec, Unread(f"compressed bytes of more than {LARGEST >> 30} GiB")
            break
    yield codec, b"".join(chunks)
    yield f"{codec}, rest", bytes(remaining)


def _raw_deflate(data: bytes) -> Decoded:
    """Yield a stream without a header, if it ends where the bytes end."""
    if 8 < len(data) <= PACKED:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        content = stream.decompress(data, LARGEST)
        if stream.eof and not stream.unused_data and len(content) > len(data) // 2:
            yield "deflate", content


def _pickle(data: bytes) -> Decoded:
    """Yield all data of a pickle, read from its opcodes: nothing is loaded.

    Numbers, texts and bytes are arguments, in order. A NumPy array is a type's name (``f8``), a byte order
    mark and its bytes (first in protocol 5); it is read as the last type named, in the nearest shape.
    Without a shape the bytes are yielded too.
    """
    if len(data) > 3 and data[-1:] == b"." and (data[0] == 0x80 or _old(data)):
        yield from (("pickle", content) for content in _arguments(data))


def _old(data: bytes) -> bool:
    """Whether bytes are a pickle of protocol 0 or 1, which has no header: they parse completely and use the memo."""
    stream = io.BytesIO(data)
    names = {opcode.name for opcode, *_ in pickletools.genops(stream)}
    return stream.tell() == len(data) and not names.isdisjoint(("PUT", "BINPUT"))


def _arguments(data: bytes) -> Iterator[object]:
    numbers: list[float] = []
    columns: dict[int, list[np.ndarray]] = {}  # of pandas, each a matrix of one row
    kind, order, record = "", "<", 0
    steps = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(data)]
    memo = [value for (_, value), (name, _) in pairwise(steps) if name == "MEMOIZE"]
    for index, (name, argument) in enumerate(steps):
        if name in _STRUCTURE or argument is None:
            continue
        if isinstance(argument, bool | int | float):
            numbers.append(argument)
            continue
        if isinstance(argument, str):
            match = _TYPE.match(argument)
            kind = match[1] if match else kind
            record = int(kind[1:]) if kind[:1] == "V" else record
            order = argument if argument in ("<", ">") else order
            yield argument
            if argument.isascii() or max(argument) > "\xff":
                continue
            argument = argument.encode("latin-1")  # bytes, before protocol 3
        if isinstance(argument, bytes | bytearray):
            yield from _fields(bytes(argument), record)
            shape = _shape(steps[max(0, index - NEAR) : index])
            if data[1] == 5:  # type and shape follow
                near = steps[index + 1 : index + NEAR]
                following = list(takewhile(lambda s: not isinstance(s[1], bytes | bytearray), near))
                types = [_TYPE.match(name) for _, name in following if isinstance(name, str)]
                kind = next((m[1] for m in types if m), kind)
                shape = _shape(following, memo) or shape
            for content in _array(bytes(argument), kind, order, shape):
                if isinstance(content, np.ndarray) and content.ndim == 2 and len(content) == 1:
                    columns.setdefault(content.size, []).append(content)
                else:
                    yield content
    yield from map(np.vstack, columns.values())
    yield numbers


def _shape(near: Sequence[Step], memo: Sequence[object] = ()) -> tuple[int, int] | None:
    """Shape of a NumPy matrix in memory order: two integers in a tuple, and whether it is in Fortran order.

    After the bytes, the order is a letter, possibly in the pickle's ``memo``; before them it is a boolean.
    """
    for index in range(len(near) - 1, 1, -1):
        pair = near[index - 2][1], near[index - 1][1]
        if near[index][0] == "TUPLE2" and all(type(number) is int for number in pair):
            after = [step for step in near[index + 1 :] if step[0] != "MEMOIZE"]
            if memo:
                letter: object = after[0][1] if after else ""
                is_memo = isinstance(letter, int) and after[0][0] == "BINGET" and letter < len(memo)
                fortran = (memo[int(after[0][1])] if is_memo else letter) == "F"
            else:
                fortran = [name for name, _ in after if name.startswith("NEW")][-1:] == ["NEWTRUE"]
            return (pair[1], pair[0]) if fortran else pair
    return None


def _fields(data: bytes, width: int) -> Iterator[np.ndarray]:
    """Yield the fields with sizes of floats of fixed-width records, such as a tree's nodes."""
    if width and width % 8 == 0 and data and len(data) % width == 0:
        words = np.abs(np.frombuffer(data, "<f8").reshape(-1, width // 8))
        floats = (((words > 1e-6) & (words < 1e9)) | (words == 0)).mean(axis=0) > SANE
        floats &= (words > 0).any(axis=0)
        if 0 < floats.sum() < len(floats):
            yield words[:, floats]


def _array(data: bytes, kind: str, order: str, shape: tuple[int, int] | None) -> Iterator[object]:
    """Yield bytes as numbers of the last named type, if their length fits; otherwise, or if uncertain, as bytes."""
    if kind and kind[0] in "fiuc" and kind not in ("f1", "c1"):
        width = int(kind[1:])
        if width in (1, 2, 4, 8, 16) and len(data) % width == 0 and len(data) > 0:
            with suppress(TypeError):  # a type that NumPy does not know
                flat = np.frombuffer(data, np.dtype(order + kind))
                if shape and shape[0] * shape[1] == flat.size:  # the type is certain
                    yield flat.reshape(shape)
                    return
                yield flat
                if width == 1:  # read as bytes by the caller
                    return
    yield data


def _text(data: bytes) -> Decoded:
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    if encoding != "utf-8" or not _CONTROL.search(data, 0, HEAD):
        yield "text", data.decode(encoding)


def _likely_text(data: bytes) -> Decoded:
    """Yield text in a guessed encoding: UTF-16 without a byte order mark, or UTF-8 with zeros or Latin-1 bytes."""
    head = np.frombuffer(data[: HEAD & ~1], np.uint8)
    zeros = [float((head[phase::2] == 0).mean()) for phase in (0, 1) if len(data) % 2 == 0]
    if zeros and min(zeros) < 0.5 < max(zeros):
        text = data.decode("utf-16-le" if zeros[0] < zeros[1] else "utf-16-be")
        if not _CONTROL.search(text[:HEAD].encode()):
            yield LIKELY, text
    elif not _CONTROL.search(data[:HEAD].replace(b"\0", b"")):
        text = data.replace(b"\0", b"\n").decode(errors="surrogateescape")
        if len(_LONE.sub("", text)) > len(data) * (1 - FOREIGN):
            yield LIKELY, _LONE.sub(lambda match: chr(ord(match[0]) - 0xDC00), text)


def _msgpack(data: bytes) -> Decoded:
    """Yield MessagePack that is one container, which other bytes rarely are by chance."""
    if data and len(data) <= PACKED and (0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF):
        import msgspec  # if missing, the bytes are searched undecoded

        yield "MessagePack", msgspec.msgpack.decode(data)


_DECODERS = (
    *(_numpy, _zip, _tar, _compressed),
    *(sqlite_tables, arrow_tables, stata_tables, joblib_arrays, _pickle),
    *(_text, _msgpack, _raw_deflate, _likely_text),
)
