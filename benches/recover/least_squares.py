"""Nonlinear least squares with `scipy.optimize.least_squares` and exact Jacobians from JAX, from several starts.

Small problems hand the solver a dense Jacobian, large ones products with it (`lsmr`).
"""

import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from adam_jax import outputs
from common import arguments, solve, start
from jax.flatten_util import ravel_pytree
from scipy.optimize import least_squares
from scipy.sparse.linalg import LinearOperator

jax.config.update("jax_enable_x64", True)

DENSE = 60_000_000  # entries of a Jacobian above which products are used
KNOWN = {}


class Late(Exception):
    """Time is up."""


def main():
    options = arguments(__doc__)

    def functions(x, y, unravel):
        def residual(v, x, y):
            return (outputs(unravel(v), x, options.causal) - y).ravel()

        return (
            jax.jit(residual),
            jax.jit(jax.jacfwd(residual)),
            jax.jit(lambda v, t, x, y: jax.jvp(lambda v: residual(v, x, y), (v,), (t,))[1]),
            jax.jit(lambda v, u, x, y: jax.vjp(lambda v: residual(v, x, y), v)[1](u)[0]),
        )

    def attempt(x, y, rng, seconds):
        size = np.sqrt(np.mean((y - y.mean((0, 1))) ** 2))
        p = start(rng, x.shape[2], y.shape[2], options)
        first, unravel = ravel_pytree(jax.tree.map(jnp.asarray, p))
        data = (jnp.asarray(x), jnp.asarray(y / size))
        dense = first.size * y.size <= DENSE
        begun = time.perf_counter()
        key = (x.shape, y.shape, first.size)
        if key not in KNOWN:
            KNOWN[key] = functions(x, y, unravel)
            residual, jacobian, forward, backward = KNOWN[key]
            residual(first, *data).block_until_ready()
            if dense:
                jacobian(first, *data).block_until_ready()
            else:
                forward(first, first, *data).block_until_ready()
                backward(first, residual(first, *data), *data).block_until_ready()
        compiling = time.perf_counter() - begun
        residual, jacobian, forward, backward = KNOWN[key]
        seen = {"v": np.asarray(first), "cost": np.inf, "n": 0}
        goal = options.floor * y.size

        def value(v):
            if time.perf_counter() - begun - compiling > seconds:
                raise Late
            r = np.asarray(residual(v, *data))
            cost = float(r @ r)
            seen["n"] += 1
            if cost < seen["cost"]:
                seen.update(v=v.copy(), cost=cost)
            if cost <= goal:
                raise Late
            return r

        def slope(v):
            if dense:
                return np.asarray(jacobian(v, *data))
            shape = (y.size, v.size)
            flat = np.ravel
            return LinearOperator(
                shape,
                matvec=lambda t: np.asarray(forward(v, flat(t), *data)),
                rmatvec=lambda u: np.asarray(backward(v, flat(u), *data)),
                dtype=float,
            )

        try:
            least_squares(
                value, np.asarray(first), slope, method="trf", tr_solver="exact" if dense else "lsmr", xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=200
            )
        except Late:
            pass
        found = {name: np.asarray(v) for name, v in unravel(jnp.asarray(seen["v"])).items()}
        found["O"] = found["O"] * size
        return found, seen["cost"] / y.size, seen["n"], compiling

    solve(options, attempt)


if __name__ == "__main__":
    main()
