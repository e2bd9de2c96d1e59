"""The verdict on a guard: all findings with their power, as text and as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privfed import __version__
from privfed.attacks.finding import Finding
from privfed.errors import InputError
from privfed.guards.adapters import open_guard, why_silent
from privfed.guards.checks import CHECKS, LEVEL
from privfed.guards.claim import GuardClaim
from privfed.guards.trial import GuardTrial

#: What no verdict implies.
CAVEAT = (
    "A guard that is not convicted is not proven private: these checks cover only the properties and the "
    "inputs that they tried."
)
TRIES = 4  #: Number of tries of the usual inputs, as a guard may refuse at random


@dataclass(frozen=True)
class GuardVerdict:
    """The results of all checks of a guard.

    Args:
        guard: its name, ``STACK:MODULE:NAME``.
        claim: what was claimed of it.
        findings: one for each check.
        runs: outputs of each game.
    """

    guard: str
    claim: GuardClaim
    findings: Sequence[Finding]
    runs: int

    @property
    def convicting(self) -> list[Finding]:
        """The findings that refute the claim."""
        return [finding for finding in self.findings if finding.severity == "breach"]

    @property
    def sentence(self) -> str:
        """Return the verdict in one sentence."""
        if self.convicting:
            names = ", ".join(finding.attack for finding in self.convicting)
            return f"convicted by {names}"
        looked = sum(finding.state == "looked" for finding in self.findings)
        return f"not convicted: {looked} of {len(self.findings)} checks looked"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data, from which its page is made."""
        return {
            "guard": self.guard,
            "privfed": __version__,
            "verdict": self.sentence,
            "convicted": bool(self.convicting),
            "claim": self.claim.to_dict(),
            "family-wise level": LEVEL,
            "runs": self.runs,
            "caveat": CAVEAT,
            "findings": [
                {**finding.to_dict(), "state": finding.state, "says": says(finding)}
                for finding in self.findings
            ],
        }

    def text(self) -> str:
        """Return the verdict as lines for a console."""
        wide = max((len(f.attack) for f in self.findings), default=0) + 2
        rows = [f"{f.state:11}{f.attack:{wide}}{says(f)}" for f in self.findings]
        level = f"All checks together convict a correct guard with probability at most {LEVEL:g}."
        return "\n".join([f"{self.guard}: {self.sentence}", *rows, f"{CAVEAT} {level}"])


def says(finding: Finding) -> str:
    """Return a finding's result: what was found, what would have been found, or why nothing was tested."""
    of = "" if finding.of is None else f" of {finding.of:g}"
    text = f"{finding.metric}: {finding.value:.4g}{of}"
    detail = finding.detail
    if finding.state == "not looked":
        return finding.why_not
    if "claimed" in detail:
        text += f", claimed {detail['claimed']:g}"
    if finding.state == "looked" and finding.detectable is not None:
        minimum = f"{finding.detectable:.4g}"
        text += f"; would have found {minimum} with probability .8" if "claimed" in detail else ""
    for key in ("told apart", "convicted"):
        if detail.get(key):
            text += f" ({', '.join(map(str, detail[key]))})"
    if detail.get("grows with the update"):
        text += " (it grows with the update: there is no clipping)"
    return text


def check_guard(
    guard: str, claim: GuardClaim, *, options: Mapping[str, Any] | None = None, **trial: Any
) -> GuardVerdict:
    """Check a guard of another framework against its claim.

    Args:
        guard: its name, ``flower:MODULE:NAME``, ``flare:MODULE:CLASS`` or ``python:MODULE:CALLABLE``.
        claim: what is claimed of it.
        options: arguments of its class.
        trial: shapes, table and runs; see :class:`.GuardTrial`.

    Raises:
        InputError: there is no such guard, no input for it, or it never answers.
    """
    case = GuardTrial(open_guard(guard, options), claim, **trial)
    for given in TRIES * [case.nothing, case.pairs[0].present]:
        why = why_silent(case.open(), given)
        if not why:
            break
    else:
        raise InputError(
            f"guard {guard!r}: it answers none of the inputs tried ({why}); correct that, or, if a function "
            "creates the guard, give its arguments: --options '{}'"
        )
    return GuardVerdict(guard, claim, [check(case) for check in CHECKS], case.runs)
