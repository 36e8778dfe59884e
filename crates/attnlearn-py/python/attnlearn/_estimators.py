"""Layers of frozen random heads, and their limits, as scikit-learn estimators."""

from __future__ import annotations

import json
import warnings
from typing import Any, Literal, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_array, check_consistent_length, validate_data

from . import _native
from ._inputs import numbers, on_cpu, path as as_path, real, whole
from ._layer import Path
from ._progress import ProgressArgument, Watching

Sets = dict[str, Any]
Ridge = Union[float, Literal["auto", "ridgeless"]]


def _rank(value: Any) -> int:
    """Dimensions of what may not be an array yet; what is none at all is left to scikit-learn's checks."""
    rank = getattr(value, "ndim", None)
    if isinstance(rank, int):
        return rank
    try:
        return int(np.asarray(value).ndim)
    except (TypeError, ValueError):
        return 2


def _floats(array: Any, name: str, dims: str, least: int = 1) -> NDArray[Any]:
    """A checked array as it is, or as float64; scikit-learn's words for what every estimator refuses."""
    array = on_cpu(array, name)
    rank = dims.count(",") + 1
    checked = check_array(
        array, dtype=[np.float64, np.float32], order="C", ensure_2d=False, allow_nd=True, ensure_min_samples=least, input_name=name
    )
    if checked.ndim != rank:
        raise ValueError(f"{name}: has shape {list(checked.shape)} of rank {checked.ndim}; give it the shape [{dims}]")
    return numbers(checked, name, dims)


