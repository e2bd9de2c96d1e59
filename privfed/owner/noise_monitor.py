"""Monitor the noise of an owner's releases, by test statistics that stay with the owner."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from time import monotonic

import numpy as np
from scipy.special import erfc, ndtri_exp

from privfed.errors import LedgerError
from privfed.ledger.secret import beside
from privfed.owner.local_store import LocalStore
from privfed.privacy.laws import DiscreteGaussian, DiscreteLaplace, Law, SumOfGaussians
from privfed.privacy.masked_sums import AnyProtection
from privfed.privacy.mechanism import Cells, Mechanism, Protected

#: Ending of the file next to a ledger, and the name of the sums in it.
ENDING, NAME = ".noise", "tally"
#: Minimum seconds between writes of the file: the most that a crash loses.
SECONDS = 5.0
CELLS = 2**16  #: Maximum cells of one part that are tested; the first ones
HELD = 2**22  #: Maximum cells with scores in memory for comparison with other owners
PARTS = 64  #: Maximum parts that are monitored by name
#: Bins of exact cells, in standard deviations of the noise; the first and last are open.
SIZES = (1e-9, 1.0, 10.0, 30.0, 100.0, 1000.0)
RARE = 1e-3  #: Noise is wide if its probability of zero is below this
#: Tails, in standard deviations, with their probability.
TAILS = {tail: float(erfc(tail / math.sqrt(2))) for tail in (2.0, 3.0, 4.0, 5.0)}
#: Minimum standard deviation, in grid units, for uniform low bits: Laplace noise of that scale has a Fourier
#: coefficient of 4e-7 at a period of sixteen.
WIDE, LOW_BITS = 2.0**12, 2 ** np.arange(4).reshape(-1, 1, 1)
#: Minimum sigma, in grid units, for treating a discrete Gaussian with a uniform jitter as continuous: its variance is 1
#: / (12 sigma^2) too large, which a million draws do not detect.
CONTINUOUS = 20.0


class NoiseSums(dict[str, tuple[float, ...]]):
    """Sums over cells by label, which can be added to another tally's.

    Labels start with the statistic: ``score`` (cells, sum and sum of squares of normal scores), ``sign`` (cells, and
    scores times signs of other scores), ``count`` (cells, observed and expected number), ``unread`` (cells whose noise
    is not tested, and why).
    """

    def add(self, label: str, *sums: float) -> None:
        """Add sums to a label's."""
        known, new = self.get(label), tuple(map(float, sums))
        self[label] = new if known is None else tuple(map(sum, zip(known, new, strict=True)))

    def add_all(self, other: Mapping[str, Iterable[float]]) -> NoiseSums:
        """Add another tally's sums, and return this one."""
        for label, sums in other.items():
            self.add(label, *sums)
        return self

    @property
    def cells(self) -> int:
        """Number of cells whose noise was tested."""
        return int(self.get("score all", (0.0,))[0])


class OtherOwners:
    """Sums of scores over owners of the same query, in one process: see :meth:`NoiseMonitor.observe`."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], np.ndarray] = OrderedDict()
        self._cells = 0
        self._lock = threading.Lock()

    def add(self, question: tuple[str, str], scores: np.ndarray) -> np.ndarray | None:
        """Add scores to the query's sum, and return the sum before them, or None."""
        with self._lock:
            before = self._held.pop(question, None)
            fits = before is not None and before.shape == scores.shape
            self._held[question] = before + scores if fits and before is not None else scores
            self._cells += len(scores) - (0 if before is None else len(before))
            while self._cells > HELD:
                self._cells -= len(self._held.popitem(last=False)[1])
            return before if fits else None


