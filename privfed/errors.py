"""Every error a user can meet: it says what is wrong, where, and what to write instead.

No message carries a raw value of a record; names of columns, clients and policies are public.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import pairwise


class PrivfedError(Exception):
    """Base of all errors raised by privfed on purpose."""


class InputError(PrivfedError):
    """Something the user wrote (file, argument, table) cannot be used.

    Args:
        faults: what is wrong, one text each; most errors have one.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__(*faults)

    @property
    def faults(self) -> tuple[str, ...]:
        """All that is wrong, one text each."""
        return tuple(str(fault) for fault in self.args)

    def __str__(self) -> str:
        if len(self.args) == 1:
            return str(self.args[0])
        return "\n".join([f"{len(self.args)} faults", *(f"- {fault}" for fault in self.faults)])


class SchemaError(InputError):
    """A schema is contradictory, or a table does not fit it."""


class PolicyError(InputError):
    """A policy is contradictory, or asks for a protection that does not exist."""


class StudyError(InputError):
    """A study file is misspelt or incomplete."""


class PluginError(InputError):
    """A name that no installed plugin answers to, or a plugin that breaks its contract."""


class QueryError(PrivfedError):
    """A query that no gate may evaluate: false partition, absurd size, malformed field."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ChannelError(PrivfedError):
    """The client could not be reached this time; the same request may be sent again."""


class WireError(PrivfedError):
    """Bytes that are no message: truncated, oversized, of another type."""


class BudgetError(PrivfedError):
    """A charge that does not fit the budget that is left."""


class UnsupportedLoss(PrivfedError):
    """A loss that an accountant cannot compose soundly."""


class LedgerError(PrivfedError):
    """A ledger that cannot be opened, appended to, or trusted."""


class Note(UserWarning):
    """A remark on releases and public values alone: studies show these, and no other warnings.

    A library's own warning may come from inside a client's gate, and tell something of its records.
    """


class DataWarning(UserWarning):
    """A remark on the records of a simulation, for whoever holds them all: no output keeps it."""


class NobodyAnswered(PrivfedError):
    """No client released anything: a learner stops with what it has.

    ``reasons`` has why gates refused (:class:`~privfed.exchange.messages.Reason`), where all did.
    """

    def __init__(self, message: str, reasons: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.reasons = frozenset(reasons)


class Faults:
    """Collects what is wrong with one file, so that all of it is told at once."""

    def __init__(self) -> None:
        self._found: list[InputError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an InputError for later."""
        try:
            yield
        except InputError as error:
            self._found.append(error)

    def add(self, error: InputError) -> None:
        """Keep one that was never raised."""
        self._found.append(error)

    def tell(self, kind: type[InputError] = InputError) -> None:
        """Raise all that was kept: one as it was, several as one error.

        Args:
            kind: of the error that holds several.
        """
        faults = dict.fromkeys(fault for error in self._found for fault in error.faults)
        if len(self._found) == 1:
            raise self._found[0]
        if len(faults) == 1:
            raise type(self._found[0])(*faults)
        if faults:
            raise kind(*faults)


@contextmanager
def file_errors(
    where: str, done: str = "read", instead: str = "", error: type[PrivfedError] = InputError
) -> Iterator[None]:
    """Raise what the system says of a file as one error: it cannot be ``done``, why, and what to do ``instead``."""
    try:
        yield
    except OSError as fault:
        why = (fault.strerror or type(fault).__name__).lower()
        remedy = f"; {instead}" if instead else ""
        raise error(f"{where}: cannot be {done} ({why}){remedy}") from None


def number_of(count: int, what: str, plural: str = "") -> str:
    """A count with its noun: 1 record, 2 records, 0 queries; ``plural`` where the noun's own is none of these."""
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {plural or (f'{what[:-1]}ies' if what.endswith('y') else f'{what}s')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the name that was meant, to end a message with; empty where none is near."""
    close = get_close_matches(str(name), [str(one) for one in known], 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_column(
    name: str,
    columns: Iterable[object],
    of: str = "in the table; its",
    *,
    listed: bool = True,
    wanted: Iterable[str] = (),
) -> str:
    """The message on a column that a table has not: which there are (if ``listed``), and which may be meant.

    No name is told where the first row may be a record; ``wanted`` are columns that are meant by themselves.
    """
    names = [str(column) for column in columns]
    hint = did_you_mean(name, [each for each in names if each not in {*wanted}])
    if may_be_a_record(names):
        return f"no column {name!r} {of.split(';')[0]}" + (f"; {NO_HEADER}" if listed else "")
    if not listed:
        return f"no column {name!r} {of.split(';')[0]}{hint}"
    # blanks are seen
    shown = [each if each == each.strip() else repr(each) for each in names[:LISTED]]
    more = f" and {number_of(len(names) - LISTED, 'other')}" if len(names) > LISTED else ""
    return f"no column {name!r} {of} columns are {', '.join(shown)}{more}{hint}"


LISTED = 30  #: Most columns that a message names
#: What to do about a table without a header.
NO_HEADER = "its first row holds numbers or dates, as a record does: write a header row with the columns' names above the records"


DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}\b.*")


def may_be_a_record(names: Iterable[object]) -> bool:
    """Whether a table's first row has numbers for names, which do not count its columns (0, 1, 2, ...), or dates.

    A table most of whose columns are called by dates is a series; a first record of words alone cannot be told.
    """
    texts = [str(name) for name in names]
    if 0 < 2 * sum(bool(DATE.fullmatch(text)) for text in texts) <= len(texts):
        return True
    numbers = []
    for name in texts:
        try:
            numbers.append(float(name))
        except ValueError:
            continue
    counted = len(numbers) > 1 and all(after - before == 1 for before, after in pairwise(numbers))
    return bool(numbers) and not counted


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message on a name that is none: which there are, and which may have been meant."""
    names = [str(one) for one in known]
    listed = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names) or 'none'}"
    return f"no {what} {name!r}; {listed}{did_you_mean(name, names)}"
