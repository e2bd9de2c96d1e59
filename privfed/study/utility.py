"""Errors of counts and means under a budget, from noise and public bounds, without reading records."""

from dataclasses import dataclass
from math import sqrt

from privfed.owner.guards import bounded_under
from privfed.owner.opendp_maps import checked
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import accountant_of, mechanism_of
from privfed.questions.part import GRID, Bound, Part, PartType, Sensitivity
from privfed.reports.metrics import measured
from privfed.tables.schema import Schema

RECORDS = (100, 1_000, 10_000)  #: Numbers of records for which errors of means are stated


@dataclass(frozen=True)
class Utility:
    """Standard deviations of noise, at one owner, if a budget is spent on these statistics only.

    The budget is divided equally: one query for the number of records, one for each column. A numeric
    column's query is the sum of its values' deviations from the middle of its bounds, each at most half
    of their width; a categorical column's is the count of each category. Adding or removing a record
    changes the former by half a width and one cell of the latter by 1, which are the sensitivities that
    the noise is calibrated to (under another unit or relation, the policy's).
    """

    policy: Policy
    count: float  #: of the number of records, in total or in one category
    means: dict[str, float]  #: of each numeric column's sum about its middle, in the column's unit
    categorical: tuple[str, ...]  #: the columns of categories, whose counts err like ``count``

    def of_mean(self, column: str, records: int) -> float:
        """Return the error of a column's mean over ``records`` records, a public number."""
        return self.means[column] / records


def utility(policy: Policy, schema: Schema) -> Utility | None:
    """Return the errors of a schema's counts and means under a policy's budget; None without a budget."""
    if policy.budget is None:
        return None
    accountant = accountant_of(policy)
    columns = schema.columns
    spend = accountant.ceiling(policy.budget)[0] / (1 + len(columns))
    name = "laplace" if accountant.name == "pure" else "gaussian"
    guard = Guard.of(name, spend=spend)

    def std(part: Part) -> float:
        group = {"all": bounded_under(part, policy)}
        law = checked(mechanism_of(guard), group, spend).laws["all"]
        return law.std * float(part.grid)

    count = std(Part(PartType.COUNTS, ("cell",), (1,), Sensitivity(Bound(1, 1))))
    half = std(Part(PartType.SUMS, ("cell",), (1,), Sensitivity.of(int(1 / GRID)), GRID))
    widths = {c.name: (c.bounds[1] - c.bounds[0]) / 2 for c in columns if c.numeric}
    return Utility(
        policy,
        count,
        {column: half * width for column, width in widths.items()},
        tuple(c.name for c in columns if not c.numeric),
    )


def utility_text(stds: Utility | None, policy: Policy, schema: Schema, owners: int) -> str:
    """Format the errors under a budget, for one owner and, if known, for all owners together."""
    if stds is None:
        return f"{policy.name}: no budget, so no errors to state"
    sizes = "".join(f"{size:>12,}" for size in RECORDS)
    labels = {
        c.name: f"{c.name}, {measured(c.bounds[0], 6)} to {measured(c.bounds[1], 6)}"
        for c in schema.columns
        if c.numeric
    }
    wide = max([24, *map(len, labels.values())])
    split = f"split equally over {1 + len(schema.columns)} queries"
    lines = [
        f"  the whole budget on counts and means alone, {split}: standard deviation of the noise at one owner",
        f"    {'number of records':{wide}} {measured(stds.count, 3):>12}",
    ]
    if stds.categorical:
        lines.append(f"    number in a category of {', '.join(stds.categorical)}: the same")
    if labels:
        lines.append(f"    {'mean over records:':{wide}} {sizes}")
    for name, label in labels.items():
        texts = "".join(f"{measured(stds.of_mean(name, size), 3):>12}" for size in RECORDS)
        lines.append(f"    {label:{wide}} {texts}")
    if owners > 1:
        masked = policy.masked
        honest = 1 if masked is None else (masked.least or owners) - masked.colluding
        why = "since each adds its own" if masked is None else "of masked shares"
        times = f"{measured(sqrt(owners / honest), 3)} times as much for the total, {why}"
        lines.append(f"    of {owners} owners: {times}")
    return "\n".join(lines)
