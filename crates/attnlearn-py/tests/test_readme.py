"""What the README shows of Python is run, and prints what it shows."""

from __future__ import annotations

import contextlib
import io
import re

from conftest import ROOT


def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, "README.md", "exec"), names)  # noqa: S102
        shown = re.findall(r"# prints (.*)", block)
        for line, wanted in zip(out.getvalue().splitlines(), shown, strict=True):
            assert re.fullmatch(re.escape(wanted).replace("…", ".*"), line), (line, wanted)
