"""Synthetic tables with labels, drawn from a fitted private model at no privacy cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from privfed.learners.private.model import PrivateModel
from privfed.tables.schema import Column

POOL, KEPT = 5_000, 2_500  #: Records drawn at a time, and number kept, resampled by weight


def synthetic_table(model: PrivateModel, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw a table of synthetic records.

    Features have the released histograms and rank correlations, weighted towards the released leaf counts, and are
    uniform within a bin. A class is drawn by the model's probabilities. A number is the model's prediction plus normal
    noise of the residual variance, mapped to the same rank of the released histogram of the target.

    The table is a function of ``rng`` and of the model, which is a function of noisy releases and the public schema; no
    record is read. It is therefore as private as the model, for any number of rows (post-processing: Dwork and Roth
    2014, Proposition 2.1).

    Returns:
        the schema's columns, target last; shape (rows, features + 1).
    """
    columns, values = model.schema.columns, labelled_records(model, rows, rng).T
    return pd.DataFrame(
        {column.name: _decoded(row, column) for row, column in zip(values, columns, strict=True)}
    )


def labelled_records(model: PrivateModel, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the same as encoded records, target last; shape (rows, features + 1)."""
    blocks = [_block(model, rng) for _ in range(0, rows, KEPT)]
    return np.concatenate(blocks, axis=1)[:, :rows].T


def _block(model: PrivateModel, rng: np.random.Generator) -> np.ndarray:
    """Draw encoded records, shape (columns, KEPT), target last."""
    basis, schema = model.basis, model.schema
    codes, weights, _ = model.source.draw(basis, POOL, rng)
    codes = codes[:, rng.choice(POOL, KEPT, p=weights / weights.sum())]
    columns = []
    for column, cuts, bins in zip(schema.features, basis.grid.cuts, codes, strict=True):
        edges = np.concatenate([column.bounds[:1], cuts, column.bounds[1:]])
        columns.append(_within(column, edges, bins, rng.random(KEPT)))
    scores = model.start + basis.scores(basis.cells(codes), model.weights)
    number = model.outcome.kind == "number"
    return np.array([*columns, (_numbers if number else _classes)(model, scores, rng)])


def _within(column: Column, edges: np.ndarray, bins: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return values at fractions ``u`` of bins; integers unless the column is a number."""
    if column.kind == "number":
        return np.asarray(edges[bins] + u * np.diff(edges)[bins])
    low, above = np.ceil(edges), np.ceil(edges)
    above[-1] = np.floor(edges[-1]) + 1
    return np.asarray(np.floor(low[bins] + u * (above[1:] - low[:-1])[bins]))


def _classes(model: PrivateModel, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    probabilities = model.outcome.predictions(scores)
    if model.outcome.kind == "binary":
        return np.asarray(rng.random(len(scores)) < probabilities[:, 0], dtype=float)
    exceeded = np.cumsum(probabilities, axis=1)[:, :-1] <= rng.random((len(scores), 1))
    return np.asarray(model.outcome.lower + exceeded.sum(axis=1))


def _numbers(model: PrivateModel, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return numbers with the released histogram, in the order of predictions plus residual noise."""
    outcome, source = model.outcome, model.source
    assert model.schema.target is not None
    edges, cdf = source.target_edges, np.cumsum(source.target_shares)
    middles = outcome.targets((edges[:-1] + edges[1:]) / 2)[:, 0]
    mean = source.target_shares @ middles
    var = source.target_shares @ (middles - mean) ** 2 - scores.var()
    order = np.argsort(np.argsort(scores[:, 0] + rng.normal(0, np.sqrt(max(var, 0)), len(scores))))
    mass = (order + rng.random(len(order))) / len(order) * cdf[-1]
    bins = np.minimum(np.searchsorted(cdf, mass, side="right"), len(cdf) - 1)
    lower = cdf[bins] - source.target_shares[bins]
    fraction = np.clip((mass - lower) / np.maximum(source.target_shares[bins], 1e-12), 0, 1 - 1e-9)
    values = _within(model.schema.target, edges, bins, fraction)
    return np.asarray(np.clip(values, *model.schema.target.bounds))


def _decoded(values: np.ndarray, column: Column) -> np.ndarray:
    if column.kind == "number":
        return values
    whole = values.astype(np.int64)
    return np.array(column.categories, dtype=object)[whole] if column.categories else whole
