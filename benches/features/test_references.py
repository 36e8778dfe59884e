"""The references agree with plain formulas and with each other."""

import json
import subprocess
import sys
from pathlib import Path

import common
import make_data
import numpy as np
import pytest
import reference_jax
import reference_numpy

D, KEYS, N, N_TEST = 4, 5, 200, 50
RIDGE = 1e-3
# p = 100 < n and p = 300 > n, with and without a mean
SIZES = {"primal": (20, "none"), "dual": (60, "identity")}
TOLERANCE = {np.float64: 1e-9, np.float32: 2e-3}


def problem(heads, mean, dtype=np.float64, n=N):
    shape = D, KEYS, "correlation", 1, 1, 7
    x, y = make_data.examples(n, *shape, make_data.TRAIN, dtype)
    x_test, y_test = make_data.examples(N_TEST, *shape, make_data.TEST, dtype)
    y += 0.5 + 0.1 * np.random.default_rng(1).standard_normal(n).astype(dtype)
    return {"x": x, "y": y, "x_test": x_test, "y_test": y_test}, make_data.weights(heads, D, mean, 7).astype(dtype)


def lifted(x):
    return np.concatenate([x, np.ones((*x.shape[:-1], 1))], -1)


def plain_features(x, w):
    """φ as it is written, m-major."""
    x = lifted(x)
    score = np.maximum(np.einsum("nj,mjk,nik->nmi", x[:, 0], w, x[:, 1:]), 0)
    return np.einsum("nmi,nik->nmk", score, x[:, 1:]).reshape(len(x), -1) / KEYS


def plain_fit(phi, y, phi_test, penalty):
    """Least squares in (v, b) with rows √(nλ)·I, in double precision."""
    p = phi.shape[1]
    rows = np.block([[phi, np.ones((len(phi), 1))], [np.sqrt(penalty) * np.eye(p), np.zeros((p, 1))]])
    solution = np.linalg.lstsq(rows, np.concatenate([y, np.zeros(p)]), rcond=None)[0]
    return phi_test @ solution[:-1] + solution[-1]


def both(job, data, w, ridge=RIDGE):
    clocks = common.Clock(), reference_jax.CLOCK
    return [ref.TABLE[job](data, w, ridge, clock) for ref, clock in zip((reference_numpy, reference_jax), clocks)]


