"""Layers as modules of torch, which is imported here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import torch
except ImportError:
    raise ImportError("to_torch: it needs torch; install it with pip install 'attnlearn[torch]'") from None

if TYPE_CHECKING:
    from ._layer import AttentionLayer


class TorchAttention(torch.nn.Module):
    """``F(X)_a = Σ_i Σ_b softmax_b(x_a Θ_i x_b + c_i x_b) x_b W_i + bias``."""

    def __init__(self, layer: AttentionLayer, dtype: torch.dtype | None) -> None:
        super().__init__()
        dtype = dtype or torch.get_default_dtype()

        def parameter(array: object) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.tensor(array, dtype=dtype))

        self.theta, self.w = parameter(layer.theta), parameter(layer.w)
        self.key_bias = None if layer.key_bias is None else parameter(layer.key_bias)
        self.bias = None if layer.bias is None else parameter(layer.bias)
        self.causal = layer.causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs ``(..., k, d_out)`` of sequences ``(..., k, d)``."""
        logits = torch.einsum("...ad,mde,...be->...mab", x, self.theta, x)
        if self.key_bias is not None:
            logits = logits + torch.einsum("md,...bd->...mb", self.key_bias, x).unsqueeze(-2)
        if self.causal:
            k = x.shape[-2]
            later = torch.ones(k, k, dtype=torch.bool, device=x.device).triu(1)
            logits = logits.masked_fill(later, float("-inf"))
        out = torch.einsum("...mab,...bd,mdo->...ao", logits.softmax(-1), x, self.w)
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        m, d, d_out = self.w.shape
        return f"heads={m}, d={d}, d_out={d_out}, causal={self.causal}"


def module(layer: AttentionLayer, dtype: torch.dtype | None) -> torch.nn.Module:
    """The layer as a module."""
    return TorchAttention(layer, dtype)
