"""
What an epsilon means
=====================

Members found at one false alarm in a hundred, at most, whatever the attack.
"""

import matplotlib.pyplot as plt
import numpy as np

from privfed.accountants.risk import Tradeoff

epsilons = np.geomspace(0.1, 10, 40)
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for rate in (0.01, 0.1):
    found = [Tradeoff.approximate(float(e), 1e-5).found(rate) for e in epsilons]
    axes.plot(epsilons, found, label=f"{rate:.0%} of the others accused")
axes.set(xscale="log", xlabel="epsilon (delta 1e-5)", ylabel="members found, at most")
axes.legend()
