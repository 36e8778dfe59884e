"""Learning, certificates, streams, progress."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import attnlearn
from attnlearn import AttentionLayer, NotRecoveredWarning, certify, datasets, learn_attention, sculpt


@pytest.mark.parametrize("seed", range(3))
def test_a_layer_is_recovered(seed):
    teacher = datasets.random_layer(5, 2, norm=3.0, seed=seed)
    X, Y = datasets.examples(teacher, 500, 4, seed=seed + 10)
    result = learn_attention(X, Y, heads=2, seed=seed, progress=False)
    assert result.recovered and result.outcome == "recovered" and result.method == "descend"
    assert teacher.distance(result.layer).worst_theta < 1e-8
    # Inputs that occur twice count once, in whatever order their tokens stand; descent learns from every order.
    different = len(np.unique(X.reshape(500, -1), axis=0))
    distinct = len({tuple(sorted(token.tobytes() for token in x)) for x in X})
    held_out = distinct // 5
    chosen_by = (distinct - held_out) // 10
    assert result.certificate.n == held_out and result.certificate.max_error < 1e-8
    assert distinct - held_out - chosen_by <= result.examples <= different - held_out - chosen_by
    assert result.certificate.statement.startswith("with confidence 99 %")
    assert result.certificate.epsilon_at(0.1) is not None and result.certificate.epsilon_at(0.0) is None
    assert result.history[-1]["held_out_nmse"] < 1e-12 and not result.records
    fresh = certify(result.layer, *datasets.examples(teacher, 300, 4, seed=99), delta=0.05)
    assert fresh.n == 300 and fresh.delta == 0.05 and fresh.nmse < 1e-20 and "ε" in str(fresh)


def test_single_precision_and_signs(teacher):
    X, Y = datasets.examples(teacher, 600, 4, seed=2)
    whole = learn_attention(X, Y, heads=2, progress=False)
    signs = learn_attention(X.astype(np.int8), Y, heads=2, progress=False)
    assert signs.layer == whole.layer
    rounded = learn_attention(X.astype(np.float32), Y.astype(np.float32), heads=2, method="descend", progress=False)
    # Outputs in single precision are known to 1e-7, and so is the layer.
    assert 1e-9 < teacher.distance(rounded.layer).worst_theta < 1e-5


def test_what_is_not_recovered_is_a_warning(rng):
    X, Y = np.sign(rng.normal(size=(200, 3, 4))), rng.normal(size=(200, 3, 4))
    with pytest.warns(NotRecoveredWarning, match="not recovered") as caught:
        result = learn_attention(X, Y, heads=1, method="descend", progress=False)
    assert not result.recovered and str(caught[0].message) == result.outcome
    assert "--" not in result.outcome


def test_noise_is_measured(rng):
    teacher = datasets.random_layer(4, 1, norm=3.0, seed=0)
    X, Y = datasets.examples(teacher, 2000, 3, seed=1)
    noisy = Y + 0.05 * Y.std() * rng.normal(size=Y.shape)
    result = learn_attention(X, noisy, heads=1, noise=True, progress=False)
    assert result.recovered and "recovered up to noise of" in result.outcome
    assert result.report["noise"]["relative"] == pytest.approx(0.05, rel=0.1)
    assert teacher.distance(result.layer).worst_theta < 0.05


def test_error_against_size(examples):
    X, Y = examples
    with pytest.warns(NotRecoveredWarning):
        small = learn_attention(X, Y, heads=(1, 1), progress=False)
    curve = learn_attention(X, Y, heads=range(1, 3), progress=False)
    assert [row["form"]["heads"] for row in small.history] == [1]
    assert {row["form"]["heads"] for row in curve.history} == {1, 2}
    assert curve.recovered and curve.layer.heads == 2


def test_the_six_phases_leave_records():
    teacher = datasets.random_layer(5, 1, norm=4.0, seed=1)
    X, Y = datasets.examples(teacher, 60_000, 3, seed=1)
    result = sculpt(X, Y, heads=1, sculpture=True, progress=False)
    assert result.recovered and result.method == "sculpt"
    assert [r.phase for r in result.records][:3] == ["crude", "sculpt", "proxy"] and result.records[-1].phase == "certify"
    assert all(r.seconds >= 0 and r.note for r in result.records)
    assert teacher.distance(result.before_polish).worst_theta > teacher.distance(result.layer).worst_theta
    assert "crude" in result._repr_html_()
    slabs = [widths["rows"] for record in result.records for widths in record.report["sculpture"]]
    assert len(slabs) > 2 and slabs == sorted(slabs)


def test_results_show_save_and_travel(examples, tmp_path):
    result = learn_attention(*examples, heads=2, progress=False)
    assert "recovered" in repr(result) and "recovered" in result._repr_html_()
    assert result.certificate.statement.split(",")[0] in result._repr_html_()
    result.save(tmp_path / "l.safetensors")
    assert AttentionLayer.from_safetensors(tmp_path / "l.safetensors") == result.layer
    again = pickle.loads(pickle.dumps(result))
    assert again.layer == result.layer and again.report == result.report and again.certificate == result.certificate
    frame = pytest.importorskip("pandas", reason="pandas is not installed") and result.to_pandas()
    assert len(frame) == len(result.history) and "held_out_nmse" in frame
    frame = pytest.importorskip("polars", reason="polars is not installed") and result.to_polars()
    assert frame["held_out_nmse"].to_list() == [tried["held_out_nmse"] for tried in result.history]


def test_pictures(examples):
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    result = learn_attention(*examples, heads=2, progress=False)
    line = result.plot(what="certificate").axes[0].lines[0]
    assert list(line.get_xdata()) == [b["epsilon"] for b in result.certificate.bounds]
    assert len([axes for axes in result.plot().axes if axes.images]) == 2


class TestStreams:
    def blocks(self, X, Y, size):
        for i in range(0, len(X), size):
            yield X[i : i + size], Y[i : i + size]

    @pytest.mark.parametrize("size", [7, 250, 10_000])
    def test_a_stream_gives_the_bits_of_its_arrays(self, examples, size):
        X, Y = examples
        whole, parts = learn_attention(X, Y, heads=2, progress=False), learn_attention(self.blocks(X, Y, size), heads=2, progress=False)
        assert parts.layer == whole.layer and parts.certificate == whole.certificate

    def test_a_large_stream_waits_in_a_file(self, examples, monkeypatch):
        X, Y = examples
        monkeypatch.setattr(attnlearn._stream, "MEMORY", 1000)
        inputs, outputs = attnlearn._stream.examples_from(self.blocks(X, Y, 50), 10**9)
        assert isinstance(inputs, np.memmap) and isinstance(outputs, np.memmap)
        np.testing.assert_array_equal(inputs, X)
        np.testing.assert_array_equal(outputs, Y)

    def test_an_endless_stream_ends(self, teacher):
        drawn = []

        def endless():
            seed = 0
            while True:
                drawn.append(seed)
                yield datasets.examples(teacher, 100, 4, seed=seed)
                seed += 1

        result = learn_attention(endless(), heads=2, most_examples=550, progress=False)
        assert drawn == list(range(6)) and result.recovered and result.examples == 396

    def test_a_certificate_of_a_stream(self, teacher, examples):
        X, Y = examples
        assert certify(teacher, self.blocks(X, Y, 100), progress=False) == certify(teacher, X, Y, progress=False)

    def test_what_is_no_stream_is_refused(self, examples):
        X, Y = examples
        with pytest.raises(TypeError, match="Y: it is missing"):
            learn_attention(X)
        with pytest.raises(TypeError, match="block 0: ndarray is no pair"):
            learn_attention(iter([X]))
        with pytest.raises(ValueError, match="the iterator gave none"):
            learn_attention(iter([]))
        with pytest.raises(ValueError, match="block 1: has shape .* blocks of one shape"):
            learn_attention(iter([(X, Y), (X[:, :, :3], Y)]))
        with pytest.raises(ValueError, match="blocks of one number format"):
            learn_attention(iter([(X, Y), (X.astype(np.float32), Y)]))
        with pytest.raises(ValueError, match="one output sequence for each"):
            learn_attention(iter([(X, Y[:5])]))
        with pytest.raises(RuntimeError, match="the generator's own"):

            def broken():
                yield X, Y
                raise RuntimeError("the generator's own")

            learn_attention(broken())


class TestProgress:
    def test_a_callback_is_told(self, examples):
        told = []
        learn_attention(*examples, heads=2, progress=told.append)
        assert any(t.kind == "line" and "examples to learn from" in t.text for t in told)
        assert all(isinstance(t, attnlearn.Progress) for t in told)

    def test_an_error_of_a_callback_stops_the_search(self, rng):
        X, Y = np.sign(rng.normal(size=(2000, 8, 24))), rng.normal(size=(2000, 8, 24))

        def refuse(told):
            raise LookupError("enough")

        with pytest.raises(LookupError, match="enough"):
            learn_attention(X, Y, heads=4, progress=refuse)

    def test_a_bar_is_shown_if_asked_for(self, examples, capsys):
        pytest.importorskip("tqdm", reason="tqdm is not installed")
        learn_attention(*examples, heads=2, progress=True)
        out, err = capsys.readouterr()
        assert "examples to learn from" in out and "it" in err
        learn_attention(*examples, heads=2)
        assert capsys.readouterr() == ("", "")

    def test_nonsense_is_refused(self, examples):
        with pytest.raises(TypeError, match="progress"):
            learn_attention(*examples, progress="loud")


def rotary_layer(X, A, B, V, O, frequencies):
    """Causal rotary attention of heads that share one key head, as today's models write it: halves of a head are turned."""
    n, k, _ = X.shape
    angle = np.arange(k)[:, None] * np.asarray(frequencies)
    cos, sin = np.cos(angle), np.sin(angle)

    def turned(v):
        first, second = np.split(v, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    keys, values, Y = turned(X @ B), X @ V, 0.0
    for queries, out in zip(A, O):
        logits = np.einsum("nar,nbr->nab", turned(X @ queries), keys)
        logits[:, ~np.tri(k, dtype=bool)] = -np.inf
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        Y = Y + (p / p.sum(axis=-1, keepdims=True)) @ values @ out
    return Y


def test_rotary_heads_are_recovered():
    rng, d, r, frequencies = np.random.default_rng(3), 12, 4, [1.0, 0.01]
    A, B, V = rng.normal(size=(2, d, r)) * 0.35, rng.normal(size=(d, r)) * 0.35, rng.normal(size=(d, r))
    O, X = rng.normal(size=(2, r, d)), rng.normal(size=(360, 10, d))
    Y = rotary_layer(X, A, B, V, O, frequencies)
    told = {"heads": 2, "rank": r, "value_rank": r, "kv_heads": 1, "biases": False, "causal": True}
    result = learn_attention(X, Y, rope=frequencies, progress=False, **told)
    assert result.recovered, result.outcome
    fresh = rng.normal(size=(50, 10, d))
    truth = rotary_layer(fresh, A, B, V, O, frequencies)
    assert np.abs(result.layer(fresh) - truth).max() < 1e-5 * np.abs(truth).max()
    assert result.layer.causal
    with pytest.raises(ValueError, match="rotary positions"):
        result.layer.theta
    assert pickle.loads(pickle.dumps(result.layer)) == result.layer
    assert "heads=2" in repr(result.layer) and "<" in result.layer._repr_html_()
