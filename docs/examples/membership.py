"""
Who was in the data?
====================

An attack reads what left three hospitals, never the records; these only score it. Suppressing small cells (``strict``)
is no privacy: only the finite budget keeps the attacker near a coin's odds.
"""

from privfed import LocalDisclosure, Records
from privfed.attacks.membership import Membership
from privfed.learners import FuzzyTreeRegressor
from privfed.testing.hospitals import NUMERIC, patients

frame = patients(900)
truth = {
    name: Records.from_frame(own.drop(columns="hospital"), NUMERIC, None, name)
    for name, own in frame.groupby("hospital")
}
learner = FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=2)
for policy in (learner.published(strict=True), learner.private(epsilon=2)):
    federation = LocalDisclosure.from_frame(
        frame, target="days", client="hospital", schema=NUMERIC, policy=policy
    )
    learner.fit(federation)
    for finding in Membership().run(federation.transcript(), truth, NUMERIC):
        print(f"{policy.name:10} {finding.metric}: {finding.value:.2f} ({finding.state})")
