"""fastapi_server.py serves POST /attention as a typical Python service does: with FastAPI, orjson and NumPy.

`declared` declares the request as a model, as FastAPI's documentation does. `raw` gives the raw body to
orjson, so FastAPI does the routing only. uvicorn[standard] (uvloop, httptools) starts each with one
worker for each core of the server.
"""

from typing import Annotated, Literal

import numpy as np
import orjson
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field

declared = FastAPI(openapi_url=None)
raw = FastAPI(openapi_url=None)


def attend(q, k, v, wanted):
    q, k, v = (np.array(matrix, np.float32) for matrix in (q, k, v))
    weights = q @ k.T
    weights *= np.float32(1 / np.sqrt(q.shape[-1]))
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    results = {"output": weights @ v, "weights": weights}
    return Response(
        orjson.dumps({name: results[name] for name in wanted}, option=orjson.OPT_SERIALIZE_NUMPY),
        media_type="application/json",
    )


class Call(BaseModel):
    Q: list[list[float]]
    K: list[list[float]]
    V: list[list[float]]
    wanted: Annotated[list[Literal["output", "weights"]], Field(alias="return")] = [
        "output", "weights"
    ]  # fmt: skip


@declared.post("/attention")
async def attention(call: Call) -> Response:
    return attend(call.Q, call.K, call.V, call.wanted)


@raw.post("/attention")
async def attention_raw(request: Request) -> Response:
    call = orjson.loads(await request.body())
    return attend(call["Q"], call["K"], call["V"], call.get("return", ("output", "weights")))