class NoiseMonitor:
    """Sums statistics of the noise of one gate's releases, in a file next to the ledger, or in memory."""

    def __init__(self, path: Path | None = None, dataset: str = "", secret: bytes = b"") -> None:
        self.tally = NoiseSums()  #: This process's sums
        #: Other owners to compare with, in a simulation.
        self.others: OtherOwners | None = None
        self._store = None if path is None else LocalStore(beside(path, ENDING), dataset)
        seed = hashlib.sha256(secret + b"\x00noise monitor").digest()
        self._rng = np.random.default_rng(int.from_bytes(seed, "big"))
        self._unwritten, self._written = NoiseSums(), monotonic()
        self._before: dict[tuple[str, str], np.ndarray] = {}
        self._releases, self._parts = 0, set[str]()

    def observe(
        self, kind: str, query: str, protection: AnyProtection, exact: Cells, released: Protected
    ) -> None:
        """Add the noise of one group of parts; errors are counted, and never stop an answer.

        ``exact`` has each part's array before protection, ``released`` after it.
        """
        sums = NoiseSums({"unread error": (1.0,)})
        with suppress(Exception):
            sums = self._observed(kind, query, protection, exact, released)
        self.tally.add_all(sums)
        if self._store is not None:
            self._unwritten.add_all(sums)
            if monotonic() - self._written > SECONDS:
                with suppress(LedgerError):  # written later if not now
                    self.write()

    def _observed(
        self, kind: str, query: str, protection: AnyProtection, exact: Cells, released: Protected
    ) -> NoiseSums:
        sums, mechanism, laws = NoiseSums(), protection.mechanism, protection.drawn
        called = sum(exact[name].size for name in laws if name in exact)
        self._releases, before = self._releases + 1, None
        for name, bounded in protection.group.items():
            law = laws.get(name)
            if law is None:
                if mechanism.currency is not None and bounded.bound and bounded.bound.l1:
                    sums.add("unread no law", exact[name].size)
                continue
            if type(mechanism).finish is not Mechanism.finish:
                sums.add("unread finished", exact[name].size)
                continue
            truth, cells_released = protection.on_grid(name, exact[name]).ravel(), released[name]
            if np.ma.getmask(cells_released).any():
                sums.add("unread suppressed", exact[name].size)
                continue
            if not truth.size:
                continue
            row = truth.size // len(cells_released) if truth.dtype == bool else 1
            cells = np.asarray(cells_released.data).ravel()
            scores = self._cells(sums, law, truth[:CELLS], cells[:CELLS], row)
            sums.add("unread beyond", max(0, truth.size - CELLS))
            part_name = f"{kind} {name}"
            self._parts |= {part_name} if len(self._parts) < PARTS else set()
            if part_name in self._parts:
                _moments(sums, f"part {part_name}", scores)
            _moments(sums, f"calls of {8 ** min(4, int(math.log2(called) // 3))} cells on", scores)
            _moments(sums, f"releases from {2 ** int(math.log2(self._releases))} on", scores)
            _together(sums, "neighbouring cells", scores[1:], scores[:-1])
            if before is not None:
                _together(sums, "parts of one release", *_cut(scores, before))
            before = scores
            last = self._before.get((kind, name))
            if last is not None:
                _together(sums, "the release before", *_cut(scores, last))
            self._before[kind, name] = scores
            if self.others is not None:
                others = self.others.add((query, name), scores)
                if others is not None:
                    _together(sums, "owners asked the same", scores, others)
        return sums

    def _cells(
        self, sums: NoiseSums, law: Law, truth: np.ndarray, released: np.ndarray, row: int
    ) -> np.ndarray:
        """Add one part's statistics, ``row`` cells per position, and return its scores, shape (cells,)."""
        bits = truth.dtype == bool
        noise = (truth ^ released.astype(bool)).astype(np.int64) if bits else released - truth
        whole = np.rint(noise).astype(np.int64)
        scores = normal_scores(law, whole, self._rng)
        _moments(sums, "all", scores)
        zero, p_zero = noise == 0, silent(law)
        width = "wide" if p_zero < RARE else "narrow"
        sums.add(f"count no noise, {width}", len(scores), zero.sum(), len(scores) * p_zero)
        sums.add("count fractions", len(scores), (noise != whole).sum(), 0.0)
        far = np.abs(scores)
        for tail, p_tail in TAILS.items():
            count, expected = (far > tail).sum(), len(scores) * p_tail
            sums.add(f"count beyond {tail:g} deviations", len(scores), count, expected)
        odd = truth.astype(np.int64) & 1
        _binned(sums, odd, scores, [f"{'odd' if each else 'even'} answers" for each in (0, 1)])
        for end, at in (("first", slice(0, row)), ("last", slice(len(scores) - row, None))):
            if len(scores) > 2 * row:
                _moments(sums, f"{end} cells", scores[at])
                sums.add(f"count no noise, {end} cells", row, zero[at].sum(), row * p_zero)
        if not bits:
            size = np.digitize(np.abs(truth) / (law.std or 1.0), SIZES)
            names = ["answers of zero", *(f"answers below {to:g} deviations" for to in SIZES[1:])]
            _binned(sums, size, scores, [*names, "larger answers"])
            _together(sums, "the answer", scores, truth - truth.mean())
        if law.additive and law.std >= WIDE:
            bits_read = np.array([whole, released.astype(np.int64)]) & LOW_BITS
            for bit, ones in enumerate(np.count_nonzero(bits_read, axis=2).tolist()):
                for of, on in zip(("noise", "release"), ones, strict=True):
                    sums.add(f"count bit {bit} of the {of}", len(scores), on, len(scores) / 2)
        return scores

    def write(self) -> None:
        """Add new sums to the file."""
        if self._store is not None and self._unwritten:
            new, self._written = self._unwritten, monotonic()
            self._store.revise(NAME, lambda known: {**NoiseSums(known or {}).add_all(new)})
            self._unwritten = NoiseSums()

    def close(self) -> None:
        """Write, and close the file."""
        self.write()
        if self._store is not None:
            self._store.close()


