"""How a CSV file is written: its separator, its encoding, and its numbers."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass

from privfed.errors import InputError, did_you_mean

_EUROPEAN = re.compile(r"[-+]?(?:\d{1,3}(?:[.' \u00a0\u202f\u2019]\d{3})+|\d+)(?:,\d+)?")


@dataclass(frozen=True)
class Text:
    """How a CSV file is written (InputError: another separator, or no such encoding)."""

    sep: str = ","  #: separator of its columns, one character
    encoding: str = "utf-8"  #: of its text, by Python's name
    decimal: str = "."  #: what stands before the decimals of a number
    thousands: str = ""  #: what stands between groups of three digits, if anything

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
            or self.thousands in (self.sep, self.decimal)
        ):
            raise InputError(
                'thousands must be one of . , \' or a space, and neither sep nor decimal; write thousands = "."'
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InputError(
                f'no encoding {self.encoding!r}; write encoding = "latin-1", "cp1252" or "utf-8"'
                + did_you_mean(self.encoding, ("latin-1", "cp1252", "utf-8", "utf-16"))
            ) from None


PLAIN = Text()  #: Commas, UTF-8, and points before decimals


def looks_european(cells: Iterable[str]) -> bool:
    """Whether texts are numbers once a comma is read as what stands before the decimals."""
    texts = [cell.strip() for cell in cells if cell.strip()]
    return any("," in text for text in texts) and all(_EUROPEAN.fullmatch(text) for text in texts)
