"""Examples and frozen weights for the references, from a seed.

Inputs: x_0 (the query) and x_1..x_N (the keys), iid uniform on the unit sphere of R^d. Targets, with β uniform on the sphere:

    average:      f(x) = (1/N) Σ_i ⟨β, x_i⟩^p
    correlation:  f(x) = (1/N) Σ_i ⟨x_0, x_i⟩^p ⟨β, x_i⟩^q

each divided by its standard deviation over the inputs, which is known in closed form. Weights: W_m iid N(0, 1/4), and diag(I_d, 0) added
with `--mean identity`.
"""

import argparse
from math import comb, factorial, prod

import numpy as np

BETA, TRAIN, TEST, NOISE, WEIGHTS = range(5)  # streams of random numbers
BLOCK = 4096


def sphere(rng, shape):
    x = rng.standard_normal(shape)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return x


def rng_of(seed, stream):
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))


def target(x, beta, kind, p, q):
    """The target, not yet divided by anything."""
    values = x[:, 1:] @ beta
    if kind == "average":
        return np.mean(values**p, axis=1)
    return np.mean(np.einsum("bk,bik->bi", x[:, 0], x[:, 1:]) ** p * values**q, axis=1)


def pairings(k):
    """(k − 1)!!, the ways to pair k things; none when k is odd."""
    return 0 if k % 2 else prod(range(1, k, 2))


def rising(d, k):
    """d (d + 2) ⋯ (d + k − 2)."""
    return prod(range(d, d + k, 2))


def moment(d, k):
    """E⟨β, x⟩^k for x on the sphere and ‖β‖ = 1."""
    return pairings(k) / rising(d, k)


def joint(d, p, q):
    """Coefficients a_k of E[⟨a, x⟩^p ⟨b, x⟩^q] = Σ_k a_k ⟨a, b⟩^k for unit vectors a and b: k pairs across, the others within."""
    ways = {k: comb(p, k) * comb(q, k) * factorial(k) * pairings(p - k) * pairings(q - k) for k in range(min(p, q) + 1)}
    return {k: way / rising(d, p + q) for k, way in ways.items() if way}


def deviation(d, keys, kind, p, q):
    """Standard deviation of the target.

    Given x_0 its terms F_i are iid, so that E f² = E F²/N + (1 − 1/N) E (E[F | x_0])², and E[F | x_0] is a polynomial in ⟨x_0, β⟩.
    """
    if kind == "average":
        return np.sqrt((moment(d, 2 * p) - moment(d, p) ** 2) / keys)
    given = joint(d, p, q)
    mean = sum(a * moment(d, k) for k, a in given.items())
    square = sum(a * moment(d, k) for k, a in joint(d, 2 * p, 2 * q).items())
    across = sum(a * b * moment(d, k + l) for k, a in given.items() for l, b in given.items())
    return np.sqrt(square / keys + (1 - 1 / keys) * across - mean**2)


def examples(n, d, keys, kind, p, q, seed, stream, dtype=np.float64):
    """x [n, N+1, d] and y [n]."""
    beta = sphere(rng_of(seed, BETA), d)
    scale = deviation(d, keys, kind, p, q)
    rng = rng_of(seed, stream)
    x, y = np.empty((n, keys + 1, d), dtype), np.empty(n, dtype)
    for i in range(0, n, BLOCK):
        block = sphere(rng, (min(BLOCK, n - i), keys + 1, d))
        x[i : i + BLOCK] = block
        y[i : i + BLOCK] = target(block, beta, kind, p, q) / scale
    return x, y


def weights(heads, d, mean, seed):
    """W [M, d+1, d+1]."""
    w = rng_of(seed, WEIGHTS).standard_normal((heads, d + 1, d + 1)) / 2
    if mean == "identity":
        w += np.diag(np.append(np.ones(d), 0))
    return w


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help=".npz to write")
    parser.add_argument("--weights", help=".npy to write")
    parser.add_argument("--d", type=int, default=16)
    parser.add_argument("--keys", type=int, default=16, help="N")
    parser.add_argument("--heads", type=int, default=1000, help="M")
    parser.add_argument("--n", type=int, default=16384)
    parser.add_argument("--n-test", type=int, default=4096)
    parser.add_argument("--target", choices=("average", "correlation"), default="average")
    parser.add_argument("--p", type=int, default=3)
    parser.add_argument("--q", type=int, default=2, help="of the correlation target")
    parser.add_argument("--noise", type=float, default=0.0, help="standard deviation of the noise in y, not in y_test")
    parser.add_argument("--mean", choices=("none", "identity"), default="none", help="of the weights")
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f64")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dtype = {"f32": np.float32, "f64": np.float64}[args.dtype]
    if args.data is None and args.weights is None:
        parser.error("nothing to write: give --data, --weights or both")
    if args.data:
        shape = args.d, args.keys, args.target, args.p, args.q, args.seed
        x, y = examples(args.n, *shape, TRAIN, dtype)
        x_test, y_test = examples(args.n_test, *shape, TEST, dtype)
        y += (args.noise * rng_of(args.seed, NOISE).standard_normal(args.n)).astype(dtype)
        np.savez(args.data, x=x, y=y, x_test=x_test, y_test=y_test)
    if args.weights:
        np.save(args.weights, weights(args.heads, args.d, args.mean, args.seed).astype(dtype))


if __name__ == "__main__":
    main()
