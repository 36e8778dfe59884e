"""Arrays from whatever users have, checked, and copied only where their memory or number format leaves no choice."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy as np

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def on_cpu(value: Any, name: str) -> Any:
    """``value``, unless it lies on a GPU; tensors that are being trained are detached."""
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None)
    if getattr(value, "is_cuda", False) is True or (isinstance(kind, str) and kind != "cpu") or hasattr(value, "__cuda_array_interface__"):
        raise TypeError(f"{name}: it lies on a GPU ({device}); copy it to the CPU first, a torch tensor with .cpu()")
    if getattr(value, "requires_grad", False) is True:
        return value.detach()
    return value


def numbers(value: Any, name: str, dims: str, *, signs: bool = False) -> np.ndarray:
    """A C-contiguous array of float32 or float64 (with ``signs`` also int8) with as many dimensions as ``dims`` names, none empty.

    Arrays that are so already are returned as they are, read-only ones too.
    """
    value = on_cpu(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: it is no array of numbers ({error}); give it the shape [{dims}]") from None
    wanted = dims.count(",") + 1
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{name}: its objects are no numbers ({error}); give it a dtype of float32 or float64") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: has number format {array.dtype}; give float32 or float64")
    if array.ndim != wanted:
        raise ValueError(f"{name}: has shape {list(array.shape)} of rank {array.ndim}; give it the shape [{dims}]")
    if 0 in array.shape:
        raise ValueError(f"{name}: has shape {list(array.shape)}; every one of [{dims}] must be at least 1")
    kept = array.dtype.newbyteorder("=") in FLOATS or (signs and array.dtype == np.int8)
    dtype = array.dtype.newbyteorder("=") if kept else np.dtype(np.float64)
    return np.ascontiguousarray(array, dtype=dtype)


def whole(value: Any, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number between the two."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: {value!r} is no number; give a whole one")
    try:
        number = operator.index(value)
    except TypeError:
        if isinstance(value, (float, np.floating)) and float(value).is_integer():
            number = int(value)
        else:
            raise TypeError(f"{name}: {value!r} is not a whole number; give one") from None
    if not least <= number <= most:
        raise ValueError(f"{name}: it is {number}; give a whole number from {least} to {most}")
    return number


def real(value: Any, name: str) -> float:
    """A finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {value!r} is no number; give one") from None
    if not np.isfinite(number):
        raise ValueError(f"{name}: it is {number}; give a finite number")
    return number


def path(value: Any) -> str:
    """A path as text."""
    return os.fsdecode(os.fspath(value))
