"""A study on NVIDIA FLARE: its server, and its job folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.collab import collab

from privfed.engines import flare
from privfed.exchange.channel import RetryLimits
from privfed.study import Study
from privfed.study.deployed import Deployment
from privfed.study.output import new_folder


class Studying:
    """A Collab server that runs a study, by the path of its file on the server.

    An owner that does not reply within ``deadline`` seconds counts as absent.
    """

    def __init__(self, study: str, out: str, policy: str = "", deadline: float = 600.0) -> None:
        self.study, self.out, self.policy, self.deadline = study, out, policy, deadline

    @collab.main  # type: ignore[untyped-decorator, unused-ignore]
    def run(self) -> None:
        """Train on the job's sites."""
        chosen = Deployment.of(Study.from_toml(self.study), self.out, self.policy)
        chosen.run(flare.FlareDisclosure, patience=RetryLimits(deadline=self.deadline))


def write_job(folder: Path, study: Path, out: Path, policy: str = "") -> Path:
    """Write a job for ``nvflare job submit -j`` into a new folder; see :class:`Studying`."""
    chosen = Deployment.of(Study.from_toml(study), out, policy)
    server = Studying(str(study.resolve()), str(out.resolve()), chosen.choice.name)
    with new_folder(folder) as partial, TemporaryDirectory(dir=partial) as made:
        flare.recipe(server, len(chosen.clients)).export(made)
        (job,) = Path(made).iterdir()
        shutil.copytree(job, partial, dirs_exist_ok=True)
    return folder
