"""The same examples, settings and seed give the bits and the words of the program."""

from __future__ import annotations

import json

import numpy as np
import pytest

from attnlearn import AttentionKernelRegressor, AttentionLayer, RandomFeatureAttentionRegressor, certify, datasets, learn_attention


@pytest.mark.parametrize("seed", [0, 3])
def test_generated_layers_and_examples(run, tmp_path, seed):
    run(f"generate -o e.npz --examples 1200 --d 5 --k 3 --heads 2 --norm 4 --seed {seed} --layer-out t.safetensors --x-dtype f64")
    teacher = datasets.random_layer(5, 2, norm=4.0, seed=seed)
    assert teacher == AttentionLayer.from_safetensors(tmp_path / "t.safetensors")
    X, Y = datasets.examples(teacher, 1200, 3, seed=seed)
    with np.load(tmp_path / "e.npz") as file:
        np.testing.assert_array_equal(file["x"], X)
        np.testing.assert_array_equal(file["y"], Y)


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ("--heads 2 --seed 0", {"heads": 2, "seed": 0}),
        ("--heads 2 --seed 5", {"heads": 2, "seed": 5}),
        ("--heads auto --method descend", {"heads": "auto", "method": "descend"}),
        ("--heads 2 --rank full --biases yes", {"heads": 2, "rank": "full", "biases": True}),
        ("--heads 2 --most-examples 300 --held-out 20 --delta 0.1", {"heads": 2, "most_examples": 300, "held_out": 20, "delta": 0.1}),
    ],
)
def test_learned_layers(run, tmp_path, flags, settings):
    run("generate -o e.npz --examples 800 --d 5 --k 4 --heads 2 --norm 3 --seed 1")
    done = run(f"learn e.npz {flags} -o l.safetensors --json r.json")
    with np.load(tmp_path / "e.npz") as file:
        result = learn_attention(file["x"], file["y"], progress=False, **settings)
    result.save(tmp_path / "p.safetensors")
    assert (tmp_path / "p.safetensors").read_bytes() == (tmp_path / "l.safetensors").read_bytes()
    report = json.loads((tmp_path / "r.json").read_text())
    for volatile in ("seconds", "layer", "version", "command"):
        report.pop(volatile)
        result.report.pop(volatile, None)
    assert result.report == report
    assert result.outcome in done.stdout and result.certificate.text in done.stdout


def test_the_six_phases(run, tmp_path):
    run("generate -o e.npz --examples 40000 --d 4 --k 3 --heads 1 --norm 4 --seed 1")
    run("learn e.npz --heads 1 --method sculpt -o l.safetensors --seed 2")
    with np.load(tmp_path / "e.npz") as file:
        result = learn_attention(file["x"], file["y"], heads=1, method="sculpt", seed=2, progress=False)
    result.save(tmp_path / "p.safetensors")
    assert (tmp_path / "p.safetensors").read_bytes() == (tmp_path / "l.safetensors").read_bytes()


def test_certificates(run, tmp_path):
    run("generate -o e.npz --examples 500 --d 4 --k 3 --heads 1 --seed 1 --layer-out t.safetensors")
    run("verify t.safetensors e.npz --json c.json")
    with np.load(tmp_path / "e.npz") as file:
        found = certify(AttentionLayer.from_safetensors(tmp_path / "t.safetensors"), file["x"], file["y"], progress=False)
    assert found.report == json.loads((tmp_path / "c.json").read_text())["certificate"]


