"""Layers against a plain definition in NumPy."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from attnlearn import AttentionLayer, check_conditions, datasets


def plain(layer: AttentionLayer, x: np.ndarray) -> np.ndarray:
    """The definition, sequence by sequence."""
    out = np.zeros((*x.shape[:2], layer.d_out))
    key_bias = np.zeros((layer.heads, layer.d)) if layer.key_bias is None else layer.key_bias
    for i, tokens in enumerate(x.astype(float)):
        for theta, c, w in zip(layer.theta, key_bias, layer.w):
            logits = tokens @ theta @ tokens.T + tokens @ c
            if layer.causal:
                logits = np.where(np.tril(np.ones_like(logits)) > 0, logits, -np.inf)
            p = np.exp(logits - logits.max(1, keepdims=True))
            out[i] += p / p.sum(1, keepdims=True) @ tokens @ w
    return out + (0 if layer.bias is None else layer.bias)


def random(rng: np.random.Generator, causal: bool, biases: bool) -> AttentionLayer:
    d, d_out, m = 5, 3, 2
    parts = (rng.normal(size=(m, d)), rng.normal(size=d_out)) if biases else (None, None)
    return AttentionLayer(rng.normal(size=(m, d, d)), rng.normal(size=(m, d, d_out)), *parts, causal=causal)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_the_forward_pass_is_the_definition(seed, causal, biases):
    rng = np.random.default_rng(seed)
    layer = random(rng, causal, biases)
    x = rng.normal(size=(700, 4, 5))
    y = layer(x)
    assert y.dtype == np.float64 and y.shape == (700, 4, 3)
    np.testing.assert_allclose(y, plain(layer, x), rtol=1e-12, atol=1e-12)
    single = layer(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, y, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(layer(x[0]), y[0])
    signs = np.sign(x).astype(np.int8)
    np.testing.assert_array_equal(layer(signs), layer(signs.astype(float)))


def test_read_only_and_scattered_arrays_give_the_same(rng):
    layer = random(rng, False, True)
    x = rng.normal(size=(30, 4, 5))
    y = layer(x)
    frozen = x.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(layer(frozen), y)
    np.testing.assert_array_equal(layer(np.asfortranarray(x)), y)
    np.testing.assert_array_equal(layer(np.repeat(x, 2, axis=0)[::2]), y)
    np.testing.assert_array_equal(layer(x.astype(">f8")), y)
    np.testing.assert_array_equal(layer(x.tolist()), y)
    np.testing.assert_array_equal(layer(x.astype(object)), y)


def test_files_pickles_and_copies_are_the_layer(rng, tmp_path):
    layer = random(rng, True, True)
    layer.save(tmp_path / "l.safetensors", {"from": "a test"})
    for other in [
        AttentionLayer.from_safetensors(tmp_path / "l.safetensors"),
        AttentionLayer.from_safetensors(str(tmp_path / "l.safetensors")),
        pickle.loads(pickle.dumps(layer)),
        copy.deepcopy(layer),
        AttentionLayer(layer.theta, layer.w, layer.key_bias, layer.bias, causal=True),
    ]:
        assert other == layer and hash(other) == hash(layer)
    assert layer != random(rng, True, True) and layer != "layer"
    assert (layer == "layer") is False


def test_distance_and_canonical_form(rng):
    layer = random(rng, False, False)
    turned = AttentionLayer(layer.theta[::-1], layer.w[::-1])
    found = layer.distance(turned)
    assert found.worst_theta == 0 and found.worst_w == 0 and [h["other"] for h in found.heads] == [0, 1]
    doubled = AttentionLayer(np.repeat(layer.theta, 2, 0), np.repeat(layer.w / 2, 2, 0))
    assert doubled.canonical(1e-9).heads == 2 and layer.distance(doubled).worst_w < 1e-15
    fewer = AttentionLayer(layer.theta[:1], layer.w[:1])
    assert layer.distance(fewer).worst_theta == np.inf and len(layer.distance(fewer).missing) == 1
    moved = AttentionLayer(layer.theta * 1.5, layer.w)
    assert layer.distance(moved).worst_theta == pytest.approx(0.5)
    assert layer.functional_error(turned, k=3, n=500)["nmse"] < 1e-28
    assert layer.functional_error(moved, k=3, n=500)["nmse"] > 1e-6


def test_conditions_are_measured():
    fine = check_conditions(datasets.random_layer(8, 2, norm=6.0, seed=0))
    assert fine.verdict in ("met", "weak") and len(fine.conditions) == 10 and len(fine.heads) == 2
    twice = datasets.random_layer(4, 1, norm=4.0, seed=0)
    alike = AttentionLayer(np.repeat(twice.theta, 2, 0), np.stack([twice.w[0], -2 * twice.w[0]]))
    found = check_conditions(alike, k=4)
    assert found.verdict == "fails" and "separation" in repr(found) and "<table>" in found._repr_html_()


def test_shows_itself():
    layer = datasets.random_layer(4, 2, seed=3)
    assert repr(layer) == "AttentionLayer(heads=2, d=4, d_out=4)"
    html = layer._repr_html_()
    assert html.count("<tr>") == 3 and "‖Θ‖_F" in html
    assert "<table>" in layer.distance(layer)._repr_html_()


def test_pictures():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    layer = datasets.random_layer(4, 3, seed=3)
    figure = layer.plot()
    images = [axes for axes in figure.axes if axes.images]
    assert len(images) == 3
    np.testing.assert_array_equal(images[1].images[0].get_array(), layer.theta[1])
    assert len([axes for axes in layer.plot(what="w").axes if axes.images]) == 3
    with pytest.raises(ValueError, match="give theta or w"):
        layer.plot(what="v")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bad_numbers_are_found_wherever_they_stand(dtype, bad, causal, rng):
    """The forward pass looks at one output a sequence: it has to tell, also where projections are zero."""
    w = rng.normal(size=(2, 3, 2))
    w[:, :, 0] = 0
    layer = AttentionLayer(5 * rng.normal(size=(2, 3, 3)), w, causal=causal)
    X = rng.normal(size=(20, 4, 3)).astype(dtype)
    for place in np.ndindex(4, 3):
        spoilt = X.copy()
        spoilt[(17, *place)] = bad
        with pytest.raises(ValueError, match="x, example 17: holds"):
            layer(spoilt)
    assert np.isfinite(layer(X)).all()
