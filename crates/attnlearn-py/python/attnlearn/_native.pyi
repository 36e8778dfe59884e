# Written by crates/attnlearn-py/tools/stubs.py.
import numpy
from _typeshed import SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex, final

__all__ = ["VERSION", "Layer", "Learned", "Model", "Sums", "_panic_for_tests", "certify", "examples_of", "fit", "from_pretrained", "learn", "random_layer", "target_values", "write_atomically"]

VERSION: Final[str]

@final
class Layer:
    """
    A multi-head attention layer.
    """
    def __new__(cls, /, theta: "numpy.ndarray", w: "numpy.ndarray", key_bias: "numpy.ndarray | None" = None, bias: "numpy.ndarray | None" = None, causal: bool = False) -> Layer: ...
    def __repr__(self, /) -> str: ...
    def bias(self, /) -> "numpy.ndarray | None":
        """
        Output bias, `[d_out]`, if there is one.
        """
    def canonical(self, /, tolerance: SupportsFloat | SupportsIndex) -> tuple[Layer, list[list[int]], list[int]]:
        """
        The canonical form, where its heads come from, and the heads that left no trace.
        """
    @property
    def causal(self, /) -> bool:
        """
        Whether later tokens are hidden.
        """
    def conditions(self, /, k: SupportsIndex) -> str:
        """
        The conditions of the theory, as JSON.
        """
    @property
    def d(self, /) -> int:
        """
        Token dimension.
        """
    @property
    def d_out(self, /) -> int:
        """
        Output dimension.
        """
    def distance(self, /, other: Layer) -> str:
        """
        How far another layer is from this one, as JSON.
        """
    def equals(self, /, other: Layer) -> bool:
        """
        Whether all numbers are the same, however attention matrices are stored.
        """
    def forward(self, /, x: "numpy.ndarray") -> "numpy.ndarray":
        """
        `F(X)` of sequences `[n, k, d]`, in their precision.
        """
    @staticmethod
    def from_bytes(bytes: bytes) -> Layer:
        """
        A layer from the contents of a file.
        """
    def functional_error(self, /, other: Layer, k: SupportsIndex, inputs: str, n: SupportsIndex, seed: SupportsIndex) -> str:
        """
        Mean squared difference from another layer on random inputs, as JSON.
        """
    @property
    def heads(self, /) -> int:
        """
        Number of heads.
        """
    def key_bias(self, /) -> "numpy.ndarray | None":
        """
        Key biases, `[m, d]`, if any head has one.
        """
    @staticmethod
    def load(path: str | PathLike[str]) -> Layer:
        """
        A layer from a file.
        """
    def save(self, /, path: str | PathLike[str], notes: dict[str, str] | None = None) -> None:
        """
        Writes a file.
        """
    def theta(self, /) -> "numpy.ndarray":
        """
        Attention matrices, `[m, d, d]`.
        """
    def to_bytes(self, /, notes: dict[str, str] | None = None) -> bytes:
        """
        The contents of a file.
        """
    def w(self, /) -> "numpy.ndarray":
        """
        Projections, `[m, d, d_out]`.
        """

@final
class Learned:
    """
    What learning came to.
    """
    @property
    def before_polish(self, /) -> Layer | None:
        """
        The six phases' own answer, if they gave one.
        """
    @property
    def certificate_text(self, /) -> str | None:
        """
        The certificate as text, if there is one.
        """
    def file(self, /) -> bytes | None:
        """
        The best layer as the contents of its file, if there is one.
        """
    @property
    def layer(self, /) -> Layer | None:
        """
        The best layer, if there is one.
        """
    @property
    def outcome(self, /) -> str:
        """
        How it ended, in words.
        """
    @property
    def recovered(self, /) -> bool:
        """
        Whether the layer was recovered.
        """
    def report(self, /) -> str:
        """
        Everything as JSON: what `attnlearn learn --json` writes.
        """
    @property
    def statement(self, /) -> str | None:
        """
        The guarantee in one sentence.
        """
    @property
    def unfinished(self, /) -> bool:
        """
        Whether the limit of time ended the search before a layer was recovered: what was kept of it is still there.
        """

