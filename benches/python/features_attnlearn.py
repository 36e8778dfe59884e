# The same with attnlearn.
import json
import sys
import time

import numpy as np

data = np.load("problem.npz")
begun = time.perf_counter()
from attnlearn import RandomFeatureAttentionRegressor

model = RandomFeatureAttentionRegressor(heads=100, random_state=int(sys.argv[1])).fit(data["x"], data["y"])
score = model.score(data["x_test"], data["y_test"])
print(json.dumps({"seconds": time.perf_counter() - begun, "error": 1 - score}))
