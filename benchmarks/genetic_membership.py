"""Who was scored on: membership from the fitness scores of FedGA-Tree, by number of generations.

    python benchmarks/genetic_membership.py DATA [--generations 100] [--clients 20]

Runs the paper's protocol on magic_telescope (binned as in its Appendix A) and attacks one client at
a time. Members are the records of its validation share, outsiders records of nobody. Two attackers
see the same scores, at full precision: one knows the records that the client's trees were fitted
to, the other has records of its own and fits the candidates to those. Beside them the closed form
for m independent scores of n records, m being the directions that the scores span, and the worst
case: how many records, taken out of the fitted share, change at least one score.
`private` releases noisy counts only; its rates are those of the best possible attack on them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from genetic_tables import federation, prepared

from privfed.attacks.score_membership import Detected, detect, gaussian_rates
from privfed.exchange.messages import Release, Reply
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import GeneticTreeClassifier
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.fitness import confusions, macro_f1
from privfed.learners.genetic_tree.personal import PersonalTree
from privfed.learners.genetic_tree.population import Scoring
from privfed.learners.genetic_tree.queries import Fitness
from privfed.learners.genetic_tree.splits import Ranked
from privfed.learners.genetic_tree.trie import Trie
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.questions.query import Query, View
from privfed.tables.records import Records

MARKS = (1, 2, 5, 10, 25, 50, 100)
SCORING = Scoring(classify=True)
#: Records of nobody that are asked about, and of the attacker's own.
OUTSIDE, OWN = 600, 1000
#: Features and targets.
Pair = tuple[np.ndarray, np.ndarray]


class Watched(UngatedDisclosure):
    """Keeps every population that was scored, and what each client said of it."""

    told: list[tuple[np.ndarray, dict[str, np.ndarray]]]
    records: dict[str, Records]

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], *rest: Any
    ) -> Mapping[str, Sequence[Reply]]:
        replies = super()._ask(questions, *rest)
        asked = next(iter(questions.values()))[0]
        if isinstance(asked, Fitness) and len(questions) > 1:
            said = {client: reply[0] for client, reply in replies.items()}
            scores = {c: np.asarray(r["scores"]) for c, r in said.items() if isinstance(r, Release)}
            self.told.append((asked.population.genes, scores))
        return replies


def influence(trie: Trie, genes: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What each record would add to each candidate's macro F1, to first order; (records, scores).

    The derivative of F1_k = 2 h_k / b_k by a share of the cell (true, said), b_k being the row and
    the column of class k together.
    """
    columns = []
    for row, cells in zip(genes, confusions(trie, genes), strict=True):
        said = PersonalTree.of_candidate(trie, row).predict(x).argmax(axis=1)
        shares = cells / cells.sum()
        both = np.maximum(shares.sum(axis=0) + shares.sum(axis=1), 1e-9)
        hits, classes = np.diagonal(shares), len(shares)
        lost = -2 * hits / both**2
        right = 2 / both + 2 * lost
        added = np.where(said == y, right[y], lost[y] + lost[said]) / classes
        columns.append(added)
    return np.array(columns).T


@dataclass(frozen=True, eq=False)
class Attacker:
    """What one attacker works out about one client before it reads a score.

    Args:
        expected: what it expects of each candidate's score.
        usual: what its own records would add to each, shape (own, scores).
        added: the same of the records in question, members first.
        members: how many of those are members.
    """

    expected: np.ndarray
    usual: np.ndarray
    added: np.ndarray
    members: int

    @classmethod
    def of(cls, client: Client, fit: Pair, own: Pair, genes: np.ndarray, outside: Pair) -> Attacker:
        """Fit all candidates to the records that the attacker has.

        Args:
            client: whose scores are attacked.
            fit: the records that the attacker fits candidates to.
            own: further records of the attacker's, to know what is usual.
            genes: the candidates.
            outside: records of nobody.
        """
        _, held = client.roots(SCORING)[0]
        x, y = (np.concatenate(each) for each in zip(fit, own, strict=True))
        root = np.arange(len(fit[1])), np.arange(len(fit[1]), len(y))
        trie = Trie(Ranked.of(x, y, client.classes), [root], client_depth(genes))
        asked_x = np.concatenate([client.x[held], outside[0]])
        asked_y = np.concatenate([client.y[held], outside[1]]).astype(int)
        usual = influence(trie, genes, own[0], own[1].astype(int))
        centre = usual.mean(axis=0)
        added = influence(trie, genes, asked_x, asked_y) - centre
        return cls(macro_f1(confusions(trie, genes)), usual - centre, added, len(held))

    def reads(self, scores: np.ndarray) -> Detected:
        """Whom the first so many scores give away."""
        m = len(scores)
        member = np.arange(len(self.added)) < self.members
        found, usual = self.added[:, :m], self.usual[:, :m]
        return detect(scores, self.expected[:m], found, usual, member, self.members)


