"""Learning layers from examples, and certifying them."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Union

import numpy as np
from numpy.typing import ArrayLike

from . import _html, _native
from ._inputs import numbers, path as as_path, real, whole
from ._layer import AttentionLayer, Path
from ._progress import ProgressArgument, Watching
from ._stream import examples_from

Heads = Union[int, str, tuple[int, int], range]
Rank = Union[int, Literal["full", "auto"], None]


class NotRecoveredWarning(UserWarning):
    """No layer was recovered; the message is the outcome, which says why."""


class Interrupted(KeyboardInterrupt):
    """Learning was stopped by Ctrl-C, and the search kept.

    Attributes
    ----------
    checkpoint : str
        The file to continue from, with ``learn_attention(X, Y, ..., checkpoint=error.checkpoint, resume=True)``.
    """

    def __init__(self, checkpoint: str) -> None:
        super().__init__(f"interrupted: kept the search in {checkpoint}; continue with checkpoint={checkpoint!r}, resume=True")
        self.checkpoint = checkpoint


@dataclass(frozen=True)
class Certificate:
    """What held-out examples guarantee of a layer. ``print`` shows it as a table.

    Attributes
    ----------
    statement : str
        The guarantee on the largest error seen, as a sentence.
    n : int
        Held-out examples.
    delta : float
        Every statement holds with confidence ``1 - delta``.
    max_error : float
        The largest error ``‖F(X) − F̂(X)‖∞`` seen.
    max_error_bound : float
        Guaranteed: an error exceeds ``max_error`` with at most this probability.
    bounds : list of dict
        The same for every threshold ``epsilon``: ``exceedances``, ``alone`` (for this one chosen beforehand), ``together`` (for all at once).
    nmse : float or None
        Estimated: mean squared error over the variance of the outputs.
    report : dict
        Everything else too.
    """

    statement: str
    n: int
    delta: float
    max_error: float
    max_error_bound: float
    bounds: list[dict[str, Any]]
    nmse: float | None
    report: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    def epsilon_at(self, q: float) -> float | None:
        """The smallest threshold that is exceeded with probability at most ``q``, guaranteed; None if there is none."""
        return next((bound["epsilon"] for bound in self.bounds if bound["together"] <= q), None)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        keys = ("epsilon", "exceedances", "alone", "together")
        rows = [tuple(_html.number(bound[key]) for key in keys) for bound in self.bounds]
        return _html.paragraph(self.statement) + _html.table(["ε", "examples with e > ε", "P ≤, this ε alone", "P ≤, all at once"], rows)


def _certificate(report: dict[str, Any], text: str, statement: str) -> Certificate:
    names = ("n", "delta", "max_error", "max_error_bound", "bounds", "nmse")
    return Certificate(statement=statement, text=text, report=report, **{name: report[name] for name in names})


@dataclass(frozen=True)
class PhaseRecord:
    """One phase of the six, the polish or the certificate.

    Attributes
    ----------
    phase : str
        ``crude``, ``sculpt``, ``proxy``, ``resculpt``, ``span``, ``search``, ``polish`` or ``certify``.
    seconds : float
        Time that it took.
    rows_seen, rows_accepted : int
        Rows looked at, and those certified to be attended alike by all heads.
    nmse : float or None
        On the validation examples, where the phase has one.
    note : str
        One line for people.
    report : dict
        Everything: residuals, spectrum, widths, rounds, history.
    """

    phase: str
    seconds: float
    rows_seen: int
    rows_accepted: int
    nmse: float | None
    note: str
    report: dict[str, Any] = field(repr=False)


class LearnResult:
    """What learning came to.

    Attributes
    ----------
    layer : AttentionLayer or None
        The best layer; None if none was found.
    outcome : str
        How it ended, in the program's words.
    recovered : bool
        Whether the layer was recovered.
    certificate : Certificate or None
        What held-out examples guarantee of it.
    history : list of dict
        Descent: every form that was tried. The six phases: their records.
    records : list of PhaseRecord
        The six phases' records; empty for descent.
    before_polish : AttentionLayer or None
        The six phases' own answer.
    method : {"descend", "sculpt"}
        Which learner gave the layer.
    examples : int
        Examples learned from.
    seconds : float
        Time that it took.
    report : dict
        Everything: what ``attnlearn learn --json`` writes.
    """

    def __init__(self, found: _native.Learned) -> None:
        self.report: dict[str, Any] = json.loads(found.report())
        layer, crude = found.layer, found.before_polish
        self.layer: AttentionLayer | None = None if layer is None else AttentionLayer._of(layer)
        self.before_polish: AttentionLayer | None = None if crude is None else AttentionLayer._of(crude)
        self.outcome: str = found.outcome
        self.recovered: bool = found.recovered
        text, statement = found.certificate_text, found.statement
        self.certificate: Certificate | None = None
        if text is not None and statement is not None:
            self.certificate = _certificate(self.report["certificate"], text, statement)
        self.method: str = self.report["method"]
        self.examples: int = self.report["examples"]
        self.seconds: float = self.report["seconds"]
        self.history: list[dict[str, Any]] = self.report["tries"] if self.method == "descend" else self.report["records"]
        names = ("phase", "seconds", "rows_seen", "rows_accepted", "nmse", "note")
        rows = [] if self.method == "descend" else self.history
        self.records: list[PhaseRecord] = [PhaseRecord(report=row, **{name: row[name] for name in names}) for row in rows]
        self._file: bytes | None = found.file()

    def save(self, path: Path) -> None:
        """Write the layer to a safetensors file: the bytes that the program writes for the same examples, settings and seed.

        Parameters
        ----------
        path : str or path-like
            The file.
        """
        if self._file is None:
            raise ValueError(f"layer: there is none ({self.outcome}); give more examples")
        _native.write_atomically(as_path(path), self._file)

    def plot(self, *, what: str = "theta", axes: Any = None) -> Any:
        """Draw the layer's heads, or with ``what="certificate"`` what is guaranteed, with matplotlib.

        Parameters
        ----------
        what : {"theta", "w", "certificate"}, default="theta"
            What to draw.
        axes : optional
            Where to draw; a new figure if not given.

        Returns
        -------
        matplotlib.figure.Figure
        """
        if what == "certificate":
            from ._plots import certificate

            return certificate(self, axes)
        if self.layer is None:
            raise ValueError(f"plot: no layer was found ({self.outcome}); give more examples")
        return self.layer.plot(what=what, axes=axes)

    def to_pandas(self) -> Any:
        """The history as a ``pandas.DataFrame``, one row a form or phase."""
        import pandas

        return pandas.json_normalize(self.history)

    def to_polars(self) -> Any:
        """The history as a ``polars.DataFrame``, one row a form or phase."""
        import polars

        return polars.DataFrame([{key: value for key, value in row.items() if not isinstance(value, (dict, list))} for row in self.history])

    def __repr__(self) -> str:
        return f"LearnResult(outcome={self.outcome!r}, layer={self.layer!r}, method={self.method!r}, seconds={self.seconds:.2f})"

    def _repr_html_(self) -> str:
        colour = "green" if self.recovered else "firebrick"
        text = _html.escape(self.outcome)
        parts = [f"<p><b style='color:{colour}'>{text}</b> ({self.method}, {self.examples} examples, {self.seconds:.2f} s)</p>"]
        if self.layer is not None:
            parts.append(self.layer._repr_html_())
        if self.certificate is not None:
            parts.append(_html.paragraph(self.certificate.statement))
        if self.records:
            rows = [(r.phase, r.rows_seen, r.rows_accepted, f"{r.seconds:.2f} s", r.note) for r in self.records]
            parts.append(_html.table(["phase", "rows seen", "accepted", "time", ""], rows))
        else:
            tries = [(t["form"]["heads"], t["unknowns"], _html.number(t["nmse"]), _html.number(t["held_out_nmse"])) for t in self.history]
            parts.append(_html.table(["heads", "unknowns", "NMSE", "NMSE, choosing"], tries))
        return "".join(parts)


def _memory(given: float | None) -> float | None:
    """GiB as the native side takes them."""
    if given is None:
        return None
    memory = real(given, "memory")
    if memory <= 0.0:
        raise ValueError(f"memory: it is {memory}; give a positive number of GiB")
    return memory


def _heads(given: Heads) -> str:
    """Heads as the native side reads them."""
    if isinstance(given, str):
        return given
    if isinstance(given, range):
        if given.step != 1 or len(given) == 0:
            raise ValueError(f"heads: {given!r} is no range of numbers in turn; give range(first, last + 1)")
        return f"{given.start}..{given.stop - 1}"
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(f"heads: {given!r} is no range; give (first, last)")
        return f"{whole(given[0], 'heads', 1)}..{whole(given[1], 'heads', 1)}"
    return str(whole(given, "heads", 1))


def _rank(given: Rank, name: str) -> str | None:
    if given is None or isinstance(given, str):
        return given
    return str(whole(given, name, 1))


def _rotation(given: object, rank: object) -> list[float] | None:
    """The frequencies of a rotation, one for every pair."""
    if given is None:
        return None
    if isinstance(given, (int, float)):
        base = real(given, "rope")
        if not (math.isfinite(base) and base > 0):
            raise ValueError(f"rope: a base of {base}; give a number above 0, 10000 say")
        if not isinstance(rank, int) or rank < 2 or rank % 2:
            raise ValueError(f"rope: heads of rank {rank!r} have no pairs of coordinates; give an even rank, or the frequencies")
        return [base ** (-2 * j / rank) for j in range(rank // 2)]
    frequencies = np.asarray(given, dtype=np.float64)
    if frequencies.ndim != 1 or frequencies.size == 0 or not np.isfinite(frequencies).all():
        raise ValueError("rope: the frequencies are not a list of finite numbers; give one for every pair")
    return [float(frequency) for frequency in frequencies]


def _biases(given: bool | str | None) -> str | None:
    return {True: "yes", False: "no"}[given] if isinstance(given, bool) else given


def learn_attention(
    X: ArrayLike | Iterator[tuple[ArrayLike, ArrayLike]],
    Y: ArrayLike | None = None,
    *,
    heads: Heads = "auto",
    method: Literal["auto", "descend", "sculpt"] = "auto",
    rank: Rank = None,
    value_rank: Rank = None,
    biases: bool | Literal["auto"] | None = None,
    causal: bool = False,
    window: int | None = None,
    kv_heads: int | None = None,
    rope: float | ArrayLike | None = None,
    qk_norm: float | None = None,
    relative_bias: bool = False,
    noise: bool = False,
    polish: bool = True,
    linear_programs: bool = False,
    sculpture: bool = False,
    seed: int = 0,
    delta: float = 0.01,
    held_out: int = 20_000,
    most_examples: int = 100_000_000,
    memory: float | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    time_limit: float | None = None,
    progress: ProgressArgument = "auto",
) -> LearnResult:
    """Recover the heads of an attention layer from examples of its input and output.

    Descent comes first; if it does not recover a small layer, the six phases of Chen and Li follow. A part of the examples, drawn by the seed,
    is held out: only the certificate sees them, and no copy of any is learned from. The same examples, settings and seed give the bits of the program ``attnlearn learn``.

    Ctrl-C stops the search within about a second, keeps it, and raises `Interrupted`, which says how to continue.

    Parameters
    ----------
    X : array_like of shape (n, k, d), or iterator of pairs
        Sequences of k tokens. Arrays of float32, float64 and int8 are not copied on the way. Or, without ``Y``, any iterator of blocks
        ``(X, Y)``, which is read until it ends or gave ``most_examples``; large streams wait in a temporary file.
    Y : array_like of shape (n, k, d_out)
        The layer's outputs.
    heads : int, "auto", "auto:MOST", (first, last) or range, default="auto"
        Number of heads, or how to find it. A range gives the error against the number of heads.
    method : {"auto", "descend", "sculpt"}, default="auto"
        How to learn.
    rank, value_rank : int, "full" or "auto", optional
        Rank of attention matrices and of projections (descent only).
    biases : bool or "auto", optional
        Whether the layer has key biases and an output bias (descent only).
    causal : bool, default=False
        Later tokens are hidden from earlier ones (descent only).
    window : int, optional
        How many of the last keys a query sees, itself among them (descent only).
    kv_heads : int, optional
        Key heads that all heads share in equal numbers; needs ``heads`` and ``rank`` (descent only).
    rope : float or array of frequencies, optional
        Rotary positions, by their base or with a frequency for every pair of coordinates, (j, j + pairs); needs ``rank`` (descent only).
    qk_norm : float, optional
        Queries and keys are divided by their root mean square, with this number beside the mean square (descent only).
    relative_bias : bool, default=False
        Heads have relative biases, a number for every distance (descent only).
    noise : bool, default=False
        Outputs are noisy: a layer that explains all but the noise counts as recovered, if what is left does not depend on the inputs; ``report["lack_of_fit"]``
        says what the tests found (descent only).
    polish : bool, default=True
        Polish the six phases' answer (six phases only).
    linear_programs : bool, default=False
        Find wide directions of the convex body by linear programs (six phases only).
    sculpture : bool, default=False
        Measure how wide that body is with ever more slabs; their phase's record has it, ``record.report["sculpture"]`` (six phases only).
    seed : int, default=0
        Of the starting points of the search, and of which examples are held out.
    delta : float, default=0.01
        One minus the confidence of the certificate.
    held_out : int, default=20_000
        Examples held out for the certificate, at most, and at most a fifth.
    most_examples : int, default=100_000_000
        Most examples read.
    memory : float, optional
        Memory to take, about, in GiB: descent learns from as many examples as fit, drawn at random. Three quarters of what the machine, its
        control group or ``ulimit -v`` allow if not given.
    checkpoint : path, optional
        Where descent keeps its search every minute and at Ctrl-C; a temporary file if not given. It is removed at the end.
    resume : bool, default=False
        Continue the search kept in ``checkpoint``, bit for bit.
    time_limit : float, optional
        Seconds after which the search ends with the best so far. It is kept in ``checkpoint``, and ``resume`` continues it.
    progress : "auto", bool or callable, default="auto"
        A bar of tqdm's in terminals and notebooks; always or never; or a function that is told a `Progress` now and then.

    Returns
    -------
    LearnResult

    Warns
    -----
    NotRecoveredWarning
        If no layer was recovered; the message is the outcome.

    Examples
    --------
    >>> from attnlearn import datasets, learn_attention
    >>> teacher = datasets.random_layer(4, 1, norm=2.0, seed=1)
    >>> X, Y = datasets.examples(teacher, 400, 3, seed=2)
    >>> result = learn_attention(X, Y, heads=1)
    >>> result.outcome
    'recovered'
    >>> teacher.distance(result.layer).worst_theta < 1e-8
    True
    """
    limit = whole(most_examples, "most_examples", 1)
    if Y is None:
        X, Y = examples_from(X, limit)
    inputs, outputs = numbers(X, "X", "n, k, d", signs=True), numbers(Y, "Y", "n, k, d_out")
    count = _heads(heads)
    if not isinstance(method, str):
        raise TypeError(f"method: {method!r} is not known; give auto, sculpt, descend")
    searches = method != "sculpt" and polish and not linear_programs
    kept = None if checkpoint is None else as_path(checkpoint)
    if kept is None and searches and not resume:
        kept = os.path.join(tempfile.gettempdir(), f"attnlearn-{os.getpid()}-{secrets.token_hex(4)}.checkpoint")
    wanted: dict[str, Any] = {
        "heads": count,
        "method": method,
        "seed": whole(seed, "seed", 0, 2**64 - 1),
        "delta": real(delta, "delta"),
        "most_examples": limit,
        "held_out": whole(held_out, "held_out"),
        "memory": _memory(memory),
        "rank": _rank(rank, "rank"),
        "value_rank": _rank(value_rank, "value_rank"),
        "biases": _biases(biases),
        "causal": bool(causal),
        "window": None if window is None else whole(window, "window", 1),
        "kv_heads": None if kv_heads is None else whole(kv_heads, "kv_heads", 1),
        "rotation": _rotation(rope, rank),
        "norm": None if qk_norm is None else real(qk_norm, "qk_norm"),
        "relative": bool(relative_bias),
        "noise": bool(noise),
        "time_limit": None if time_limit is None else real(time_limit, "time_limit"),
        "polish": bool(polish),
        "linear_programs": bool(linear_programs),
        "sculpture": bool(sculpture),
        "checkpoint": kept,
        "resume": bool(resume),
    }
    with Watching(progress) as watching:
        try:
            found = _native.learn(inputs, outputs, wanted, watching.native)
        except KeyboardInterrupt:
            if kept is not None and os.path.exists(kept):
                raise Interrupted(kept) from None
            raise
        except BaseException:
            if checkpoint is None and kept is not None and os.path.exists(kept):
                os.remove(kept)
            raise
    result = LearnResult(found)
    if not result.recovered:
        unfinished = found.unfinished and kept is not None
        how = f"; continue with checkpoint={kept!r}, resume=True" if unfinished else ""
        warnings.warn(result.outcome + how, NotRecoveredWarning, stacklevel=2)
    return result


def sculpt(
    X: ArrayLike | Iterator[tuple[ArrayLike, ArrayLike]],
    Y: ArrayLike | None = None,
    *,
    heads: Heads = "auto",
    polish: bool = True,
    linear_programs: bool = False,
    sculpture: bool = False,
    seed: int = 0,
    delta: float = 0.01,
    held_out: int = 20_000,
    most_examples: int = 100_000_000,
    progress: ProgressArgument = "auto",
) -> LearnResult:
    """Run the six phases of Chen and Li, then a polish; the result has a record of every phase.

    Parameters
    ----------
    X, Y, heads, polish, linear_programs, sculpture, seed, delta, held_out, most_examples, progress
        As of `learn_attention`.

    Returns
    -------
    LearnResult
        Its ``records`` tell what every phase saw and found, ``before_polish`` is the six phases' own answer.
    """
    return learn_attention(
        X,
        Y,
        heads=heads,
        method="sculpt",
        polish=polish,
        linear_programs=linear_programs,
        sculpture=sculpture,
        seed=seed,
        delta=delta,
        held_out=held_out,
        most_examples=most_examples,
        progress=progress,
    )


def certify(
    layer: AttentionLayer,
    X: ArrayLike | Iterator[tuple[ArrayLike, ArrayLike]],
    Y: ArrayLike | None = None,
    *,
    delta: float = 0.01,
    epsilons: ArrayLike | None = None,
    progress: ProgressArgument = "auto",
) -> Certificate:
    """What examples guarantee of a layer, if none of them was used to learn it and they are independent draws.

    Parameters
    ----------
    layer : AttentionLayer
        The layer.
    X, Y
        Examples, as of `learn_attention`.
    delta : float, default=0.01
        One minus the confidence.
    epsilons : array_like, optional
        Thresholds of the error; 1e-12, 1e-11, …, 1 if not given.
    progress : "auto", bool or callable, default="auto"
        As of `learn_attention`.

    Returns
    -------
    Certificate
    """
    if not isinstance(layer, AttentionLayer):
        raise TypeError(f"layer: {type(layer).__name__} is no layer; give an AttentionLayer")
    if Y is None:
        X, Y = examples_from(X, 2**63 - 1)
    inputs, outputs = numbers(X, "X", "n, k, d", signs=True), numbers(Y, "Y", "n, k, d_out")
    grid = None if epsilons is None else [real(epsilon, "epsilons") for epsilon in np.ravel(epsilons)]
    with Watching(progress) as watching:
        report, text, statement = _native.certify(
            layer._layer, inputs, outputs, delta=real(delta, "delta"), epsilons=grid, progress=watching.native
        )
    return _certificate(json.loads(report), text, statement)
