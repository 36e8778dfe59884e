# The same with attnlearn, which is not told the number of heads.
import json
import sys
import time

import numpy as np

data = np.load("problem.npz")
begun = time.perf_counter()
from attnlearn import learn_attention

layer = learn_attention(data["tokens"], data["outputs"], seed=int(sys.argv[1])).layer
truth = data["outputs_test"]
error = np.mean((layer(data["tokens_test"]) - truth) ** 2) / truth.var()
print(json.dumps({"seconds": time.perf_counter() - begun, "error": float(error)}))
