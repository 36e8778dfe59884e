"""Ctrl-C is answered within a second and leaves a checkpoint, from which the search goes on bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import attnlearn
from attnlearn import RandomFeatureAttentionRegressor, datasets, learn_attention


def hard(seed=0):
    """Examples that take far longer than a test may."""
    rng = np.random.default_rng(seed)
    return np.sign(rng.normal(size=(3000, 6, 16))), rng.normal(size=(3000, 6, 16))


def after(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("delay", [0.3, 1.5, 4.0])
def test_learning_stops_within_a_second(delay):
    X, Y = hard()
    pressed = []
    after(delay, lambda: (pressed.append(time.monotonic()), interrupt()))
    with pytest.raises(KeyboardInterrupt) as caught:
        learn_attention(X, Y, heads=4, method="descend", progress=False)
    answered = time.monotonic() - pressed[0]
    assert answered < 1.0, f"{answered:.2f} s"
    if isinstance(caught.value, attnlearn.Interrupted):
        assert os.path.exists(caught.value.checkpoint) and "resume=True" in str(caught.value)
        os.remove(caught.value.checkpoint)


def test_a_search_goes_on_bit_for_bit(tmp_path):
    teacher = datasets.random_layer(12, 4, norm=3.0, seed=4)
    X, Y = datasets.examples(teacher, 700, 5, seed=1)
    settings = {"heads": 4, "method": "descend", "seed": 3, "progress": False}
    whole = learn_attention(X, Y, **settings)
    checkpoint, stops, resume = tmp_path / "search", 0, False
    while True:
        steps = []

        def stop(told, steps=steps, stops=stops):
            steps.append(told)
            if told.kind == "live" and len(steps) > 3 and stops < 3:
                interrupt()

        try:
            parts = learn_attention(X, Y, **{**settings, "progress": stop}, checkpoint=checkpoint, resume=resume)
            break
        except attnlearn.Interrupted as error:
            assert error.checkpoint == str(checkpoint) and checkpoint.exists()
            stops, resume = stops + 1, True
        except KeyboardInterrupt:
            # Before the search had begun there is nothing to keep.
            assert not checkpoint.exists()
    assert stops >= 1, "the search was over before it could be stopped"
    assert parts.layer == whole.layer and parts.certificate == whole.certificate
    assert not checkpoint.exists()


def test_a_checkpoint_of_other_examples_is_refused(tmp_path):
    X, Y = hard()
    checkpoint = tmp_path / "search"
    after(1.5, interrupt)
    with pytest.raises(attnlearn.Interrupted):
        learn_attention(X, Y, heads=4, method="descend", progress=False, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="a search was kept here; continue it with resume=True, or remove it"):
        learn_attention(X, Y, heads=4, method="descend", checkpoint=checkpoint)
    with pytest.raises(ValueError, match="this checkpoint belongs to other examples"):
        learn_attention(*hard(1), heads=4, method="descend", checkpoint=checkpoint, resume=True, progress=False)
    with pytest.raises(ValueError, match="this checkpoint belongs to other settings"):
        learn_attention(X, Y, heads=3, method="descend", checkpoint=checkpoint, resume=True, progress=False)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-3])
    with pytest.raises(ValueError, match="this checkpoint is damaged"):
        learn_attention(X, Y, heads=4, method="descend", checkpoint=checkpoint, resume=True, progress=False)


def test_a_fit_stops_and_its_sums_are_kept(tmp_path):
    X, y = datasets.sets("average:p=2", 60_000, d=16, keys=8, seed=1)
    path = tmp_path / "sums"
    model = RandomFeatureAttentionRegressor(heads=150, ridge=1e-3, checkpoint=path)
    pressed = []
    after(1.5, lambda: (pressed.append(time.monotonic()), interrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert time.monotonic() - pressed[0] < 1.0
    assert path.exists()


def test_other_threads_run_meanwhile():
    """The GIL is released: Python goes on counting while the native side works."""
    X, Y = hard()
    counted, over = [0], threading.Event()

    def count():
        while not over.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    after(2.0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        learn_attention(X, Y, heads=4, method="descend", progress=False)
    over.set()
    thread.join()
    assert counted[0] > 200


def test_a_script_that_is_stopped_says_how_to_go_on(tmp_path):
    script = textwrap.dedent("""
        import numpy as np, attnlearn
        rng = np.random.default_rng(0)
        X, Y = np.sign(rng.normal(size=(3000, 6, 16))), rng.normal(size=(3000, 6, 16))
        print("begun", flush=True)
        attnlearn.learn_attention(X, Y, heads=4, method="descend", checkpoint="kept")
    """)
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0 and "continue with checkpoint='kept', resume=True" in errors and (tmp_path / "kept").exists()
