# Times of calls, as JSON: what `cargo xtask bench python` compares with the same calls from Rust.
import json
import resource
import subprocess
import sys
import time

import numpy as np

import attnlearn
from attnlearn import RandomFeatureAttentionRegressor, datasets, learn_attention

N = 10_000


def best(call, times):
    """Least of so many times: what the call itself takes."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return min(found)


def outside(times):
    """Seconds of learning that the library's own clock does not count, the least of so many."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        result = learn_attention(X, Y, heads=4, method="descend", progress=False)
        found.append(time.perf_counter() - begun - result.seconds)
    return min(found)


def peak(code):
    """Growth of the peak memory while the last line runs, as a share of the bytes of X."""
    code += "\nprint((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) * 1024 / X.nbytes)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def problem():
    """What the scripts read."""
    x, y = datasets.sets("average:p=2", 4000, d=16, keys=16, noise=0.1, seed=1)
    x_test, y_test = datasets.sets("average:p=2", 2000, d=16, keys=16, seed=2)
    teacher = datasets.random_layer(8, 2, norm=4.0, seed=1)
    tokens, outputs = datasets.examples(teacher, 2000, 4, seed=2)
    tokens_test, outputs_test = datasets.examples(teacher, 2000, 4, seed=3)
    np.savez("problem.npz", **{name: value for name, value in locals().items() if name != "teacher"})


if sys.argv[1] == "problem":
    problem()
elif sys.argv[1] == "import":
    code = "import time; t = time.perf_counter(); import attnlearn; print(time.perf_counter() - t)"
    print(json.dumps(min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(10))))
elif sys.argv[1] == "outside":
    X, Y = datasets.examples(datasets.random_layer(16, 4, norm=4.0, seed=1), N, 8, seed=2)
    print(json.dumps(outside(10)))
elif sys.argv[1] == "memory":
    head = "import resource, numpy as np, attnlearn\nrng = np.random.default_rng(0)\n"
    base = "\nbase = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    forward = "layer = attnlearn.AttentionLayer(np.eye(32)[None], np.ones((1, 32, 1)))\nlayer(np.ones((2000, 8, 32)))\nX = rng.normal(size=(400_000, 8, 32))"
    fit = (
        "m = attnlearn.RandomFeatureAttentionRegressor(heads=4, ridge=1e-2, solver='gram')\ns = rng.normal(size=(2000, 9, 32))\nm.fit(s, s[:, 0, 0])\n"
        "X = rng.normal(size=(300_000, 9, 32))\ny = X[:, 0, 0].copy()"
    )
    print(json.dumps({"forward": peak(head + forward + base + "layer(X)"), "fit": peak(head + fit + base + "m.fit(X, y)")}))
else:
    teacher = datasets.random_layer(16, 4, norm=4.0, seed=1)
    X, Y = datasets.examples(teacher, N, 8, seed=2)
    sets, y = datasets.sets("average:p=2", N, d=16, keys=8, seed=1)
    model = RandomFeatureAttentionRegressor(heads=40, ridge=1e-3, solver="gram")
    print(
        json.dumps(
            {
                "forward, f64": best(lambda: teacher(X), 30),
                "fit by sums, f64": best(lambda: model.fit(sets, y), 5),
                "learn": best(lambda: learn_attention(X, Y, heads=4, method="descend", progress=False), 2),
            }
        )
    )