@pytest.mark.parametrize("model", ["rfa", "brfa", "rfmlp", "softmax", "row-relu"])
@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_fits(run, tmp_path, model, precision):
    run("generate -o s.npz --examples 300 --target average:p=2 --d 4 --keys 5 --seed 1")
    run(f"fit s.npz --model {model} --heads 12 --seed 7 --precision {precision} -o m.safetensors")
    run("predict m.safetensors s.npz -o p.npz")
    X, y = datasets.sets("average:p=2", 300, d=4, keys=5, seed=1)
    with np.load(tmp_path / "s.npz") as file:
        np.testing.assert_array_equal(file["x"], X)
        np.testing.assert_array_equal(file["y"], y)
    fitted = RandomFeatureAttentionRegressor(model=model, heads=12, random_state=7, precision=precision).fit(X, y)
    fitted.save(tmp_path / "q.safetensors")
    assert (tmp_path / "q.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()
    with np.load(tmp_path / "p.npz") as file:
        np.testing.assert_array_equal(file["y"], fitted.predict(X))


def test_predictions_are_those_of_the_definition(run, tmp_path):
    """RFA written out in NumPy, with the frozen heads that the program stores."""
    run("generate -o s.npz --examples 80 --target average:p=2 --d 3 --keys 4 --seed 1")
    run("fit s.npz --heads 6 --seed 2 --ridge 1e-3 --precision f64 --store-weights -o m.safetensors")
    X, y = datasets.sets("average:p=2", 80, d=3, keys=4, seed=1)
    fitted = RandomFeatureAttentionRegressor(heads=6, random_state=2, ridge=1e-3).fit(X, y)
    contents = (tmp_path / "m.safetensors").read_bytes()
    size = int.from_bytes(contents[:8], "little")
    start, end = json.loads(contents[8 : 8 + size])["weights"]["data_offsets"]
    weights = np.frombuffer(contents[8 + size + start : 8 + size + end]).reshape(6, 4, 4)
    tokens = np.concatenate([X, np.ones((80, 5, 1))], 2)
    query, keys = tokens[:, 0], tokens[:, 1:]
    attention = np.maximum(np.einsum("mab,na,nib->nmi", weights, query, keys), 0) / 4
    features = np.einsum("nmi,nib->nmb", attention, keys).reshape(80, -1)
    centred = features - features.mean(0)
    values = np.linalg.solve(centred.T @ centred / 80 + 1e-3 * np.eye(24), centred.T @ (y - y.mean()) / 80)
    np.testing.assert_allclose(fitted.predict(X), centred @ values + y.mean(), atol=1e-10)
    np.testing.assert_allclose(np.sort(fitted.coef_), np.sort(values), atol=1e-9)


@pytest.mark.parametrize("kernel", ["rfa", "brfa", "rfmlp"])
def test_kernels(run, tmp_path, kernel):
    run("generate -o s.npz --examples 120 --target average:p=2 --d 4 --keys 5 --min-keys 2 --seed 1")
    run(f"fit s.npz --model kernel-{kernel} --ridge 1e-3 -o m.safetensors")
    X, y = datasets.sets("average:p=2", 120, d=4, keys=5, min_keys=2, seed=1)
    fitted = AttentionKernelRegressor(kernel=kernel, ridge=1e-3).fit(X, y)
    fitted.save(tmp_path / "q.safetensors")
    assert (tmp_path / "q.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_imported_layers(run, tmp_path):
    write_bert(tmp_path, layers=2, d=6, heads=2)
    run("import . --layer 1 -o l.safetensors")
    layer = AttentionLayer.from_pretrained(tmp_path, layer=1)
    assert layer == AttentionLayer.from_safetensors(tmp_path / "l.safetensors")
    with pytest.raises(ValueError) as caught:
        AttentionLayer.from_pretrained(tmp_path, layer=5)
    said = run("import . --layer 5 -o l2.safetensors", code=2).stderr
    assert str(caught.value).split(";")[1] in said


def test_the_words_of_errors(run, tmp_path):
    run("generate -o e.npz --examples 50 --d 3 --k 2 --heads 1 --seed 1")
    said = run("learn e.npz --heads 1 --rank 9 -o l.safetensors", code=2).stderr.strip()
    with np.load(tmp_path / "e.npz") as file, pytest.raises(ValueError) as caught:
        learn_attention(file["x"], file["y"], heads=1, rank=9)
    assert said == f"attnlearn: --{caught.value}"


def write_bert(folder, layers, d, heads):
    """A small model with the names of BERT."""
    rng = np.random.default_rng(0)
    tensors = {}
    for i in range(layers):
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            tensors[f"bert.encoder.layer.{i}.{part}.weight"] = rng.normal(size=(d, d)).astype(np.float32)
            tensors[f"bert.encoder.layer.{i}.{part}.bias"] = rng.normal(size=d).astype(np.float32)
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in tensors.values()))
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": heads}))