@final
class Model:
    """
    A fitted model.
    """
    @staticmethod
    def from_bytes(bytes: bytes) -> Model:
        """
        A model from the contents of a file.
        """
    def frozen(self, /) -> "numpy.ndarray | None":
        """
        The frozen weights: `[M, d+1, d+1]`, rows the query's, or `[K, (N+1)d + 1]` of neurons; none of a kernel.
        """
    def how(self, /) -> str | None:
        """
        How it was fitted, as JSON.
        """
    def intercept(self, /) -> "numpy.ndarray":
        """
        Intercepts `[t]`.
        """
    @staticmethod
    def load(path: str | PathLike[str]) -> Model:
        """
        A model from a file.
        """
    def predict(self, /, sets: "dict[str, object]") -> "numpy.ndarray":
        """
        Predictions `[n, t]`.
        """
    @property
    def ridge(self, /) -> float:
        """
        The ridge.
        """
    def save(self, /, path: str | PathLike[str]) -> None:
        """
        Writes a file, what `attnlearn fit` writes.
        """
    @property
    def shape(self, /) -> tuple[int, int, int]:
        """
        Keys at most, dimension and targets.
        """
    def to_bytes(self, /) -> bytes:
        """
        The contents of a file.
        """
    def values(self, /) -> "numpy.ndarray":
        """
        Trained values `[p, t]`, head after head, or dual coefficients `[n, t]` of a kernel.
        """
    @property
    def warning(self, /) -> str | None:
        """
        What is to be warned of, if anything.
        """

@final
class Sums:
    """
    Sums over sets, gathered bit by bit: the mergeable Gram.
    """
    def __new__(cls, /, wanted: "dict[str, object]", keys: SupportsIndex, d: SupportsIndex, targets: SupportsIndex) -> Sums:
        """
        Empty sums for sets of so many keys in dimension d with so many targets.
        """
    def add(self, /, sets: "dict[str, object]", progress: Any | None = None) -> None:
        """
        Adds sets; interrupted, or refused, the sums are as they were.
        """
    @property
    def examples(self, /) -> int:
        """
        Sets so far.
        """
    def merge(self, /, other: Sums) -> None:
        """
        Adds the sums of others.
        """
    def read_bytes(self, /, bytes: bytes) -> None:
        """
        Replaces the sums by those that [`Self::to_bytes`] gave.
        """
    def solve(self, /, wanted: "dict[str, object]", progress: Any | None = None) -> Model:
        """
        The model that the sums determine.
        """
    def to_bytes(self, /) -> bytes:
        """
        All sums as bytes.
        """

def _panic_for_tests() -> None:
    """
    A fault on purpose: tests see to it that it is an exception and not the end of the interpreter.
    """

def certify(layer: Layer, x: "numpy.ndarray", y: "numpy.ndarray", *, delta: SupportsFloat | SupportsIndex, epsilons: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None, progress: Any | None = None) -> tuple[str, str, str]:
    """
    What is guaranteed of a layer, from examples that no learner has seen: JSON, text and statement.
    """

def examples_of(layer: Layer, n: SupportsIndex, k: SupportsIndex, *, inputs: str = "boolean", seed: SupportsIndex = 0) -> "tuple[numpy.ndarray, numpy.ndarray]":
    """
    `n` examples of a layer on random sequences of `k` tokens: what `attnlearn generate` writes for the same seed.
    """

def fit(sets: "dict[str, object]", wanted: "dict[str, object]", checkpoint: str | PathLike[str] | None = None, progress: Any | None = None) -> Model:
    """
    Fits a model to sets with targets.
    """

def from_pretrained(path: str | PathLike[str], layer: SupportsIndex = 0, heads: SupportsIndex | None = None, prefix: str | None = None, causal: bool | None = None) -> tuple[Layer, str]:
    """
    An attention layer out of a transformer's checkpoint, and where it was found, as JSON.
    """

def learn(x: "numpy.ndarray", y: "numpy.ndarray", wanted: "dict[str, object]", progress: Any | None = None) -> Learned:
    """
    Learns a layer from examples, as the settings say.
    """

def random_layer(d: SupportsIndex, heads: SupportsIndex, *, d_out: SupportsIndex | None = None, norm: SupportsFloat | SupportsIndex = 6.0, rank: SupportsIndex | None = None, seed: SupportsIndex = 0) -> Layer:
    """
    A random layer, the one that `attnlearn generate` draws from the same seed.
    """

def target_values(target: str, n: SupportsIndex, *, d: SupportsIndex, keys: SupportsIndex, min_keys: SupportsIndex | None = None, inputs: str = "sphere", noise: SupportsFloat | SupportsIndex = 0.0, seed: SupportsIndex = 0, target_seed: SupportsIndex = 0) -> "tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]":
    """
    Random sets with a target, what `attnlearn generate --target` writes: `x` `[n, N+1, d]`, `y` `[n]`, lengths.
    """

def write_atomically(path: str | PathLike[str], contents: bytes) -> None:
    """
    Writes a file, which appears whole or not at all.
    """
