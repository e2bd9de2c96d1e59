"""Ranking of records by how easily attacks find them: for the holder of the records only, on request."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from privfed.attacks.finding import Finding
from privfed.study.simulation import Prepared


def rows_of(prepared: Prepared) -> dict[str, np.ndarray]:
    """Return line numbers of each owner's records in the table (the header is line 1), and of all under ""."""
    owners = prepared.train[prepared.owner].astype(str).to_numpy()
    lines = prepared.train.index.to_numpy(int) + 2
    return {"": lines} | {owner: lines[owners == owner] for owner in prepared.owners}


def exposed(findings: Sequence[Finding], rows: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Rank records by the lowest false positive rate at which an attack finds them, most exposed first.

    Rates are of this run: with other noise or coins, the ranking differs.

    Args:
        findings: with scores of single records.
        rows: line numbers of each owner's records; for a masked total those of all, under "".

    Returns:
        a table by columns: ``owner``, ``row``, ``least`` rate, ``by`` which attack, then the rates of each finding,
        NaN if it did not score the record. Records without a score are left out.
    """
    exposures = {
        f"{finding.attack}: {finding.metric}": finding.exposed
        for finding in findings
        if finding.exposed
    }
    tables = []
    for owner in dict.fromkeys(name for by_owner in exposures.values() for name in by_owner):
        lines = rows.get(owner, rows[""])
        rates = {
            name: by_owner.get(owner, np.full(len(lines), np.nan))
            for name, by_owner in exposures.items()
        }
        tables.append(pd.DataFrame({"owner": owner, "row": lines, **rates}))
    if not tables:
        return {}
    table = pd.concat(tables, ignore_index=True)
    judged = table[list(exposures)].fillna(np.inf)
    table.insert(2, "least", judged.min(axis=1))
    table.insert(3, "by", [str(name).split(":")[0] for name in judged.idxmin(axis=1)])
    ranked = table[np.isfinite(table["least"])].sort_values("least", kind="stable")
    return {str(name): ranked[name].tolist() for name in ranked}
