"""Random-feature attention with NumPy and SciPy.

Features, with x̃ = [x; 1] and frozen W_m:

    φ(x)_m = (1/N) Σ_i relu(x̃_0ᵀ W_m x̃_i) x̃_i ∈ R^{d+1},   m ≤ M,   p = M(d+1) in all.

Ridge regression, with an intercept that is not penalised:

    min over v, b of  (1/n) Σ_i (y_i − φ_iᵀv − b)² + λ‖v‖².

With Φ and y centred: (ΦᵀΦ + nλI) v = Φᵀy when n ≥ p, and v = Φᵀα, (ΦΦᵀ + nλI) α = y when n < p.

Two things make it fast. Small products go to as many Python threads as there are cores, each with a single-threaded BLAS on blocks that
stay in cache: NumPy lets go of its lock, and a BLAS that shares out small products by itself mostly waits. And columns are held
coordinate by coordinate, [d+1, M], so that every small product has rows of length M; the order of columns does not change a fit, and
`heads_first` restores m-major order.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy
from common import GRID, STREAM_BLOCK, arguments, forget, lift, not_definite, run
from scipy.linalg import blas, eigh, lapack, solve_triangular
from threadpoolctl import ThreadpoolController

CACHE = 2**18  # numbers in a block of features
TILE = 256  # rows and columns in a tile of key products ⟨x̃_i, x̃_j'⟩

BLAS = ThreadpoolController()
THREADS = max(pool["num_threads"] for pool in BLAS.info())


def in_threads(work, tasks):
    """Hands the tasks to the threads: `work` is called once on each, with one iterator that all of them share."""
    tasks = iter(tasks)
    with BLAS.limit(limits=1, user_api="blas"), ThreadPoolExecutor(THREADS) as pool:
        for job in [pool.submit(work, tasks) for _ in range(THREADS)]:
            job.result()


def typed(module, name, dtype):
    return getattr(module, ("s" if dtype == np.float32 else "d") + name)


# Features


def prepare(weights):
    """W [M, d+1, d+1] as [d+1, (d+1)·M]: the queries q = x̃_0ᵀW of a block are then one product."""
    heads, e, _ = weights.shape
    return np.ascontiguousarray(weights.transpose(1, 2, 0)).reshape(e, e * heads)


def features(x, prepared, keep=True):
    """φ for every example, [n, (d+1)·M], coordinate by coordinate; with `keep=False` each block is thrown away."""
    dtype = prepared.dtype
    n, rows, d = x.shape
    keys, e, p = rows - 1, d + 1, prepared.shape[1]
    heads = p // e
    block = max(1, min(n, CACHE // p))
    out = np.empty((n, e, heads), dtype) if keep else None

    def work(starts):
        query = np.empty((block, p), dtype)
        score = np.empty((block, keys, heads), dtype)
        scrap = None if keep else np.empty((block, e, heads), dtype)
        for start in starts:
            lifted = lift(x[start : start + block], dtype)
            b = len(lifted)
            key = lifted[:, 1:]
            np.matmul(lifted[:, 0], prepared, out=query[:b])
            np.matmul(key, query[:b].reshape(b, e, heads), out=score[:b])
            np.maximum(score[:b], 0, out=score[:b])
            target = out[start : start + b] if keep else scrap[:b]
            np.matmul((key / dtype.type(keys)).transpose(0, 2, 1), score[:b], out=target)

    in_threads(work, range(0, n, block))
    return out.reshape(n, p) if keep else None


def heads_first(columns, e):
    """Last axis from coordinate-major, [d+1, M], to m-major, [M, d+1]."""
    lead = columns.shape[:-1]
    return columns.reshape(*lead, e, -1).swapaxes(-1, -2).reshape(*lead, -1)


def predict(x, prepared, v, b):
    """φᵀv + b, in blocks."""
    step = max(1, 2**26 // prepared.shape[1])
    return np.concatenate([features(x[i : i + step], prepared) @ v for i in range(0, len(x), step)]) + b


# Linear algebra on one triangle: matrices are in Fortran order, their lower triangle counts


LIMIT = 2**31 - 1  # bytes of a matrix: OpenBLAS 0.3.31 crashes in syrk and potrf on one of 2 GiB


def gram(a, transposed=False):
    """aaᵀ, or aᵀa, from rows in C order."""
    return typed(blas, "syrk", a.dtype)(1, a.T, trans=0 if transposed else 1, lower=1)


def solve(a, transposed, shift, clock):
    """rhs ↦ (aaᵀ + shift·I)⁻¹ rhs, or of aᵀa, by Cholesky."""
    size = a.shape[1 if transposed else 0]
    if size**2 * a.itemsize <= LIMIT:
        with clock.stage("gram"):
            g = gram(a, transposed)
        return lambda rhs: cholesky_solve(g, shift, rhs)
    with clock.stage("gram"):
        half = size // 2
        one, two = (np.ascontiguousarray(part) if transposed else part for part in np.split(a, [half], 1 if transposed else 0))
        k11, k22 = gram(one, transposed), gram(two, transposed)
        k21 = (one.T @ two).T if transposed else (one @ two.T).T
    return lambda rhs: cholesky_solve_halves(k11, k21, k22, shift, rhs)


def factor(a):
    """The Cholesky factor, in place."""
    out, info = typed(lapack, "potrf", a.dtype)(a, lower=1, overwrite_a=1, clean=0)
    if info:
        raise not_definite()
    return out


def cholesky_solve(a, shift, rhs):
    """(a + shift·I)⁻¹ rhs; overwrites a."""
    diagonal(a)[:] += a.dtype.type(shift)
    return typed(lapack, "potrs", a.dtype)(factor(a), rhs, lower=1)[0]


def cholesky_solve_halves(k11, k21, k22, shift, rhs):
    """The same from the quarters of a."""
    half = len(k11)
    for block in (k11, k22):
        diagonal(block)[:] += block.dtype.type(shift)
    l11 = factor(k11)
    l21 = typed(blas, "trsm", k21.dtype)(1, l11, k21, side=1, lower=1, trans_a=1, overwrite_b=1)
    l22 = factor(typed(blas, "syrk", k22.dtype)(-1, l21, lower=1, beta=1, c=k22, overwrite_c=1))

    def triangle(l, b, trans=0):
        return solve_triangular(l, b, lower=True, trans=trans, check_finite=False)

    top = triangle(l11, rhs[:half])
    below = triangle(l22, triangle(l22, rhs[half:] - l21 @ top), 1)
    return np.concatenate([triangle(l11, top - l21.T @ below, 1), below])


def diagonal(a):
    """The diagonal, writable."""
    return np.einsum("ii->i", a)


# Jobs


def fit(data, weights, ridge, clock):
    """Ridge regression by Cholesky, on the smaller of the two Gram matrices."""
    y = data["y"]
    n = len(y)
    with clock.stage("features"):
        prepared = prepare(weights)
        phi = features(data["x"], prepared)
    with clock.stage("gram"):
        mean, shift = phi.mean(0), y.mean()
        phi -= mean
        primal = n >= phi.shape[1]
    inverse = solve(phi, primal, n * ridge, clock)
    with clock.stage("solve"):
        v = inverse((y - shift) @ phi) if primal else inverse(y - shift) @ phi
        b = shift - mean @ v
    with clock.stage("predict"):
        prediction = predict(data["x_test"], prepared, v, b)
    return {"prediction": prediction}


def path(data, weights, ridge, clock):
    """The ridge path with exact leave-one-out errors, from one eigendecomposition.

    The fit is linear in y with a quadratic penalty nλ‖v‖², so that the error at an example left out (nλ unchanged) is

        e_i = (y_i − ŷ_i) / (1 − H_ii).

    n < p. The Householder reflection that takes 1/√n to −e_1 turns Φ into rows of which the first carries the mean alone; the others are

        ψ_i = φ_i − (√n φ̄ + φ_1)/(√n + 1),   z_i likewise from y,   i = 2..n.

    With ΨΨᵀ = V diag(s) Vᵀ, U = V reflected back to n rows, and w = nλ/(s + nλ):

        y − ŷ = U (w ∘ Vᵀz),   1 − H_ii = Σ_k U_ik² w_k.

    No null vector of centring is left, which at small λ would have to cancel. n ≥ p: centred ΦᵀΦ = V diag(s) Vᵀ, A = ΦV, and

        ŷ − ȳ = A ((Aᵀy) / (s + nλ)),   H_ii = 1/n + Σ_k A_ik² / (s_k + nλ).
    """
    y = data["y"]
    n = len(y)
    with clock.stage("features"):
        prepared = prepare(weights)
        phi = features(data["x"], prepared)
    p = phi.shape[1]
    root = np.sqrt(y.dtype.type(n))
    primal = n >= p
    with clock.stage("gram"):
        mean, shift = phi.mean(0), y.mean()
        phi -= mean if primal else (root * mean + phi[0]) / (root + 1)
        if not primal:
            phi = phi[1:]
        g = gram(phi, primal)
    with clock.stage("solve"):
        penalties = GRID * diagonal(g).sum(dtype=np.float64) / n  # nλ
        s, vectors = eigh(g, lower=True, overwrite_a=True, check_finite=False, driver="evd")
        s = np.maximum(s, 0)
        if primal:
            a = phi @ vectors
            c = (y - shift) @ a
            shrink = (1 / (s[:, None] + penalties)).astype(y.dtype)
            residual = (y - shift)[:, None] - a @ (c[:, None] * shrink)
            kept = 1 - 1 / y.dtype.type(n) - squares_times(a, shrink)
        else:
            c = (y[1:] - (root * shift + y[0]) / (root + 1)) @ vectors
            shrink = (penalties / (s[:, None] + penalties)).astype(y.dtype)
            first = -vectors.sum(0) / root  # U is this row, then those of V + first/(√n + 1)
            coefficients = c[:, None] * shrink
            top = first @ coefficients
            residual = np.concatenate([top[None], vectors @ coefficients + top / (root + 1)])
            kept = np.concatenate([first[None] ** 2 @ shrink, squares_times(vectors, shrink, first / (root + 1))])
        errors = np.mean((residual / kept).astype(np.float64) ** 2, axis=0)
        best = np.nanargmin(errors)
        v = vectors @ (c / (s + penalties[best])).astype(y.dtype)
        if not primal:
            v = v @ phi
        b = shift - mean @ v
    with clock.stage("predict"):
        prediction = predict(data["x_test"], prepared, v, b)
    return {"prediction": prediction, "ridges": penalties / n, "loo": errors, "best_ridge": penalties[best] / n}


def squares_times(a, b, offset=0):
    """(a + offset)² b with squares of entries, in blocks of rows."""
    return np.concatenate([np.square(a[i : i + 512] + offset) @ b for i in range(0, len(a), 512)])


def features_only(data, weights, ridge, clock):
    """The feature map, every block thrown away."""
    with clock.stage("features"):
        features(data["x"], prepare(weights), keep=False)
    return {}


def kernel_matrix(x, other=None):
    """The kernel of infinitely many heads,

        k(x, x') = (1/N²) Σ_ij t_ij κ(t_0 t_ij / 4),   t_0 = 1 + ⟨x_0, x_0'⟩,   t_ij = 1 + ⟨x_i, x_j'⟩,
        κ(ρ) = (√(1 − ρ²) + ρ (π − arccos ρ)) / 2π,

    for all pairs; without `other` the lower triangle of k(x, x), in Fortran order.
    """
    dtype = x.dtype
    symmetric = other is None
    left = lift(x, dtype)
    right = left if symmetric else lift(other, dtype)
    n, rows, e = left.shape
    keys = rows - 1
    block = max(1, TILE // keys)
    out = np.empty((n, len(right)), dtype, order="F")
    scale = dtype.type(1 / (2 * np.pi * keys**2))
    ones = np.ones(keys, dtype)

    def work(tiles):
        room = np.empty((3, (block * keys) ** 2), dtype)
        for i, j in tiles:
            a, b = left[i : i + block], right[j : j + block]
            shape = len(a), keys, len(b), keys
            t, rho, angle = (r[: len(a) * len(b) * keys**2].reshape(shape) for r in room)
            a_keys, b_keys = a[:, 1:].reshape(-1, e), b[:, 1:].reshape(-1, e)
            np.matmul(a_keys, b_keys.T, out=t.reshape(len(a) * keys, -1))
            np.multiply(t, (a[:, 0] @ b[:, 0].T / 4)[:, None, :, None], out=rho)
            np.minimum(rho, 1, out=rho)
            np.arccos(rho, out=angle)
            np.subtract(dtype.type(np.pi), angle, out=angle)
            angle *= rho
            rho *= rho
            np.subtract(1, rho, out=rho)
            np.sqrt(rho, out=rho)
            angle += rho
            angle *= t
            sums = angle.reshape(-1, keys) @ ones  # short sums go faster as a product
            out[i : i + block, j : j + block] = sums.reshape(shape[:3]).sum(1) * scale

    ends = range(0, n, block)
    in_threads(work, ((i, j) for i in ends for j in range(0, i + 1 if symmetric else len(right), block)))
    return out


def kernel(data, weights, ridge, clock):
    """Kernel ridge regression: α = A⁻¹(y − b), A = K + nλI, with b such that 1ᵀα = 0."""
    x, y = data["x"], data["y"]
    with clock.stage("gram"):
        k = kernel_matrix(x)
    with clock.stage("solve"):
        solved = cholesky_solve(k, len(y) * ridge, np.stack([y, np.ones_like(y)], 1))
        b = solved[:, 0].sum() / solved[:, 1].sum()
        alpha = solved[:, 0] - b * solved[:, 1]
    with clock.stage("predict"):
        prediction = kernel_matrix(data["x_test"], x) @ alpha + b
    return {"prediction": prediction}


def stream(data, weights, ridge, clock):
    """Ridge regression with ΦᵀΦ accumulated over blocks of mapped examples.

    Sums are of φ − c and y − y_c with c, y_c the means of the first block, and are centred at the end:
    Σ (φ − φ̄)(φ − φ̄)ᵀ = Σ (φ − c)(φ − c)ᵀ − n (φ̄ − c)(φ̄ − c)ᵀ.
    """
    x, y = data["x"], data["y"]
    n, dtype = len(y), weights.dtype
    prepared = prepare(weights)
    p = prepared.shape[1]
    g = np.zeros((p, p), dtype, order="F")
    cross, total, total_y = np.zeros(p, dtype), np.zeros(p, dtype), dtype.type(0)
    syrk = typed(blas, "syrk", dtype)
    for start in range(0, n, STREAM_BLOCK):
        with clock.stage("features"):
            phi = features(x[start : start + STREAM_BLOCK], prepared)
            block_y = np.array(y[start : start + STREAM_BLOCK], dtype)
            forget(x)
        with clock.stage("gram"):
            if start == 0:
                origin, origin_y = phi.mean(0), block_y.mean()
            phi -= origin
            block_y -= origin_y
            g = syrk(1, phi.T, lower=1, beta=1, c=g, overwrite_c=1)
            cross += block_y @ phi
            total += phi.sum(0)
            total_y += block_y.sum()
    with clock.stage("solve"):
        g = syrk(-1 / n, total[:, None], lower=1, beta=1, c=g, overwrite_c=1)
        v = cholesky_solve(g, n * ridge, cross - total * (total_y / n))
        b = origin_y + total_y / n - (origin + total / n) @ v
    with clock.stage("predict"):
        prediction = predict(data["x_test"], prepared, v, b)
    return {"prediction": prediction}


def matmul(data, weights, ridge, clock):
    """One large product of matrices: the yardstick of all rates."""
    a, b = data["a"]
    with clock.stage("gram"):
        a @ b
    return {}


TABLE = {"fit": fit, "path": path, "features": features_only, "kernel": kernel, "stream": stream, "matmul": matmul}

if __name__ == "__main__":
    backends = sorted({f"{pool['internal_api']} {pool['version']}" for pool in BLAS.info()})
    versions = {"numpy": np.__version__, "scipy": scipy.__version__, "blas": ", ".join(backends)}
    run(arguments(), "numpy", TABLE, versions, THREADS)
