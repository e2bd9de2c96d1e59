"""What a round costs on each engine: ``python benchmarks/engine_rounds.py [ENGINE...] [--clients N]``.

An engine's own round is a batch without messages; what privfed adds is a question's round less that.
``forest`` measures the largest messages of a forest of 100 trees instead.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from ledger_trials import SMALL, SPEND
from result_rows import arguments

from privfed import LocalDisclosure, Policy
from privfed.engines.batches import Batch
from privfed.engines.named import engine
from privfed.engines.remote import RemoteDisclosure
from privfed.exchange.channel import ChannelDisclosure
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.policy import Guard
from privfed.questions import wire
from privfed.tables.records import Records
from privfed.testing.hospitals import BINARY, gates, patients
from privfed.testing.queries import Histogram

BINS = 64


def federation(clients: int) -> LocalDisclosure:
    """Gates that answer histograms of 64 bins, their ledgers in memory."""
    policy = Policy({"small.histogram": (Guard.of("laplace", spend=SPEND),)})
    records = Records(SMALL, np.random.default_rng(0).uniform(0, 100, (1000, 1)))
    names = [f"client {number}" for number in range(clients)]
    return LocalDisclosure(
        {n: Gate(n, records, policy, Ledger(None, n), queries=(Histogram,)) for n in names}
    )


def measured(name: str, clients: int, rounds: int) -> dict[str, float]:
    """Seconds of the first round, and medians of later ones: the engine's own, and a question's."""

    def job(asking: ChannelDisclosure) -> dict[str, float]:
        asked = [_timed(asking.ask, _question(number)) for number in range(rounds + 1)]
        own = [0.0]
        if isinstance(asking, RemoteDisclosure):
            hello = dict.fromkeys(asking.clients, wire.encode(Batch("hello", "")))
            own = [_timed(asking._carry, hello, 60.0) for _ in range(rounds)]
        return {"first": asked[0], "round": median(asked[1:]), "own": median(own)}

    began = perf_counter()
    told: dict[str, float] = engine(name)(federation(clients), job)
    return told | {"whole": perf_counter() - began}


def _question(number: int) -> Histogram:
    return Histogram(0, tuple(np.linspace(0, 100 + number, BINS + 1)))


def _timed(call: Any, *arguments: Any) -> float:
    began = perf_counter()
    call(*arguments)
    return perf_counter() - began


def forest(trees: int) -> dict[str, int]:
    """Bytes of the largest single messages of a forest, and of the largest batches."""
    from privfed.learners import FedForestClassifier

    learner = FedForestClassifier(n_estimators=trees, random_state=0)
    sent: list[int] = []
    came: list[int] = []

    def job(asking: ChannelDisclosure) -> list[tuple[int, int]]:
        assert isinstance(asking, RemoteDisclosure)
        carry = asking._carry

        def weighed(batches: Any, seconds: float) -> Any:
            replies = carry(batches, seconds)
            sent.extend(map(len, batches.values()))
            came.extend(map(len, replies.values()))
            return replies

        asking._carry = weighed
        learner.fit(asking)
        return [(len(line.message), len(line.envelope)) for line in asking.journal]

    lines = engine("sockets")(gates(patients(6000), learner.published(), BINARY), job)
    return {
        "messages": len(lines),
        "largest question": max(size for size, _ in lines),
        "largest reply": max(size for _, size in lines),
        "largest batch of questions": max(sent),
        "largest batch of replies": max(came),
    }


def main() -> None:
    """Print a line for each engine."""
    parser = arguments(__doc__)
    parser.add_argument("engines", nargs="*", default=["local", "sockets"])
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    for name in chosen.engines:
        if name == "forest":
            print(*(f"{what}: {size:,}" for what, size in forest(100).items()), sep="\n")
            continue
        told = measured(name, chosen.clients, chosen.rounds)
        print(
            f"{name:8} {chosen.clients:4} clients: a round {1000 * told['round']:8.1f} ms, of which "
            f"the engine's own {1000 * told['own']:8.1f} ms; first {told['first']:6.2f} s, whole "
            f"{told['whole']:6.2f} s"
        )


if __name__ == "__main__":
    main()
