"""transformers_attention.py lets models of Hugging Face transformers compute their attention in attentiond. It needs transformers 5
with PyTorch, and no other package.

    import transformers_attention
    transformers_attention.register("http://127.0.0.1:8080")
    model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="attentiond")

All layers share one connection, so one thread at a time may call the model. The daemon has no dropout and no gradients."""

import functools
import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

LENGTH = "Inference-Header-Content-Length"
DATATYPES = {torch.float32: "FP32", torch.float64: "FP64", torch.float16: "FP16", torch.bfloat16: "BF16", torch.bool: "BOOL"}
DTYPES = {name: dtype for dtype, name in DATATYPES.items()}


def post(connection, headers, body):
    for last in (False, True):
        try:
            connection.request("POST", "/v2/models/attention/infer", body, headers)
            response = connection.getresponse()
            answer = response.read()
            break
        except (ConnectionError, HTTPException):
            connection.close()  # The daemon closes an idle connection. The next request opens it again.
            if last:
                raise
    if response.status != 200:
        raise RuntimeError(f"attentiond answers {response.status} {answer.decode(errors='replace').strip()}")
    return int(response.getheader(LENGTH)), bytearray(answer)


def infer(connection, headers, inputs, parameters, outputs):
    """Sends tensors and options, and returns the outputs by their names. All numbers go as bytes."""
    data = {name: x.detach().cpu().contiguous().view(torch.uint8).numpy() for name, x in inputs.items()}
    described = [{"name": name, "datatype": DATATYPES[x.dtype], "shape": x.shape,
                  "parameters": {"binary_data_size": data[name].nbytes}} for name, x in inputs.items()]
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = json.dumps({"inputs": described, "parameters": parameters, "outputs": wanted}).encode()
    headers = {**headers, "Content-Type": "application/octet-stream", LENGTH: str(len(head))}
    at, answer = post(connection, headers, b"".join([head, *data.values()]))
    results = {}
    for output in json.loads(answer[:at])["outputs"]:
        end = at + output["parameters"]["binary_data_size"]
        results[output["name"]] = torch.frombuffer(answer[at:end], dtype=DTYPES[output["datatype"]]).reshape(output["shape"])
        at = end
    return results


def attention(connection, headers, module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None,
              softcap=None, s_aux=None, position_bias=None, output_attentions=False, **others):
    """Is called by each layer with (batch, heads, n, d). Returns (batch, n, heads, d), and the weights if they are wanted."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
        raise NotImplementedError("attentiond has no gradients: call the model under torch.no_grad()")
    foreign = [name for name in ("cache", "indices", "block_indices", "sinks") if others.get(name) is not None]
    if dropout or foreign:
        raise NotImplementedError(f"attentiond has no {foreign[0] if foreign else 'dropout: call model.eval()'}")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal and attention_mask is None and query.shape[2] > 1)
    mask, bias = attention_mask, position_bias
    if mask is not None and mask.dtype != torch.bool:  # This is a mask of the caller, whose numbers are added.
        mask, bias = None, mask if bias is None else mask + bias
    inputs = {"Q": query, "K": key, "V": value, "mask": mask, "bias": bias, "sink": s_aux}
    options = {"scale": scaling, "softcap": softcap, "causal": causal}
    results = infer(connection, headers, {name: x for name, x in inputs.items() if x is not None},
                    {name: x for name, x in options.items() if x is not None}, ["output", "weights"][:1 + bool(output_attentions)])
    results = {name: x.to(query) for name, x in results.items()}
    return results["output"].transpose(1, 2).contiguous(), results.get("weights")


def register(url, name="attentiond", headers=None):
    """`headers` are sent, too, for example {"Authorization": "Bearer KEY"}. A mask is boolean, or absent for plain causality."""
    address = urlsplit(url)
    connection = (HTTPSConnection if address.scheme == "https" else HTTPConnection)(address.netloc)
    AttentionInterface.register(name, functools.partial(attention, connection, headers or {}))
    AttentionMaskInterface.register(name, sdpa_mask)
