"""Rule search at the scale of DP-RuL: speed, what single questions buy, and what is ignored.

    python benchmarks/rule_search.py scale        # 40,000 clients, 4.4 million rules, secure noise
    python benchmarks/rule_search.py growth       # time of a question against its matching rules
    python benchmarks/rule_search.py individual   # what fits under epsilon 8 for individuals
    python benchmarks/rule_search.py ignoring     # achieved probability of wrongly ignoring

Populations are simulated with the published marginals (``generator.py`` says which parts are
assumptions). Coverage and precision, and pictures of them: ``rule_search_curves.py``.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privfed.engines.cohort import CohortDisclosure
from privfed.learners.rule_search import RuleSearch
from privfed.learners.rule_search.best_first import BestFirst, Subtree
from privfed.learners.rule_search.generator import PROFILES, generate
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon, smallest_part
from privfed.learners.rule_search.queries import CohortSample, TemplateBits
from privfed.learners.stl.grammar import Symbols
from privfed.mechanisms.randomized_response import flip_probability
from privfed.privacy.noise import SecureNoise
from privfed.questions.query import View
from privfed.study.papers.simulated_asking import SimulatedAsking, Truths


def measure_scale(args: argparse.Namespace) -> None:
    """5,000 templates in level vectors, and 500 single questions, over the sepsis population."""
    book = generate(PROFILES["sepsis"], 1)
    begun = time.perf_counter()
    model = RuleSearch("levels", epsilon="10", max_templates=2000, levels=4, max_operators=6)
    federation = CohortDisclosure.of(book, model.private("10"))
    model.fit(federation)
    templates = sum(step.templates for step in model.steps_)
    print(f"levels: {templates} templates, {time.perf_counter() - begun:.1f} s, secure noise")
    begun = time.perf_counter()
    single = RuleSearch("equal", epsilon="500", questions=args.questions, max_operators=6)
    federation = CohortDisclosure.of(book, single.private("500"))
    single.fit(federation)
    print(f"questions: {len(single.steps_)}, {time.perf_counter() - begun:.1f} s, secure noise")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    flip, noise = flip_probability(Fraction(1)), SecureNoise()
    times = []
    for _ in range(200):
        begun = time.perf_counter()
        noise.bits(40_000, flip)
        times.append(time.perf_counter() - begun)
    print(f"noise of 40,000 bits: median {1000 * float(np.median(times)):.3f} ms")


def measure_growth(args: argparse.Namespace) -> None:
    """Time to evaluate one question against the number of matching rules."""
    book = generate(PROFILES["sepsis"], 1)
    grammar = book.grammar
    first = grammar.continuations(())
    templates = [(), *first, *(t for f in first for t in grammar.continuations(f))]
    sizes = {template: len(book.matching(template)) for template in templates}
    held = sorted((t for t in templates if sizes[t]), key=lambda t: -sizes[t])
    for place in sorted({int(len(held) ** (i / 10)) - 1 for i in range(11)}):
        template = held[place]
        query = TemplateBits(CohortSample.everybody(book.people), grammar.digest, (template,))
        view = View(book, book.schema)
        query.evaluate(view)
        begun = time.perf_counter()
        for _ in range(5):
            query.evaluate(view)
        print(
            f"{len(book.matching(template)):9d} matching rules {(time.perf_counter() - begun) / 5 * 1e3:8.2f} ms"
        )


def measure_individual(args: argparse.Namespace) -> None:
    """What fits under one epsilon for whole individuals, and what limits it."""
    epsilon = args.epsilon
    for name, profile in PROFILES.items():
        people, first = profile.people, len(profile.grammar.continuations(()))
        part = smallest_part(people, epsilon, 0.01, 1.0, 0.05)
        bare = smallest_part(people, 40.0, 0.01, 1.0, 0.05)
        finest = float(least_epsilon(Exploration().finest(people)))
        print(f"{name}, epsilon {epsilon:g} for an individual (nu 1 %, theta 0.05, N {people}):")
        print(
            f"  parts: {people // part} questions of {part} people each; without any noise {bare} "
            f"people: the draw limits it. The first level alone has {first} templates."
        )
        print(
            f"  everybody: {int(epsilon / finest)} questions that tell 2 nu from nobody, at "
            f"{finest:.2f} each."
        )
        print(f"  sampled: {sampled(people, epsilon)}")


def sampled(people: int, epsilon: float, levels: int = 5, slots: int = 128) -> str:
    """What one sampled rule an individual resolves: unary encoding, two bits of sensitivity."""
    size = people // levels
    lie = 1 / (1 + math.exp(epsilon / 2))
    std = slots * math.sqrt(size * lie * (1 - lie)) / (1 - 2 * lie) / size
    draw = slots * math.sqrt(1 / slots / size)
    return (
        f"{levels} levels of {size} people; a template must match {1.645 * std:.2f} rules a "
        f"person to stand out of the noise, and one of 1 rule a person is known to {draw:.2f}."
    )


def measure_ignoring(args: argparse.Namespace) -> None:
    """How often a subtree of c* = 2 nu N holders is ignored, asked at once or coarsely first."""
    for name in PROFILES:
        for theta in (0.01, 0.05, 0.2):
            rates = [ignored(name, theta, predicted, args.trials) for predicted in (0.001, 0.3)]
            share = ", ".join(f"{rate:.4f} ({rate / theta:.2f} theta)" for rate in rates)
            print(f"{name}, theta {theta}: {share}", flush=True)


class _Planted(Truths):
    """Every template is held by c* individuals."""

    def count(self, template: Symbols) -> int:
        return Exploration().finest(self.book.people).count


def ignored(profile: str, theta: float, predicted: float, trials: int) -> float:
    small = generate(replace(PROFILES["icu"], rules=9000, distinct=900), 1)
    truths = _Planted(replace(small, people=PROFILES[profile].people))
    root = Subtree((), None, 1, estimate=float(truths.book.people), std=0.0)
    number = 0
    for trial in range(trials):
        budget = Fraction(10**6)
        asking = SimulatedAsking(truths, budget, trial)
        search = BestFirst(asking, Exploration(error=theta), budget)
        child = Subtree((truths.book.grammar.size,), root, 1, predicted=predicted)
        while (verdict := search.examine(child)) == "later":
            child.predicted /= search.settings.coarser
        number += verdict == "ignored"
    return number / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=sorted(WHAT))
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--trials", type=int, default=4000)
    args = parser.parse_args()
    WHAT[args.what](args)


WHAT = {
    "scale": measure_scale,
    "growth": measure_growth,
    "individual": measure_individual,
    "ignoring": measure_ignoring,
}

if __name__ == "__main__":
    main()
