"""Writes the golden files next to this script. Needs numpy and safetensors."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).parent
N, K, D, D_OUT = 5, 3, 2, 4

# Eighths are exact in every number format but the integers.
x = (np.arange(N * K * D) / 8 - 1).reshape(N, K, D)
y = (5 - np.arange(N * K * D_OUT) / 8).reshape(N, K, D_OUT)
signs = (2 * (np.arange(N * K * D) % 3 % 2) - 1).reshape(N, K, D).astype(np.int8)

np.savez(HERE / "examples.npz", x=x, y=y)
np.savez(HERE / "single.npz", x=x.astype(np.float32), y=y.astype(np.float32))
np.savez(HERE / "signs.npz", x=signs, y=y)
save_file({"x": signs, "y": y}, HERE / "signs.safetensors")
save_file({"x": x.astype(np.float32), "y": y}, HERE / "mixed.safetensors", metadata={"made_by": "make.py"})

theta = (np.arange(2 * D * D) / 4).reshape(2, D, D)
w = (np.arange(2 * D * D_OUT) / 8).reshape(2, D, D_OUT)
bias = np.array([1, 2, 3, 4]) / 2
layer = {"theta": theta.astype(np.float32), "w": w.astype(np.float32), "bias": bias.astype(np.float32)}
save_file(layer, HERE / "layer.safetensors", metadata={"format": "attnlearn.layer", "version": "1", "mask": "causal"})

# To be refused, each with its own message.
np.savez_compressed(HERE / "bad_compressed.npz", x=x, y=y)
np.savez(HERE / "bad_fortran.npz", x=np.asfortranarray(x), y=y)
np.savez(HERE / "bad_big_endian.npz", x=x.astype(">f8"), y=y)
np.savez(HERE / "bad_int64.npz", x=signs.astype(np.int64), y=y)
np.save(HERE / "bad_single_array.npy", x)
