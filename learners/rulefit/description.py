"""Descriptions of a rule ensemble for readers: units of its numbers, and omitted terms."""

from collections.abc import Callable, Sequence
from math import floor, log10

import numpy as np
import pandas as pd
from scipy.special import expit

from privfed.learners.rulefit.alternatives import EXPLAINED, UNKNOWN, marked
from privfed.learners.rulefit.model import ClassEnsembles, RuleEnsemble
from privfed.questions.tree import digits_text, ends_text, number_text
from privfed.tables.schema import Column, shown

NOTHING = "no term has a coefficient: the prediction is the same for everybody"
TOGETHER = "The risks above, and their intervals, are by this card alone. By all classes' score cards together, probabilities are "
STARRED = "*: other terms or cut-offs fit about as well, given noise and sampling; see table()"


def described(table: pd.DataFrame, top: int, heading: str, privacy: str, *, private: bool) -> str:
    """Format the first terms of a table with a heading on its columns, what coefficients add to, and a last line."""
    lines = [heading]
    if len(table) and {"low", "high"} <= set(table):
        lines.append(
            "low and high: 90 % interval for the coefficient that the same terms would have without noise and sampling error; "
            "if it includes 0, the term may have no effect."
        )
    if not len(table):
        return "\n".join([*lines, f"{NOTHING[:1].upper()}{NOTHING[1:]}.", privacy])
    if "class" in table:
        table = table.assign(**{"class": table["class"].map(shown)})
    records = "records, estimated on synthetic ones" if private else "records"
    lines.append(
        f"importance: |coefficient| times the standard deviation of the term, the largest set to 100; support: fraction of {records}."
    )
    if table["term"].str.startswith("linear: ").any():
        lines.append(
            "linear: x per u, from a to b: the coefficient is for u more of x; below a counts as a, above b as b."
            + " (less: c): an integer below a counts as c, the limit; (more: d) likewise."
            * bool(table["term"].str.contains(r"\((?:less|more): ").any())
        )
    table, notes = _noted(table, top)
    lines.append(table.head(top).to_string(index=False, formatters=_formats(table)))
    lines += notes
    if top < len(table):
        lines.append(f"{max(top, 0)} of {len(table)} terms; describe({len(table)}) shows all.")
    return "\n".join([*lines, privacy])


def _formats(table: pd.DataFrame) -> dict[str, Callable[[float], str]]:
    """Return how numbers are printed: of one column to the same decimals, except the odds' factors.

    Coefficients and their intervals have those of three digits of the largest coefficient, at least two below 100.
    """
    largest = float(table["coefficient"].abs().max())
    places = max(2 - floor(log10(largest)), 2 if largest < 100 else 0)
    decimals = {"coefficient": places, "low": places, "high": places, "importance": 0, "support": 2}

    def fixed(number: int) -> Callable[[float], str]:
        return lambda value: (
            f"{round(value, number) + 0.0:.{number}f}" if np.isfinite(value) else "NaN"
        )

    formats = {name: fixed(number) for name, number in decimals.items()}
    return {**formats, "exp_coefficient": lambda value: digits_text(value, 3)}


def _noted(table: pd.DataFrame, top: int) -> tuple[pd.DataFrame, list[str]]:
    """Replace the column of alternatives by numbers of notes, and return the notes to the first rows."""
    if "alternatives" not in table:
        return table, []
    texts = table["alternatives"]
    distinct = dict.fromkeys(text for text in texts if marked(text))
    numbers = {text: str(number) for number, text in enumerate(distinct, 1)}
    notes = [f"{numbers[text]}: {text}" for text in dict.fromkeys(texts[:top]) if text in numbers]
    heading = [f"alternatives: {EXPLAINED}."] * bool((texts != UNKNOWN).any())
    return table.assign(alternatives=texts.replace(numbers)), [*heading, *notes]


def divided(power: float) -> str:
    """Say how several classes' risks become probabilities, as a clause."""
    return (
        "the risks, "
        + (f"each to the power of {power:g}, " if power != 1 else "")
        + "divided by their sum"
    )


def added_up(model: ClassEnsembles, names: Sequence[str]) -> str:
    """Say how risks of score cards, one for each class against all others, become probabilities."""
    alone = [
        f"{shown(name)}, {100 * float(expit(own.start)):.2g} %"
        for name, own in zip(names, model.models, strict=True)
        if not own.weights[1:].any()
    ]
    without = f" Classes without a card, whose risk is the same for everybody: {'; '.join(alone)}."
    return f"{TOGETHER}{divided(model.power)}.{without * bool(alone)}"


def of_classes(
    models: Sequence[RuleEnsemble],
    target: str,
    names: Sequence[str],
    link: str | None,
    power: float = 1.0,
) -> str:
    """Describe coefficients of classes' log-odds; ``link`` is that of several classes (:data:`.LINKS`)."""
    intercepts = ", ".join(
        f"{name} {digits_text(model.start, 3)}" for name, model in zip(names, models, strict=True)
    )
    where = _begin(models)
    if link is None:
        intercept = digits_text(models[0].start, 3)
        return (
            f"Coefficients add to the log-odds of {target} = {names[0]}, which are {intercept}{where}; "
            "exp_coefficient: the factor of the odds."
        )
    if link == "softmax":
        meaning = (
            f"a score of each class of {target}; a class's probability is exp(its score), divided by the sum over all "
            "classes (softmax); exp_coefficient: the factor of the class's odds against each other class."
        )
    else:
        meaning = (
            f"the log-odds of each class of {target} against all others, whose logistic function is its risk; "
            f"probabilities are {divided(power)}; exp_coefficient: the factor of the class's odds."
        )
    return f"Coefficients add to {meaning}\nValues{where}: {intercepts}."


def of_number(model: RuleEnsemble, target: Column, limits: tuple[float, float]) -> str:
    """Describe coefficients of a number: the target's unit, if described, and the limits of predictions."""
    low, high = limits
    intercept = low + (model.start + 1) / 2 * (high - low)
    name = shown(target.name) + (f" ({target.description})" if target.description else "")
    return (
        f"Coefficients add to {name}, in its unit, which is {number_text(intercept, high - low)}{_begin([model])}; "
        f"predictions lie between {ends_text(low, high)}."
    )


def _begin(models: Sequence[RuleEnsemble]) -> str:
    """Describe for which records predictions are the intercept."""
    rules = lines = False
    for model in models:
        end = 1 + len(model.terms.boxes)
        switches = [bool(model.switched(k)) for k in range(len(model.terms.linear))]
        used = model.weights[end:] != 0
        rules |= bool(np.any(model.weights[1:end])) or bool(np.any(used & np.array(switches, bool)))
        lines |= bool(np.any(used & ~np.array(switches, bool)))
    where = [" where no rule holds"] * rules
    where += [
        f"{' and' if rules else ' where'} linear terms are midway between their limits"
    ] * lines
    return "".join(where)


def unseen(column: Column, terms: Sequence[tuple[int, int]]) -> str:
    """Describe the terms omitted in a plot of one column, from each model's :meth:`.RuleEnsemble.terms_of`."""
    alone, joint = np.sum(terms, axis=0).tolist()
    name, rules = shown(column.name), f"{joint} rule{'s' * (joint > 1)}"
    if not alone and not joint:
        return f"no term of the model uses {name}"
    if not alone:
        return (
            f"the model uses {name} only together with other columns, in {rules} (not drawn here)"
        )
    return f"not drawn here: {rules} of {name} together with other columns" if joint else ""
