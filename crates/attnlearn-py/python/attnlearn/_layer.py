"""Layers, how far they are from one another, and how well they meet the theory's conditions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _html, _native
from ._inputs import numbers, path as _path, real, whole

if TYPE_CHECKING:
    import torch

Path = Union[str, "PathLike[str]"]


@dataclass(frozen=True)
class LayerDistance:
    """How far a layer is from a reference: head by head, in the order that fits best.

    Attributes
    ----------
    heads : list of dict
        For every matched pair its numbers ``reference`` and ``other`` and the relative errors ``theta``, ``key_bias`` and ``w``.
    missing, extra : list of int
        Heads of the reference, and of the other layer, without a partner.
    bias : float
        Relative error of the output bias.
    cost : float
        Sum of the costs of the matched heads.
    """

    heads: list[dict[str, Any]]
    missing: list[int]
    extra: list[int]
    bias: float
    cost: float

    @property
    def worst_theta(self) -> float:
        """The largest relative error of an attention matrix; infinite when a head is missing."""
        return self._worst("theta")

    @property
    def worst_w(self) -> float:
        """The largest relative error of a projection; infinite when a head is missing."""
        return self._worst("w")

    def _worst(self, what: str) -> float:
        return float("inf") if self.missing else max((head[what] for head in self.heads), default=0.0)

    def _repr_html_(self) -> str:
        rows = [(h["reference"], h["other"], *(_html.number(h[key]) for key in ("theta", "key_bias", "w"))) for h in self.heads]
        return _html.table(["head", "partner", "error of Θ", "of the key bias", "of W"], rows)


@dataclass(frozen=True)
class Conditions:
    """The non-degeneracy conditions of the theory, measured on a layer.

    Attributes
    ----------
    verdict : {"met", "weak", "fails"}
        The worst of all.
    conditions : list of dict
        Of each the ``name``, its ``value``, its ``verdict`` and its ``meaning`` for learning.
    heads : list of dict
        Norms and ranks, head by head.
    report : dict
        Everything that was measured.
    """

    verdict: str
    conditions: list[dict[str, Any]]
    heads: list[dict[str, Any]]
    report: dict[str, Any]

    def __repr__(self) -> str:
        rest = "; ".join(f"{c['name']}: {c['meaning']}" for c in self.conditions if c["verdict"] != "met")
        return f"Conditions(verdict={self.verdict!r}{', ' + rest if rest else ''})"

    def _repr_html_(self) -> str:
        rows = [(c["name"], _html.number(c["value"]), c["verdict"], c["meaning"]) for c in self.conditions]
        return _html.table(["condition", "value", "", "meaning"], rows)


class AttentionLayer:
    """A multi-head attention layer, ``F(X)_a = Σ_i Σ_b p_i(a)_b x_b W_i + bias``, ``p_i(a) = softmax_b(x_a Θ_i x_b + c_i x_b)``.

    Parameters
    ----------
    theta : array_like of shape (m, d, d)
        Attention matrices Θ, one a head.
    w : array_like of shape (m, d, d_out)
        Projections W.
    key_bias : array_like of shape (m, d), optional
        Key biases c.
    bias : array_like of shape (d_out,), optional
        Output bias.
    causal : bool, default=False
        Whether later tokens are hidden from earlier ones.

    Examples
    --------
    >>> import numpy as np
    >>> from attnlearn import AttentionLayer
    >>> layer = AttentionLayer(np.zeros((1, 2, 2)), [np.eye(2)])
    >>> layer([[1.0, 2.0], [3.0, 4.0]])
    array([[2., 3.],
           [2., 3.]])
    """

    __slots__ = ("_layer",)
    _layer: _native.Layer

    def __init__(
        self,
        theta: ArrayLike,
        w: ArrayLike,
        key_bias: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        *,
        causal: bool = False,
    ) -> None:
        matrices = numbers(theta, "theta", "m, d, d")
        projections = numbers(w, "w", "m, d, d_out")
        m, d, other = matrices.shape
        if d != other or projections.shape[:2] != (m, d):
            shapes = f"theta {list(matrices.shape)} and w {list(projections.shape)}"
            raise ValueError(f"layer: the shapes of {shapes} do not fit; give [m, d, d] and [m, d, d_out]")
        keys = None if key_bias is None else numbers(key_bias, "key_bias", "m, d")
        shift = None if bias is None else numbers(bias, "bias", "d_out")
        self._layer = _native.Layer(matrices, projections, keys, shift, bool(causal))

    @classmethod
    def _of(cls, layer: _native.Layer) -> AttentionLayer:
        self = cls.__new__(cls)
        self._layer = layer
        return self

    @classmethod
    def from_safetensors(cls, path: Path) -> AttentionLayer:
        """Read a layer from a file that `save` or the program ``attnlearn`` wrote.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        AttentionLayer
        """
        return cls._of(_native.Layer.load(_path(path)))

    @classmethod
    def from_pretrained(
        cls,
        path: Path,
        layer: int = 0,
        *,
        heads: int | None = None,
        prefix: str | None = None,
        causal: bool | None = None,
    ) -> AttentionLayer:
        """Read an attention layer out of a transformer's checkpoint, and check it against a forward pass by all tensors of its attention module.

        Knows the names of BERT, RoBERTa, MiniLM, ViT, DistilBERT, GPT-2 and ``torch.nn.MultiheadAttention``. A layer whose scores have another
        form (rotated, biased by positions, windowed, normalised) is refused with the tensor or setting that says so, in whichever part of the
        model that stands; so is a model with code of its own (``auto_map``). Where neither ``config.json`` nor the file names a type of model that is
        known, only its tensors speak for the layer.

        Parameters
        ----------
        path : str or path-like
            A safetensors file, the ``.index.json`` of several, or their folder.
        layer : int, default=0
            Which layer, from 0.
        heads : int, optional
            Number of heads, where neither the file nor a ``config.json`` beside it says it; where one does, it must be the same.
        prefix : str, optional
            What stands before the names of the layer's tensors, where ``layer`` is not enough.
        causal : bool, optional
            Whether later tokens are hidden, if not as usual for the model; decoders and text models of CLIP do not say it themselves.

        Returns
        -------
        AttentionLayer
            In canonical form: scale and biases folded in.
        """
        count = None if heads is None else whole(heads, "heads", 1)
        found, _ = _native.from_pretrained(_path(path), whole(layer, "layer"), count, prefix, causal)
        return cls._of(found)

    def save(self, path: Path, notes: dict[str, str] | None = None) -> None:
        """Write the layer to a safetensors file, which appears whole or not at all.

        Parameters
        ----------
        path : str or path-like
            The file.
        notes : dict of str, optional
            Where it comes from, say; they stand in the metadata.
        """
        self._layer.save(_path(path), notes)

    @property
    def theta(self) -> NDArray[np.float64]:
        """Attention matrices, a new array of shape (m, d, d)."""
        return self._layer.theta()

    @property
    def w(self) -> NDArray[np.float64]:
        """Projections, a new array of shape (m, d, d_out)."""
        return self._layer.w()

    @property
    def key_bias(self) -> NDArray[np.float64] | None:
        """Key biases, a new array of shape (m, d), or None."""
        return self._layer.key_bias()

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """Output bias, a new array of shape (d_out,), or None."""
        return self._layer.bias()

    @property
    def heads(self) -> int:
        """Number of heads, m."""
        return self._layer.heads

    @property
    def d(self) -> int:
        """Token dimension."""
        return self._layer.d

    @property
    def d_out(self) -> int:
        """Output dimension."""
        return self._layer.d_out

    @property
    def causal(self) -> bool:
        """Whether later tokens are hidden from earlier ones."""
        return self._layer.causal

    def __call__(self, X: ArrayLike) -> NDArray[Any]:
        """``F(X)``, in the precision of ``X``, on all threads and without the GIL.

        Parameters
        ----------
        X : array_like of shape (n, k, d) or (k, d)
            Sequences, or one. Arrays of float32 and float64 are not copied.

        Returns
        -------
        ndarray of shape (n, k, d_out) or (k, d_out)
        """
        one = np.ndim(X) == 2 if not hasattr(X, "ndim") else X.ndim == 2
        sequences = numbers(X, "X", "k, d")[None] if one else numbers(X, "X", "n, k, d", signs=True)
        out = self._layer.forward(sequences)
        return out[0] if one else out

    def distance(self, other: AttentionLayer, *, tolerance: float = 1e-9) -> LayerDistance:
        """How far ``other`` is from this layer, head by head, both in canonical form.

        Parameters
        ----------
        other : AttentionLayer
            Of the same shape.
        tolerance : float, default=1e-9
            Heads closer than this, relatively, are one head; weaker than this, none.

        Returns
        -------
        LayerDistance
        """
        _is_layer(other, "other")
        mine, theirs = self.canonical(tolerance), other.canonical(tolerance)
        return LayerDistance(**json.loads(mine._layer.distance(theirs._layer)))

    def canonical(self, tolerance: float = 0.0) -> AttentionLayer:
        """The same function with heads that attend alike merged, dead ones dropped, and the rest in a fixed order.

        Parameters
        ----------
        tolerance : float, default=0.0
            Heads are equal, or dead, up to this relative difference.

        Returns
        -------
        AttentionLayer
        """
        return self._of(self._layer.canonical(real(tolerance, "tolerance"))[0])

    def functional_error(
        self, other: AttentionLayer, *, k: int = 8, inputs: str = "boolean", n: int = 10_000, seed: int = 0
    ) -> dict[str, Any]:
        """Mean squared difference from ``other`` on random sequences.

        Parameters
        ----------
        other : AttentionLayer
            Of the same shape.
        k : int, default=8
            Tokens of a sequence.
        inputs : {"boolean", "gaussian", "sphere"}, default="boolean"
            Their distribution.
        n : int, default=10_000
            How many.
        seed : int, default=0
            Of the draw.

        Returns
        -------
        dict
            ``n``, ``mse``, ``variance``, ``nmse`` and ``max_error``.
        """
        _is_layer(other, "other")
        found = self._layer.functional_error(other._layer, whole(k, "k", 1), inputs, whole(n, "n", 1), whole(seed, "seed"))
        return dict(json.loads(found))

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """The layer as a ``torch.nn.Module`` with the same forward pass, to be trained on or put into a model.

        Parameters
        ----------
        dtype : torch.dtype, optional
            Of its parameters; torch's default if not given.

        Returns
        -------
        torch.nn.Module
            It maps ``(..., k, d)`` to ``(..., k, d_out)``. Its parameters are ``theta``, ``w`` and, where there are any, ``key_bias`` and ``bias``.
        """
        from ._torch import module

        return module(self, dtype)

    def plot(self, *, what: str = "theta", axes: Any = None) -> Any:
        """Draw the matrices of all heads as heat maps, with matplotlib.

        Parameters
        ----------
        what : {"theta", "w"}, default="theta"
            Attention matrices or projections.
        axes : sequence of matplotlib Axes, optional
            Where to draw, one a head; a new figure if not given.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from ._plots import heads

        return heads(self, what, axes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionLayer):
            return NotImplemented
        return self._layer.equals(other._layer)

    def __hash__(self) -> int:
        return hash((self.heads, self.d, self.d_out, self.causal, self.w.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._layer.to_bytes(),)

    def __repr__(self) -> str:
        rest = [", causal=True" if self.causal else "", ", key_bias" if self.key_bias is not None else ""]
        rest.append(", bias" if self.bias is not None else "")
        return f"AttentionLayer(heads={self.heads}, d={self.d}, d_out={self.d_out}{''.join(rest)})"

    def _repr_html_(self) -> str:
        try:
            theta, w = self.theta, self.w
        except ValueError:
            # Its attention is no matrix.
            return _html.paragraph(repr(self))
        rows = [(i + 1, _html.number(float(np.linalg.norm(t))), _html.number(float(np.linalg.norm(p)))) for i, (t, p) in enumerate(zip(theta, w))]
        return _html.paragraph(repr(self)) + _html.table(["head", "‖Θ‖_F", "‖W‖_F"], rows)


def _is_layer(value: object, name: str) -> None:
    if not isinstance(value, AttentionLayer):
        raise TypeError(f"{name}: {type(value).__name__} is no layer; give an AttentionLayer")


def _unpickle(contents: bytes) -> AttentionLayer:
    return AttentionLayer._of(_native.Layer.from_bytes(contents))


def check_conditions(layer: AttentionLayer, *, k: int = 8) -> Conditions:
    """Measure the non-degeneracy conditions of the theory on a layer: how each is met, and what that means for learning.

    Parameters
    ----------
    layer : AttentionLayer
        The layer.
    k : int, default=8
        Tokens of a sequence: more of them ask for sharper heads.

    Returns
    -------
    Conditions
    """
    _is_layer(layer, "layer")
    found = json.loads(layer._layer.conditions(whole(k, "k", 1)))
    measured = found["measured"]
    return Conditions(found["verdict"], measured["conditions"], measured["heads"], measured)
