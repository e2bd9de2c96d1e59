"""What a server tells of a round under way: who has answered, and, soon, who is silent."""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from time import monotonic

SILENCE = 8.0  #: Seconds after which a silent owner is named; then after twice as long, and so on


class Progress:
    """Tells by ``tell``, a line at a time, of each round: seconds to each owner's answer, and silence."""

    def __init__(self, tell: Callable[[str], None], silence: float = SILENCE) -> None:
        self._tell, self._silence, self._lock = tell, silence, threading.Lock()
        self._rounds, self._began = 0, 0.0
        self._since: dict[str, str] = {}  # who is waited for, and since when
        self._answered: list[str] = []
        self._named: set[str] = set()  # who was called silent, and has not answered since

    @contextmanager
    def round(self, clients: Collection[str]) -> Iterator[None]:
        """One exchange with some owners."""
        self._rounds, self._began = self._rounds + 1, monotonic()
        with self._lock:
            self._answered = []
            self._since = dict.fromkeys(clients, f"{datetime.now().astimezone():%H:%M:%S}")
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()
        silent = [f"{client} silent" for client in self._since]
        self._tell(f"round {self._rounds}: {', '.join([*sorted(self._answered), *silent])}")

    def heard(self, client: str) -> None:
        """Note that an owner has answered."""
        with self._lock:
            if self._since.pop(client, None) is None:
                return
            seconds = monotonic() - self._began
            self._answered.append(f"{client} {seconds:.1f} s")
            if client in self._named:
                self._named.remove(client)
                self._tell(f"{client}: answers again")

    def _watch(self, over: threading.Event) -> None:
        """Name the silent after a while, and again after twice as long."""
        wait = self._silence
        while not over.wait(wait):
            with self._lock:
                for client, since in self._since.items():
                    self._named.add(client)
                    self._tell(f"{client}: no answer since {since}")
            wait *= 2
