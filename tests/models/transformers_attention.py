"""transformers_attention.py lets models of Hugging Face transformers compute their attention in attentiond, or writes what goes into the
attention of each layer to a file (capture). It needs transformers 5 with PyTorch, and no other package.

    import transformers_attention
    service = transformers_attention.register("http://127.0.0.1:8080")
    model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="attentiond")
    ...
    print(service.calls)  # the number of layers' calls that the daemon has computed

A model whose layers would not ask the daemon is refused with an error: transformers itself would compute eager attention and say nothing.
All layers share one connection, so one thread at a time may call the model. There is no dropout, and no gradient passes through."""

import contextlib
import functools
import inspect
import json
import re
import sys
import weakref
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import torch
from safetensors.torch import save_file
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
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


def full_mask(*args, **options):
    """transformers leaves out a mask that all queries or plain causality would give, and a layer then has to know which of the two was
    meant. Some layers know it wrongly (PaliGemma), and some not at all. So no mask is left out."""
    return sdpa_mask(*args, **{**options, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})


def call_of(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, softcap=None, s_aux=None,
            position_bias=None, **others):
    """Returns the tensors and the options of /attention for what a layer gives its attention."""
    foreign = [name for name in ("cache", "indices", "block_indices", "sinks") if others.get(name) is not None]
    if dropout or foreign:
        raise NotImplementedError(f"attentiond has no {foreign[0] if foreign else 'dropout: call model.eval()'}")
    # The same rule as in sdpa_attention_forward of transformers: without a mask, a layer that says nothing is causal.
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal and attention_mask is None and query.shape[2] > 1)
    mask, bias = attention_mask, position_bias
    if mask is not None and mask.dtype != torch.bool:  # This is a mask of the caller, whose numbers are added.
        mask, bias = None, mask if bias is None else mask + bias
    inputs = {"Q": query, "K": key, "V": value, "mask": mask, "bias": bias, "sink": s_aux}
    options = {"scale": scaling, "softcap": softcap, "causal": causal}
    return tuple({name: x for name, x in each.items() if x is not None} for each in (inputs, options))


class Service:
    """The daemon as an attention implementation of transformers. `calls` counts the calls that it has answered."""

    def __init__(self, url, name, headers):
        address = urlsplit(url)
        self.connection = (HTTPSConnection if address.scheme == "https" else HTTPConnection)(address.netloc)
        self.name, self.headers, self.calls = name, headers, 0

    def __call__(self, module, query, key, value, attention_mask, output_attentions=False, **given):
        """Is called by each layer with (batch, heads, n, d). Returns (batch, n, heads, d), and the weights if they are wanted."""
        if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
            raise NotImplementedError("no gradients pass through attentiond: call the model under torch.no_grad()")
        inputs, options = call_of(module, query, key, value, attention_mask, **given)
        results = infer(self.connection, self.headers, inputs, options, ["output", "weights"][:1 + bool(output_attentions)])
        self.calls += 1
        results = {name: x.to(query) for name, x in results.items()}
        return results["output"].transpose(1, 2).contiguous(), results.get("weights")


# ------------------------------------------------------------------------------------ models that would not ask

OWN_CLASSES = re.compile(r"_ATTENTION_CLASSES\[")  # Such a table of a model does not know the names that were registered.
SERVICES = {}  # They have the names under which they are registered.
WATCHED = weakref.WeakKeyDictionary()  # These models have made no forward yet. The values are their hooks.


def refuse(model, service, reason):
    raise ValueError(f"{type(model).__name__} cannot have attn_implementation={service.name!r}: {reason}")


def unwatch(models):
    for model in models:
        for hook in WATCHED.pop(model, ()):
            hook.remove()


def watch(model, service):
    """Lets the first forward fail if it did not ask the service. A model inside of another one is not looked at in a forward of the
    outer one, because it may have no attention at all."""
    before = None

    def begin(model, *_):
        nonlocal before
        before = service.calls
        unwatch(inner for inner in model.modules() if inner is not model)

    def end(model, *_):
        unwatch([model])
        if service.calls == before and model.config._attn_implementation == service.name:  # pylint: disable=protected-access
            refuse(model, service, "its first forward did not ask the service once")

    unwatch([model])
    WATCHED[model] = model.register_forward_pre_hook(begin), model.register_forward_hook(end)


