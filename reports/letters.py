"""The pages for readers who are no engineers: the board's, the regulator's; and any page as a PDF."""

import subprocess
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from privfed.errors import InputError
from privfed.reports.board import answers, chosen, uncovered
from privfed.reports.budget import Report
from privfed.reports.page import rendered
from privfed.reports.regulator import pyramid

#: Browsers that print a page, in the order in which they are looked for.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "msedge")


def board(report: Report, policy: str = "") -> str:
    """Return the page for whoever answers for a study: what left, to whom, how risky, what to do.

    `policy` is the one that is decided on; by default the first with a finite guarantee.
    """
    decided = chosen(report, policy)
    return rendered(
        "board.html",
        report=report,
        policy=decided,
        said=answers(report, decided),
        others=[
            answers(report, report.standing(other))
            for other in report.policies
            if other.name != decided.name
        ],
        uncovered=uncovered(report),
    )


def regulator(report: Report) -> str:
    """Return the page by the blocks of NIST SP 800-226."""
    pyramids = [(policy, pyramid(report, policy)) for policy in report.policies]
    return rendered("regulator.html", report=report, pyramids=pyramids)


def write_pdf(page: Path, pdf: Path) -> None:
    """Print a page into a file, by a browser without a window; InputError without one, or if it does not print."""
    browser = next(filter(None, map(which, BROWSERS)), None)
    if browser is None:
        raise InputError(
            f"PDF {pdf}: no browser is installed that could print it; install Chromium, or open {page} and "
            "print it"
        )
    with TemporaryDirectory() as profile:
        command = [browser, "--headless", "--disable-gpu", "--no-sandbox"]
        command += [f"--user-data-dir={profile}", "--no-pdf-header-footer"]
        command += [f"--print-to-pdf={pdf}", page.resolve().as_uri()]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError):
            raise InputError(
                f"PDF {pdf}: {Path(browser).name} could not print {page}; open it, and print it"
            ) from None
    if not pdf.exists():
        raise InputError(
            f"PDF {pdf}: {Path(browser).name} wrote nothing; open {page}, and print it"
        )
