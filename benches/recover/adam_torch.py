"""Plain Adam, with PyTorch on the CPU: the same method and schedule as `adam_jax.py`."""

import time

import numpy as np
import torch
from common import arguments, solve, start

LARGE = 4_000  # parameters above which descent begins in single precision on small batches
RATE = {False: 0.02, True: 0.003}  # small, large


def outputs(p, x, causal):
    q = torch.einsum("nad,hdr->nhar", x, p["A"])
    if "B" in p:
        logits = q @ torch.einsum("nbd,hdr->nhrb", x, p["B"])
    else:
        logits = torch.einsum("nhad,nbd->nhab", q, x)
    if causal:
        k = x.shape[1]
        logits = logits.masked_fill(~torch.tril(torch.ones(k, k, dtype=torch.bool)), -torch.inf)
    attention = torch.softmax(logits, -1)
    if "V" in p:
        pooled = attention @ torch.einsum("nbd,hds->nhbs", x, p["V"])
    else:
        pooled = torch.einsum("nhab,nbd->nhad", attention, x)
    return torch.einsum("nhas,hso->nao", pooled, p["O"])


def main():
    options = arguments(__doc__)

    def attempt(x, y, rng, seconds):
        scale = 1.0 / np.mean((y - y.mean((0, 1))) ** 2)
        values = start(rng, x.shape[2], y.shape[2], options)
        values["O"] = values["O"] / np.sqrt(scale)
        large = sum(v.size for v in values.values()) > LARGE
        stages = [(torch.float32, 3000, 512, RATE[large])] if large else []
        stages.append((torch.float64, 1000 if large else 4000, len(x), 1e-4 if large else RATE[large]))
        begun, taken, nmse = time.perf_counter(), 0, np.inf
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        for dtype, steps, batch, rate in stages:
            p = {name: torch.tensor(v, dtype=dtype, requires_grad=True) for name, v in values.items()}
            tx, ty = torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)
            adam = torch.optim.Adam(p.values(), lr=rate, betas=(0.9, 0.99), eps=1e-15)
            warm = 0.02 * steps
            fall = torch.optim.lr_scheduler.LambdaLR(
                adam, lambda t, warm=warm, steps=steps: min((t + 1) / warm, 1.0) * 0.5 * (1 + np.cos(np.pi * min(t / steps, 1.0)))
            )
            for step in range(steps):
                if batch < len(x):
                    rows = torch.randperm(len(x), generator=generator)[:batch]
                    bx, by = tx[rows], ty[rows]
                else:
                    bx, by = tx, ty
                adam.zero_grad()
                loss = torch.mean((outputs(p, bx, options.causal) - by) ** 2) * scale
                loss.backward()
                adam.step()
                fall.step()
                taken += 1
                if step % 20 == 0:
                    nmse = loss.item()
                    late = time.perf_counter() - begun > seconds
                    if nmse < (1e-9 if dtype == torch.float32 else options.floor) or not np.isfinite(nmse) or late:
                        break
            values = {name: v.detach().numpy() for name, v in p.items()}
        return values, nmse if np.isfinite(nmse) else np.inf, taken, 0.0

    solve(options, attempt)


if __name__ == "__main__":
    main()
