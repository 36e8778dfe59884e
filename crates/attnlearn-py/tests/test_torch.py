"""The layer as a module of torch. Skipped where torch is not installed, unless ``ATTNLEARN_REQUIRE`` names it."""

from __future__ import annotations

import os

import numpy as np
import pytest

from attnlearn import AttentionLayer, learn_attention

if "torch" in os.environ.get("ATTNLEARN_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_the_module_computes_the_layer(causal, biases):
    rng = np.random.default_rng(1)
    parts = (rng.normal(size=(2, 5)), rng.normal(size=3)) if biases else (None, None)
    layer = AttentionLayer(rng.normal(size=(2, 5, 5)), rng.normal(size=(2, 5, 3)), *parts, causal=causal)
    x = rng.normal(size=(7, 4, 5))
    module = layer.to_torch(dtype=torch.float64)
    np.testing.assert_allclose(module(torch.tensor(x)).detach().numpy(), layer(x), atol=1e-12)
    assert sorted(dict(module.named_parameters())) == (["bias", "key_bias", "theta", "w"] if biases else ["theta", "w"])
    module(torch.tensor(x)).square().mean().backward()
    assert module.theta.grad.abs().max() > 0
    again = layer.to_torch(dtype=torch.float64)
    again.load_state_dict(module.state_dict())
    assert layer.to_torch().theta.dtype == torch.get_default_dtype() and "heads=2" in repr(again)


def test_tensors_are_inputs():
    layer = AttentionLayer(np.zeros((1, 2, 2)), [np.eye(2)])
    x = torch.ones(3, 2, 2, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(layer(x), np.ones((3, 2, 2)))
    with pytest.raises(ValueError, match="at least 10"):
        learn_attention(x, x, heads=1, method="descend")