@pytest.mark.parametrize("size", SIZES)
def test_a_fit_in_halves_is_the_fit(size, monkeypatch):
    # A number of sets of its own, so that JAX compiles anew.
    data, w = problem(*SIZES[size], n=N + 1)
    whole = reference_numpy.fit(data, w, RIDGE, common.Clock())["prediction"]
    for reference in (reference_numpy, reference_jax):
        monkeypatch.setattr(reference, "LIMIT", 1000)
    for halves in both("fit", data, w):
        np.testing.assert_allclose(halves["prediction"], whole, rtol=0, atol=1e-9 * np.std(whole))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_features(size, dtype):
    data, w = problem(*SIZES[size], dtype)
    expected = plain_features(data["x"].astype(np.float64), w.astype(np.float64))
    found = reference_numpy.features(data["x"], reference_numpy.prepare(w)), np.asarray(reference_jax.features(data["x"], w))
    for columns in found:
        assert columns.dtype == dtype
        np.testing.assert_allclose(reference_numpy.heads_first(columns, D + 1), expected, atol=10 * np.finfo(dtype).eps, rtol=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("job", ["fit", "stream"])
def test_fit(job, size, dtype, monkeypatch):
    for reference in (reference_numpy, reference_jax):
        monkeypatch.setattr(reference, "STREAM_BLOCK", 64)
    data, w = problem(*SIZES[size], dtype)
    wide = {name: array.astype(np.float64) for name, array in data.items()}
    phi, phi_test = (plain_features(wide[name], w.astype(np.float64)) for name in ("x", "x_test"))
    expected = plain_fit(phi, wide["y"], phi_test, N * RIDGE)
    for result in both(job, data, w):
        np.testing.assert_allclose(result["prediction"], expected, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("size", SIZES)
def test_path_leaves_one_out(size):
    n = 40 if size == "dual" else 130
    data, w = problem(*SIZES[size], n=n)
    phi, phi_test = (plain_features(data[name], w) for name in ("x", "x_test"))
    y = data["y"]
    first, second = both("path", data, w)
    np.testing.assert_allclose(first["loo"], second["loo"], rtol=1e-6)
    np.testing.assert_allclose(first["prediction"], second["prediction"], atol=1e-8)
    trace = np.sum((phi - phi.mean(0)) ** 2)
    np.testing.assert_allclose(first["ridges"], common.GRID * trace / n**2, rtol=1e-10)
    for k in (0, 5, 10, 15, 19):
        penalty = n * first["ridges"][k]
        others = [np.delete(np.arange(n), i) for i in range(n)]
        errors = [y[i] - plain_fit(phi[o], y[o], phi[i : i + 1], penalty)[0] for i, o in enumerate(others)]
        np.testing.assert_allclose(first["loo"][k], np.mean(np.square(errors)), rtol=1e-6)
    best = np.argmin(first["loo"])
    expected = plain_fit(phi, y, phi_test, n * first["ridges"][best])
    np.testing.assert_allclose(first["prediction"], expected, atol=1e-8)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_path_in_both_precisions(dtype):
    data, w = problem(*SIZES["dual"], dtype)
    first, second = both("path", data, w)
    np.testing.assert_allclose(first["loo"][8:], second["loo"][8:], rtol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_kernel_by_its_formula(dtype):
    data, _ = problem(1, "none", dtype)
    x, other = data["x"][:70], data["x_test"][:33]
    a, b = lifted(x.astype(np.float64)), lifted(other.astype(np.float64))
    t = np.einsum("aik,bjk->abij", a[:, 1:], b[:, 1:])
    rho = np.minimum(t * (a[:, 0] @ b[:, 0].T)[:, :, None, None] / 4, 1)
    kappa = (np.sqrt(1 - rho**2) + rho * (np.pi - np.arccos(rho))) / (2 * np.pi)
    expected = np.mean(t * kappa, axis=(2, 3))
    for k in (reference_numpy.kernel_matrix(x, other), np.asarray(reference_jax.kernel_matrix(x, other, False))):
        assert k.dtype == dtype
        np.testing.assert_allclose(k, expected, atol=10 * np.finfo(dtype).eps, rtol=0)
    square = np.tril(reference_numpy.kernel_matrix(x, x))
    for k in (reference_numpy.kernel_matrix(x), np.asarray(reference_jax.kernel_matrix(x, x, True))):
        np.testing.assert_allclose(np.tril(k), square, atol=10 * np.finfo(dtype).eps, rtol=0)


def test_angular_polynomial():
    rho = np.linspace(0, 1, 10001)
    exact = np.sqrt(1 - rho**2) + rho * (np.pi - np.arccos(rho))
    np.testing.assert_allclose(reference_jax.two_pi_kappa(rho), exact, atol=5e-15, rtol=0)
    np.testing.assert_allclose(reference_jax.two_pi_kappa(rho.astype(np.float32)), exact, atol=1e-6, rtol=0)


def test_gram_of_many_heads_tends_to_the_kernel():
    data, _ = problem(1, "none")
    x = data["x"][:20]
    k = reference_numpy.kernel_matrix(x, x)
    errors = []
    for heads in (500, 50_000):
        phi = reference_numpy.features(x, reference_numpy.prepare(make_data.weights(heads, D, "none", 3)))
        errors.append(np.abs(phi @ phi.T / heads - k).max() / k.max())
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 3  # the rate is the root of 100


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_kernel_ridge(dtype):
    data, _ = problem(1, "none", dtype)
    wide = {name: array.astype(np.float64) for name, array in data.items()}
    k, cross = reference_numpy.kernel_matrix(wide["x"], wide["x"]), reference_numpy.kernel_matrix(wide["x_test"], wide["x"])
    ones = np.ones((N, 1))
    system = np.block([[k + N * RIDGE * np.eye(N), ones], [ones.T, np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.append(wide["y"], 0))
    expected = cross @ solution[:-1] + solution[-1]
    for result in both("kernel", data, None):
        np.testing.assert_allclose(result["prediction"], expected, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("kind, p, q", [("average", 3, 0), ("average", 2, 0), ("correlation", 1, 1), ("correlation", 2, 2), ("correlation", 3, 2)])
def test_targets_have_unit_variance(kind, p, q):
    x, y = make_data.examples(200_000, D, KEYS, kind, p, q, 5, make_data.TRAIN)
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, rtol=1e-12)
    assert abs(np.var(y) - 1) < 0.05


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_command_line(library, tmp_path):
    here = Path(__file__).parent
    call = lambda *words: subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True, text=True).stdout
    files = "--data", tmp_path / "data.npz", "--weights", tmp_path / "weights.npy"
    call(here / "make_data.py", "--d", D, "--keys", KEYS, "--heads", 20, "--n", N, "--n-test", N_TEST, *files)
    predictions = tmp_path / "predictions.npy"
    line = call(here / f"reference_{library}.py", "--job", "stream", *files, "--dtype", "f32", "--repeat", 2, "--predictions", predictions)
    report = json.loads(line)
    assert len(report["repeats"]) == 2
    assert {"features", "gram", "solve", "total"} <= set(report["seconds"])
    truth = np.load(tmp_path / "data.npz")["y_test"]
    np.testing.assert_allclose(np.mean((np.load(predictions) - truth) ** 2), report["mse"])
