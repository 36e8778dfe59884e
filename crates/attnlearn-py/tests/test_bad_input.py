"""Bad input: the exception that users expect, with words that say what to do; never an end of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from attnlearn import (
    AttentionKernelRegressor,
    AttentionLayer,
    RandomFeatureAttentionRegressor,
    certify,
    check_conditions,
    datasets,
    learn_attention,
)

ESTIMATORS = [RandomFeatureAttentionRegressor(heads=5, ridge=1e-2), AttentionKernelRegressor(ridge=1e-2)]


class OnGpu:
    """What a torch tensor on a GPU looks like."""

    is_cuda = True
    device = "cuda:0"
    shape = (10, 3, 2)
    ndim = 3

    def __array__(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class CudaArray:
    """What any other array on a GPU looks like."""

    __cuda_array_interface__ = {"shape": (10, 3, 2)}
    ndim = 3


def bad_arrays(shape):
    """Name, array, exception, words."""
    good = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)

    def spoilt(value):
        array = good.copy()
        array[(3,) + (0,) * (len(shape) - 1)] = value
        return array

    return [
        ("NaN", spoilt(np.nan), ValueError, "NaN"),
        ("infinity", spoilt(np.inf), ValueError, "infin"),
        ("objects", np.full(shape, object()), (TypeError, ValueError), "number|real"),
        ("text", np.full(shape, "x"), ValueError, "number format|could not convert|dtype"),
        ("complex", good + 1j, ValueError, "number format|[Cc]omplex"),
        ("empty", good[:0], ValueError, "at least 1|minimum of"),
        ("a GPU", OnGpu(), TypeError, r"\.cpu\(\)"),
        ("another GPU", CudaArray(), TypeError, "GPU"),
    ]


def names(cases):
    return [case[0] for case in cases]


EXAMPLES = bad_arrays((40, 3, 2))


@pytest.mark.parametrize(("name", "array", "kind", "words"), EXAMPLES, ids=names(EXAMPLES))
@pytest.mark.parametrize("where", ["X", "Y"])
def test_bad_examples(name, array, kind, words, where):
    good = np.linspace(-1, 1, 240).reshape(40, 3, 2) ** 3
    given = (array, good) if where == "X" else (good, array)
    with pytest.raises(kind, match=words) as caught:
        learn_attention(*given, heads=1, progress=False)
    assert where.lower() in str(caught.value).split(":")[0].lower() or "examples" in str(caught.value)
    layer = AttentionLayer(np.zeros((1, 2, 2)), [np.eye(2)])
    with pytest.raises(kind, match=words):
        certify(layer, *given, progress=False)
    if where == "X":
        with pytest.raises(kind, match=words):
            layer(array)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ((40, 3), (40, 3, 2), "rank 2; give it the shape"),
        ((40, 3, 2, 1), (40, 3, 2), "rank 4"),
        ((40, 3, 2), (39, 3, 2), "they differ in n"),
        ((40, 3, 2), (40, 2, 2), "they differ in k"),
        ((40, 1, 2), (40, 1, 2), "sequences of one token"),
        ((5, 3, 2), (5, 3, 2), "only 5 of them; give at least 10"),
        ((40, 3, 0), (40, 3, 2), "at least 1"),
    ],
)
def test_shapes_that_do_not_fit(x, y, words, rng):
    with pytest.raises(ValueError, match=words):
        learn_attention(rng.normal(size=x), rng.normal(size=y), heads=1, method="descend", progress=False)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"heads": 0}, ValueError, "heads: it is 0"),
        ({"heads": -3}, ValueError, "heads: it is -3"),
        ({"heads": 2.5}, TypeError, "heads: 2.5 is not a whole number"),
        ({"heads": True}, TypeError, "heads: True is no number"),
        ({"heads": "many"}, ValueError, "give a number of heads, a range FIRST..LAST, auto or auto:MOST"),
        ({"heads": "auto:0"}, ValueError, "heads: 0 heads; ask for at least one"),
        ({"heads": (3, 2)}, ValueError, "heads: the range is empty; give the smaller number first"),
        ({"heads": 10**9}, ValueError, "more numbers than are worked with; ask for fewer"),
        ({"heads": None}, TypeError, "heads"),
        ({"method": "magic"}, ValueError, "method: .magic. is not known; give auto, sculpt, descend"),
        ({"method": 3}, TypeError, "method"),
        ({"rank": 0}, ValueError, "rank: it is 0"),
        ({"rank": 9}, ValueError, "rank: the rank is 0 or above d; ask for a rank from 1 to d"),
        ({"rank": "most"}, ValueError, "give a rank, full or auto"),
        ({"biases": "some"}, ValueError, "biases"),
        ({"delta": 0.0}, ValueError, "delta: 0; give a number between 0 and 1"),
        ({"delta": "small"}, TypeError, "delta"),
        ({"delta": float("nan")}, ValueError, "delta"),
        ({"held_out": 0}, ValueError, "held_out: no examples held out; a certificate needs at least one"),
        ({"most_examples": 0}, ValueError, "most_examples"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"method": "sculpt", "rank": 2}, ValueError, "rank: belongs to method descend; leave it out"),
        ({"method": "descend", "polish": False}, ValueError, "polish=False: belongs to method sculpt"),
        ({"method": "sculpt", "checkpoint": "c"}, ValueError, "checkpoint: belongs to method descend"),
        ({"heads": 2, "rank": 2, "kv_heads": 3}, ValueError, "kv_heads: 2 heads cannot share 3 key heads"),
        ({"kv_heads": 1}, ValueError, "rank: rotation, norms and key groups need the dimension of a head"),
        ({"rope": 1e4}, ValueError, "rope: heads of rank None have no pairs"),
        ({"rope": 0.0, "rank": 2}, ValueError, "rope: a base of 0"),
        ({"rope": [1.0, float("nan")], "rank": 2}, ValueError, "rope: the frequencies are not a list of finite numbers"),
        ({"rope": [1.0, 0.1], "rank": 2}, ValueError, "4 coordinates turn, a head has 2"),
        ({"window": 0}, ValueError, "window"),
        ({"qk_norm": -1.0, "rank": 2}, ValueError, "an ε of -1"),
        ({"method": "sculpt", "window": 2}, ValueError, "window: belongs to method descend"),
        ({"resume": True}, ValueError, "there is no search to continue"),
        ({"resume": True, "checkpoint": "missing"}, ValueError, "missing: there is no search to continue; leave resume=True out"),
        ({"checkpoint": "there/is/no/folder"}, (ValueError, OSError), "folder"),
    ],
)
def test_settings_that_make_no_sense(settings, kind, words, rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, Y = np.sign(rng.normal(size=(40, 3, 2))), rng.normal(size=(40, 3, 2))
    with pytest.raises(kind, match=words):
        learn_attention(X, Y, **{"heads": 1, "progress": False, **settings})
    assert not list(tmp_path.iterdir())


def test_few_examples_for_the_six_phases(rng):
    with pytest.raises(ValueError, match="examples: only 40 of them; the six-phase learner needs at least 2000"):
        learn_attention(rng.normal(size=(40, 3, 2)), rng.normal(size=(40, 3, 2)), method="sculpt", heads=1)


def test_outputs_that_do_not_vary(rng):
    with pytest.raises(ValueError, match="zero variance; there is nothing to learn"):
        learn_attention(rng.normal(size=(40, 3, 2)), np.ones((40, 3, 2)), heads=1, method="descend")


@pytest.mark.parametrize(
    ("parts", "kind", "words"),
    [
        ((np.zeros((1, 2, 3)), np.zeros((1, 2, 2))), ValueError, "do not fit"),
        ((np.zeros((1, 2, 2)), np.zeros((2, 2, 2))), ValueError, "do not fit"),
        ((np.zeros((2, 2)), np.zeros((1, 2, 2))), ValueError, "rank 2"),
        ((np.zeros((0, 2, 2)), np.zeros((0, 2, 2))), ValueError, "at least 1"),
        ((np.full((1, 2, 2), np.nan), np.zeros((1, 2, 2))), ValueError, "theta: holds NaN; give finite numbers"),
        ((np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), np.zeros((1, 3))), ValueError, "key_bias"),
        ((np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), None, np.zeros(3)), ValueError, "bias"),
    ],
)
def test_layers_that_are_none(parts, kind, words):
    with pytest.raises(kind, match=words):
        AttentionLayer(*parts)


def test_layers_and_what_does_not_fit_them(tmp_path):
    layer = datasets.random_layer(3, 1)
    with pytest.raises(ValueError, match="tokens of dimension d = 2 for a layer with d = 3; give a layer and inputs of one dimension"):
        layer(np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="compare layers of one shape and mask"):
        layer.distance(datasets.random_layer(4, 1))
    with pytest.raises(TypeError, match="AttentionLayer"):
        layer.distance("other")
    with pytest.raises(TypeError, match="AttentionLayer"):
        check_conditions("layer")
    with pytest.raises(ValueError, match="k"):
        check_conditions(layer, k=0)
    with pytest.raises(FileNotFoundError):
        AttentionLayer.from_safetensors(tmp_path / "missing.safetensors")
    (tmp_path / "x.safetensors").write_bytes(b"something else")
    with pytest.raises(ValueError, match="x.safetensors"):
        AttentionLayer.from_safetensors(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="x.safetensors"):
        AttentionLayer.from_pretrained(tmp_path / "x.safetensors")
    with pytest.raises(IsADirectoryError, match="directory"):
        layer.save(tmp_path)
    with pytest.raises(ValueError, match="is no distribution; give boolean, gaussian or sphere"):
        datasets.examples(layer, 1, 2, inputs="cubes")
    with pytest.raises(ValueError, match="target"):
        datasets.sets("nonsense", 10)


SETS = bad_arrays((40, 3, 2))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
class TestEstimators:
    @pytest.mark.parametrize(("name", "array", "kind", "words"), SETS, ids=names(SETS))
    def test_bad_sets(self, estimator, name, array, kind, words):
        y = np.linspace(-1, 1, 40)
        with pytest.raises(kind, match=words):
            estimator.fit(array, y)
        good = np.linspace(-1, 1, 240).reshape(40, 3, 2)
        if not isinstance(array, (OnGpu, CudaArray)):
            with pytest.raises(kind, match=words):
                estimator.fit((array[:, 0], array[:, 1:]), y)
            with pytest.raises(kind, match=words):
                estimator.fit(array.reshape(len(array), 6), y)
        estimator.fit(good, y)
        with pytest.raises(kind, match=words):
            estimator.predict(array)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_bad_targets_and_weights(self, estimator, sets, bad):
        X, y = sets
        spoilt = y.copy()
        spoilt[7] = bad
        with pytest.raises(ValueError, match="NaN|infin"):
            estimator.fit(X, spoilt)
        with pytest.raises(ValueError, match="NaN|infin"):
            estimator.fit(X, y, sample_weight=np.full(len(y), bad))

    def test_what_does_not_fit_together(self, estimator, sets):
        X, y = sets
        with pytest.raises(ValueError, match="[Nn]egative"):
            estimator.fit(X, y, sample_weight=-np.ones(len(y)))
        with pytest.raises(ValueError, match="at least one non-zero|they are all zero"):
            estimator.fit(X, y, sample_weight=np.zeros(len(y)))
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            estimator.fit(X, y[:-1])
        with pytest.raises(ValueError, match="no place for a key"):
            estimator.fit(X[:, :1], y)
        with pytest.raises(ValueError, match="y"):
            estimator.fit(X, None)
        with pytest.raises(ValueError, match="it is the same for all examples"):
            estimator.fit(X, np.ones(len(y)))
        with pytest.raises(ValueError, match="query .* and keys .* do not fit"):
            estimator.fit((X[:, 0], X[:, 1:, :3]), y)
        with pytest.raises(ValueError, match="mask: has shape"):
            estimator.fit((X[:, 0], X[:, 1:], np.ones((3, 3))), y)
        with pytest.raises(ValueError, match="give 0 or 1"):
            estimator.fit((X[:, 0], X[:, 1:], np.full((len(X), 4), 2)), y)
        with pytest.raises(ValueError, match="mask, example 0: leaves no key; give every set at least one key"):
            estimator.fit((X[:, 0], X[:, 1:], np.zeros((len(X), 4), bool)), y)

    def test_other_features_than_those_of_the_fit(self, estimator, sets):
        X, y = sets
        fitted = estimator.fit(X, y)
        with pytest.raises(ValueError, match="X has 4 features, but .* is expecting 5 features as input"):
            fitted.predict(X[:, :, :4])
        with pytest.raises(ValueError, match="give sets like those of the fit"):
            fitted.predict(X.reshape(len(X), -1))
        flat = estimator.fit(X[:, 0], y)
        with pytest.raises(ValueError, match="X has 4 features, but .* is expecting 5 features as input"):
            flat.predict(X[:, 0, :4])
        with pytest.raises(ValueError, match="inputs like those of the fit"):
            flat.predict(X)

    def test_unfitted_use(self, estimator, sets, tmp_path):
        from sklearn.base import clone

        new = clone(estimator)
        for use in [lambda: new.predict(sets[0]), lambda: new.score(*sets), lambda: new.save(tmp_path / "m.safetensors")]:
            with pytest.raises(NotFittedError, match="Call 'fit'"):
                use()

    def test_ridges_that_are_none(self, estimator, sets):
        from sklearn.base import clone

        for ridge, kind in [(0, ValueError), (-1.0, ValueError), ("large", ValueError), (None, TypeError), (np.nan, ValueError)]:
            with pytest.raises(kind, match="ridge"):
                clone(estimator).set_params(ridge=ridge).fit(*sets)
        with pytest.raises(ValueError, match="memory"):
            clone(estimator).set_params(memory=1e-6).fit(*sets)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"heads": 0}, ValueError, "heads"),
        ({"heads": 10**15}, ValueError, "memory|weights|fewer"),
        ({"model": "kernel-rfa"}, ValueError, "model: .kernel-rfa. is not known"),
        ({"solver": "magic"}, ValueError, "give auto, gram, dual or cg"),
        ({"precision": "f16"}, ValueError, "precision"),
        ({"width": 3}, ValueError, "choose the model rfmlp"),
        ({"mean": 1.0}, ValueError, "choose the model brfa"),
        ({"model": "brfa", "mean": np.eye(3)}, ValueError, "mean"),
        ({"tolerance": 2.0, "solver": "cg"}, ValueError, "tolerance: it is 2; give a number between 0 and 1"),
        ({"token_dim": 4}, ValueError, "X: rows of 5 numbers are no query and keys of dimension 4"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"ridge": "ridgeless", "precision": "f32"}, ValueError, "lost in single precision"),
    ],
)
def test_settings_of_frozen_heads(settings, kind, words, sets):
    X, y = sets
    given = X[:, 0] if "token_dim" in settings else X
    with pytest.raises(kind, match=words):
        RandomFeatureAttentionRegressor(**{"heads": 5, "ridge": 1e-2, **settings}).fit(given, y)


def test_settings_of_kernels(sets):
    with pytest.raises(ValueError, match="kernel: .softmax. is not known; give rfa, brfa or rfmlp"):
        AttentionKernelRegressor(kernel="softmax").fit(*sets)
    with pytest.raises(ValueError, match="use kernel-brfa"):
        AttentionKernelRegressor(mean=1.0).fit(*sets)


def test_a_refused_block_leaves_the_sums_as_they_were(sets):
    X, y = sets
    model = RandomFeatureAttentionRegressor(heads=5, ridge=1e-2).partial_fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :, :3], y)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(X, np.full(len(y), np.nan))
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_fault_of_ours_is_an_exception(monkeypatch):
    """A panic on the native side must not end the interpreter."""
    from attnlearn import _native

    with pytest.raises(RuntimeError, match="internal error .*; please report it"):
        _native._panic_for_tests()
    assert datasets.random_layer(2, 1).heads == 1