class _SetRegressor(RegressorMixin, BaseEstimator):
    """What both estimators have in common: inputs, targets, predictions."""

    token_dim: int | None
    ridge: Ridge
    fit_intercept: bool
    memory: float
    progress: ProgressArgument
    _kernel = False
    _model_: _native.Model | None

    def _sets(self, X: Any, *, reset: bool, least: int = 1) -> Sets:
        """Inputs in any of the three forms, as the native side takes them."""
        if isinstance(X, (tuple, list)) and len(X) in (2, 3) and _rank(X[0]) == 2 and _rank(X[1]) == 3:
            query, keys = _floats(X[0], "query", "n, d", least), _floats(X[1], "keys", "n, N, d", least)
            mask = X[2] if len(X) == 3 else None
            if query.shape[0] != keys.shape[0] or query.shape[1] != keys.shape[2]:
                shapes = f"query {list(query.shape)} and keys {list(keys.shape)}"
                raise ValueError(f"X: the shapes of {shapes} do not fit; give [n, d] and [n, N, d]")
            if query.dtype != keys.dtype:
                query, keys = query.astype(np.float64), keys.astype(np.float64)
            there = None
            if mask is not None:
                there = np.asarray(on_cpu(mask, "mask"))
                if there.shape != keys.shape[:2]:
                    raise ValueError(f"mask: has shape {list(there.shape)}; give it the shape {list(keys.shape[:2])}")
                if there.dtype != np.bool_:
                    if not np.isin(there, (0, 1)).all():
                        raise ValueError("mask: holds numbers other than 0 and 1; give 0 or 1")
                    there = there.astype(np.bool_)
                there = np.ascontiguousarray(there)
            self._form(query.shape[1], "sets", reset)
            return {"x": query, "keys": keys, "mask": there, "lengths": None, "y": None, "weights": None}
        X = on_cpu(X, "X")
        if _rank(X) == 3:
            tokens = _floats(X, "X", "n, N+1, d", least)
            if tokens.shape[1] < 2:
                raise ValueError(f"X: has shape {list(tokens.shape)}: no place for a key; give [n, N+1, d], N ≥ 1")
            self._form(tokens.shape[2], "sets", reset)
            return {"x": tokens, "keys": None, "mask": None, "lengths": None, "y": None, "weights": None}
        if not reset and getattr(self, "_form_", "rows") != "rows":
            raise ValueError(f"X: has rank {_rank(X)}; give sets like those of the fit, [n, N+1, d] or (query, keys, mask)")
        rows = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], order="C", ensure_min_samples=least)
        self._form_ = "rows"
        width = rows.shape[1]
        if self.token_dim is None:
            # A plain row is a set of one key that is its own query.
            return {"x": rows, "keys": rows[:, None], "mask": None, "lengths": None, "y": None, "weights": None}
        d = whole(self.token_dim, "token_dim", 1)
        if width % d or width < 2 * d:
            raise ValueError(f"X: rows of {width} numbers are no query and keys of dimension {d}; give (N+1)·token_dim columns, N ≥ 1")
        return {"x": rows.reshape(len(rows), width // d, d), "keys": None, "mask": None, "lengths": None, "y": None, "weights": None}

    def _form(self, d: int, form: str, reset: bool) -> None:
        """Notes the sizes of the fit, or holds others against them."""
        if reset:
            self.n_features_in_, self._form_ = d, form
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif self._form_ != form:
            raise ValueError(f"X: sets were given and rows of {self.n_features_in_} features expected; give inputs like those of the fit")
        elif d != self.n_features_in_:
            name = type(self).__name__
            raise ValueError(f"X has {d} features, but {name} is expecting {self.n_features_in_} features as input")

    def _targets(self, sets: Sets, y: Any, sample_weight: Any, *, reset: bool) -> Sets:
        """Targets and weights, checked, beside the sets."""
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None: This estimator requires y to be passed")
        y = on_cpu(y, "y")
        targets = check_array(y, dtype=[np.float64, np.float32], order="C", ensure_2d=False, input_name="y", estimator=self)
        if targets.ndim not in (1, 2):
            raise ValueError(f"y: has shape {list(targets.shape)}; give [n] or [n, t]")
        if targets.ndim == 2 and targets.shape[1] == 1 and self._form_ == "rows":
            from sklearn.exceptions import DataConversionWarning

            message = "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,)."
            warnings.warn(message, DataConversionWarning, stacklevel=3)
        check_consistent_length(sets["x"], targets)
        one = targets.ndim == 1
        if reset:
            self._one_target_ = one
        sets["y"] = np.ascontiguousarray(targets.reshape(len(targets), -1))
        if sample_weight is not None:
            weights = _check_sample_weight(on_cpu(sample_weight, "sample_weight"), sets["x"], ensure_non_negative=True)
            sets["weights"] = np.ascontiguousarray(weights)
        return sets

    def _ridge(self) -> str:
        if isinstance(self.ridge, str):
            if self.ridge not in ("auto", "ridgeless"):
                raise ValueError(f"ridge: {self.ridge!r} is no ridge; give a positive number, auto or ridgeless")
            return self.ridge
        number = real(self.ridge, "ridge")
        if number <= 0:
            raise ValueError(f"ridge: it is {number}; it must be positive and finite; for no ridge at all ask for ridgeless")
        return repr(number)

    def _mean(self, mean: Any) -> tuple[float | None, list[float] | None]:
        if mean is None:
            return None, None
        if np.ndim(mean) == 0:
            return real(mean, "mean"), None
        matrix = numbers(mean, "mean", "d+1, d+1")
        return None, [float(v) for v in matrix.ravel()]

    def _learned(self, model: _native.Model) -> None:
        """Fitted attributes from a model."""
        self._model_ = model
        values, intercept = model.values(), model.intercept()
        one = self._one_target_
        if self._kernel:
            self.dual_coef_ = values[:, 0] if one else values
        else:
            self.coef_ = values[:, 0] if one else values.T
        self.intercept_ = float(intercept[0]) if one else intercept
        self.ridge_ = model.ridge
        how = model.how()
        self.report_: dict[str, Any] = {} if how is None else json.loads(how)
        self.path_: list[dict[str, Any]] = self.report_.get("path", [])
        self.n_iter_: int = max(1, self.report_.get("iterations", 0))
        if model.warning is not None:
            warnings.warn(model.warning, ConvergenceWarning, stacklevel=3)

    def _fitted(self) -> _native.Model:
        model: _native.Model | None = getattr(self, "_model_", None)
        if model is None:
            name = type(self).__name__
            raise NotFittedError(f"This {name} instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator.")
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model_", None) is not None

    def predict(self, X: ArrayLike | tuple[ArrayLike, ...]) -> NDArray[np.float64]:
        """Predict the targets of sets.

        Parameters
        ----------
        X : array_like of shape (n, N+1, d), tuple (query, keys, mask) or array_like of shape (n, n_features)
            Sets in the form of the fit; the number of keys may differ but for models of the whole set (rfmlp).

        Returns
        -------
        ndarray of shape (n,) or (n, t)
        """
        model = self._fitted()
        y = model.predict(self._sets(X, reset=False))
        return y[:, 0] if self._one_target_ else y

    def save(self, path: Path) -> None:
        """Write the fitted model to a safetensors file: the bytes that ``attnlearn fit`` writes for the same sets, settings and seed.

        Parameters
        ----------
        path : str or path-like
            The file, which ``attnlearn predict`` and ``attnlearn score`` read too.
        """
        self._fitted().save(as_path(path))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        model = state.pop("_model_", None)
        if model is not None:
            state["_model_bytes_"] = model.to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        contents = state.pop("_model_bytes_", None)
        super().__setstate__(state)
        if contents is not None:
            self._model_ = _native.Model.from_bytes(contents)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = True
        tags.target_tags.multi_output = True
        return tags


# Fitted attributes that follow from the sums of `partial_fit`.
_SOLVED = ("coef_", "intercept_", "ridge_", "path_", "report_", "n_iter_")


class RandomFeatureAttentionRegressor(_SetRegressor):
    """Ridge regression on many frozen random attention heads: ``f(x) = b + Σ_m (1/N) Σ_i σ(⟨W_m, x̃_0 x̃_iᵀ⟩) ⟨v_m, x̃_i⟩``.

    An input is a set, a query with keys. Heads are drawn from a seed and frozen; their values are fitted exactly.

    Parameters
    ----------
    model : {"rfa", "brfa", "rfmlp", "softmax", "row-relu"}, default="rfa"
        ReLU attention with centred heads; with heads about a mean; neurons that read the whole set; softmax attention; ReLU attention
        whose weights are divided by their sum.
    heads : int, default=256
        Frozen heads, M.
    ridge : float, "auto" or "ridgeless", default="auto"
        λ; of least exact leave-one-out error; or the limit λ → 0 (double precision only). After `partial_fit` "auto" is of least generalised
        cross-validation, because the examples are gone.
    solver : {"auto", "gram", "dual", "cg"}, default="auto"
        How the equations are solved; "auto" is the cheapest that fits in ``memory``.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    mean : float or array_like of shape (d+1, d+1), optional
        Mean of the heads: a number s for ``s·diag(I, 0)``, or a matrix (brfa, softmax, row-relu).
    inverse_temperature : float, default=1.0
        The β of softmax(β ℓ).
    width : int, optional
        Neurons of rfmlp; M(d+1) if not given.
    precision : {"auto", "f32", "f64"}, default="auto"
        Of the features; "auto" is that of ``X``.
    token_dim : int, optional
        Only for rows ``[n, n_features]``: the dimension of a token, so that a row is a query and its keys one after the other. If not given
        a row is a set of one key that is its own query.
    memory : float, default=8.0
        Memory that the solver may use, in GiB.
    tolerance : float, optional
        Relative residual at which conjugate gradients stop.
    checkpoint : path, optional
        Where the sums of the solver "gram" are kept while they are gathered; the same fit continues from there.
    random_state : int, RandomState instance or None, default=0
        Seed of the frozen heads; the program draws the same heads from the same number.
    progress : "auto", bool or callable, default=False
        As of `learn_attention`.

    Attributes
    ----------
    coef_ : ndarray of shape (p,) or (t, p)
        Trained values of the p = M(d+1) features, head after head: that of ``x̃_e`` and head m at ``m(d+1) + e``, x̃ the key with a 1 at its end.
    heads_ : ndarray of shape (M, d+1, d+1)
        The frozen heads W, drawn again whenever they are asked for; of rfmlp its neurons, one row each.
    intercept_ : float or ndarray of shape (t,)
        Intercept.
    ridge_ : float
        The ridge of the fit.
    path_ : list of dict
        Errors of all ridges tried: ``lambda``, ``loo``, ``gcv``, ``training``, ``freedom``.
    report_ : dict
        How the fit went: solver, iterations, residual, seconds of every stage.
    n_features_in_ : int
        Columns of rows, or dimension d of query and keys.
    n_iter_ : int
        Iterations of conjugate gradients, at least 1.

    Examples
    --------
    >>> from attnlearn import RandomFeatureAttentionRegressor, datasets
    >>> X, y = datasets.sets("average:p=2", 500, d=4, keys=4, seed=1)
    >>> model = RandomFeatureAttentionRegressor(heads=50).fit(X, y)
    >>> new, truth = datasets.sets("average:p=2", 200, d=4, keys=4, seed=2)
    >>> bool(model.score(new, truth) > 0.9)
    True
    """

    _sums_: _native.Sums | None

    def __init__(
        self,
        *,
        model: str = "rfa",
        heads: int = 256,
        ridge: Ridge = "auto",
        solver: str = "auto",
        fit_intercept: bool = True,
        mean: float | ArrayLike | None = None,
        inverse_temperature: float = 1.0,
        width: int | None = None,
        precision: str = "auto",
        token_dim: int | None = None,
        memory: float = 8.0,
        tolerance: float | None = None,
        checkpoint: Path | None = None,
        random_state: int | np.random.RandomState | None = 0,
        progress: ProgressArgument = False,
    ) -> None:
        self.model = model
        self.heads = heads
        self.ridge = ridge
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.mean = mean
        self.inverse_temperature = inverse_temperature
        self.width = width
        self.precision = precision
        self.token_dim = token_dim
        self.memory = memory
        self.tolerance = tolerance
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.progress = progress

    def _wanted(self, sets: Sets) -> dict[str, Any]:
        """The parameters, checked, as the native side takes them."""
        if self.model not in ("rfa", "brfa", "rfmlp", "softmax", "row-relu"):
            raise ValueError(f"model: {self.model!r} is not known; give rfa, brfa, rfmlp, softmax or row-relu")
        if self.precision not in ("auto", "f32", "f64"):
            raise ValueError(f"precision: {self.precision!r} is not known; give auto, f32 or f64")
        single = sets["x"].dtype == np.float32
        precision = ("f32" if single else "f64") if self.precision == "auto" else self.precision
        scale, matrix = self._mean(self.mean)
        return {
            "model": self.model,
            "heads": whole(self.heads, "heads", 1),
            "seed": self._seed(),
            "mean_scale": scale,
            "mean": matrix,
            "inverse_temperature": real(self.inverse_temperature, "inverse_temperature"),
            "width": None if self.width is None else whole(self.width, "width", 1),
            "precision": precision,
            "ridge": self._ridge(),
            "solver": self.solver,
            "intercept": bool(self.fit_intercept),
            "memory": real(self.memory, "memory"),
            "tolerance": None if self.tolerance is None else real(self.tolerance, "tolerance"),
        }

    @property
    def heads_(self) -> NDArray[np.float64]:
        """The frozen heads."""
        frozen = self._fitted().frozen()
        assert frozen is not None
        return frozen

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return whole(self.random_state, "random_state", 0, 2**64 - 1)

    def fit(self, X: ArrayLike | tuple[ArrayLike, ...], y: ArrayLike, sample_weight: ArrayLike | None = None) -> RandomFeatureAttentionRegressor:
        """Fit the values of the frozen heads.

        Parameters
        ----------
        X : array_like of shape (n, N+1, d), tuple (query, keys, mask) or array_like of shape (n, n_features)
            Sets: row 0 the query, then the keys; or queries ``[n, d]``, keys ``[n, N, d]`` and, if sets have fewer than N keys, a mask
            ``[n, N]``; or plain rows, see ``token_dim``. Arrays of float32 and float64 in C order are not copied.
        y : array_like of shape (n,) or (n, t)
            Targets.
        sample_weight : array_like of shape (n,), optional
            Weights of the sets in the sum of squares.

        Returns
        -------
        self
        """
        sets = self._targets(self._sets(X, reset=True, least=2), y, sample_weight, reset=True)
        wanted = self._wanted(sets)
        kept = None if self.checkpoint is None else as_path(self.checkpoint)
        self._sums_ = None
        with Watching(self.progress) as watching:
            model = _native.fit(sets, wanted, kept, watching.native)
        self._learned(model)
        return self

    def partial_fit(
        self, X: ArrayLike | tuple[ArrayLike, ...], y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> RandomFeatureAttentionRegressor:
        """Add a block of sets to the sums that determine the fit, whose memory does not grow with the number of sets.

        Parameters
        ----------
        X, y, sample_weight
            As of `fit`. All blocks have one number of features and of targets. After a `fit` sums begin anew.

        Returns
        -------
        self
        """
        first = getattr(self, "_sums_", None) is None
        sets = self._targets(self._sets(X, reset=first), y, sample_weight, reset=first)
        if first:
            self._wanted_ = self._wanted(sets)
            keys, d = (sets["x"].shape[1] - 1, sets["x"].shape[2]) if sets["keys"] is None else sets["keys"].shape[1:]
            self._sizes_ = (int(keys), int(d), int(sets["y"].shape[1]))
            self._sums_ = _native.Sums(self._wanted_, *self._sizes_)
        assert self._sums_ is not None
        with Watching(self.progress) as watching:
            self._sums_.add(sets, watching.native)
        self._forget()
        return self

    def merge(self, other: RandomFeatureAttentionRegressor) -> RandomFeatureAttentionRegressor:
        """Add the sums that another estimator gathered by `partial_fit` with the same settings, on another machine say.

        Parameters
        ----------
        other : RandomFeatureAttentionRegressor
            With the same parameters.

        Returns
        -------
        self
        """
        mine, theirs = getattr(self, "_sums_", None), getattr(other, "_sums_", None)
        if mine is None or theirs is None:
            raise NotFittedError("merge: both need sums; call partial_fit on each of them first")
        mine.merge(theirs)
        self._forget()
        return self

    def _forget(self) -> None:
        """Forgets what followed from sums that have changed."""
        self._model_ = None
        for name in _SOLVED:
            self.__dict__.pop(name, None)

    def _fitted(self) -> _native.Model:
        sums = getattr(self, "_sums_", None)
        if getattr(self, "_model_", None) is None and sums is not None:
            wanted = {**self._wanted_, "ridge": self._ridge(), "intercept": bool(self.fit_intercept)}
            with Watching(self.progress) as watching:
                self._learned(sums.solve(wanted, watching.native))
        return super()._fitted()

    def __getattr__(self, name: str) -> Any:
        # Sums are solved when somebody asks for what follows from them.
        if name in _SOLVED and self.__dict__.get("_sums_") is not None:
            self._fitted()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return super().__sklearn_is_fitted__() or getattr(self, "_sums_", None) is not None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        sums = state.pop("_sums_", None)
        if sums is not None:
            state["_sums_bytes_"] = sums.to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        contents = state.pop("_sums_bytes_", None)
        super().__setstate__(state)
        if contents is not None:
            self._sums_ = _native.Sums(self._wanted_, *self._sizes_)
            self._sums_.read_bytes(contents)


class AttentionKernelRegressor(_SetRegressor):
    """Kernel ridge regression with the exact kernel of infinitely many random attention heads.

    Parameters
    ----------
    kernel : {"rfa", "brfa", "rfmlp"}, default="rfa"
        Which layer has infinitely many heads.
    ridge : float, "auto" or "ridgeless", default="auto"
        λ; of least exact leave-one-out error; or the limit λ → 0.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    mean : float or array_like of shape (d+1, d+1), optional
        Mean of the heads of brfa: a number s for ``s·diag(I, 0)``, or a matrix.
    token_dim : int, optional
        As of `RandomFeatureAttentionRegressor`.
    memory : float, default=8.0
        Memory that may be used, in GiB; a kernel of n sets takes 16 n² bytes.
    progress : "auto", bool or callable, default=False
        As of `learn_attention`.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n,) or (n, t)
        Coefficients of the sets of the fit, which the model keeps.
    intercept_ : float or ndarray of shape (t,)
        Intercept.
    ridge_ : float
        The ridge of the fit.
    path_ : list of dict
        Errors of all ridges tried.
    report_ : dict
        How the fit went.
    n_features_in_ : int
        Columns of rows, or dimension d of query and keys.

    Examples
    --------
    >>> from attnlearn import AttentionKernelRegressor, datasets
    >>> X, y = datasets.sets("average:p=2", 300, d=4, keys=4, seed=1)
    >>> model = AttentionKernelRegressor().fit(X, y)
    >>> new, truth = datasets.sets("average:p=2", 200, d=4, keys=4, seed=2)
    >>> bool(model.score(new, truth) > 0.9)
    True
    """

    _kernel = True

    def __init__(
        self,
        *,
        kernel: str = "rfa",
        ridge: Ridge = "auto",
        fit_intercept: bool = True,
        mean: float | ArrayLike | None = None,
        token_dim: int | None = None,
        memory: float = 8.0,
        progress: ProgressArgument = False,
    ) -> None:
        self.kernel = kernel
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.mean = mean
        self.token_dim = token_dim
        self.memory = memory
        self.progress = progress

    def fit(self, X: ArrayLike | tuple[ArrayLike, ...], y: ArrayLike, sample_weight: ArrayLike | None = None) -> AttentionKernelRegressor:
        """Fit the coefficients of the kernel.

        Parameters
        ----------
        X, y, sample_weight
            As of `RandomFeatureAttentionRegressor.fit`.

        Returns
        -------
        self
        """
        if self.kernel not in ("rfa", "brfa", "rfmlp"):
            raise ValueError(f"kernel: {self.kernel!r} is not known; give rfa, brfa or rfmlp")
        sets = self._targets(self._sets(X, reset=True, least=2), y, sample_weight, reset=True)
        scale, matrix = self._mean(self.mean)
        wanted = {
            "model": f"kernel-{self.kernel}",
            "heads": 1,
            "seed": 0,
            "mean_scale": scale,
            "mean": matrix,
            "inverse_temperature": 1.0,
            "width": None,
            "precision": "f64",
            "ridge": self._ridge(),
            "solver": "auto",
            "intercept": bool(self.fit_intercept),
            "memory": real(self.memory, "memory"),
            "tolerance": None,
        }
        with Watching(self.progress) as watching:
            model = _native.fit(sets, wanted, None, watching.native)
        self._learned(model)
        return self
