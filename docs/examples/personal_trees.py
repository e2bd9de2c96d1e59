"""
A tree for each owner
=====================

FedGA-Tree learns a shared part together; each hospital completes it in its own local store.
"""

from privfed import LocalDisclosure
from privfed.learners import GeneticTreeRegressor
from privfed.testing.hospitals import NUMERIC, patients

learner = GeneticTreeRegressor(max_depth=3, generations=10, random_state=0)
policy = learner.private(epsilon=4)
federation = LocalDisclosure.from_frame(
    patients(3000), target="days", client="hospital", schema=NUMERIC, policy=policy
)
learner.fit(federation)
for hospital in federation.clients[:2]:
    print(f"--- {hospital}\n{learner.describe(client=hospital)}")
