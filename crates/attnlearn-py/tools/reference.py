"""The reference page ``docs/python.md``, from the docstrings.

    python crates/attnlearn-py/tools/reference.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import attnlearn

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/python.md"

ORDER = {
    "Learning": ["learn_attention", "sculpt", "certify", "LearnResult", "Certificate", "PhaseRecord", "Progress", "Interrupted", "NotRecoveredWarning"],
    "Layers": ["AttentionLayer", "LayerDistance", "check_conditions", "Conditions"],
    "Frozen heads": ["RandomFeatureAttentionRegressor", "AttentionKernelRegressor"],
    "Data": ["datasets.random_layer", "datasets.examples", "datasets.sets"],
}

HEAD = """# The Python package

Written from the docstrings by `crates/attnlearn-py/tools/reference.py`; a test fails when it is stale. The [README](../README.md) has a first
example, `crates/attnlearn-py/notebooks` three tutorials.

- Inputs are anything that NumPy takes. Arrays of float32 and float64 in C order are read where they lie; others are copied once. Do not write to an array
  while a call reads it: the GIL is released.
- Errors are `ValueError` (what was given makes no sense), `TypeError` (it is of the wrong kind, or on a GPU), `OSError` (files) and scikit-learn's `NotFittedError`, with the
  words of the program: *place: problem; remedy*.
- The same examples, settings and seed give the bits of the program, on any number of threads. `RAYON_NUM_THREADS` sets their number.
"""

SECTIONS = ("Parameters", "Returns", "Attributes", "Warns", "Examples")


def markdown(doc: str) -> str:
    """A docstring in NumPy's style as Markdown."""
    lines, out, i = inspect.cleandoc(doc).split("\n"), [], 0
    while i < len(lines):
        line = lines[i]
        if line in SECTIONS and i + 1 < len(lines) and set(lines[i + 1]) == {"-"}:
            i += 2
            out += [f"*{line}*", ""]
            body = []
            while i < len(lines) and not (lines[i] in SECTIONS and i + 1 < len(lines) and set(lines[i + 1]) == {"-"}):
                body.append(lines[i])
                i += 1
            out += ["```python", *"\n".join(body).strip().split("\n"), "```", ""] if line == "Examples" else items(body)
            continue
        out.append(line)
        i += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def items(body: list[str]) -> list[str]:
    """``name : type`` and its indented text, as a list."""
    out: list[str] = []
    for line in body:
        if line and not line.startswith(" "):
            name, colon, kind = line.partition(" : ")
            out.append(f"- `{name}`: {kind.strip()}." if colon else f"- `{line}`")
        elif line.strip():
            out[-1] += " " + line.strip()
    return [*out, ""]


def signature(thing: object) -> str:
    text = str(inspect.signature(thing))  # type: ignore[arg-type]
    text = re.sub(r"(?<=[\w\])'\"]) ?-> .*$", "", text)
    text = re.sub(r": [^=,()]*(\[[^\]]*\])*[^=,()]*(?=[,=)])", "", text)
    return text.replace("(self, ", "(").replace("(self)", "()").replace("'", '"')


def entry(name: str) -> str:
    thing = attnlearn
    for part in name.split("."):
        thing = getattr(thing, part)
    parts = [f"### `{name}`", "", markdown(inspect.getdoc(thing) or "")]
    if inspect.isclass(thing):
        for method, value in sorted(vars(thing).items()):
            inherited = [*(vars(base).get(method) for base in thing.__mro__[1:])]
            call = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if method.startswith("_") and method != "__call__" or not (inspect.isfunction(call) or isinstance(call, property)) or call in inherited:
                continue
            doc = inspect.getdoc(call) or ""
            if isinstance(call, property):
                parts += ["", f"**`.{method}`**: {doc}"]
            else:
                parts += ["", f"#### `{name}.{method}`" if method != "__call__" else f"#### `{name}(…)(X)`", "", markdown(doc)]
        if "predict" not in vars(thing) and hasattr(thing, "predict"):
            for method in ("predict", "save"):
                parts += ["", f"#### `{name}.{method}`", "", markdown(inspect.getdoc(getattr(thing, method)) or "")]
    return "\n".join(parts)


def page() -> str:
    parts = [HEAD]
    for title, names in ORDER.items():
        parts += [f"## {title}", "", *("\n" + entry(name) + "\n" for name in names)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).strip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
