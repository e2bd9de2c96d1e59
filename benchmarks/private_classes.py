"""Several classes: short private models beside the whole one, log loss and accuracy of held-out records.

    PRIVFED_DATA=FOLDER python benchmarks/private_classes.py [--data digits ...] [--epsilons 0.5 1 4 16] [--seeds 2]

Three owners of equal size; a quarter of the records is held out, at most 4,000, and at most 6,000 are learned from. digits,
wine and iris come with scikit-learn; a number after @ cuts a table's numeric target into so many classes of about equal
size. Bounds are the data's own, those of numbers a tenth wider. ``whole`` has all of the engine's terms; ``20 terms`` and
``10 terms`` are shortened from it, and ``card`` is the score cards of the former, whose likeliest class agrees with that
of ``20 terms`` in the fraction ``agreement``. Seconds are of the processor: of learning, and of shortening.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from league import DATA, IGNORED, TARGETS
from result_rows import arguments, progress, seeds_of, write_rows
from sklearn import datasets

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import private
from privfed.learners.rulefit.class_scorecards import class_scorecards
from privfed.learners.rulefit.model import ClassEnsembles
from privfed.learners.rulefit.short import shortened
from privfed.tables.records import Records

DELTA, OWNERS, LEARNED, HELD_OUT = "1e-5", 3, 6_000, 4_000
SETS = ("digits", "wine", "iris", "nursery", "abalone@3", "california@5", "kin8nm@4")
KEYS = ("set", "epsilon", "split", "form")


def column_of(values: pd.Series[Any]) -> Column:
    name = str(values.name)
    if not pd.api.types.is_numeric_dtype(values):
        return Column(name, "category", categories=tuple(sorted(values.unique())))
    low, high = float(values.min()), float(values.max())
    if pd.api.types.is_integer_dtype(values):
        return Column(name, "integer", low, max(high, low + 1))
    margin = (high - low) / 10
    return Column(name, "number", low - margin, high + margin)


def load(name: str) -> tuple[pd.DataFrame, Schema]:
    """A table with its class in column y, and its schema."""
    stem, _, parts = name.partition("@")
    if bundled := getattr(datasets, f"load_{stem}", None):
        table = bundled(as_frame=True)
        frame, codes = (
            table.data.set_axis([f"x{k}" for k in range(table.data.shape[1])], axis=1),
            table.target,
        )
        frame = frame.astype(int) if stem == "digits" else frame
    else:
        frame = pd.read_csv(DATA / f"{stem}.csv").dropna().reset_index(drop=True)
        target = frame.pop("class" if stem == "nursery" else TARGETS[stem])
        frame = frame.drop(columns=[column for column in IGNORED if column in frame])
        codes = (
            pd.qcut(target, int(parts), labels=False)
            if parts
            else pd.factorize(target, sort=True)[0]
        )
    features = tuple(column_of(frame[column]) for column in frame)
    names = tuple(f"c{k}" for k in range(int(np.max(codes)) + 1))
    frame = frame.assign(y=[names[code] for code in codes])
    return frame, Schema(features, Column("y", "category", categories=names))


def scores(told: np.ndarray, codes: np.ndarray) -> dict[str, float]:
    chances = np.clip(told[np.arange(len(codes)), codes], 1e-6, 1)
    return {
        "log loss": float(-np.log(chances).mean()),
        "accuracy": float((told.argmax(axis=1) == codes).mean()),
    }


def rows(name: str, epsilon: str, seed: int) -> Iterator[dict[str, Any]]:
    frame, schema = load(name)
    mixed = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    count = min(LEARNED, int(0.75 * len(mixed)))
    train, test = mixed[:count], mixed[count : count + HELD_OUT]
    held = train.assign(owner=(np.arange(count) % OWNERS).astype(str))
    policy = private.private(epsilon, DELTA)
    federation = LocalDisclosure.from_frame(
        held, "y", client="owner", schema=schema, policy=policy, seed=seed
    )
    rng, records = np.random.default_rng(seed), Records.from_frame(test, schema)
    assert records.y is not None and schema.target is not None
    X, codes = records.x, records.y.astype(int)
    first = {
        "set": name,
        "classes": len(schema.target.categories),
        "epsilon": epsilon,
        "split": seed,
    }
    begun = time.process_time()
    engine = private.learn(federation, private.Outcome.of(schema, number=False), rng)
    spent = time.process_time() - begun
    yield {**first, "form": "whole", **scores(engine.predictions(X), codes), "seconds": spent}
    for terms in (20, 10):
        begun = time.process_time()
        short = ClassEnsembles.joined(
            shortened(engine, terms, np.random.default_rng(seed)), "softmax"
        )
        spent = time.process_time() - begun
        assert isinstance(short, ClassEnsembles)
        told = short.probabilities(X)
        yield {**first, "form": f"{terms} terms", **scores(told, codes), "seconds": spent}
        if terms == 20:
            cards = class_scorecards(short.models, short.classes)
            added = cards[0].probabilities(np.column_stack([card.totals(X) for card in cards]))
            same = float((added.argmax(axis=1) == told.argmax(axis=1)).mean())
            yield {**first, "form": "card", **scores(added, codes), "agreement": same}


def main() -> None:
    parser = arguments(__doc__, seeds=2, first_seed=0, data=SETS, epsilons=["0.5", "1", "4", "16"])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    chosen = parser.parse_args()
    runs = [(n, e, s) for s in seeds_of(chosen) for n in chosen.data for e in chosen.epsilons]
    table = pd.DataFrame([row for run in progress(runs, "runs") for row in rows(*run)])
    measures = ["log loss", "accuracy", "agreement", "seconds"]
    means = table.groupby(["set", "epsilon", "form"], sort=False)[measures].mean()
    print(means.unstack("form").round(3).to_string())
    write_rows(table.round(4), "private_classes", KEYS, seed=f"{chosen.first_seed} up")


if __name__ == "__main__":
    main()
