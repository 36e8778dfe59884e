"""Plain Adam, with JAX on the CPU: what one would write in an afternoon, and then tune.

Small problems in double precision with all examples in every step. Large ones in single precision on small batches with low-rank factors, then in
double precision on all examples. Cosine-decayed steps, tried from several starts.
"""

import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from common import arguments, solve, start

jax.config.update("jax_enable_x64", True)

CHUNK = 100  # steps of one compiled call
LARGE = 4_000  # parameters above which descent begins in single precision on small batches
RATE = {False: 0.02, True: 0.003}  # small, large


def outputs(p, x, causal):
    q = jnp.einsum("nad,hdr->nhar", x, p["A"])
    if "B" in p:
        logits = jnp.einsum("nhar,nhbr->nhab", q, jnp.einsum("nbd,hdr->nhbr", x, p["B"]))
    else:
        logits = jnp.einsum("nhad,nbd->nhab", q, x)
    if causal:
        k = x.shape[1]
        logits = jnp.where(jnp.tril(jnp.ones((k, k), bool)), logits, -jnp.inf)
    attention = jax.nn.softmax(logits, -1)
    if "V" in p:
        pooled = jnp.einsum("nhab,nhbs->nhas", attention, jnp.einsum("nbd,hds->nhbs", x, p["V"]))
    else:
        pooled = jnp.einsum("nhab,nbd->nhad", attention, x)
    return jnp.einsum("nhas,hso->nao", pooled, p["O"])


def descent(causal, rate, steps, batch):
    """`CHUNK` steps from step `first`; the loss is the share of unexplained variance."""

    def loss(p, x, y, scale):
        return jnp.mean((outputs(p, x, causal) - y) ** 2) * scale

    def run(state, x, y, scale, first, key):
        def step(state, i):
            p, m, v, key = state
            key, now = jax.random.split(key)
            if batch < x.shape[0]:
                rows = jax.random.choice(now, x.shape[0], (batch,), replace=False)
                bx, by = x[rows], y[rows]
            else:
                bx, by = x, y
            value, g = jax.value_and_grad(loss)(p, bx, by, scale)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
            t = first + i + 1.0
            eta = rate * jnp.minimum(t / (0.02 * steps), 1.0) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(t / steps, 1.0)))
            eta = (eta * jnp.sqrt(1 - 0.99**t) / (1 - 0.9**t)).astype(x.dtype)
            p = jax.tree.map(lambda p, m, v: p - eta * m / (jnp.sqrt(v) + jnp.asarray(1e-15, x.dtype)), p, m, v)
            return (p, m, v, key), value

        (p, m, v, key), values = jax.lax.scan(step, (*state, key), jnp.arange(CHUNK))
        return (p, m, v), key, values[-1]

    return jax.jit(run)


KNOWN = {}


def compiled(key, make, *args):
    """The compiled function, and how long that took now."""
    shapes = (key, *(jax.tree.leaves(jax.tree.map(lambda a: (a.shape, str(a.dtype)), args))))
    if shapes in KNOWN:
        return KNOWN[shapes], 0.0
    begun = time.perf_counter()
    KNOWN[shapes] = make().lower(*args).compile()
    return KNOWN[shapes], time.perf_counter() - begun


def main():
    options = arguments(__doc__)

    def attempt(x, y, rng, seconds):
        scale = 1.0 / np.mean((y - y.mean((0, 1))) ** 2)
        p = start(rng, x.shape[2], y.shape[2], options)
        p["O"] = p["O"] / np.sqrt(scale)
        large = sum(v.size for v in p.values()) > LARGE
        stages = [(np.float32, 3000, 512, RATE[large])] if large else []
        stages.append((np.float64, 1000 if large else 4000, len(x), 1e-4 if large else RATE[large]))
        begun, compiling, taken, nmse = time.perf_counter(), 0.0, 0, np.inf
        for dtype, steps, batch, rate in stages:
            p = jax.tree.map(lambda v, dtype=dtype: jnp.asarray(v, dtype), p)
            zeros = jax.tree.map(jnp.zeros_like, p)
            state, key = (p, zeros, zeros), jax.random.PRNGKey(int(rng.integers(2**31)))
            data = (jnp.asarray(x, dtype), jnp.asarray(y, dtype), jnp.asarray(scale, dtype))
            name = (options.causal, rate, steps, batch)
            run, more = compiled(name, lambda name=name: descent(*name), state, *data, jnp.asarray(0.0, dtype), key)
            compiling += more
            for first in range(0, steps, CHUNK):
                state, key, value = run(state, *data, jnp.asarray(first, dtype), key)
                taken, nmse = taken + CHUNK, float(value)
                late = time.perf_counter() - begun - compiling > seconds
                if nmse < (1e-9 if dtype == np.float32 else options.floor) or not np.isfinite(nmse) or late:
                    break
            p = state[0]
        return p, nmse if np.isfinite(nmse) else np.inf, taken, compiling

    solve(options, attempt)


if __name__ == "__main__":
    main()
