"""Progress: a callback, or a bar where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Union

ProgressArgument = Union[Literal["auto"], bool, None, Callable[["Progress"], Any]]


@dataclass(frozen=True)
class Progress:
    """What goes on, as callbacks are told it.

    Attributes
    ----------
    kind : {"line", "live"}
        Whether this is told once, or replaces what was told last.
    text : str
        In words.
    done, total : int
        How much is done of how much; ``total`` is 0 where nobody knows.
    """

    kind: str
    text: str
    done: int
    total: int


def _watched() -> bool:
    """Whether somebody watches: a terminal or a notebook."""
    shell = sys.modules.get("IPython")
    if shell is not None:
        running = shell.get_ipython()
        if running is not None and type(running).__name__ == "ZMQInteractiveShell":
            return True
    return sys.stderr is not None and sys.stderr.isatty()


class _Bar:
    """A bar of tqdm's that takes what the native side tells."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def __call__(self, told: Progress) -> None:
        if told.kind == "line":
            self._bar.write(told.text)
            return
        self._bar.total = told.total or None
        self._bar.n = told.done
        self._bar.set_description_str(told.text)

    def close(self) -> None:
        self._bar.close()


class Watching:
    """Context in which ``.native`` is what the native side calls, or None."""

    def __init__(self, progress: ProgressArgument) -> None:
        self._bar: _Bar | None = None
        call: Callable[[Progress], Any] | None = None
        if callable(progress):
            call = progress
        elif progress not in ("auto", True, False, None):
            raise TypeError(f"progress: {progress!r} is not known; give 'auto', True, False or a function")
        elif progress is True or (progress == "auto" and _watched()):
            try:
                from tqdm.auto import tqdm
            except ImportError:
                if progress is True:
                    raise ImportError("progress: a bar needs tqdm; install it with pip install 'attnlearn[progress]'") from None
            else:
                self._bar = _Bar(tqdm(total=None, leave=False, dynamic_ncols=True))
                call = self._bar
        self.native: Callable[[str, str, int, int], None] | None = None
        if call is not None:
            told = call

            def native(kind: str, text: str, done: int, total: int) -> None:
                told(Progress(kind, text, done, total))

            self.native = native

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
