"""The estimators against plain formulas, and in every convention of scikit-learn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from attnlearn import AttentionKernelRegressor, RandomFeatureAttentionRegressor, datasets

MODELS = ["rfa", "brfa", "rfmlp", "softmax", "row-relu"]

# Checks of scikit-learn that cannot hold, each with its reason.
OF_AUTO = {
    "check_sample_weight_equivalence_on_dense_data": "a ridge of least leave-one-out error is another one for repeated sets: a set of weight 2 is "
    "left out whole, of two equal sets one stays. With a given ridge the check holds, and is made.",
}


@pytest.mark.parametrize(
    "estimator",
    [
        RandomFeatureAttentionRegressor(heads=20),
        RandomFeatureAttentionRegressor(heads=20, ridge=1e-3, model="softmax"),
        RandomFeatureAttentionRegressor(heads=20, ridge=1e-3, model="rfmlp"),
        AttentionKernelRegressor(),
        AttentionKernelRegressor(ridge=1e-3, kernel="brfa"),
    ],
    ids=repr,
)
def test_scikit_learns_own_checks(estimator):
    failed, expected = [], OF_AUTO if estimator.ridge == "auto" else {}
    for report in check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None):
        if report["status"] == "failed":
            failed.append(f"{report['check_name']}: {report['exception']!r}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_the_fit_is_ridge_regression_on_its_features(model, seed):
    """Gradient of the objective, by way of predictions alone: no direction in feature space improves the fit."""
    X, y = datasets.sets("average:p=2", 150, d=3, keys=3, seed=seed)
    fitted = RandomFeatureAttentionRegressor(model=model, heads=5, ridge=1e-2, random_state=seed).fit(X, y)
    assert fitted.coef_.shape == (20,) and fitted.ridge_ == 1e-2
    residual = y - fitted.predict(X)
    assert abs(residual.mean()) < 1e-10  # the intercept is free

    def objective(scale):
        """Values scaled about the mean: f = mean + scale (f − mean)."""
        f = fitted.predict(X)
        return np.mean((y - f.mean() - scale * (f - f.mean())) ** 2) + 1e-2 * scale**2 * np.sum(fitted.coef_**2)

    assert objective(1.0) <= min(objective(0.999), objective(1.001)) + 1e-15


def test_three_forms_of_inputs_are_one(sets):
    X, y = sets
    options = {"heads": 30, "ridge": 1e-3}
    whole = RandomFeatureAttentionRegressor(**options).fit(X, y).predict(X)
    query, keys = X[:, 0], X[:, 1:]
    for given in [(query, keys), (query, keys, np.ones(keys.shape[:2], bool)), [query, keys, np.ones(keys.shape[:2], int)]]:
        np.testing.assert_array_equal(RandomFeatureAttentionRegressor(**options).fit(given, y).predict(given), whole)
    rows = X.reshape(len(X), -1)
    flat = RandomFeatureAttentionRegressor(**options, token_dim=5).fit(rows, y)
    np.testing.assert_array_equal(flat.predict(rows), whole)
    assert flat.n_features_in_ == 25
    alone = RandomFeatureAttentionRegressor(**options).fit(query, y)
    pair = RandomFeatureAttentionRegressor(**options).fit((query, query[:, None]), y)
    np.testing.assert_array_equal(alone.predict(query), pair.predict((query, query[:, None])))


@pytest.mark.parametrize("estimator", [RandomFeatureAttentionRegressor(heads=20, ridge=1e-3), AttentionKernelRegressor(ridge=1e-3)], ids=repr)
def test_masked_keys_do_not_count(estimator, rng):
    X, y = datasets.sets("average:p=2", 200, d=3, keys=5, min_keys=2, seed=1)
    query, keys, mask = X
    assert mask.sum(1).min() == 2 and mask.sum(1).max() == 5
    other = np.where(mask[:, :, None], keys, rng.normal(size=keys.shape))
    a, b = clone(estimator).fit(X, y), clone(estimator).fit((query, other, mask), y)
    np.testing.assert_array_equal(a.predict(X), b.predict((query, other, mask)))
    # Where the keys stand does not matter either.
    turned = (query, keys[:, ::-1].copy(), mask[:, ::-1].copy())
    np.testing.assert_allclose(clone(estimator).fit(turned, y).predict(X), a.predict(X), atol=1e-9)


def test_float32_is_kept_and_close(sets):
    X, y = sets
    wide = RandomFeatureAttentionRegressor(heads=30, ridge=1e-3).fit(X, y)
    single = RandomFeatureAttentionRegressor(heads=30, ridge=1e-3).fit(X.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(single.predict(X.astype(np.float32)), wide.predict(X), atol=1e-3)


@pytest.mark.parametrize("estimator", [RandomFeatureAttentionRegressor(heads=20, ridge=1e-3), AttentionKernelRegressor(ridge=1e-3)], ids=repr)
def test_weights_count_sets(estimator, sets):
    X, y = sets
    weights = np.arange(len(y)) % 3
    weighted = clone(estimator).fit(X, y, sample_weight=weights)
    repeated = clone(estimator).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-8)


def test_several_targets(sets):
    X, y = sets
    both = np.stack([y, y**2], 1)
    for estimator in [RandomFeatureAttentionRegressor(heads=20, ridge=1e-3), AttentionKernelRegressor(ridge=1e-3)]:
        together = clone(estimator).fit(X, both)
        assert together.predict(X).shape == both.shape and together.intercept_.shape == (2,)
        for j in range(2):
            alone = clone(estimator).fit(X, both[:, j])
            np.testing.assert_allclose(together.predict(X)[:, j], alone.predict(X), atol=1e-9)


def test_the_ridge_is_chosen_by_leave_one_out(sets):
    X, y = sets
    small = slice(40)
    chosen = AttentionKernelRegressor().fit(X[small], y[small])
    assert len(chosen.path_) == 20 and chosen.report_["chosen_by"] == "leave_one_out"
    best = min(chosen.path_, key=lambda point: point["loo"])
    assert chosen.ridge_ == best["lambda"]


@pytest.mark.parametrize("seed", range(2))
def test_partial_fits_are_a_fit(seed):
    X, y = datasets.sets("average:p=2", 3000, d=3, keys=3, seed=seed, noise=0.2)
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, len(y))
    options = {"heads": 10, "ridge": 1e-3, "solver": "gram", "random_state": seed}
    whole = RandomFeatureAttentionRegressor(**options).fit(X, y, weights)
    parts = RandomFeatureAttentionRegressor(**options)
    for i in range(0, 3000, 700):
        assert parts.partial_fit(X[i : i + 700], y[i : i + 700], weights[i : i + 700]) is parts
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), atol=1e-9)
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-7)
    before = parts.coef_
    assert not np.allclose(parts.partial_fit(X[:700], -y[:700]).coef_, before), "attributes follow the sums"
    first, second = RandomFeatureAttentionRegressor(**options), RandomFeatureAttentionRegressor(**options)
    first.partial_fit(X[:1000], y[:1000], weights[:1000])
    second.partial_fit(X[1000:], y[1000:], weights[1000:])
    travelled = pickle.loads(pickle.dumps(second))
    np.testing.assert_allclose(first.merge(travelled).predict(X), whole.predict(X), atol=1e-9)
    auto = {**options, "ridge": "auto"}
    chosen = RandomFeatureAttentionRegressor(**auto).partial_fit(X, y)
    assert chosen.report_["chosen_by"] == "gcv"
    assert chosen.score(X, y) == pytest.approx(RandomFeatureAttentionRegressor(**auto).fit(X, y).score(X, y), abs=0.01)
    # A fit begins anew.
    np.testing.assert_array_equal(parts.fit(X, y, weights).predict(X), whole.predict(X))


def test_fitted_attributes_predict(sets):
    """Predictions by hand, from what the estimator says of itself."""
    X, y = sets
    both = np.stack([y, y**2], 1)
    model = RandomFeatureAttentionRegressor(heads=19, ridge=1e-3).fit(X, both)
    tokens = np.concatenate([X, np.ones((*X.shape[:2], 1))], 2)
    query, keys = tokens[:, 0], tokens[:, 1:]
    logits = np.einsum("na,mab,nib->nmi", query, model.heads_, keys)
    features = np.einsum("nmi,nie->nme", np.maximum(logits, 0), keys) / keys.shape[1]
    np.testing.assert_allclose(features.reshape(len(X), -1) @ model.coef_.T + model.intercept_, model.predict(X), atol=1e-9)
    neurons = RandomFeatureAttentionRegressor(model="rfmlp", width=30, ridge=1e-3).fit(X, y)
    rows = np.concatenate([X.reshape(len(X), -1), np.ones((len(X), 1))], 1)
    hidden = np.maximum(rows @ neurons.heads_.T, 0)
    np.testing.assert_allclose(hidden @ neurons.coef_ + neurons.intercept_, neurons.predict(X), atol=1e-9)
    with pytest.raises(AttributeError):
        RandomFeatureAttentionRegressor().heads_  # noqa: B018


def test_merging_needs_the_same_heads(sets):
    X, y = sets
    a = RandomFeatureAttentionRegressor(heads=5, ridge=1.0).partial_fit(X, y)
    b = RandomFeatureAttentionRegressor(heads=5, ridge=1.0, random_state=1).partial_fit(X, y)
    with pytest.raises(ValueError, match="same settings and seed"):
        a.merge(b)
    with pytest.raises(NotFittedError, match="partial_fit"):
        a.merge(RandomFeatureAttentionRegressor())


@pytest.mark.parametrize("estimator", [RandomFeatureAttentionRegressor(heads=15), AttentionKernelRegressor()], ids=repr)
def test_conventions(estimator, sets, tmp_path):
    X, y = sets
    assert clone(estimator).set_params(ridge=0.5).get_params()["ridge"] == 0.5
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    fitted = clone(estimator).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.ridge_ == fitted.ridge_ and again.n_features_in_ == 5
    assert 0.5 < fitted.score(X, y) <= 1
    search = GridSearchCV(estimator, {"ridge": [1e-4, 1e-2, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["ridge"] in (1e-4, 1e-2) and search.best_score_ > 0.3
    assert len(cross_val_score(estimator, X, y, cv=3)) == 3
    rows = X.reshape(len(X), -1)
    pipeline = make_pipeline(StandardScaler(), clone(estimator).set_params(token_dim=5))
    assert pipeline.fit(rows, y).score(rows, y) > 0.3
    centred = make_pipeline(FunctionTransformer(lambda x: x - 0.1), clone(estimator))
    assert centred.fit(X, y).score(X, y) > 0.3


def test_dataframes(sets):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = sets
    frame = pandas.DataFrame(X.reshape(len(X), -1), columns=[f"c{i}" for i in range(25)])
    fitted = RandomFeatureAttentionRegressor(heads=10, ridge=1e-3, token_dim=5).fit(frame, pandas.Series(y))
    assert list(fitted.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(
        fitted.predict(frame), RandomFeatureAttentionRegressor(heads=10, ridge=1e-3).fit(X, y).predict(X)
    )


def test_random_states(sets):
    X, y = sets
    fit = lambda state: RandomFeatureAttentionRegressor(heads=10, ridge=1e-2, random_state=state).fit(X, y).predict(X)  # noqa: E731
    np.testing.assert_array_equal(fit(3), fit(3))
    assert not np.array_equal(fit(3), fit(4))
    np.testing.assert_array_equal(fit(np.random.RandomState(1)), fit(np.random.RandomState(1)))


def test_means_temperatures_and_widths_matter(sets):
    X, y = sets
    fit = lambda **options: RandomFeatureAttentionRegressor(heads=10, ridge=1e-2, **options).fit(X, y).predict(X)  # noqa: E731
    matrix = np.diag([1.0] * 5 + [0.0])
    np.testing.assert_allclose(fit(model="brfa", mean=matrix), fit(model="brfa"), atol=1e-12)
    np.testing.assert_allclose(fit(model="brfa", mean=0.0), fit(model="rfa"), atol=1e-12)
    assert not np.allclose(fit(model="brfa", mean=2.0), fit(model="brfa"))
    assert not np.allclose(fit(model="softmax", inverse_temperature=2.0), fit(model="softmax"))
    assert not np.allclose(fit(model="rfmlp", width=7), fit(model="rfmlp"))


def test_conjugate_gradients_that_stop_short_warn():
    X, y = datasets.sets("average:p=2", 300, d=4, keys=4, seed=1)
    exact = RandomFeatureAttentionRegressor(heads=40, ridge=1e-4).fit(X, y)
    loose = RandomFeatureAttentionRegressor(heads=40, ridge=1e-4, solver="cg").fit(X, y)
    assert loose.n_iter_ > 1 and abs(loose.score(X, y) - exact.score(X, y)) < 1e-3
    with pytest.warns(ConvergenceWarning, match="conjugate gradients stopped short of their accuracy"):
        RandomFeatureAttentionRegressor(heads=40, ridge=1e-13, solver="cg", tolerance=1e-300).fit(X, y)


def test_sums_are_kept_in_a_checkpoint(sets, tmp_path):
    X, y = sets
    path = tmp_path / "sums"
    kept = RandomFeatureAttentionRegressor(heads=10, ridge=1e-2, checkpoint=path).fit(X, y)
    plain = RandomFeatureAttentionRegressor(heads=10, ridge=1e-2, solver="gram").fit(X, y)
    np.testing.assert_array_equal(kept.predict(X), plain.predict(X))
    assert not path.exists()
    with pytest.raises(ValueError, match="it is for solver gram"):
        RandomFeatureAttentionRegressor(heads=10, ridge=1e-2, solver="dual", checkpoint=path).fit(X, y)
