"""How a CSV file is written: its separator and its encoding."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from privfed.errors import InputError, did_you_mean


@dataclass(frozen=True)
class Text:
    """How a CSV file is written (InputError: another separator, or no such encoding)."""

    sep: str = ","  #: separator of its columns, one character
    encoding: str = "utf-8"  #: of its text, by Python's name

    def __post_init__(self) -> None:
        if len(self.sep) != 1 or self.sep in '"\r\n':
            raise InputError('sep must be one character; write sep = ";", or "\\t" for tabs')
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InputError(
                f'no encoding {self.encoding!r}; write encoding = "latin-1", "cp1252" or "utf-8"'
                + did_you_mean(self.encoding, ("latin-1", "cp1252", "utf-8", "utf-16"))
            ) from None


PLAIN = Text()  #: Commas and UTF-8
