"""Examples from an iterator: gathered in memory while they are few, in temporary files when they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from ._inputs import numbers

# Bytes that are gathered in memory.
MEMORY = 64 << 20


class _Column:
    """Blocks of one array, one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY)
        self._shape: tuple[int, ...] | None = None
        self._dtype: np.dtype[Any] | None = None
        self._rows = 0

    def add(self, block: np.ndarray, number: int) -> None:
        if self._shape is None:
            self._shape, self._dtype = block.shape[1:], block.dtype
        if block.shape[1:] != self._shape:
            found, wanted = list(block.shape[1:]), list(self._shape)
            raise ValueError(f"{self._name}, block {number}: has shape [n, {found}], those before [n, {wanted}]; give blocks of one shape")
        if block.dtype != self._dtype:
            raise ValueError(f"{self._name}, block {number}: is {block.dtype}, those before {self._dtype}; give blocks of one number format")
        self._file.write(block.data)
        self._rows += len(block)

    def array(self) -> np.ndarray:
        assert self._shape is not None and self._dtype is not None
        shape = (self._rows, *self._shape)
        if getattr(self._file, "_rolled", True):
            # The map keeps the file alive, which has no name any more and is gone with it.
            self._file.flush()
            return np.memmap(self._file._file, dtype=self._dtype, mode="r", shape=shape)
        self._file.seek(0)
        return np.frombuffer(self._file.read(), dtype=self._dtype).reshape(shape)


def examples_from(blocks: Any, most: int) -> tuple[np.ndarray, np.ndarray]:
    """All examples of an iterator of ``(X, Y)``, at most ``most``."""
    if not isinstance(blocks, Iterable) or hasattr(blocks, "__array__"):
        raise TypeError("Y: it is missing; give X and Y, or an iterator of blocks (X, Y)")
    x, y, left = _Column("X"), _Column("Y"), most
    number = -1
    for number, block in enumerate(blocks):
        if not isinstance(block, (tuple, list)) or len(block) != 2:
            raise TypeError(f"block {number}: {type(block).__name__} is no pair; give blocks (X, Y)")
        inputs, outputs = numbers(block[0], f"X, block {number}", "n, k, d", signs=True), numbers(block[1], f"Y, block {number}", "n, k, d_out")
        if inputs.shape[:2] != outputs.shape[:2]:
            shapes = f"X has shape {list(inputs.shape)} and Y has shape {list(outputs.shape)}"
            raise ValueError(f"block {number}: {shapes}; give one output sequence for each input sequence")
        x.add(inputs[:left], number)
        y.add(outputs[:left], number)
        left -= len(inputs[:left])
        if left == 0:
            break
    if number < 0:
        raise ValueError("examples: the iterator gave none; give at least one block")
    return x.array(), y.array()
