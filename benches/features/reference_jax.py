"""Random-feature attention with JAX on the CPU. The problem, the order of columns and the formulas are those of `reference_numpy.py`.

Compilation is ahead of time and is not counted. XLA has no symmetric rank-k product on the CPU, so Gram matrices are built from tiles of
their lower triangle; Cholesky and eigendecompositions are LAPACK's.
"""

import os
from math import comb

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import scipy
from common import GRID, STREAM_BLOCK, Clock, arguments, forget, not_definite, run
from jax import lax

jax.config.update("jax_enable_x64", True)  # f32 stays f32: no array or constant below has a default type

BATCH = 128  # examples at a time in the feature map
BLOCKS = 8  # tiles a side of a Gram matrix
TILE = 32  # examples a side in a tile of the kernel matrix
LIMIT = 2**31 - 1  # bytes of a matrix: OpenBLAS, which JAX takes from scipy, crashes on one of 2 GiB

CLOCK = Clock()


def compiled(static=(), donate=()):
    """`jax.jit`, compiled while the clock stands still."""

    def wrap(function):
        jitted = jax.jit(function, static_argnums=static, donate_argnums=donate)
        known = {}

        def call(*args):
            key = tuple(a if i in static else (jnp.shape(a), jnp.result_type(a)) for i, a in enumerate(args))
            if key not in known:
                with CLOCK.pause():
                    known[key] = jitted.lower(*args).compile()
            return known[key](*(a for i, a in enumerate(args) if i not in static))

        return call

    return wrap


def wait(value):
    return jax.block_until_ready(value)


def lift(x):
    """x̃ = [x; 1]."""
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], -1)


# Features


@compiled()
def features(x, weights):
    """φ for every example, [n, (d+1)·M], coordinate by coordinate."""
    heads, e, _ = weights.shape
    prepared = weights.transpose(1, 2, 0).reshape(e, e * heads)

    def one(x):
        lifted = lift(x)
        key = lifted[1:]
        score = jax.nn.relu(key @ (lifted[0] @ prepared).reshape(e, heads))
        return ((key / len(key)).T @ score).ravel()

    return lax.map(one, x, batch_size=min(BATCH, len(x)))


@compiled()
def affine(phi, v, b):
    return phi @ v + b


