"""How a study's models are read alone: its table ``[shadows]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from privfed.attacks.shadow_models import Way
from privfed.errors import StudyError

if TYPE_CHECKING:
    from privfed.study.study import Study

#: Most shadows of a policy: each is a whole training.
MOST = 1000


@dataclass(frozen=True)
class ShadowChoice:
    """Readers of the model alone: ``[shadows]``. Each shadow costs one more training per policy.

    Args:
        number: how many shadow models there are for each policy, about.
        seconds: after which no further ones are trained.
        ways: how a model is read: ``lira``, ``rmia``, or either with ``-offline``.
    """

    number: int = 16
    seconds: float = 120.0
    ways: tuple[Way, ...] = ("lira", "rmia")


def check_shadows(study: Study, where: str) -> None:
    """Hold the figures to what can be done, and to studies of tables that are simulations.

    Raises:
        StudyError: too few or too many shadows, no time, no way to read by, or no such study.
    """
    shadows, where = study.shadows, f"{where}, [shadows]"
    if shadows is None:
        return
    if study.ledgers is not None or study.clients.partition == "cohort":
        raise StudyError(
            f"{where}: trains further models on a table that nothing is charged for; leave it out where "
            "ledgers last or a cohort is asked"
        )
    if not 2 <= shadows.number <= MOST:
        raise StudyError(
            f"{where}: number must lie between 2 and {MOST}, not {shadows.number}; write number = 16"
        )
    if not shadows.seconds > 0:
        raise StudyError(f"{where}: seconds must be above 0; write seconds = 120")
    if not shadows.ways:
        raise StudyError(f'{where}: ways is empty; write ways = ["lira", "rmia"], or leave it out')
