"""Progress messages of a round on the server: who has answered, and who is overdue."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from statistics import median_low
from time import monotonic

#: Seconds after which an owner is reported silent, and multiple of its usual time, if longer; doubled each time.
SILENCE, OVERDUE = 8.0, 1.5
LATELY = 9  #: Number of an owner's last answers that define the usual time


class Progress:
    """Reports each round by ``tell``, line by line: seconds to each owner's answer, and overdue owners."""

    def __init__(
        self, tell: Callable[[str], None], silence: float = SILENCE, first_answer: float = 0.0
    ) -> None:
        self._tell, self._silence, self._first_answer = tell, silence, first_answer
        self._lock = threading.Lock()
        self._rounds, self._began, self._at = 0, 0.0, ""
        self._since: dict[str, str] = {}  # start time of each pending owner
        self._took: dict[str, deque[float]] = {}  # seconds of each owner's last answers
        self._answered: dict[str, str] = {}
        self._named: set[str] = set()  # reported silent, without a later answer
        self._unwritten: set[str] = set()  # reported for a ledger that its gate cannot write

    @contextmanager
    def round(self, clients: Collection[str]) -> Iterator[None]:
        """Report one exchange with some owners."""
        self._rounds, self._began = self._rounds + 1, monotonic()
        with self._lock:
            self._answered, self._at = {}, f"{datetime.now().astimezone():%H:%M:%S}"
            self._since = dict.fromkeys(clients, self._at)
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()
        silent = [
            f"{client} {'cannot write its ledger' if client in self._unwritten else 'silent'}"
            for client in self._since
        ]
        self._unwritten &= self._since.keys()
        answered = sorted(self._answered.values())
        self._tell(f"round {self._rounds}: {', '.join([*answered, *silent])}")

    def recalled(self) -> None:
        """Count an exchange whose answers an earlier run received."""
        self._rounds += 1

    def heard(self, client: str) -> None:
        """Record that an owner has answered."""
        with self._lock:
            if self._since.pop(client, None) is None:
                return
            seconds = monotonic() - self._began
            self._took.setdefault(client, deque(maxlen=LATELY)).append(seconds)
            self._answered[client] = f"{client} {seconds:.1f} s"
            if client in self._named:
                self._named.remove(client)
                self._tell(f"{client}: answers again")

    def unwritten(self, clients: Collection[str]) -> None:
        """Report owners whose gates refuse because they cannot write their ledgers; they are asked again."""
        with self._lock:
            for client in clients:
                self._answered.pop(client, None)
                self._since.setdefault(client, self._at)
                if client not in self._unwritten:
                    self._unwritten.add(client)
                    self._tell(
                        f"{client}: cannot write its ledger, and answers nothing until it can"
                    )

    def missed(self, client: str) -> None:
        """Report at once an owner whose gate or node could not be reached."""
        with self._lock:
            if client in self._since and client not in self._named:
                self._name(client)

    def _name(self, client: str) -> None:
        self._named.add(client)
        self._tell(f"{client}: no answer since {self._since[client]}")

    def _watch(self, over: threading.Event) -> None:
        """Report each owner when its answer is overdue, and again after twice as long."""
        known = {c: OVERDUE * median_low(t) for c, t in self._took.items()}
        due = {c: max(self._silence, known.get(c, self._first_answer)) for c in self._since}
        while due and not over.wait(max(0.0, min(due.values()) - (monotonic() - self._began))):
            with self._lock:
                for client, at in list(due.items()):
                    if client not in self._since or client in self._unwritten:
                        del due[client]
                    elif at <= monotonic() - self._began:
                        self._name(client)
                        due[client] = 2 * at
