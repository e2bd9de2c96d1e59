"""Many owners and many rounds on one machine: each owner's gate in a process of its own, behind a socket.

``python benchmarks/engine_load.py [OWNERS ROUNDS]`` prints time a round, memory, and what the ledgers hold.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

from engine_trials import Hospital, federation, question
from result_rows import arguments

from privfed.engines.journal import Journal
from privfed.exchange.channel import RetryLimits


def load(folder: Path, owners: int, rounds: int) -> tuple[list[float], int]:
    """Ask every owner one question a round.

    Returns:
        seconds of each round, and how many charges all ledgers hold; AssertionError: a reply, a charge or
        a line of the journal is missing, or there is one too many.
    """
    hospitals = [Hospital(folder, f"owner-{number}", seed=None) for number in range(owners)]
    try:
        for hospital in hospitals:
            hospital.start()
        journal = Journal(folder / "journal")
        asking = federation(*hospitals, journal=journal, patience=RetryLimits(300, 0.05, 1.0))
        seconds = []
        for number in range(rounds):
            began = perf_counter()
            assert len(asking.ask(question(number)).only.releases) == owners
            seconds.append(perf_counter() - began)
        journal.close()
    finally:
        for hospital in hospitals:
            if hospital.process is not None:
                hospital.kill()
    charges = [round(hospital.charges()) for hospital in hospitals]
    assert charges == [rounds] * owners
    assert len(Journal.read(folder / "journal").transcript.entries) == owners * rounds
    return seconds, sum(charges)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("owners", type=int, nargs="?", default=50)
    parser.add_argument("rounds", type=int, nargs="?", default=200)
    given = parser.parse_args()
    many, times = given.owners, given.rounds
    with TemporaryDirectory() as made:
        each, charged = load(Path(made), many, times)
        size = sum(file.stat().st_size for file in Path(made).glob("*.db")) / many
    print(
        f"{many} owners, {times} rounds, {os.cpu_count()} cores: median {1000 * median(each):.0f} ms a round, "
        f"95 % within {1000 * quantiles(each, n=20)[-1]:.0f} ms; {charged} charges, none lost, none twice; "
        f"server at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB; "
        f"{size / 1024:.0f} kB a ledger"
    )
