"""What the peers share: problems in, layers out, and the clock.

A problem is an npz file with `x` [n, k, d] and `y` [n, k, d_out] and nothing else: no peer sees a teacher. A peer is told the number of heads and
their rank, draws starts until one explains the examples or its time is up, and writes the best layer it found as attnlearn reads it: a safetensors
file with `theta` [m, d, d] and `w` [m, d, d_out].
"""

import argparse
import json
import pathlib
import time

import numpy as np

NORM = 2.0  # of the attention matrices at the start
EXACT = 1e-20  # share of unexplained variance at which nothing is left to do


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("problems", nargs="+", type=pathlib.Path)
    parser.add_argument("--heads", type=int, required=True)
    parser.add_argument("--rank", type=int, default=0, help="of attention matrices; 0: full")
    parser.add_argument("--value-rank", type=int, default=0, help="of projections; 0: full")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a problem, compilation not counted")
    parser.add_argument("--floor", type=float, default=EXACT, help="share of unexplained variance that is good enough")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    return parser.parse_args()


def start(rng, d, d_out, options):
    """Random factors: Θ = A Bᵀ and W = V O, or A and O alone at full rank."""
    heads, rank, values = options.heads, options.rank, options.value_rank
    if rank:
        theta = np.sqrt(NORM / (d * np.sqrt(rank)))
        parts = {"A": (theta, (heads, d, rank)), "B": (theta, (heads, d, rank))}
    else:
        parts = {"A": (NORM / d, (heads, d, d))}
    if values:
        parts |= {"V": (d**-0.5, (heads, d, values)), "O": ((values * heads) ** -0.5, (heads, values, d_out))}
    else:
        parts |= {"O": ((d * heads) ** -0.5, (heads, d, d_out))}
    return {name: scale * rng.standard_normal(shape) for name, (scale, shape) in parts.items()}


def layer(parts):
    """`theta` and `w` of factors."""
    a, o = np.asarray(parts["A"], float), np.asarray(parts["O"], float)
    theta = np.einsum("hdr,her->hde", a, np.asarray(parts["B"], float)) if "B" in parts else a
    w = np.einsum("hds,hso->hdo", np.asarray(parts["V"], float), o) if "V" in parts else o
    return {"theta": theta, "w": w}


def save(path, tensors, causal):
    """A safetensors file: length of the header, header, numbers."""
    header = {"__metadata__": {"format": "attnlearn.layer", "version": "1", "mask": "causal" if causal else "none"}}
    data = b""
    for name, values in tensors.items():
        numbers = np.ascontiguousarray(values, "<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def solve(options, attempt):
    """Runs `attempt(x, y, rng, seconds left) -> (factors, nmse, steps, seconds of compilation)` on every problem until it is solved or time is up."""
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.problems:
        with np.load(path) as file:
            x, y = file["x"].astype(float), file["y"].astype(float)
        rng = np.random.default_rng(options.seed)
        best, starts, steps, spent, compiled = (None, np.inf), 0, 0, 0.0, 0.0
        while spent < options.limit and best[1] > options.floor:
            begun = time.perf_counter()
            found, nmse, more, compiling = attempt(x, y, rng, options.limit - spent)
            spent += time.perf_counter() - begun - compiling
            compiled += compiling
            starts, steps = starts + 1, steps + more
            if nmse < best[1]:
                best = (found, nmse)
        if best[0] is not None:
            save((options.out / path.name).with_suffix(".safetensors"), layer(best[0]), options.causal)
        report = {"problem": path.name, "seconds": spent, "compiling": compiled, "starts": starts, "steps": steps, "nmse": best[1]}
        print(json.dumps(report), flush=True)
