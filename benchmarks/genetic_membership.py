"""Who was scored on: membership from the fitness scores of FedGA-Tree, by number of generations.

    python benchmarks/genetic_membership.py DATA --out membership.csv [--generations 100] [--clients 20]

Runs the paper's protocol on magic_telescope (binned as in its Appendix A) and attacks one client at
a time. Members are the records of its validation share, outsiders records of nobody. Two attackers
see the same scores, at full precision: one knows the records that the client's trees were fitted
to, the other has records of its own and fits the candidates to those. Beside them the closed form
for m independent scores of n records, m being the directions that the scores span, and the worst
case: how many records, taken out of the fitted share, change at least one score.
`private` releases noisy counts only. Its attacker knows all records but the one in question, and
what that one would add to every count; the closed form is the most that any attack can do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import arguments, write_rows
from score_membership import Detected, detect, gaussian_rates

from privfed import LocalDisclosure
from privfed.exchange.messages import Release, ReleasedPart, Reply
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
from privfed.study.papers.genetic import Prepared, federation, prepared
from privfed.tables.records import Records
from privfed.tables.schema import Schema

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


class Guarded(LocalDisclosure):
    """Keeps every question and what each client told."""

    told: list[tuple[Query, dict[str, ReleasedPart]]]

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        replies = super()._ask(questions, spend)
        for place, query in enumerate(next(iter(questions.values()))):
            said = {client: reply[place] for client, reply in replies.items()}
            releases = {c: r for c, r in said.items() if isinstance(r, Release)}
            parts = {c: r.parts["counts"] for c, r in releases.items() if "counts" in r.parts}
            self.told.append((query, parts))
        return replies


def against_noise(data: Prepared, epsilon: int, asked: int) -> tuple[float, float]:
    """How well noisy counts tell members from outsiders: area, and members found at 1 %."""
    learner = GeneticTreeClassifier()
    frames = [
        pd.DataFrame(x, columns=list(data.schema.names)).assign(
            y=[f"c{int(c)}" for c in y], client=name
        )
        for name, (x, y) in data.clients.items()
    ]
    policy = learner.private(epsilon, "1e-5")
    gates = Guarded.from_frame(
        pd.concat(frames), target="y", client="client", schema=data.schema, policy=policy
    )
    assert isinstance(gates, Guarded)
    gates.told = []
    learner.fit(gates)
    outside = data.test_x[:asked], data.test_y[:asked].astype(float)
    ratios: list[list[float]] = [[], []]
    for name, (x, y) in data.clients.items():
        heard = [(query, parts[name]) for query, parts in gates.told if name in parts]
        noise = [part.units - counted(query, data.schema, (x, y)) for query, part in heard]
        for member, (some_x, some_y) in ((1, (x[:asked], y[:asked])), (0, outside)):
            for one in zip(some_x[:, None], some_y[:, None], strict=True):
                added = [counted(query, data.schema, one) for query, _ in heard]
                spreads = [part.noise.std for _, part in heard if part.noise is not None]
                ratios[member].append(likelihood_ratio(noise, added, spreads, member))
    without, within = map(np.array, ratios)
    area = float((within[:, None] > without).mean())
    return area, float((within > np.quantile(without, 0.99)).mean())


def counted(query: Query, schema: Schema, records: Pair) -> np.ndarray:
    """The exact counts of records, without noise."""
    return query.evaluate(View(Records(schema, *records), schema))["counts"]


def likelihood_ratio(
    noise: Sequence[np.ndarray], added: Sequence[np.ndarray], spreads: Sequence[float], member: int
) -> float:
    """The logarithm, for a record that adds so much to counts of which all else is known.

    What is seen beyond the other records' counts is the noise, and for a member what it adds too.
    """
    found = 0.0
    for rest, d, spread in zip(noise, added, spreads, strict=True):
        found += float(((rest + member * d - d / 2) * d).sum()) / spread**2
    return found


def by_generations(data: Prepared, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Both attackers on some clients, after ever more generations."""
    watched = federation(data, Watched)
    watched.told = []
    watched.records = {n: Records(data.schema, *pair) for n, pair in data.clients.items()}
    GeneticTreeClassifier(generations=given.generations, random_state=0).fit(watched)
    names = list(watched.clients)
    genes = np.concatenate([asked for asked, _ in watched.told])
    ends = np.cumsum([len(asked) for asked, _ in watched.told])
    outside = data.test_x[:OUTSIDE], data.test_y[:OUTSIDE].astype(float)
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
            yield {
                "row": f"{mark} generation{'s' if mark > 1 else ''}, {end:,} scores",
                "client": name,
                "independent directions of the scores": one.dimensions,
                "knows the fitted share: AUC": one.auc,
                "knows the fitted share: members found at 1 %": one.found,
                "has records of its own: AUC": two.auc,
                "has records of its own: members found at 1 %": two.found,
                "closed form: AUC": one.expected_auc,
                "closed form: members found at 1 %": one.expected_found,
                "fitted records that change a score, of 20": 20 * fitted,
                "scored records that change a score, of 20": 20 * held,
            }


def by_epsilon(data: Prepared) -> Iterator[dict[str, Any]]:
    """The strongest attacker on noisy counts, beside what is possible at most."""
    for epsilon in (1, 4, 8):
        budget = Budget.of(epsilon, "1e-5")
        area, found = gaussian_rates(float(largest_rho(budget.epsilon, budget.delta)))
        measured = against_noise(data, epsilon, 100)
        yield {
            "row": f"epsilon {epsilon}",
            "client": "all",
            "knows all other records: AUC": measured[0],
            "knows all other records: members found at 1 %": measured[1],
            "closed form, at most: AUC": area,
            "closed form, at most: members found at 1 %": found,
        }


def long(found: Iterable[dict[str, Any]], table: str, note: str) -> Iterator[dict[str, Any]]:
    """A row for each figure."""
    for one in found:
        print(one, flush=True)
        known = {"table": table, "row": one.pop("row"), "client": one.pop("client"), "note": note}
        yield from ({**known, "column": c, "value": v} for c, v in one.items())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--attacked", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    data = prepared(
        pd.read_csv(given.data / "magic_telescope.csv"), "magic_telescope", 0, given.clients, None
    )
    chance = "chance is .5 and .01; magic_telescope, binned, classes equally common, split 0"
    published = (
        f"{chance}; means over {given.attacked} clients attacked of {given.clients}, after ± the deviation "
        "over them; outsiders are records of nobody, shares of members are those above all but 1 % of "
        "outsiders; the last two columns: by the first 200 scores"
    )
    private = f"{chance}; real gates, delta 1e-5; 100 records of each client and 100 of nobody"
    rows = [
        *long(by_epsilon(data), "Membership from noisy counts, `private`", private),
        *long(
            by_generations(data, given), "Membership from fitness scores, `published`", published
        ),
    ]
    write_rows(rows, given.out, ("table", "row", "column", "client"), seed="0")


if __name__ == "__main__":
    main()
