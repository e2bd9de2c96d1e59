"""The command that reproduces a paper's table."""

from pathlib import Path

import click

from privfed.cli.common import FINE, PATH


@click.command()
@click.argument("table", required=False)
@click.option("--list", "listed", is_flag=True, help="List what can be rerun.")
@click.option(
    "--quick", is_flag=True, help="The first data set, two repetitions; of long tables a few rows."
)
@click.option("--data", type=PATH, help="Folder of the data sets that are not bundled, NAME.csv.")
def reproduce(table: str | None, listed: bool, quick: bool, data: Path | None) -> int:
    """Rerun a TABLE of a learner's paper. Its figures are shown beside ours; rulefit/table-1 is
    one."""
    from privfed.reports.provenance import provenance
    from privfed.study import papers

    if listed or table is None:
        width = max(map(len, papers.TABLES))
        for name, run in papers.TABLES.items():
            sources = ", ".join(run.data) or "none"
            click.echo(
                f"{name:{width}}  {run.title}; {run.repetitions} repetition{'s' * (run.repetitions > 1)}; data: {sources}"
            )
        return FINE
    frame, remarks = papers.reproduce(table, data, quick=quick)
    text = frame.to_string(index=False, float_format="{:.4g}".format, na_rep="-")
    if frame["paper"].isna().any():
        text += "\npaper -: not printed in the paper, or missing from the text that we have"
    click.echo("\n".join([*remarks, text, provenance()]))
    return FINE
