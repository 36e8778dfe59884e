# Random-feature attention by hand: features in NumPy, the ridge by scikit-learn's RidgeCV.
import json
import sys
import time

import numpy as np
from sklearn.linear_model import RidgeCV

data = np.load("problem.npz")
begun = time.perf_counter()
heads, d = 100, data["x"].shape[2]
weights = np.random.default_rng(int(sys.argv[1])).normal(scale=0.5, size=(heads, d + 1, d + 1))


def features(x):
    tokens = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)
    query, keys = tokens[:, 0], tokens[:, 1:]
    logits = np.einsum("na,mab->nmb", query, weights, optimize=True) @ keys.transpose(0, 2, 1)
    pooled = np.maximum(logits, 0) @ keys / keys.shape[1]
    return pooled.reshape(len(x), -1)


phi, y = features(data["x"]), data["y"]
scale = np.square(phi - phi.mean(0)).sum(1).mean() * len(phi)
model = RidgeCV(alphas=scale * np.geomspace(1, 4e-10, 20)).fit(phi, y)
score = model.score(features(data["x_test"]), data["y_test"])
print(json.dumps({"seconds": time.perf_counter() - begun, "error": 1 - score}))
