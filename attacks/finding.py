"""What an attack achieved, in numbers that can be checked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from html import escape
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, Self, get_args

from scipy.special import ndtr, ndtri

from privfed.errors import InputError


class Severity(StrEnum):
    """Whether an attack beats a baseline without releases, and by how much."""

    NONE = "none"  #: no better than the baseline
    SOME = "some"  #: better, as any informative release allows
    #: people or values were identified; where a guarantee is claimed, it is broken
    BREACH = "breach"


#: A figure of a membership test's ROC curve: its AUC, or its TPR at 1 % FPR.
Limit = Literal["", "area", "found at 1 %"]


#: The three risks of the European regulators' opinion on anonymisation (WP29, 05/2014).
Risk = Literal["", "singling out", "linkability", "inference"]
State = Literal["found", "looked", "not looked"]  #: See :attr:`Finding.state`
#: Family-wise level of all findings of a page, and the power at the detectable effect.
LEVEL, POWER = 0.05, 0.8
FAILED = "failed"  #: In the detail of a finding: the kind of error that its attack ended with
HALF = 1.96  #: Half the interval of a finding, in standard deviations
#: Least z-score by which a probability near one half is turned into a standard deviation
LEAST_SCORE = 0.1
ROUNDING = 1e-9  #: By which a value may lie outside its interval, relative, and absolute near zero


@dataclass(frozen=True)
class Finding:
    """The outcome of one attack on one set of releases; InputError for NaN, a value outside its interval, an unknown severity."""

    attack: str  #: the attack's name
    question: str  #: what it tried, in one plain sentence
    metric: str  #: what ``value`` counts, such as ``"records recovered exactly"``
    value: float  #: what it achieved
    of: float | None = None  #: what ``value`` is out of, or None
    low: float | None = None  #: lower end of the confidence interval; None for an exact count
    high: float | None = None  #: its upper end
    baseline: float | None = None  #: the same metric without any release
    releases: tuple[str, ...] = ()  #: the kinds of release that it used
    severity: str = "none"  #: see :class:`Severity`
    #: further public figures (never a raw value)
    detail: dict[str, Any] = field(default_factory=dict)
    #: whether the truth was needed to score it; then it is not publishable for real data
    simulation: bool = True
    measure: Limit = ""  #: what the value is, whether or not a guarantee bounds it
    limit: Limit = ""  #: the same, if a guarantee bounds it
    #: whether it read what stays with a client, such as a personal model: no release, so that no guarantee bounds it
    at_home: bool = False
    partial: str = ""  #: why the attack is incomplete, or empty
    #: the least value that would have been found with probability :data:`POWER`; None if unknown. An attack states it
    #: if its threshold lies above the baseline
    detectable: float | None = None
    #: p-value at the baseline, if the attack knows better than its interval
    chance: float | None = None
    risk: Risk = ""  #: the regulators' risk that it measures
    harm: str = ""  #: what it means for a person, in one clause
    #: by data owner, the false positive rate at which each of its records is found, in the table's order, NaN if
    #: it was not scored: for the holder of the truth alone, and no part of :meth:`to_dict`
    exposed: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("value", "of", "low", "high", "baseline", "detectable", "chance"):
            figure = getattr(self, name)
            number = isinstance(figure, Real) and not math.isnan(figure)
            if not number and (figure is not None or name == "value"):
                raise InputError(f"finding of {self.attack!r}: {name} is not a number")
        ends = [end for end in (self.low, self.value, self.high) if end is not None]
        if any(a > b + ROUNDING * max(1.0, abs(b)) for a, b in pairwise(ends)):
            raise InputError(f"finding of {self.attack!r}: value must lie between low and high")
        if self.severity not in set(Severity):
            known = ", ".join(Severity)
            raise InputError(f"finding of {self.attack!r}: severity must be one of {known}")
        if self.limit not in get_args(Limit):
            raise InputError(f"finding of {self.attack!r}: limit must be one of {get_args(Limit)}")
        if self.risk not in get_args(Risk):
            raise InputError(f"finding of {self.attack!r}: risk must be one of {get_args(Risk)}")

    @property
    def share(self) -> float | None:
        """``value`` as a fraction of ``of``; None without one."""
        return self.value / self.of if self.of else None

    @property
    def above(self) -> float:
        """How far the value lies above the baseline, in its own range."""
        return (self.value - (self.baseline or 0.0)) / (self.of or max(self.value, 1.0))

    def _repr_html_(self) -> str:
        """HTML for notebooks: the question, the value and the baseline, why it did not look, and if only a simulation has it."""
        within = f" of {self.of:g}" if self.of is not None else ""
        text = f"{escape(self.metric)}: <b>{self.value:.4g}</b>{within}"
        if self.low is not None and self.high is not None:
            text += f", 95 % interval {self.low:.4g} to {self.high:.4g}"
        if self.baseline is not None:
            text += f", without the release {self.baseline:.4g}"
        why = f": {self.why_not}" if self.why_not else ""
        text += " (simulation: scored with the true records)" * self.simulation
        head = f"<b>{escape(self.attack)}</b> ({escape(self.severity)}, {self.state}{escape(why)})"
        return f"<p>{head}: {escape(self.question)}<br>{text}</p>"

    @property
    def state(self) -> State:
        """``found``; ``looked``, and would have found :attr:`detectable`; or ``not looked``.

        An attack that was cut short did not look, nor did one without power for any effect.
        """
        if self.severity != Severity.NONE:
            return "found"
        blind = self.detectable is not None and self.of is not None and self.detectable > self.of
        return "not looked" if self.partial or blind else "looked"

    @property
    def why_not(self) -> str:
        """Why it did not look; empty if it did."""
        if self.state != "not looked":
            return ""
        return self.partial or "with so few draws, chance could explain even the largest effect"

    @property
    def std(self) -> float | None:
        """Standard deviation of the value, from its interval; None for a count or a proof.

        With a baseline of 0 nothing occurs by chance: such a finding is a proof.
        """
        if self.low is None or self.high is None or not self.baseline or self.low == self.high:
            return None
        return max(self.high - self.value, self.value - self.low) / HALF

    @property
    def p_value(self) -> float | None:
        """Probability of as large a value at the baseline; None for a count or a proof.

        The attack's :attr:`chance`, or else as if normal, from the interval.
        """
        if self.chance is not None:
            return self.chance
        if self.std is None or self.baseline is None:
            return None
        return float(ndtr((self.baseline - self.value) / self.std))

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON data, without the figures of single records."""
        data = asdict(replace(self, exposed={}))
        del data["exposed"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote, from JSON too; an unknown key is an InputError."""
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise InputError(f"finding: unknown key {unknown[0]!r}; known are {sorted(known)}")
        return cls(**{**data, "releases": tuple(data.get("releases", ()))})


def corrected(findings: Sequence[Finding], level: float = LEVEL) -> list[Finding]:
    """Findings at one family-wise level, with the detectable effect of each.

    Bonferroni: each of the m findings with an interval is a test at ``level`` / m, so that with
    probability ``level`` at most any of them is found by chance alone. Counts and proofs are none.
    """
    tests = sum(finding.p_value is not None for finding in findings)
    return [_at_level(finding, level / max(tests, 1)) for finding in findings]


def _at_level(finding: Finding, level: float) -> Finding:
    baseline, p = finding.baseline or 0.0, finding.p_value
    if p is None:
        counted = finding.low is None and (finding.of is None or finding.of > 1)
        minimum = math.floor(baseline) + 1.0 if counted and finding.baseline is not None else None
        return finding if finding.detectable is not None else replace(finding, detectable=minimum)
    std = finding.std
    if std is None:  # all pairs ordered correctly, or none: the interval has no width
        std = abs(finding.value - baseline) / max(float(-ndtri(min(p, 1 - p))), LEAST_SCORE)
    reach = float(max(-ndtri(level), HALF) + ndtri(POWER)) * std
    not_significant = finding.severity != Severity.NONE and p > level
    notes = [
        finding.detail.get("note"),
        not_significant and "above its baseline, but not at the level of all findings",
    ]
    note = {"note": "; ".join(map(str, filter(None, notes)))} if any(notes) else {}
    return replace(
        finding,
        severity=Severity.NONE if not_significant else finding.severity,
        detectable=max(baseline + reach, finding.detectable or 0.0),
        detail={**finding.detail, **note},
    )
