"""
A mechanism, and one that claims too much
=========================================

An audit runs a mechanism on neighbouring inputs many times, and proves a lower bound on what it loses. Here one
draws half of the noise that it is charged for.
"""

from privfed.audits.mechanisms import audit
from privfed.mechanisms.laplace import Laplace
from privfed.privacy.noise import SecureNoise


class Half(SecureNoise):
    """A source that draws half of the noise."""

    def laplace(self, size, scale):
        return super().laplace(size, scale / 2)


for name, source in {"as charged": SecureNoise(), "half of the noise": Half()}.items():
    found = audit(Laplace(), 1, trials=20_000, noise=source)
    print(f"{name}: {found.metric} {found.value:.2f}, claimed 1: {found.severity}")
