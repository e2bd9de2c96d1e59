"""Errors for users: what is wrong, where, and what to write instead.

No message carries a raw value of a record; names of columns, clients and policies are public.
"""

import re
import warnings
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
        """All faults, one text each."""
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
    """No installed plugin has this name, or a plugin breaks its contract."""


class QueryError(PrivfedError):
    """A query that no gate may evaluate: false partition, absurd size, malformed field."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ChannelError(PrivfedError):
    """The client could not be reached this time; the same request may be sent again."""


class WireError(PrivfedError):
    """Bytes that cannot be decoded as a message: truncated, oversized, of another type."""


class BudgetError(PrivfedError):
    """A charge that exceeds the remaining budget."""


class UnsupportedLoss(PrivfedError):
    """A loss that an accountant cannot compose soundly."""


class LedgerError(PrivfedError):
    """A ledger that cannot be opened, appended to, or trusted."""


class Note(UserWarning):
    """A remark on releases and public values alone: studies show these, and no other warnings.

    A library's own warning may come from inside a client's gate, and reveal something about its records.
    """


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """Yield a list that holds the notes' texts afterwards, each once; no warning of the block is shown."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Note)
        yield notes
    notes += dict.fromkeys(str(item.message) for item in caught if issubclass(item.category, Note))


def small_budget(noise: float) -> str:
    """Return the text of a :class:`Note` where noise could explain as many records as there seem to be."""
    return (
        f"the noise of all counts could amount to {noise:.0f} records: the budget is too small for so few records, and "
        "the model may be worse than a constant"
    )


class DataWarning(UserWarning):
    """A remark on the records of a simulation, for their holder only: never written to an output."""


class NobodyAnswered(PrivfedError):
    """No client released anything: a learner stops with what it has.

    ``reasons``: why the gates refused (:class:`~privfed.exchange.messages.Reason`), if all did.
    """

    def __init__(self, message: str, reasons: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.reasons = frozenset(reasons)


class Faults:
    """Collects the faults of one file, to report all of them at once."""

    def __init__(self) -> None:
        self._errors: list[InputError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an InputError for later."""
        try:
            yield
        except InputError as error:
            self._errors.append(error)

    def add(self, error: InputError) -> None:
        """Keep an error that was not raised."""
        self._errors.append(error)

    def tell(self, kind: type[InputError] = InputError) -> None:
        """Raise what was kept: a single error unmodified, several as one error.

        Args:
            kind: class of the error for several faults.
        """
        faults = dict.fromkeys(fault for error in self._errors for fault in error.faults)
        if len(self._errors) == 1:
            raise self._errors[0]
        if len(faults) == 1:
            raise type(self._errors[0])(*faults)
        if faults:
            raise kind(*faults)


@contextmanager
def file_errors(
    where: str, done: str = "read", instead: str = "", error: type[PrivfedError] = InputError
) -> Iterator[None]:
    """Convert an OSError to ``error``: the file cannot be ``done``, why, and what to do ``instead``."""
    try:
        yield
    except OSError as fault:
        why = (fault.strerror or type(fault).__name__).lower()
        remedy = f"; {instead}" if instead else ""
        raise error(f"{where}: cannot be {done} ({why}){remedy}") from None


def number_of(count: int, what: str, plural: str = "") -> str:
    """Format a count with its noun: 1 record, 2 records, 0 queries; ``plural`` for irregular nouns."""
    if count == 1:
        return f"1 {what}"
    return f"{count:,} {plural or (f'{what[:-1]}ies' if what.endswith('y') else f'{what}s')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint at the closest known name, to append to a message; empty if none is close."""
    close = get_close_matches(str(name), [str(candidate) for candidate in known], 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_column(
    name: str,
    columns: Iterable[object],
    of: str = "in the table; its",
    *,
    listed: bool = True,
    required: Iterable[str] = (),
) -> str:
    """Format the message on a missing column: the existing columns (if ``listed``), and the closest one.

    Lists no names if the first row may be a record. ``required`` columns are never suggested.
    """
    names = [str(column) for column in columns]
    hint = did_you_mean(name, [label for label in names if label not in {*required}])
    if may_be_a_record(names):
        return f"no column {name!r} {of.split(';')[0]}" + (f"; {NO_HEADER}" if listed else "")
    if not listed:
        return f"no column {name!r} {of.split(';')[0]}{hint}"
    # blanks are seen
    shown = [label if label == label.strip() else repr(label) for label in names[:LISTED]]
    more = f" and {number_of(len(names) - LISTED, 'other')}" if len(names) > LISTED else ""
    return f"no column {name!r} {of} columns are {', '.join(shown)}{more}{hint}"


LISTED = 30  #: Maximum columns that a message names
#: What to do about a table without a header.
NO_HEADER = "its first row holds numbers or dates, as a record does: write a header row with the columns' names above the records"


DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}\b.*")


def may_be_a_record(names: Iterable[object]) -> bool:
    """Whether a table's first row has dates, or numbers that do not count its columns (0, 1, 2, ...).

    If most columns are named by dates, the table is a time series. A first record of words is not detected.
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
    """Format the message on an unknown name: the known ones, and the closest one."""
    names = [str(candidate) for candidate in known]
    listed = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names) or 'none'}"
    return f"no {what} {name!r}; {listed}{did_you_mean(name, names)}"
