"""Learn attention layers from examples.

``learn_attention(X, Y)`` recovers the heads of a softmax attention layer from examples of its input and output, and certifies the result on
examples that the learner has not seen. ``RandomFeatureAttentionRegressor`` and ``AttentionKernelRegressor`` fit layers of frozen random
heads, and their limits of infinitely many, as scikit-learn estimators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _native, datasets
from ._layer import AttentionLayer, Conditions, LayerDistance, check_conditions
from ._learn import Certificate, Interrupted, LearnResult, NotRecoveredWarning, PhaseRecord, certify, learn_attention, sculpt
from ._progress import Progress

if TYPE_CHECKING:
    from ._estimators import AttentionKernelRegressor, RandomFeatureAttentionRegressor

__version__: str = _native.VERSION

__all__ = [
    "AttentionKernelRegressor",
    "AttentionLayer",
    "Certificate",
    "Conditions",
    "Interrupted",
    "LayerDistance",
    "LearnResult",
    "NotRecoveredWarning",
    "PhaseRecord",
    "Progress",
    "RandomFeatureAttentionRegressor",
    "certify",
    "check_conditions",
    "datasets",
    "learn_attention",
    "sculpt",
]

# scikit-learn takes longer to import than all else together: it waits until an estimator is asked for.
_LATE = {"AttentionKernelRegressor", "RandomFeatureAttentionRegressor"}


def __getattr__(name: str) -> object:
    if name in _LATE:
        from . import _estimators

        return getattr(_estimators, name)
    raise AttributeError(f"module 'attnlearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
