"""What the two references share: the command line, mapped files, the clock and the report.

A reference is a module with a function for each job, `job(data, weights, ridge, clock) -> dict`, where `data` holds x, y, x_test, y_test (for `matmul` two matrices `a`).
The dictionary may hold `prediction` (of y_test) and anything else that the report should show.
"""

import argparse
import json
import math
import mmap
import os
import platform
import resource
import struct
import time
import zipfile
from contextlib import contextmanager

import numpy as np

JOBS = ("fit", "path", "features", "kernel", "stream", "matmul")
GRID = np.logspace(-8, 2, 20)  # the ridge path, in units of the mean diagonal of K/n
STREAM_BLOCK = 2048  # examples a block when the Gram matrix is accumulated
MATMUL = 4096  # rows and columns of the matrices whose product is the yardstick


class Clock:
    """Seconds by stage, and those of all cores together; stands still in `pause` (compilation)."""

    def __init__(self):
        self.paused = np.zeros(2)
        self.stages = {}

    def now(self):
        return np.array([time.perf_counter(), time.process_time()]) - self.paused

    @contextmanager
    def stage(self, name):
        start = self.now()
        yield
        self.stages[name] = self.stages.get(name, 0) + self.now() - start

    @contextmanager
    def pause(self):
        start = self.now()
        yield
        self.paused += self.now() - start


def mapped(path):
    """The arrays of an uncompressed .npz file as read-only memory maps, which `np.load` does not offer."""
    arrays = {}
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise SystemExit(f"{path}: {member.filename} is compressed; write it with np.savez")
            file.seek(member.header_offset + 26)
            file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
            version = np.lib.format.read_magic(file)
            read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[version[0]]
            shape, fortran, dtype = read(file)
            order = "F" if fortran else "C"
            arrays[member.filename.removesuffix(".npy")] = np.memmap(path, dtype, "r", file.tell(), shape, order)
    return arrays


def forget(array):
    """Lets go of the pages of a map that were read, so that memory stays flat."""
    if isinstance(array, np.memmap):
        array._mmap.madvise(mmap.MADV_DONTNEED)


def lift(x, dtype):
    """x̃ = [x; 1] along the last axis."""
    out = np.empty((*x.shape[:-1], x.shape[-1] + 1), dtype)
    out[..., :-1] = x
    out[..., -1] = 1
    return out


def arguments(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=JOBS, required=True)
    parser.add_argument("--data", help=".npz with x [n, N+1, d] (row 0 the query), y [n] and, without --test, x_test, y_test")
    parser.add_argument("--test", help=".npz with the x and y to predict")
    parser.add_argument("--weights", help=".npy with W [M, d+1, d+1]; every job but `kernel` needs it")
    parser.add_argument("--ridge", type=float, default=1e-4, help="λ in (1/n) Σ (y − φᵀv − b)² + λ‖v‖²; `path` has its own grid")
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f64")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--predictions", help="write the predictions of y_test to this .npy")
    args = parser.parse_args(argv)
    if args.job != "matmul" and args.data is None:
        parser.error(f"--data: the job `{args.job}` needs examples")
    if args.job not in ("kernel", "matmul") and args.weights is None:
        parser.error(f"--weights: the job `{args.job}` needs frozen weights")
    if args.ridge <= 0:
        parser.error("--ridge: must be positive")
    if args.repeat < 1:
        parser.error("--repeat: must be at least 1")
    return args


def run(args, library, jobs, versions, threads, clock=None):
    """Runs a job `--repeat` times and prints one line of JSON; `seconds` are those of the repeat with the least total."""
    dtype = {"f32": np.float32, "f64": np.float64}[args.dtype]
    data = mapped(args.data) if args.data else {}
    if args.test:
        data |= {f"{name}_test": array for name, array in mapped(args.test).items()}
    if args.job != "stream":
        data = {name: np.array(array, dtype) for name, array in data.items()}
    weights = None if args.weights is None else np.load(args.weights).astype(dtype)
    if args.job == "matmul":
        data = {"a": np.random.default_rng(0).standard_normal((2, MATMUL, MATMUL), dtype)}
    clock = clock or Clock()
    repeats = []
    for _ in range(args.repeat):
        clock.stages = {}
        result = jobs[args.job](data, weights, args.ridge, clock)
        clock.stages["total"] = sum(clock.stages.get(stage, 0) for stage in ("features", "gram", "solve"))
        repeats.append([dict(zip(clock.stages, map(float, seconds))) for seconds in zip(*clock.stages.values())])
    report = {"library": library, "job": args.job, "dtype": args.dtype}
    if "x" in data:
        n, rows, d = data["x"].shape
        report |= {"n": n, "keys": rows - 1, "d": d}
    if weights is not None:
        report |= {"heads": len(weights), "p": len(weights) * (d + 1)}
    if args.job in ("fit", "kernel", "stream"):
        report["ridge"] = args.ridge
    seconds, cpu = min(repeats, key=lambda repeat: repeat[0]["total"])
    if args.job == "matmul":
        report["multiply_adds"] = MATMUL**3
    report |= {"seconds": seconds, "cpu_seconds": cpu, "repeats": [repeat[0] for repeat in repeats]}
    report["compile_seconds"] = float(clock.paused[0])
    prediction = result.pop("prediction", None)
    if prediction is not None:
        prediction = np.asarray(prediction, np.float64)
        y = np.asarray(data["y_test"], np.float64)
        mse = float(np.mean((prediction - y) ** 2))
        report |= {"mse": mse, "mse_over_var": mse / float(np.var(y))}
        if args.predictions:
            np.save(args.predictions, prediction)
    report |= {key: np.asarray(value, np.float64).tolist() for key, value in result.items()}
    report |= {
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "threads": threads,
        "load_average": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), **versions},
    }
    print(json.dumps({key: finite(value) for key, value in report.items()}), flush=True)


def finite(value):
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def not_definite():
    return SystemExit("--ridge: the matrix is not positive definite to rounding; take a larger ridge or --dtype f64")
