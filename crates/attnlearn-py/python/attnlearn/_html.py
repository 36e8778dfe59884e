"""Small pieces of HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; texts are escaped."""
    head = "".join(f"<th style='text-align:left'>{escape(str(cell))}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def paragraph(text: str) -> str:
    """A paragraph; its text is escaped."""
    return f"<p>{escape(text)}</p>"


def number(value: float | None) -> str:
    """Two digits of an error, three of other numbers."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"
