"""A table of `privfed reproduce` as a file of `benchmarks/results`.

    python benchmarks/reproduced.py forest/appendix-f2 --repetitions 5 [--data FOLDER] [--note TEXT] --out forest_f2

Means over repetitions, after them deviations, whose root mean squares are not the standard errors that
`privfed reproduce` prints.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from result_rows import PaperRows, arguments
from results_page import SECTIONS

from privfed.study.papers import TABLES, data, find


def label(name: str) -> str:
    """What a table is called on its page: ``forest/table-5`` is Table 5, with what it shows."""
    kind, _, number = name.partition("/")[2].partition("-")
    return f"{kind.capitalize()} {number.upper()}, {find(name).title}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="*", help="only these of its data sets")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", required=True, help="write results/OUT.csv")
    given = parser.parse_args()
    section = given.table.partition("/")[0].replace("-", "_")
    chosen = find(given.table)
    frames = {one: data.table(one, given.data) for one in given.sets or chosen.data}
    cells = PaperRows(SECTIONS[section], f"0 to {given.repetitions - 1}")
    for one in chosen.run(frames, given.repetitions):
        runs = len(one.ours)
        spread = float(np.std(one.ours, ddof=1)) if runs > 1 else ""
        about = f"means over {runs} repetitions" if runs > 1 else "one run"
        about += f"; {given.note}" * bool(given.note)
        cells.add(
            label(given.table),
            one.row,
            column=one.column,
            theirs="" if one.paper is None else one.paper,
            ours=float(np.mean(one.ours)),
            spread=spread,
            note=about,
        )
    print(cells.write(given.out))


if __name__ == "__main__":
    main()