def predict(x, weights, v, b):
    """φᵀv + b, in blocks."""
    step = max(1, 2**26 // (weights.shape[0] * weights.shape[1]))
    return np.concatenate([affine(features(jnp.asarray(x[i : i + step]), weights), v, b) for i in range(0, len(x), step)])


# Linear algebra: the lower triangle counts


def lower_product(a, axis=0, into=None):
    """aaᵀ, or aᵀa with `axis=1`, added to `into`: the tiles on and below the diagonal, one after the other.

    A loop over tiles, because slices of different sizes would each be copied and kept.
    """
    n = a.shape[axis]
    out = jnp.zeros((n, n), a.dtype) if into is None else into
    step = max(1, n // BLOCKS)
    full = n // step
    tiles = jnp.asarray([(i, j) for i in range(full) for j in range(i + 1)]) * step

    def product(left, right):
        return lax.dot_general(left, right, (((1 - axis,), (1 - axis,)), ((), ())))

    def add(k, out):
        i, j = tiles[k]
        tile = product(*(lax.dynamic_slice_in_dim(a, start, step, axis) for start in (i, j)))
        return lax.dynamic_update_slice(out, lax.dynamic_slice(out, (i, j), tile.shape) + tile, (i, j))

    out = lax.fori_loop(0, len(tiles), add, out)
    if full * step < n:
        out = out.at[full * step :].add(product(lax.slice_in_dim(a, full * step, n, axis=axis), a))
    return out


@compiled(donate=(0,))
def centred_gram(phi):
    """Φ centred, its mean, and the smaller of its Gram matrices."""
    mean = phi.mean(0)
    phi = phi - mean
    return phi, mean, lower_product(phi, 0 if phi.shape[0] < phi.shape[1] else 1)


def cholesky_solve(a, shift, rhs):
    """(a + shift·I)⁻¹ rhs, and the factor: returned beside the solution it can take the place of a donated a."""
    a = a.at[jnp.diag_indices(len(a))].add(shift)
    if a.nbytes > LIMIT:
        return cholesky_solve_halves(a, rhs)
    factor = lax.linalg.cholesky(a, symmetrize_input=False)
    return jax.scipy.linalg.cho_solve((factor, True), rhs), factor


def cholesky_solve_halves(a, rhs):
    """The same by halves of a."""
    half = len(a) // 2
    l11 = lax.linalg.cholesky(a[:half, :half], symmetrize_input=False)
    l21 = lax.linalg.triangular_solve(l11, a[half:, :half], left_side=False, lower=True, transpose_a=True)
    l22 = lax.linalg.cholesky(a[half:, half:] - l21 @ l21.T, symmetrize_input=False)

    def triangle(l, b, trans=0):
        return jax.scipy.linalg.solve_triangular(l, b, lower=True, trans=trans)

    top = triangle(l11, rhs[:half])
    below = triangle(l22, triangle(l22, rhs[half:] - l21 @ top), 1)
    return jnp.concatenate([triangle(l11, top - l21.T @ below, 1), below]), l22


def definite(solution):
    """The solution, without the factor that comes last."""
    *solution, _ = wait(solution)
    if not np.isfinite(np.asarray(solution[0])).all():
        raise not_definite()
    return solution


# Jobs


@compiled(donate=(0,))
def solve(g, phi, mean, y, shift):
    """v and b from the smaller Gram matrix of the centred Φ."""
    primal = phi.shape[0] >= phi.shape[1]
    centred = y - y.mean()
    v, factor = cholesky_solve(g, shift, centred @ phi if primal else centred)
    if not primal:
        v = v @ phi
    return v, y.mean() - mean @ v, factor


def fit(data, weights, ridge, clock):
    """Ridge regression by Cholesky, on the smaller of the two Gram matrices."""
    x, y, weights = (jnp.asarray(a) for a in (data["x"], data["y"], weights))
    with clock.stage("features"):
        phi = wait(features(x, weights))
    with clock.stage("gram"):
        phi, mean, g = wait(centred_gram(phi))
    with clock.stage("solve"):
        v, b = definite(solve(g, phi, mean, y, y.dtype.type(len(y) * ridge)))
    with clock.stage("predict"):
        prediction = predict(data["x_test"], weights, v, b)
    return {"prediction": prediction}


@compiled()
def contrasts_gram(phi):
    """ψ_i = φ_i − (√n φ̄ + φ_1)/(√n + 1), i = 2..n; the mean of φ; ΨΨᵀ."""
    root = jnp.sqrt(jnp.asarray(len(phi), phi.dtype))
    mean = phi.mean(0)
    psi = phi[1:] - (root * mean + phi[0]) / (root + 1)
    return psi, mean, lower_product(psi)


@compiled(donate=(0,))
def eigen(g):
    vectors, s = lax.linalg.eigh(g, lower=True, symmetrize_input=False, sort_eigenvalues=False)
    return jnp.maximum(s, 0), vectors


def squares_times(a, b, offset=0):
    """(a + offset)² b with squares of entries, in blocks of rows."""
    return lax.map(lambda row: jnp.square(row + offset) @ b, a, batch_size=min(512, len(a)))


@compiled()
def errors_dual(s, vectors, y, penalties):
    """Vᵀz and the leave-one-out errors when n < p."""
    n = len(y)
    root = jnp.sqrt(jnp.asarray(n, y.dtype))
    c = (y[1:] - (root * y.mean() + y[0]) / (root + 1)) @ vectors
    shrink = penalties / (s[:, None] + penalties)
    first = -vectors.sum(0) / root
    top = first @ (c[:, None] * shrink)
    residual = jnp.concatenate([top[None], vectors @ (c[:, None] * shrink) + top / (root + 1)])
    kept = jnp.concatenate([jnp.square(first)[None] @ shrink, squares_times(vectors, shrink, first / (root + 1))])
    return c, jnp.mean(jnp.square(residual / kept), 0)


@compiled()
def errors_primal(s, vectors, phi, y, penalties):
    """VᵀΦᵀy and the leave-one-out errors when n ≥ p."""
    n = len(y)
    y = y - y.mean()
    a = phi @ vectors
    c = y @ a
    shrink = 1 / (s[:, None] + penalties)
    residual = y[:, None] - a @ (c[:, None] * shrink)
    kept = 1 - 1 / n - squares_times(a, shrink)
    return c, jnp.mean(jnp.square(residual / kept), 0)


@compiled()
def solution(s, vectors, c, phi, mean, y, penalty):
    """v and b at one point of the path; the columns of V have n − 1 entries in the dual, p in the primal."""
    v = vectors @ (c / (s + penalty))
    if len(phi) < len(y):
        v = v @ phi
    return v, y.mean() - mean @ v


def path(data, weights, ridge, clock):
    """The ridge path with exact leave-one-out errors, from one eigendecomposition."""
    x, y, weights = (jnp.asarray(a) for a in (data["x"], data["y"], weights))
    n = len(y)
    with clock.stage("features"):
        phi = wait(features(x, weights))
    primal = n >= phi.shape[1]
    with clock.stage("gram"):
        phi, mean, g = wait(centred_gram(phi) if primal else contrasts_gram(phi))
    with clock.stage("solve"):
        penalties = GRID * np.asarray(g).diagonal().sum(dtype=np.float64) / n  # nλ
        nl = penalties.astype(y.dtype)
        s, vectors = eigen(g)
        c, errors = errors_primal(s, vectors, phi, y, nl) if primal else errors_dual(s, vectors, y, nl)
        errors = np.asarray(errors)
        best = np.nanargmin(errors)
        v, b = wait(solution(s, vectors, c, phi, mean, y, nl[best]))
    with clock.stage("predict"):
        prediction = predict(data["x_test"], weights, v, b)
    return {"prediction": prediction, "ridges": penalties / n, "loo": errors, "best_ridge": penalties[best] / n}


def features_only(data, weights, ridge, clock):
    """The feature map, every block thrown away."""
    x, weights = data["x"], jnp.asarray(weights)
    with clock.stage("features"):
        for i in range(0, len(x), STREAM_BLOCK):
            wait(features(jnp.asarray(x[i : i + STREAM_BLOCK]), weights))
    return {}


def angular(degree):
    """Coefficients of a polynomial q in 2u − 1 such that, with u = 1 − ρ in [0, 1],

        √(1 − ρ²) + ρ (π − arccos ρ) = πρ + u^{3/2} q(2u − 1).

    From √(1 − ρ²) = √(2u) Σ b_k u^k, b_k = C(1/2, k) (−1/2)^k, and arccos ρ = √(2u) Σ a_k u^k, a_k = C(2k, k) / (8^k (2k + 1)), the factor is
    √2 Σ (b_{k+1} − a_{k+1} + a_k) u^k: analytic up to u = 2, so that Chebyshev interpolation gains a factor 5.8 a degree. XLA's arccos
    is an arctangent of a quotient, several times slower.
    """
    terms = 90
    a = np.array([comb(2 * k, k) / (8.0**k * (2 * k + 1)) for k in range(terms)])
    b = np.cumprod([1.0] + [(k - 0.5) / (2 * (k + 1)) for k in range(terms - 1)])
    series = np.sqrt(2) * (b[1:] - a[1:] + a[:-1])
    values = lambda z: np.polynomial.polynomial.polyval((z + 1) / 2, series)
    return np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebinterpolate(values, degree))


ANGULAR = {np.dtype(np.float32): angular(8), np.dtype(np.float64): angular(18)}


def two_pi_kappa(rho):
    """2π κ(ρ) for ρ in [0, 1]."""
    u = jnp.maximum(1 - rho, 0)
    z = 2 * u - 1
    *rest, q = (rho.dtype.type(c) for c in ANGULAR[rho.dtype])
    for c in reversed(rest):
        q = q * z + c
    return rho.dtype.type(np.pi) * rho + u * jnp.sqrt(u) * q


@compiled(static=(2,))
def kernel_matrix(x, other, symmetric):
    """The kernel of infinitely many heads, k(x, x') for all pairs; with `symmetric` only tiles on and below the diagonal are filled."""
    n, m = len(x), len(other)
    up, across = -(-n // TILE), -(-m // TILE)
    left = jnp.pad(lift(x), ((0, up * TILE - n), (0, 0), (0, 0)))
    right = jnp.pad(lift(other), ((0, across * TILE - m), (0, 0), (0, 0)))
    keys, e = x.shape[1] - 1, x.shape[2] + 1
    tiles = jnp.asarray([(i, j) for i in range(up) for j in range(i + 1 if symmetric else across)]) * TILE
    ones = jnp.ones(keys, x.dtype)

    def fill(step, out):
        i, j = tiles[step]
        a, b = lax.dynamic_slice_in_dim(left, i, TILE), lax.dynamic_slice_in_dim(right, j, TILE)
        t = (a[:, 1:].reshape(-1, e) @ b[:, 1:].reshape(-1, e).T).reshape(TILE, keys, TILE, keys)
        summand = t * two_pi_kappa(t * (a[:, 0] @ b[:, 0].T / 4)[:, None, :, None])
        sums = (summand.reshape(-1, keys) @ ones).reshape(TILE, keys, TILE).sum(1)  # a product: fused sums are not vectorised
        return lax.dynamic_update_slice(out, sums, (i, j))

    out = lax.fori_loop(0, len(tiles), fill, jnp.zeros((up * TILE, across * TILE), x.dtype))
    return out[:n, :m] * x.dtype.type(1 / (2 * np.pi * keys**2))


@compiled(donate=(0,))
def kernel_solve(k, y, shift):
    solved, factor = cholesky_solve(k, shift, jnp.stack([y, jnp.ones_like(y)], 1))
    b = solved[:, 0].sum() / solved[:, 1].sum()
    return solved[:, 0] - b * solved[:, 1], b, factor


def kernel(data, weights, ridge, clock):
    """Kernel ridge regression: α = A⁻¹(y − b), A = K + nλI, with b such that 1ᵀα = 0."""
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
    with clock.stage("gram"):
        k = wait(kernel_matrix(x, x, True))
    with clock.stage("solve"):
        alpha, b = definite(kernel_solve(k, y, y.dtype.type(len(y) * ridge)))
    with clock.stage("predict"):
        prediction = affine(kernel_matrix(jnp.asarray(data["x_test"]), x, False), alpha, b)
    return {"prediction": prediction}


@compiled(donate=(0, 1, 2, 3))
def accumulate(g, cross, total, total_y, phi, y, origin, origin_y):
    phi, y = phi - origin, y - origin_y
    return lower_product(phi, 1, g), cross + y @ phi, total + phi.sum(0), total_y + y.sum()


@compiled()
def means(phi, y):
    return phi.mean(0), y.mean()


@compiled(donate=(0,))
def stream_solve(g, cross, total, total_y, origin, origin_y, n, shift):
    v, factor = cholesky_solve(g - jnp.outer(total, total / n), shift, cross - total * (total_y / n))
    return v, origin_y + total_y / n - (origin + total / n) @ v, factor


def stream(data, weights, ridge, clock):
    """Ridge regression with ΦᵀΦ accumulated over blocks of mapped examples, about the mean of the first block."""
    x, y, weights = data["x"], data["y"], jnp.asarray(weights)
    n, dtype = len(y), weights.dtype
    p = weights.shape[0] * weights.shape[1]
    sums = jnp.zeros((p, p), dtype), jnp.zeros(p, dtype), jnp.zeros(p, dtype), jnp.zeros((), dtype)
    for start in range(0, n, STREAM_BLOCK):
        with clock.stage("features"):
            block = jnp.asarray(np.array(x[start : start + STREAM_BLOCK], dtype))
            block_y = jnp.asarray(np.array(y[start : start + STREAM_BLOCK], dtype))
            phi = wait(features(block, weights))
            forget(x)
        with clock.stage("gram"):
            if start == 0:
                origin, origin_y = means(phi, block_y)
            sums = wait(accumulate(*sums, phi, block_y, origin, origin_y))
    with clock.stage("solve"):
        v, b = definite(stream_solve(*sums, origin, origin_y, dtype.type(n), dtype.type(n * ridge)))
    with clock.stage("predict"):
        prediction = predict(np.array(data["x_test"], dtype), weights, v, b)
    return {"prediction": prediction}


@compiled()
def product(a, b):
    return a @ b


def matmul(data, weights, ridge, clock):
    """One large product of matrices: the yardstick of all rates."""
    a, b = jnp.asarray(data["a"])
    with clock.stage("gram"):
        wait(product(a, b))
    return {}


TABLE = {"fit": fit, "path": path, "features": features_only, "kernel": kernel, "stream": stream, "matmul": matmul}

if __name__ == "__main__":
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    run(arguments(), "jax", TABLE, versions, len(os.sched_getaffinity(0)), CLOCK)
