"""Time of the default federated fit, ledger on, beside imodels' centralized RuleFit.

    pip install imodels        # the peer; a benchmark's dependency only
    OMP_NUM_THREADS=1 python benchmarks/rulefit_speed.py

Five clients of 4,000 records, ten covariates (Model 2 of the simulations), secure noise.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from rulefit_simulations import NAMES, SCHEMA, draw, scores, split
from sklearn.metrics import roc_auc_score

from privfed import LocalDisclosure
from privfed.learners import RuleFitClassifier


def main() -> None:
    from imodels import RuleFitClassifier as Peer

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    train, test = draw(2, 20_000, rng), draw(2, 5_000, rng)
    learner = RuleFitClassifier(random_state=0)
    start = time.process_time()
    gates = LocalDisclosure.from_frame(
        split(train, (0.2,) * 5), "y", client="client", schema=SCHEMA, policy=learner.published()
    )
    learner.fit(gates)
    own = time.process_time() - start
    start = time.process_time()
    peer = Peer().fit(train[NAMES].to_numpy(), train["y"].to_numpy())
    other = time.process_time() - start
    chance = peer.predict_proba(test[NAMES].to_numpy())[:, 1]
    print(
        f"federated {own:.1f} s, {len(learner.rules_)} rules, AUC {scores(learner, test)['auc']:.4f}"
    )
    print(
        f"imodels   {other:.1f} s, {len(peer.rules_)} rules, AUC {roc_auc_score(test['y'], chance):.4f}"
    )
    print(f"ratio {own / other:.2f} (processor time)")


if __name__ == "__main__":
    main()
