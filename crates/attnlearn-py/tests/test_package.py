"""The package as a whole: what it weighs, how fast it comes, that stubs and reference are those of the code."""

from __future__ import annotations

import doctest
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import attnlearn
from conftest import ROOT

PACKAGE = Path(attnlearn.__file__).parent


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "crates/attnlearn-py/tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stubs_are_those_of_the_code():
    stubs = tool("stubs")
    assert stubs.STUBS.read_text() == stubs.stubs(), "they are stale: run python crates/attnlearn-py/tools/stubs.py"
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_native.pyi").exists()


def test_types_are_right(tmp_path):
    """The package in mypy's strict mode, and a user's script against its types."""
    script = tmp_path / "script.py"
    script.write_text(
        "import attnlearn\n"
        "teacher = attnlearn.datasets.random_layer(2, 1)\n"
        "X, Y = attnlearn.datasets.examples(teacher, 10, 3)\n"
        "result = attnlearn.learn_attention(X, Y, heads=1)\n"
        "reveal_type(result.layer)\n"
        "reveal_type(attnlearn.RandomFeatureAttentionRegressor().fit(X, Y[:, 0, 0]).predict(X))\n"
        "attnlearn.learn_attention(X, Y, method='guess')\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    package = subprocess.run([*mypy, str(ROOT / "crates/attnlearn-py/python/attnlearn")], capture_output=True, text=True, check=False)
    assert package.returncode == 0, package.stdout
    told = subprocess.run([*mypy, str(script)], capture_output=True, text=True, check=False).stdout
    assert "AttentionLayer | None" in told and "ndarray" in told and "Found 1 error" in told and "'guess'" in told, told


def test_the_reference_is_that_of_the_docstrings():
    reference = tool("reference")
    assert reference.PAGE.read_text() == reference.page(), "it is stale: run python crates/attnlearn-py/tools/reference.py"
    listed = {name.split(".")[0] for names in reference.ORDER.values() for name in names}
    assert listed == set(attnlearn.__all__)


@pytest.mark.parametrize("name", ["_layer", "_learn", "_estimators", "datasets"])
def test_examples_of_docstrings(name):
    module = importlib.import_module(f"attnlearn.{name}")
    found = doctest.testmod(module)
    assert found.failed == 0 and (found.attempted > 0 or name == "datasets")


def test_everything_public_is_documented():
    for name in attnlearn.__all__:
        thing = getattr(attnlearn, name)
        assert thing.__doc__, name
        for method, value in vars(thing).items() if isinstance(thing, type) else []:
            if not method.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{method}"
    assert attnlearn.__version__ and set(dir(attnlearn)) == set(attnlearn.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        attnlearn.nothing  # noqa: B018


def test_the_import_is_quick():
    """Under 0.3 s, best of five; and it brings neither scikit-learn nor the extras."""
    code = "import time; t = time.perf_counter(); import attnlearn; print(time.perf_counter() - t)"
    best = min(float(python(code)) for _ in range(5))
    assert best < 0.3, f"{best:.3f} s"
    loaded = python("import attnlearn, sys; print(*sys.modules)").split()
    assert not {"sklearn", "matplotlib", "torch", "pandas", "polars", "tqdm"} & set(loaded)


def test_extras_that_are_missing_are_named(tmp_path):
    for module in ("matplotlib", "torch", "tqdm"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('hidden')")
    calls = {"layer.plot()": "attnlearn[plot]", "layer.to_torch()": "attnlearn[torch]", "progress": "attnlearn[progress]"}
    for call, extra in calls.items():
        body = call if "(" in call else "attnlearn.learn_attention([[[0.0]]], [[[0.0]]], progress=True)"
        code = f"import attnlearn\nlayer = attnlearn.datasets.random_layer(2, 1)\ntry:\n    {body}\nexcept ImportError as e:\n    print(e)"
        assert extra in python(code, PYTHONPATH=str(tmp_path))


def test_the_wheel_is_small():
    """Under 15 MB, without names for debuggers. ``cargo xtask test`` names the wheel."""
    wheel = os.environ.get("ATTNLEARN_WHEEL")
    if wheel is None:
        pytest.skip("ATTNLEARN_WHEEL is not set: run cargo xtask test")
    assert Path(wheel).stat().st_size < 15e6
    assert "abi3" in wheel


MEMORY = """
import resource, sys
import numpy as np
import attnlearn
{before}
X = np.random.default_rng(0).standard_normal({shape}, dtype=np.{dtype})
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{call}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) * 1024 / X.nbytes)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_are_not_copied(dtype):
    """Peak memory grows by far less than X has: the forward pass, a fit by sums, its predictions."""
    forward = MEMORY.format(
        before="layer = attnlearn.AttentionLayer(np.eye(32)[None], np.ones((1, 32, 1)))\nlayer(np.ones((2000, 8, 32), np.float32))",
        shape="(400_000, 8, 32)",
        dtype=dtype,
        call="layer(X)",
    )
    assert float(python(forward)) < 0.3  # outputs are a 32nd, and memory grows in steps
    fit = MEMORY.format(
        before="from attnlearn import RandomFeatureAttentionRegressor as R\nm = R(heads=4, ridge=1e-2, solver='gram')\n"
        "small = np.random.default_rng(1).normal(size=(2000, 9, 32)); m.fit(small, small[:, 0, 0])",
        shape="(300_000, 9, 32)",
        dtype=dtype,
        call="y = X[:, 0, 0].copy()\nm.fit(X, y)\nm.predict(X)",
    )
    assert float(python(fit)) < 0.3


def test_threads_give_the_same_bits():
    code = (
        "import attnlearn, hashlib; from attnlearn import datasets as d; t = d.random_layer(5, 2, norm=3.0, seed=1);"
        "r = attnlearn.learn_attention(*d.examples(t, 500, 3, seed=1), heads=2); print(hashlib.sha256(r._file).hexdigest())"
    )
    assert python(code, RAYON_NUM_THREADS="1") == python(code, RAYON_NUM_THREADS="3")


def test_arrays_are_not_written_to(rng):
    X = np.sign(rng.normal(size=(100, 3, 4)))
    layer = attnlearn.datasets.random_layer(4, 1)
    before = X.copy()
    Y = layer(X)
    attnlearn.learn_attention(X, Y, heads=1, progress=False)
    np.testing.assert_array_equal(X, before)
    theta = layer.theta
    theta[:] = 0
    assert np.abs(layer.theta).max() > 0
