"""What a layer of a BERT-like encoder sees: the activations of its lower layers on English text.

The text is the documentation inside Python's own standard library. Windows of `--tokens` word pieces, begun and ended as the model expects, go
through the embeddings and the first `--layer` layers; the result is an npz with `x` [n, tokens, d], to be given a layer's outputs by attnlearn itself.
"""

import argparse
import ast
import json
import pathlib
import re
import sysconfig
import warnings

import numpy as np
from scipy.special import erf


def tensors(path):
    """All tensors of a safetensors file, in single precision."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    kinds = {"F32": np.float32, "F64": np.float64, "F16": np.float16}
    body = memoryview(data)[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"]).astype(np.float32)
        for name, entry in header.items()
        if name != "__metadata__" and entry["dtype"] in kinds
    }


def documentation():
    """Docstrings of the standard library, file after file."""
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*/*.py")):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError, OSError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield ast.get_docstring(node) or ""


def pieces(text, known):
    """Greedy word pieces of lower-case words and punctuation."""
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start, found = 0, []
        while start < len(word):
            end = len(word)
            while end > start and ("##" if start else "") + word[start:end] not in known:
                end -= 1
            if end == start:
                found = [known["[UNK]"]]
                break
            found.append(known[("##" if start else "") + word[start:end]])
            start = end
        yield from found


def norm(x, weights, prefix):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * weights[prefix + ".weight"] + weights[prefix + ".bias"]


def linear(x, weights, prefix):
    return x @ weights[prefix + ".weight"].T + weights[prefix + ".bias"]


def block(x, weights, prefix, heads):
    """One layer of the encoder."""
    n, k, d = x.shape
    q, key, v = (
        linear(x, weights, f"{prefix}.attention.self.{name}").reshape(n, k, heads, d // heads).transpose(0, 2, 1, 3)
        for name in ("query", "key", "value")
    )
    logits = q @ key.transpose(0, 1, 3, 2) / np.sqrt(d // heads)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    pooled = (p @ v).transpose(0, 2, 1, 3).reshape(n, k, d)
    x = norm(x + linear(pooled, weights, prefix + ".attention.output.dense"), weights, prefix + ".attention.output.LayerNorm")
    inner = linear(x, weights, prefix + ".intermediate.dense")
    inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2.0))).astype(np.float32)
    return norm(x + linear(inner, weights, prefix + ".output.dense"), weights, prefix + ".output.LayerNorm")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path, help="folder with model.safetensors, config.json and vocab.txt")
    parser.add_argument("--layer", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=16000)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    weights = tensors(options.model / "model.safetensors")
    heads = json.loads((options.model / "config.json").read_text())["num_attention_heads"]
    known = {piece: i for i, piece in enumerate((options.model / "vocab.txt").read_text(encoding="utf-8").split("\n"))}
    inside, windows, kept = options.tokens - 2, [], []
    for text in documentation():
        kept.extend(pieces(text, known))
        while len(kept) >= inside and len(windows) < options.sequences:
            windows.append([known["[CLS]"], *kept[:inside], known["[SEP]"]])
            kept = kept[inside:]
        if len(windows) == options.sequences:
            break
    # In random order: neighbours are about the same.
    ids = np.random.default_rng(0).permutation(np.array(windows))
    prefix = "" if "embeddings.word_embeddings.weight" in weights else "bert."
    words, places, kinds = (weights[f"{prefix}embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    outputs = []
    for part in np.array_split(ids, max(1, len(ids) // 500)):
        x = norm(words[part] + places[: options.tokens] + kinds[0], weights, prefix + "embeddings.LayerNorm")
        for layer in range(options.layer):
            x = block(x, weights, f"{prefix}encoder.layer.{layer}", heads)
        outputs.append(x)
    np.savez(options.out, x=np.concatenate(outputs))
    print(json.dumps({"sequences": len(ids), "tokens": options.tokens, "layer": options.layer, "out": str(options.out)}))


if __name__ == "__main__":
    main()
