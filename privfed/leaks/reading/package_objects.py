"""Reads objects of other libraries without importing the libraries."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from privfed.leaks.reading.leaf import CELLS, ROWS, RowText

#: Parts of an object: expression that reaches each, and the part.
Parts = Iterator[tuple[str, object]]


def reader_of(thing: object) -> Callable[[Any], Parts] | None:
    """Return the reader for an object, by its classes' qualified names; None if there is none."""
    for cls in type(thing).__mro__:
        module = cls.__module__.split(".")[0]
        reader = READERS.get(f"{module}.{cls.__qualname__}")
        if reader is not None:
            return reader
    return None


def _frame(frame: Any) -> Parts:
    """Yield a table's numeric columns as one array, its other columns, index and names."""
    kinds = [getattr(dtype, "kind", "O") for dtype in frame.dtypes]
    numeric = [index for index, kind in enumerate(kinds) if kind in "fiub"]
    if len(numeric) > 1:
        yield ".iloc[:, numeric]", _numeric_array(frame.iloc[:, numeric])
    for index in range(frame.shape[1]):
        if len(numeric) < 2 or index not in numeric:
            yield from _series_values(f".iloc[:, {index}]", frame.iloc[:, index])
    if len(numeric) < frame.shape[1] <= CELLS and len(frame) <= ROWS:
        names = [str(name) for name in frame.columns]
        lines = (zip(names, row, strict=True) for row in frame.itertuples(index=False, name=None))
        yield ".rows", RowText("\n".join("; ".join(f"{k}={v}" for k, v in r) for r in lines))
    yield ".columns", list(frame.columns)
    yield from _index(frame.index)
    if frame.attrs:
        yield ".attrs", {name: value for name, value in frame.attrs.items() if name != "sentinels"}


def _numeric_array(frame: Any) -> np.ndarray:
    """Numbers of one type, with missing ones as NaN."""
    if frame.isna().any(axis=None):
        return np.asarray(frame.to_numpy(dtype=float, na_value=np.nan))
    array = np.asarray(frame.to_numpy())
    return array if array.dtype != object else np.asarray(frame.to_numpy(dtype=float))


def _series(series: Any) -> Parts:
    yield from _series_values(".values", series)
    yield ".name", series.name
    yield from _index(series.index)


def _series_values(path: str, series: Any) -> Parts:
    if hasattr(series, "cat"):
        yield f"{path} codes", np.asarray(series.cat.codes)
        yield f"{path} categories", list(series.cat.categories)
    elif getattr(series.dtype, "kind", "O") in "fiub":
        yield path, _numeric_array(series.to_frame()).ravel()
    elif getattr(series.dtype, "kind", "O") == "M":
        local = series.dt.tz_localize(None) if getattr(series.dtype, "tz", None) else series
        yield path, np.asarray(local.to_numpy(dtype="datetime64[ns]"))
    else:
        yield path, list(series)


def _index(index: Any) -> Parts:
    """Yield an index, unless it only counts the rows."""
    if type(index).__name__ != "RangeIndex":
        yield ".index", list(index)
        yield ".index.names", list(index.names)


def _categorical(categorical: Any) -> Parts:
    yield ".codes", np.asarray(categorical.codes)
    yield ".categories", list(categorical.categories)


def _as_list(array: Any) -> Parts:
    yield "", list(array)


def _tensor(tensor: Any) -> Parts:
    dense = tensor.detach().cpu()
    if dense.is_sparse or dense.layout != dense.new_empty(0).layout:
        dense = dense.to_dense()
    kind = str(dense.dtype)
    yield "", np.asarray(dense.float() if "bfloat16" in kind or "float8" in kind else dense)


def _log_record(record: logging.LogRecord) -> Parts:
    """Yield a record's message, arguments and extra fields; no line numbers, times or processes."""
    standard = vars(logging.LogRecord("", 0, "", 0, "", (), None))
    try:
        yield ".getMessage()", record.getMessage()
    except (TypeError, ValueError):  # arguments that do not fit their text
        yield ".getMessage()", str(record.msg)
    yield ".args", record.args
    yield ".exc_text", record.exc_text
    if record.exc_info and record.exc_info[1] is not None:
        yield ".exc_info", record.exc_info[1]
    yield "", {name: value for name, value in vars(record).items() if name not in standard}


def _caplog(caplog: Any) -> Parts:
    """Yield records logged during the test and its fixtures' setup."""
    yield ".records", [r for when in ("setup", "call") for r in caplog.get_records(when)]


def _attribute(name: str, thing: Any) -> Parts:
    """Yield one attribute: the others hold no data."""
    yield f".{name}", getattr(thing, name)


def _exception(error: BaseException) -> Parts:
    """Yield an exception's text, attributes and chained exceptions; never its frames."""
    yield ", its text", str(error)
    yield ".args", list(error.args)
    state = {name: value for name, value in vars(error).items() if name != "__notes__"}
    yield "", state
    yield ".__notes__", getattr(error, "__notes__", [])
    yield ".__cause__", error.__cause__
    yield ".__context__", error.__context__
    yield ".exceptions", list(getattr(error, "exceptions", ()))


def _response(response: Any) -> Parts:
    """Yield an HTTP response's body as bytes, headers and URL."""
    if hasattr(response, "content"):
        yield ".content", response.content
    else:
        yield ".get_data()", response.get_data()
    yield ".headers", dict(response.headers)
    yield ".url", str(getattr(response, "url", ""))


def _request(request: Any) -> Parts:
    for name in ("url", "full_url", "headers", "body", "data", "content"):
        value = getattr(request, name, None)
        if not callable(value):
            yield f".{name}", dict(value) if name == "headers" and value is not None else value


def _mock(mock: Any) -> Parts:
    """Yield the arguments of all calls."""
    yield ".mock_calls", [(name, arguments, named) for name, arguments, named in mock.mock_calls]


def _released_part(part: Any) -> Parts:
    values = np.asarray(part.values.data)
    artifact = part.type == "artifact" and values.dtype.kind in "ui"
    yield ".values", values.astype(np.uint8).tobytes() if artifact else values


READERS: dict[str, Callable[[Any], Parts]] = {
    "pandas.DataFrame": _frame,
    "pandas.Series": _series,
    "pandas.Index": _as_list,
    "pandas.Categorical": _categorical,
    "pandas.ExtensionArray": _as_list,
    "torch.Tensor": _tensor,
    "torch._C.TensorBase": _tensor,
    "logging.LogRecord": _log_record,
    "_pytest.LogCaptureFixture": _caplog,
    "_pytest.ExceptionInfo": partial(_attribute, "value"),
    "warnings.WarningMessage": partial(_attribute, "message"),
    "unittest.NonCallableMock": _mock,
    "builtins.BaseException": _exception,
    "requests.Response": _response,
    "httpx.Response": _response,
    "werkzeug.Response": _response,
    "django.HttpResponse": _response,
    "requests.Request": _request,
    "requests.PreparedRequest": _request,
    "httpx.Request": _request,
    "urllib.Request": _request,
    # the query, ids and digests of requests come from the server
    "privfed.TranscriptEntry": partial(_attribute, "release"),
    "privfed.Release": partial(_attribute, "parts"),
    "privfed.ReleasedPart": _released_part,
    # a generator's state holds random numbers, no data
    **dict.fromkeys(
        ("numpy.Generator", "numpy.RandomState", "numpy.BitGenerator"), lambda _: iter(())
    ),
}
