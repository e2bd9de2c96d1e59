"""The format of a CSV file: separator, encoding and numbers; and its detection."""

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from zipfile import BadZipFile, ZipFile

from privfed.errors import InputError, did_you_mean, number_of

WRITTEN = (".csv", ".csv.gz", ".zip")  #: Endings of CSV files
FILES = (*WRITTEN, ".xlsx")  #: Endings of supported files
#: Name of the study's table with the format of text.
PLACE = "(under [data] of a study, at the top of an owner's file)"
LOOKED_AT = 1 << 18  #: Bytes from which a file's format is detected
_EUROPEAN = re.compile(r"[-+]?(?:\d{1,3}(?:[.' \u00a0\u202f\u2019]\d{3})+|\d+)(?:,\d+)?")
_ENGLISH = re.compile(r"[-+]?(?:\d{1,3}(?:[,' \u00a0\u202f\u2019]\d{3})+|\d+)(?:\.\d+)?")


@dataclass(frozen=True)
class Text:
    """The format of a CSV file (InputError: unsupported separator, or unknown encoding)."""

    sep: str = ","  #: separator of its columns, one character
    encoding: str = "utf-8"  #: of its text, a Python codec
    decimal: str = "."  #: decimal separator
    thousands: str = ""  #: separator of groups of three digits, or empty

    def __post_init__(self) -> None:
        if len(self.sep) != 1 or self.sep in '"\r\n':
            raise InputError('sep must be one character; write sep = ";", or "\\t" for tabs')
        if self.decimal not in (".", ",") or self.decimal == self.sep:
            raise InputError(
                'decimal must be "." or ",", and not what splits the columns; write decimal = "," and '
                'sep = ";"'
            )
        if self.thousands and (
            self.thousands not in (".", ",", " ", "'", "\u00a0", "\u202f", "\u2019")
            or self.thousands == self.decimal
        ):
            raise InputError(
                'thousands must be one of . , \' or a space, and not decimal; write thousands = "."'
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InputError(
                f'no encoding {self.encoding!r}; write encoding = "latin-1", "cp1252" or "utf-8"'
                + did_you_mean(self.encoding, ("latin-1", "cp1252", "utf-8", "utf-16"))
            ) from None

    @property
    def grouped(self) -> str:
        """Return a regular expression of a number with optional thousands separators."""
        group, decimal = re.escape(self.thousands), re.escape(self.decimal)
        return rf"\s*[-+]?(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{decimal}\d+)?\s*"


PLAIN = Text()  #: Comma-separated, UTF-8, decimal points


def looks_european(cells: Iterable[str]) -> bool:
    """Whether texts are numbers if a comma is the decimal separator."""
    texts = [cell.strip() for cell in cells if cell.strip()]
    return any("," in text for text in texts) and all(_EUROPEAN.fullmatch(text) for text in texts)


def comma_remedy(cells: Iterable[str]) -> str:
    """Return a remedy if texts would be numbers with decimal commas; else empty."""
    texts = [cell.strip() for cell in cells if cell.strip()]
    grouped = any("," in text for text in texts) and all(map(_ENGLISH.fullmatch, texts))
    remedy = 'they have commas between groups of three digits: write thousands = ","' * grouped
    if looks_european(texts):
        remedy += (
            ", or " * grouped
        ) + 'they have commas before their decimals: write decimal = ","'
    return f"{remedy} {PLACE}" if remedy else ""


@contextmanager
def _opened_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressing a ``.gz`` or a ``.zip`` of one file."""
    with ExitStack() as stack:
        if path.suffix == ".gz":
            yield cast(IO[bytes], stack.enter_context(gzip.open(path)))
        elif path.suffix == ".zip":
            try:
                archive = stack.enter_context(ZipFile(path))
            except BadZipFile:
                raise InputError(
                    f"data file {path}: is not a zip archive; create it again"
                ) from None
            names = [name for name in archive.namelist() if not name.endswith("/")]
            names = [name for name in names if not name.startswith("__MACOSX/")]
            if len(names) != 1:
                raise InputError(
                    f"data file {path}: holds {number_of(len(names), 'file')}; keep the table in it alone"
                )
            yield stack.enter_context(archive.open(names[0]))
        else:
            yield stack.enter_context(path.open("rb"))


@contextmanager
def opened(path: Path, encoding: str) -> Iterator[IO[str]]:
    """Open a CSV file for reading: plain, ``.gz``, or the one file of a ``.zip`` (InputError)."""
    with _opened_bytes(path) as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as lines:
        yield lines


def proposed(path: Path) -> Text:
    """Detect a file's format from its first ``LOOKED_AT`` bytes (OSError, InputError)."""
    with _opened_bytes(path) as raw:
        sample = raw.read(LOOKED_AT)
    encoding = _encoding(sample)
    lines = sample.decode(encoding, errors="ignore").splitlines()
    lines = lines if len(sample) < LOOKED_AT else lines[:-1]
    sep = _separator(lines)
    table = [cells for cells in csv.reader(lines, delimiter=sep) if cells]
    columns = [
        [cell.strip() for cell in column if cell.strip()]
        for column in zip(
            *(cells for cells in table[1:] if len(cells) == len(table[0])), strict=True
        )
    ]
    decimal = "," if sep != "," and any(map(looks_european, columns)) else "."
    number = _EUROPEAN if decimal == "," else _ENGLISH
    groups = {
        group
        for column in columns
        if all(map(number.fullmatch, column))
        for cell in column
        for group in re.findall(r"(?<=\d)[^\d](?=\d{3}(?!\d))", cell.split(decimal)[0])
    }
    return Text(sep, encoding, decimal, groups.pop() if len(groups) == 1 else "")


def _encoding(sample: bytes) -> str:
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _separator(lines: list[str]) -> str:
    """Return the separator that splits most lines into as many columns as the header; default comma."""

    def agreeing(sep: str) -> tuple[int, int]:
        sizes = [len(cells) for cells in csv.reader(lines, delimiter=sep) if cells]
        if not sizes or sizes[0] == 1:
            return 0, 0
        return sum(size == sizes[0] for size in sizes), sizes[0]

    return max(",;\t|", key=agreeing)