def guard():
    """transformers asks these two functions of each model, but it does not ask the attention that was registered."""
    correct, choose = PreTrainedModel.get_correct_attn_implementation, PreTrainedModel.set_attn_implementation

    @functools.wraps(correct)
    def get_correct_attn_implementation(self, *args, **options):
        name = correct(self, *args, **options)
        if name in SERVICES:
            if not (self._supports_attention_backend or self._supports_sdpa):
                refuse(self, SERVICES[name], "transformers knows only eager attention for it")
            if not self._can_set_attn_implementation() or OWN_CLASSES.search(inspect.getsource(sys.modules[type(self).__module__])):
                refuse(self, SERVICES[name], "its layers have their own attention and do not ask for another")
            watch(self, SERVICES[name])
        return name

    def check(model, config, wanted):
        """`wanted` is a name, or a dictionary of names for the parts of the model. transformers only warns if it keeps another."""
        own = wanted.get("") if isinstance(wanted, dict) else wanted
        if own in SERVICES and config._attn_implementation != own:  # pylint: disable=protected-access
            refuse(model, SERVICES[own], f"transformers does not change the attention of its {type(config).__name__}")
        for name in config.sub_configs:
            part = getattr(config, name, None)
            if part is not None:
                check(model, part, wanted.get(name) if isinstance(wanted, dict) else wanted)

    @functools.wraps(choose)
    def set_attn_implementation(self, attn_implementation, *args, **options):
        choose(self, attn_implementation, *args, **options)
        check(self, self.config, attn_implementation)

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation
    PreTrainedModel.set_attn_implementation = set_attn_implementation


def add(service):
    if not SERVICES:
        guard()
    SERVICES[service.name] = service
    AttentionInterface.register(service.name, service)
    AttentionMaskInterface.register(service.name, full_mask)
    return service


def register(url, name="attentiond", headers=None):
    """Registers the service, and returns it. `headers` are sent, too, for example {"Authorization": "Bearer KEY"}."""
    return add(Service(url, name, headers or {}))


# ------------------------------------------------------------------------------------ one text in a file

