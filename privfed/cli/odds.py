"""The command that converts epsilon to odds of an attack, and odds to epsilon."""

import click

from privfed.cli.common import FINE
from privfed.errors import InputError
from privfed.lazy import defer


@click.command()
@click.argument("epsilon", required=False)
@click.option("--delta", default="1e-5", show_default=True, help="Delta of the guarantee.")
@click.option("--risk", help='The odds that are acceptable, such as "at most 5 in 100".')
@click.option(
    "--accused",
    default=0.01,
    show_default=True,
    help="Share of the others whom an attacker wrongly accuses.",
)
@click.option(
    "--rate",
    default=0.1,
    show_default=True,
    help="How common a yes is, for a question about a person that is answered by yes or no.",
)
def epsilon(epsilon: str | None, delta: str, risk: str | None, accused: float, rate: float) -> int:
    """Say what EPSILON means in odds. With --risk, the largest epsilon that keeps to given odds.

    \b
    privfed epsilon 2
    privfed epsilon --risk "at most 5 in 100"
    """
    defer("scipy.stats", "pandas")
    from privfed.study.odds import epsilon_for, odds_of

    if epsilon is not None and risk is None:
        click.echo("\n".join(odds_of(epsilon, delta, accused, rate)))
        click.echo(
            "These bounds follow from epsilon and delta alone. A study's report also uses the distribution of the "
            "noise, so its bounds may be lower."
        )
    elif risk is not None and epsilon is None:
        click.echo(epsilon_for(risk, delta, accused))
    else:
        raise InputError('write privfed epsilon 2, or privfed epsilon --risk "at most 5 in 100"')
    return FINE
