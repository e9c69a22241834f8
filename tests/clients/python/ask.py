"""ask.py URL sends the call of the first notebook, the same call with drawn matrices, and a bad request. It prints what
check.py checks."""

import json
import sys

from attentiond_client import Client
from attentiond_client.api.attention import compute_attention, compute_self_attention
from attentiond_client.models import (AttentionRequest, AttentionResult, DrawnMatrix, DrawnMatrixRandom, Problem,
                                      ProjectedAttentionRequest, ProjectedAttentionRequestReturnItem,
                                      ProjectedAttentionResult, Random, RandomGenerator)

client = Client(base_url=sys.argv[1])

given = compute_attention.sync(client=client, body=AttentionRequest(
    q=[[2, 0, 2], [2, 0, 0], [4, 0, 2], [2, 1, 2]],
    k=[[2, 2, 2], [0, 2, 1], [2, 4, 3], [0, 1, 1]],
    v=[[1, 1, 0], [0, 1, 1], [1, 2, 1], [0, 0, 0]]))
assert isinstance(given, AttentionResult), given

w = DrawnMatrix(random=DrawnMatrixRandom.RANDINT, high=3, shape=[3, 3]).to_dict()
drawn = compute_self_attention.sync(client=client, body=ProjectedAttentionRequest(
    random=Random(generator=RandomGenerator.NUMPY, seed=42),
    x=[[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]],
    w_q=w, w_k=w, w_v={"random": "randint", "high": 3, "shape": [3, 3]},
    return_=[ProjectedAttentionRequestReturnItem.OUTPUT]))
assert isinstance(drawn, ProjectedAttentionResult), drawn

bad = compute_attention.sync(client=client, body=AttentionRequest(q=[[1, 2]], k=[[1, 2, 3]], v=[[1]]))
assert isinstance(bad, Problem), bad
print(json.dumps({"output": given.output, "weights": given.weights, "drawn": drawn.output,
                  "status": bad.status, "detail": bad.detail, "pointer": bad.pointer}))
