"""
Laws of noise, and what each loses
==================================

The privacy loss of a Gaussian and a Laplace mechanism of the same standard deviation, exactly.
"""

import matplotlib.pyplot as plt
import numpy as np

from privfed.privacy.laws import DiscreteGaussian, DiscreteLaplace

points = np.arange(-60, 61)
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for law in (DiscreteGaussian(10), DiscreteLaplace(10 / np.sqrt(2))):
    axes.plot(points, np.exp(law.log_mass(points)), label=f"{law.name}: std {law.std:.1f}")
axes.set(yscale="log", xlabel="noise, in grid units", ylabel="probability")
axes.legend()
