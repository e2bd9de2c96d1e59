"""Adapters of several frameworks' guards to one type of function, from arrays to released arrays.

A guard's name is ``flower:MODULE:NAME`` (a mod of a ClientApp), ``flare:MODULE:CLASS`` (a DXO filter) or
``python:MODULE:CALLABLE`` (a function of a list of arrays or, with a table, of a frame).
"""

import inspect
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from sysconfig import get_paths
from traceback import extract_tb
from typing import Any

import numpy as np

from privfed.errors import InputError

#: Input of a guard: a model's update, or a table.
Given = Any
#: One run of a guard, with its state over rounds: returns what is released, or None.
Answering = Callable[[Given], list[np.ndarray] | None]
#: Starts a new run without state.
Opening = Callable[[], Answering]
#: Maximum seconds of one answer.
PATIENCE = 5.0
#: Folders that do not contain a guard's own code, unless it is a library's.
_LIBRARIES = tuple(get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
#: Key of the update in a message.
PLACE = "arrays"


def open_guard(spec: str, options: Mapping[str, Any] | None = None) -> Opening:
    """Load a guard by name; each call of the result starts a new run without state.

    Args:
        spec: ``STACK:MODULE:NAME``.
        options: arguments of the class, or of the function that creates guards.

    Raises:
        InputError: there is no such guard, or its framework is not installed.
    """
    stack, _, rest = spec.partition(":")
    module, _, name = rest.partition(":")
    if stack not in ADAPTERS or not module or not name:
        raise InputError(
            f"guard {spec!r}: write flower:MODULE:NAME, flare:MODULE:CLASS or python:MODULE:CALLABLE"
        )
    try:
        target = getattr(import_module(module), name)
    except ImportError as error:
        needs = f"; it needs {error.name!r}" if error.name not in (None, module) else ""
        raise InputError(
            f"guard {spec!r}: module {module!r} cannot be imported here{needs}"
        ) from None
    except AttributeError:
        raise InputError(f"guard {spec!r}: module {module!r} has no {name!r}") from None
    adapter = ADAPTERS[stack]
    return lambda: adapter(_new(target, options))


def _new(target: Any, options: Mapping[str, Any] | None) -> Any:
    """Return a guard without state: call a class, copy an object with state."""
    if inspect.isclass(target) or options is not None:
        return target(**(options or {}))
    return deepcopy(target)


def _python(call: Any) -> Answering:
    def answer(given: Given) -> list[np.ndarray] | None:
        arrays = isinstance(given, list)
        released = call([np.array(each) for each in given] if arrays else deepcopy(given))
        return None if released is None else arrays_of(released)

    return answer


def arrays_of(released: Any) -> list[np.ndarray]:
    """Convert a release to a list of arrays: a list, a mapping, a frame, or one array or number."""
    if isinstance(released, Mapping):
        return [np.asarray(array, float) for array in released.values()]
    if isinstance(released, Sequence) and not isinstance(released, str | bytes):
        return [np.asarray(array) for array in released]
    return [np.asarray(released)]


def _flower(mod: Any) -> Answering:
    """Adapt a mod around an app that trained the update; the model it received is all zero.

    Outside of its own processes, Flower creates messages only if a task's identity is set.
    """
    from flwr import app
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    context, number = app.Context(1, 1, {}, app.RecordDict(), {}), count(1)

    def record(arrays: Sequence[np.ndarray]) -> app.RecordDict:
        named = {str(index): app.Array(np.asarray(array)) for index, array in enumerate(arrays)}
        return app.RecordDict({PLACE: app.ArrayRecord(named)})

    def answer(given: Given) -> list[np.ndarray] | None:
        def trained(message: app.Message, _: app.Context) -> app.Message:
            update = record(given)
            update["metrics"] = app.MetricRecord({"num-examples": 1})
            return app.Message(update, reply_to=message)

        content = record([np.zeros_like(value) for value in given])
        content["config"] = app.ConfigRecord({"server-round": next(number)})
        request = app.Message(content, 1, "train")
        response = mod(request, context, trained)
        if not response.has_content() or not response.content.array_records:
            return None
        records = response.content.array_records.values()
        return [array for value in records for array in value.to_numpy_ndarrays()]

    return answer


def _flare(dxo_filter: Any) -> Answering:
    from nvflare.apis.dxo import DXO, DataKind, MetaKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable

    logging.getLogger(type(dxo_filter).__name__).setLevel(logging.ERROR)
    dxo_filter.logger.setLevel(logging.ERROR)
    number = count(1)

    def answer(given: Given) -> list[np.ndarray] | None:
        data = {str(index): np.array(array) for index, array in enumerate(given)}
        dxo = DXO(DataKind.WEIGHT_DIFF, data=data)
        shareable = Shareable()
        shareable.set_header(MetaKey.CURRENT_ROUND, next(number))
        out = dxo_filter.process_dxo(dxo, shareable, FLContext())
        return [np.asarray(array) for array in out.data.values()] if out and out.data else None

    return answer


ADAPTERS: dict[str, Callable[[Any], Answering]] = {
    "flower": _flower,
    "flare": _flare,
    "python": _python,
}


def rounds(answer: Answering, given: Sequence[Given]) -> list[np.ndarray | None]:
    """Return what is released in each round, flattened to one row.

    None for a round without release: the guard refuses, fails, or exceeds :data:`PATIENCE`.
    """
    return [_row(partial(answer, value)) for value in given]


@contextmanager
def _in_time() -> Iterator[None]:
    """Interrupt after :data:`PATIENCE` seconds; only in the main thread, which receives signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def why_silent(answer: Answering, given: Given) -> str:
    """Return the error that a guard raises for an input, and where in its code; empty if it answers."""
    try:
        return "it returns nothing" if _answer_in_time(partial(answer, given)) is None else ""
    except Exception as error:  # noqa: BLE001
        frames = [f for f in extract_tb(error.__traceback__) if f.filename != __file__]
        inner = [f for f in frames if not f.filename.startswith(_LIBRARIES)] or frames
        where = f", {Path(inner[-1].filename).name}:{inner[-1].lineno}" if inner else ""
        return f"{type(error).__name__}{where}"


def _row(ask: Callable[[], list[np.ndarray] | None]) -> np.ndarray | None:
    try:
        return _answer_in_time(ask)
    except Exception:  # noqa: BLE001  # a guard that fails releases nothing
        return None


def _answer_in_time(ask: Callable[[], list[np.ndarray] | None]) -> np.ndarray | None:
    with _in_time():
        arrays = ask()
    if arrays is None:
        return None
    return np.concatenate([*arrays, []], axis=None, dtype=float, casting="unsafe")
