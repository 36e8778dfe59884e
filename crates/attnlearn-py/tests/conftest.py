"""What all tests share."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from attnlearn import datasets

ROOT = Path(__file__).resolve().parents[3]

# Jobs of a script are told to ignore Ctrl-C, and what they start is too: tests of interruptions need to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def program() -> Path:
    """The program; ``cargo xtask test`` builds it and names it."""
    path = Path(os.environ.get("ATTNLEARN_PROGRAM", ROOT / "target" / "debug" / "attnlearn"))
    if not path.is_file():
        pytest.fail(f"there is no program at {path}: build it with cargo build, or run cargo xtask test")
    return path


@pytest.fixture
def run(program: Path, tmp_path: Path):
    """Runs the program in an empty folder."""

    def call(line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([program, *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, (line, done.stdout, done.stderr)
        return done

    return call


@pytest.fixture(scope="session")
def teacher():
    return datasets.random_layer(6, 2, norm=3.0, seed=1)


@pytest.fixture(scope="session")
def examples(teacher):
    return datasets.examples(teacher, 600, 4, seed=2)


@pytest.fixture(scope="session")
def sets():
    return datasets.sets("average:p=2", 400, d=5, keys=4, seed=1)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
