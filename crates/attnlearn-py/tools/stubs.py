"""Types of the native half, read off its binary by maturin, into ``attnlearn/_native.pyi``.

    python crates/attnlearn-py/tools/stubs.py [FILE]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STUBS = ROOT / "crates/attnlearn-py/python/attnlearn/_native.pyi"


def stubs() -> str:
    """What the stubs should be."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "maturin", "generate-stubs", "--quiet", "--profile", "dev", "--features", "as-tested", "--out", folder]
        subprocess.run([*command, "--manifest-path", ROOT / "crates/attnlearn-py/Cargo.toml"], check=True, cwd=ROOT)
        found = sorted(Path(folder).rglob("*.pyi"))
        assert len(found) == 1, found
        return "# Written by crates/attnlearn-py/tools/stubs.py.\nimport numpy\n" + found[0].read_text()


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else STUBS).write_text(stubs())
