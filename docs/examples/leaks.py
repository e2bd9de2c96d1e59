"""
Does it leak?
=============

One assertion over whatever leaves: means by group are quiet, the cells of one person's row are not.
"""

import numpy as np
import pandas as pd

from privfed.testing import RawValueLeft, assert_no_raw, sentinels

rng = np.random.default_rng(0)
like = pd.DataFrame(
    {
        "email": [f"{'abcdefgh'[n % 8]}{'aeiou'[n % 5]}nk{n * 37}@example.org" for n in range(40)],
        "ward": list("abcd") * 10,
        "dose": rng.lognormal(1, 0.4, 40).round(3),
    }
)
table = sentinels(like, 200)

assert_no_raw(table.groupby("ward")["dose"].mean().to_dict(), table)
print("means by ward: nothing found")
try:
    assert_no_raw(f"dose out of range for {table['email'][17].upper()}", table)
except RawValueLeft as caught:
    print(caught)