def attend(inputs, options):
    """Returns the output and the weights of /attention (lib/README.md), at least in float32."""
    wide = torch.promote_types(inputs["Q"].dtype, torch.float32)
    Q, K, V = (inputs[name].to(wide) for name in "QKV")
    K, V = (x.repeat_interleave(Q.shape[1] // x.shape[1], 1) for x in (K, V))
    scores = Q @ K.transpose(-1, -2) * options.get("scale", Q.shape[-1] ** -0.5)
    if "softcap" in options:
        scores = torch.tanh(scores / options["softcap"]) * options["softcap"]
    scores = scores + inputs.get("bias", 0)
    may = inputs.get("mask", torch.ones((), dtype=torch.bool, device=Q.device)).expand_as(scores)
    if options["causal"]:
        may = may.tril()
    scores = scores.masked_fill(~may, -torch.inf)
    sink = inputs["sink"].to(wide).view(1, -1, 1, 1).expand(*scores.shape[:3], 1) if "sink" in inputs else scores[..., :0]
    weights = torch.cat([scores, sink], -1).softmax(-1)[..., :K.shape[2]].masked_fill(~may, 0)
    return weights @ V, weights


class Capture:
    """An attention implementation of transformers that keeps what one forward gives to each layer, in the order of the calls."""

    name = "capture"

    def __init__(self, model):
        self.calls, self.tensors, self.texts, self.layers, self.keys = 0, {}, {}, [], set()
        self.names = {module: name for name, module in model.named_modules()}

    def __call__(self, module, query, key, value, attention_mask, output_attentions=False, **given):
        inputs, options = call_of(module, query, key, value, attention_mask, **given)
        layer = self.names.get(module, type(module).__name__)
        if query.shape[0] != 1:
            raise ValueError(f"capture() takes one text, and the layer {layer} has a batch of {query.shape[0]}")
        output, weights = attend(inputs, options)
        self.compare(layer, output, module, inputs, options, given)
        self.keep(layer, inputs, options)
        return output.to(query).transpose(1, 2).contiguous(), weights.to(query) if output_attentions else None

    def compare(self, layer, output, module, inputs, options, given):
        """Refuses a layer whose own attention makes something else of the same matrices, for example by an argument of its own."""
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None:
            return
        Q, K, V = (inputs[name].to(output) for name in "QKV")
        may = torch.ones(Q.shape[2], K.shape[2], dtype=torch.bool, device=Q.device)
        may = may.tril() if options["causal"] else inputs.get("mask", may)
        mask = torch.zeros(may.shape, dtype=Q.dtype, device=Q.device).masked_fill(~may, torch.finfo(Q.dtype).min)
        mask = mask + inputs["bias"] if "bias" in inputs else mask
        own, _ = eager(module, Q, K, V, mask, **{"scaling": Q.shape[-1] ** -0.5, **given, "position_bias": None})
        seen = may.any(-1, keepdim=True)
        error = ((own.transpose(1, 2) - output) * seen).abs().max()
        if not error <= 1e-4 * own.abs().max():  # also if it is NaN
            raise ValueError(f"the attention of the layer {layer} is not that of its Q, K, V and mask: its output differs by {error:.2g}")

    def keep(self, layer, inputs, options):
        at, n, m = len(self.layers), inputs["Q"].shape[2], inputs["K"].shape[2]
        mask = inputs.get("mask")
        if mask is not None:  # A mask that hides nothing is left out, and that of plain causality is an option.
            mask = mask[0, 0] if mask.shape[1] == 1 else mask[0]
            options["causal"] = n == m and mask.equal(torch.ones_like(mask).tril()) and n > 1
            inputs = {**inputs, "mask": None if options["causal"] or mask.all() else mask}
        for name, x in inputs.items():
            if x is not None:
                x = x[0] if x.dim() == 4 else x
                self.tensors[f"{name}.{at}"] = x.detach().cpu().clone(memory_format=torch.contiguous_format)
        self.texts.update({f"{name}.{at}": json.dumps(x.item() if isinstance(x, torch.Tensor) else x) for name, x in options.items() if x})
        self.layers.append(layer)
        self.keys.add(m)
        self.calls += 1


@contextlib.contextmanager
def capture(file, model, words=None):
    """Writes what the one forward of the model inside the `with` block gives to the attention of its layers:

        with capture("text.safetensors", model, tokenizer.convert_ids_to_tokens(tokens["input_ids"][0])), torch.no_grad():
            model(**tokens)

    The file has Q.0, K.0, V.0 ... as the layers computed them, after rotary embedding, norms and the cache: (heads, n, d). Keys of grouped
    heads have their own number of heads. The number counts the calls of attention. A layer may also have a mask, a bias and a sink, and in
    __metadata__ its scale, softcap and causal. A window is in the mask. __metadata__ also has the names of the layers and the words, as
    JSON."""
    configs = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    configs += [part for config in configs for part in (getattr(config, name, None) for name in config.sub_configs) if part is not None]
    before = [(config, config._attn_implementation) for config in configs]  # pylint: disable=protected-access
    found = add(Capture(model))
    forwards = depth = 0

    def begin(*_):
        nonlocal forwards, depth
        forwards, depth = forwards + (depth == 0), depth + 1
        if forwards > 1:
            raise ValueError("capture() takes one forward of one text. generate() makes a forward for each word: give the model the "
                             "text with the words that it has generated")

    def end(*_):
        nonlocal depth
        depth -= 1

    hooks = [hook for module in model.modules() if isinstance(module, PreTrainedModel)
             for hook in (module.register_forward_pre_hook(begin), module.register_forward_hook(end, always_call=True))]
    try:
        model.set_attn_implementation(found.name)
        yield found
    finally:
        for hook in hooks:
            hook.remove()
        unwatch(list(model.modules()))
        for config, name in before:
            config._attn_implementation = name  # pylint: disable=protected-access
    if not found.calls:
        raise ValueError("capture() has found no attention: call the model inside the `with` block")
    if words is not None and len(words) not in found.keys:
        raise ValueError(f"there are {len(words)} words, but the layers have {' or '.join(map(str, sorted(found.keys)))} keys")
    texts = {"model": type(model).__name__, "layers": json.dumps(found.layers)}
    if words is not None:
        texts["words"] = json.dumps(list(words))
    save_file(found.tensors, file, {**texts, **found.texts})