def read_tally(ledger: Path, dataset: str) -> NoiseSums:
    """Return the sums over all releases of a ledger, from the file next to it; empty if there is none."""
    path = beside(ledger, ENDING)
    if not path.is_file():
        return NoiseSums()
    with closing(LocalStore(path, dataset)) as store:
        return NoiseSums().add_all(store.get(NAME, {}))


def _moments(sums: NoiseSums, label: str, scores: np.ndarray) -> None:
    sums.add(f"score {label}", len(scores), scores.sum(), scores @ scores)


def _binned(tally: NoiseSums, bins: np.ndarray, scores: np.ndarray, names: list[str]) -> None:
    size = len(names)
    numbers = np.bincount(bins, minlength=size)
    sums = np.bincount(bins, weights=scores, minlength=size)
    squares = np.bincount(bins, weights=scores**2, minlength=size)
    for name, *each in zip(names, numbers, sums, squares, strict=True):
        if each[0]:
            tally.add(f"score {name}", *each)


def _together(sums: NoiseSums, label: str, scores: np.ndarray, others: np.ndarray) -> None:
    """Add scores times signs of earlier other scores: over n cells normal with variance n."""
    signs = np.sign(others)
    sums.add(f"sign {label}", (signs != 0).sum(), scores @ signs)


def _cut(*rows: np.ndarray) -> Iterator[np.ndarray]:
    length = min(map(len, rows))
    return (row[:length] for row in rows)


def normal_scores(law: Law, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Map draws of a law, integers or bits (1: flip), to independent standard normal numbers.

    The randomised probability integral transform (Rosenblatt 1952; Smith 1985): for V uniform and independent of k, U =
    P(X < k) + V P(X = k) is uniform if k is a draw of X, for any law, so that Phi^-1(U) is standard normal. Each tail
    is computed from its own side, for precision far out.
    """
    share = rng.random(noise.shape)
    if isinstance(law, DiscreteLaplace):
        return _laplace(law.parameter, noise, share)
    if isinstance(law, DiscreteGaussian | SumOfGaussians) and law.std > CONTINUOUS:
        return np.asarray((noise - 0.5 + share) / math.sqrt(law.std**2 + 1 / 12))
    edges, below, above = _tails(law)
    at = noise - 0.5 + share
    low, high = np.interp(at, edges, below), np.interp(at, edges, above)
    return np.where(low < high, _quantile(np.log(low)), -_quantile(np.log(high)))


def _laplace(scale: float, noise: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return scores for discrete Laplace, by P(X <= -k) = r^k / (1 + r) on either side."""
    ratio, mass = math.exp(-1 / scale), -math.expm1(-1 / scale)
    log_tail = -np.abs(noise) / scale - math.log1p(ratio) + np.log1p((share - 1) * mass)
    return _quantile(log_tail) * np.where(noise > 0, -1, 1)


def _quantile(log_tail: np.ndarray) -> np.ndarray:
    return np.asarray(ndtri_exp(np.clip(log_tail, -700.0, -1e-300)))


@lru_cache(maxsize=256)
def _tails(law: Law) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edges between the law's points, and the probabilities below and above each."""
    points = (law.window if law.additive else np.array([0, 1])).astype(float)
    edges = np.concatenate([points[:1] - 0.5, (points[1:] + points[:-1]) / 2, points[-1:] + 0.5])
    mass = np.exp(law.log_mass(points.astype(np.int64))) * np.diff(edges)
    mass = np.maximum(mass / mass.sum(), 1e-300)
    below = np.concatenate([[1e-300], np.cumsum(mass)])
    above = np.concatenate([np.cumsum(mass[::-1])[::-1], [1e-300]])
    return edges, below, above


@lru_cache(maxsize=256)
def silent(law: Law) -> float:
    """Return the probability that a law's noise is zero."""
    return float(np.exp(law.log_mass(np.array([0]))[0]))
