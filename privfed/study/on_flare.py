"""A study on NVIDIA FLARE: the server's side of its job, and the job itself."""

from __future__ import annotations

import shutil
from pathlib import Path

from nvflare.collab import collab

from privfed.engines import flare
from privfed.errors import InputError
from privfed.exchange.channel import RetryLimits
from privfed.study import Study
from privfed.study.deployed import Deployment


class Studying:
    """A Collab server that carries out a study.

    Args:
        study: the study file, on the server's machine.
        out: the folder for its output, there as well.
        policy: one of the study's policies; the first where empty.
        deadline: seconds to go on asking an owner that is silent.
    """

    def __init__(self, study: str, out: str, policy: str = "", deadline: float = 600.0) -> None:
        self.study, self.out, self.policy, self.deadline = study, out, policy, deadline

    @collab.main  # type: ignore[untyped-decorator, unused-ignore]
    def run(self) -> None:
        """Learn from the job's sites."""
        chosen = Deployment.of(Study.from_toml(self.study), self.out, self.policy)
        chosen.run(flare.FlareDisclosure, patience=RetryLimits(deadline=self.deadline))


def write_job(folder: Path, study: Path, out: Path, policy: str = "") -> Path:
    """Write a job that ``nvflare job submit -j`` takes.

    Args:
        folder: a new folder.
        study: the study file, as the server's machine will find it.
        out: where the output goes, there as well.
        policy: one of the study's policies; the first where empty.

    Raises:
        InputError: the folder holds something, or the study is not as it must be.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"folder {folder}: holds something; name a new one")
    chosen = Deployment.of(Study.from_toml(study), out, policy)
    server = Studying(str(study.resolve()), str(out.resolve()), chosen.choice.name)
    partial = folder.with_name(f".{folder.name}.partial")
    flare.recipe(server, chosen.clients).export(str(partial))
    (made,) = partial.iterdir()
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    partial.rmdir()
    return folder