def client_depth(genes: np.ndarray) -> int:
    return int(np.log2(genes.shape[1] + 1))


def worst_case(client: Client, genes: np.ndarray, records: int) -> tuple[float, float]:
    """Share of records that change at least one score when taken out: of the fitted, of the held."""
    fit, held = client.roots(SCORING)[0]
    depth = client_depth(genes)
    before = macro_f1(confusions(Trie(client.table, [(fit, held)], depth), genes))
    changed = []
    for part in (0, 1):
        count = 0
        for record in (fit, held)[part][:records]:
            pair = [each[each != record] for each in (fit, held)]
            after = macro_f1(confusions(Trie(client.table, [(pair[0], pair[1])], depth), genes))
            count += bool((after != before).any())
        changed.append(count / records)
    return changed[0], changed[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--attacked", type=int, default=4)
    given = parser.parse_args()
    data = prepared(given.data, "magic_telescope", 0, given.clients, None)
    watched = federation(data, Watched)
    watched.told = []
    watched.records = {n: Records(data.schema, *pair) for n, pair in data.clients.items()}
    GeneticTreeClassifier(generations=given.generations, random_state=0).fit(watched)
    names = list(watched.clients)
    genes = np.concatenate([asked for asked, _ in watched.told])
    ends = np.cumsum([len(asked) for asked, _ in watched.told])
    outside = data.test_x[:OUTSIDE], data.test_y[:OUTSIDE].astype(float)
    rows: list[dict[str, float]] = []
    for number, name in enumerate(names[: given.attacked]):
        client = Client(View(watched.records[name], watched.schema, name.encode()), True)
        fit, _ = client.roots(SCORING)[0]
        other = watched.records[names[number - 1]]
        rest = [watched.records[n] for n in names if n not in (name, names[number - 1])]
        own = (
            np.concatenate([records.x for records in rest])[:OWN],
            np.concatenate([records.target for records in rest])[:OWN],
        )
        knows = Attacker.of(client, (client.x[fit], client.y[fit]), own, genes, outside)
        shadow = Attacker.of(client, (other.x, other.target), own, genes, outside)
        scores = np.concatenate([told[name] for _, told in watched.told])
        for mark in [each for each in MARKS if each <= given.generations]:
            end = int(ends[mark - 1])
            one, two = knows.reads(scores[:end]), shadow.reads(scores[:end])
            fitted, held = worst_case(client, genes[: min(end, 200)], 20)
            rows.append(
                {
                    "generations": mark,
                    "scores": end,
                    "m": one.dimensions,
                    "knows: AUC": one.auc,
                    "knows: found": one.found,
                    "guesses: AUC": two.auc,
                    "guesses: found": two.found,
                    "closed form: AUC": one.expected_auc,
                    "closed form: found": one.expected_found,
                    "changed by a fitted": fitted,
                    "changed by a held": held,
                }
            )
            print(rows[-1], flush=True)
    print(pd.DataFrame(rows).groupby("generations").mean().round(3).to_string())
    for epsilon in (1, 4, 8):
        budget = Budget.of(epsilon, "1e-5")
        area, found = gaussian_rates(float(largest_rho(budget.epsilon, budget.delta)))
        print(f"private, epsilon {epsilon}: at most AUC {area:.3f}, found at 1 % {found:.3f}")


if __name__ == "__main__":
    main()
