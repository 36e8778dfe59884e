"""Random layers, their examples, and random sets with targets: the ones that ``attnlearn generate`` draws from the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._inputs import real, whole
from ._layer import AttentionLayer

__all__ = ["examples", "random_layer", "sets"]


def random_layer(d: int, heads: int, *, d_out: int | None = None, norm: float = 6.0, rank: int | None = None, seed: int = 0) -> AttentionLayer:
    """Draw a random layer without biases.

    Parameters
    ----------
    d : int
        Token dimension.
    heads : int
        Number of heads.
    d_out : int, optional
        Output dimension; d if not given.
    norm : float, default=6.0
        Frobenius norm of every attention matrix.
    rank : int, optional
        Rank of the attention matrices; full if not given.
    seed : int, default=0
        Of the draw.

    Returns
    -------
    AttentionLayer
    """
    limit = 1 << 14
    return AttentionLayer._of(
        _native.random_layer(
            whole(d, "d", 1, limit),
            whole(heads, "heads", 1, limit),
            d_out=None if d_out is None else whole(d_out, "d_out", 1, limit),
            norm=real(norm, "norm"),
            rank=None if rank is None else whole(rank, "rank", 1, limit),
            seed=whole(seed, "seed", 0, 2**64 - 1),
        )
    )


def examples(
    layer: AttentionLayer, n: int, k: int, *, inputs: str = "boolean", seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw sequences and compute a layer's outputs.

    Parameters
    ----------
    layer : AttentionLayer
        The teacher.
    n : int
        Sequences.
    k : int
        Tokens of each.
    inputs : {"boolean", "gaussian", "sphere"}, default="boolean"
        Distribution of the tokens.
    seed : int, default=0
        Of the draw.

    Returns
    -------
    X : ndarray of shape (n, k, d)
    Y : ndarray of shape (n, k, d_out)
    """
    return _native.examples_of(layer._layer, whole(n, "n", 1), whole(k, "k", 1), inputs=inputs, seed=whole(seed, "seed", 0, 2**64 - 1))


def sets(
    target: str,
    n: int,
    *,
    d: int = 16,
    keys: int = 16,
    min_keys: int | None = None,
    inputs: str = "sphere",
    noise: float = 0.0,
    seed: int = 0,
    target_seed: int = 0,
) -> tuple[Any, NDArray[np.float64]]:
    """Draw sets, a query with its keys each, whose target is a function of them with variance 1.

    Parameters
    ----------
    target : str
        ``query:p=``, ``average:p=``, ``correlation:p=,q=``, ``softmax:scale=``, …, as of ``attnlearn generate --target``.
    n : int
        Sets.
    d : int, default=16
        Dimension of query and keys.
    keys : int, default=16
        Keys of a set, N.
    min_keys : int, optional
        The fewest keys; then lengths are uniform between the two.
    inputs : {"sphere", "gaussian"}, default="sphere"
        Distribution of query and keys.
    noise : float, default=0.0
        Standard deviation of the noise.
    seed, target_seed : int, default=0
        Of the draw, and of the target.

    Returns
    -------
    X : ndarray of shape (n, N+1, d), or tuple
        The query, then the keys; where lengths differ a tuple ``(query, keys, mask)``.
    y : ndarray of shape (n,)
    """
    most = 1 << 20
    x, y, lengths = _native.target_values(
        target,
        whole(n, "n", 1),
        d=whole(d, "d", 1, most),
        keys=whole(keys, "keys", 1, most),
        min_keys=None if min_keys is None else whole(min_keys, "min_keys", 1, most),
        inputs=inputs,
        noise=real(noise, "noise"),
        seed=whole(seed, "seed", 0, 2**64 - 1),
        target_seed=whole(target_seed, "target_seed", 0, 2**64 - 1),
    )
    if min_keys is None or min_keys == keys:
        return x, y
    mask = np.arange(x.shape[1] - 1) < lengths[:, None]
    return (np.ascontiguousarray(x[:, 0]), np.ascontiguousarray(x[:, 1:]), mask), y
