"""Pictures, with matplotlib, which is imported here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

try:
    from matplotlib import pyplot
except ImportError:
    raise ImportError("plot: it needs matplotlib; install it with pip install 'attnlearn[plot]'") from None

if TYPE_CHECKING:
    from ._layer import AttentionLayer
    from ._learn import LearnResult


def heads(layer: AttentionLayer, what: str, axes: Any) -> Any:
    """Heat maps of all heads on one scale."""
    if what not in ("theta", "w"):
        raise ValueError(f"what: {what!r} is not known; give theta or w")
    matrices = layer.theta if what == "theta" else layer.w
    if axes is None:
        columns = min(4, len(matrices))
        rows = -(-len(matrices) // columns)
        _, axes = pyplot.subplots(rows, columns, figsize=(2.6 * columns, 2.6 * rows), squeeze=False, layout="constrained")
    places = np.asarray(axes, dtype=object).ravel()
    if len(places) < len(matrices):
        raise ValueError(f"axes: {len(places)} of them for {len(matrices)} heads; give one a head")
    largest = float(np.abs(matrices).max()) or 1.0
    for i, (place, matrix) in enumerate(zip(places, matrices)):
        image = place.imshow(matrix, cmap="RdBu", vmin=-largest, vmax=largest)
        place.set_title(f"{'Θ' if what == 'theta' else 'W'} of head {i + 1}", fontsize="medium")
        place.set_xticks([])
        place.set_yticks([])
    for place in places[len(matrices) :]:
        place.set_axis_off()
    figure = places[0].figure
    figure.colorbar(image, ax=list(places), shrink=0.8)
    return figure


def certificate(result: LearnResult, axes: Any) -> Any:
    """What is guaranteed: ``P[e > ε]`` against ε."""
    if result.certificate is None:
        raise ValueError("plot: there is no certificate, because no layer was found; look at result.outcome")
    if axes is None:
        _, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
    bounds = result.certificate.bounds
    epsilons = [bound["epsilon"] for bound in bounds]
    axes.loglog(epsilons, [bound["together"] for bound in bounds], "o-", label="at most, for all ε at once")
    axes.loglog(epsilons, [bound["alone"] for bound in bounds], "s--", label="at most, for one ε")
    axes.set_xlabel("ε")
    axes.set_ylabel("P[‖F − F̂‖∞ > ε]")
    axes.legend()
    return axes.figure
