"""The server's draws: features of a node, clients of a tree.

Each is a hash of its purpose, not the next number of a stream, so that a node's features do not
depend on when other nodes closed.
"""

import numpy as np

_U64 = np.uint64
_GOLDEN = _U64(0x9E3779B97F4A7C15)


def mixed(values: np.ndarray) -> np.ndarray:
    """Hash integers to 64 bits (the finalizer of splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = values.astype(_U64) + _GOLDEN
        z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> _U64(31)))


def children(names: np.ndarray) -> np.ndarray:
    """Return the seeds of each node's left and right child, shape (nodes, 2)."""
    return mixed(names[:, None] ^ mixed(np.arange(1, 3)))


def ranking(names: np.ndarray, size: int) -> np.ndarray:
    """Return a random permutation of ``size`` items for each seed, shape (seeds, size)."""
    keys = mixed(names[:, None] ^ mixed(np.arange(3, 3 + size)))
    return np.argsort(keys, axis=1)


def roots(seed: int, trees: int) -> np.ndarray:
    """Return the seeds of the roots of ``trees`` trees."""
    return mixed(mixed(np.array([seed % 2**63]))[0] ^ mixed(np.arange(trees) + 2**32))
