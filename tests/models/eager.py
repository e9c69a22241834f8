"""What the searches over models share: the daemon, models in float64, and the inputs and outputs of their attentions."""

import contextlib
import copy
import hashlib
import http.client
import json
import os
import re
import subprocess

import torch
from safetensors.torch import load, save
from torch.overrides import TorchFunctionMode

SAFETENSORS = "application/vnd.safetensors"


class Daemon:
    """A daemon that serves the layers in a folder, and one connection to it."""

    def __init__(self, folder, *options):
        self.process = subprocess.Popen(
            [os.environ["ATTENTIOND_BIN"], "--port", "0", "--layers", folder, *options], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, method, path, body=None, headers={}):
        """Returns the status and the bytes of the answer. The daemon ends connections that are idle for a while."""
        try:
            self.connection.request(method, path, body, headers)
            response = self.connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError):
            self.connection.close()
            self.connection.request(method, path, body, headers)
            response = self.connection.getresponse()
        return response.status, response.read()

    def ask(self, method, path, body=None, headers={}):
        text = body if body is None or isinstance(body, bytes) else json.dumps(body)
        status, answer = self.send(method, path, text, headers)
        assert status == 200, answer.decode()
        return json.loads(answer)

    def pages(self):
        """Yields the pages of the list of all layers."""
        after = ""
        while after is not None:
            page = self.ask("GET", f"/layers?limit=1000&after={after}")
            yield page
            after = page.get("next")

    def compute(self, layer, tensors, **options):
        """Returns the output of a layer, or the text of the error."""
        body = save({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()},
                    {"return": '["output"]', **{name: json.dumps(value) for name, value in options.items()}})
        status, answer = self.send("POST", f"/layers/{layer}/attention", body, {"Content-Type": SAFETENSORS})
        return load(answer)["output"] if status == 200 else f"{status} {answer.decode(errors='replace')}"

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30) == 0
        self.process.stdout.close()
        self.connection.close()


class InFloat64(TorchFunctionMode):
    """transformers computes softmax, norms and the angles of rotary embedding in float32, whatever the dtype of the model
    is. This would hide what the daemon computes in float64. While this mode is on, whoever asks for float32 gets float64.
    A model must be made in it, too, because the frequencies of rotary embedding are made with the model."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        args = tuple(torch.float64 if value is torch.float32 else value for value in args)
        kwargs = {name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()}
        return function(*args, **kwargs)


@contextlib.contextmanager
def in_float64():
    """Everything inside is computed in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64():
            yield
    finally:
        torch.set_default_dtype(before)


def remade_in_float64(model):
    """The same model with the same weights, made in float64. It must also run in in_float64(). The frequencies of a rotary
    embedding are made again, too, because a model that stores them has rounded them."""
    with in_float64():
        config = copy.deepcopy(model.config)
        config.dtype = torch.float64
        config._attn_implementation = config._experts_implementation = "eager"
        made = type(model)(config).double().eval()
    own = made.state_dict()
    made.load_state_dict({name: own[name] if name.endswith("inv_freq") else value for name, value in model.state_dict().items()})
    return made


def print_of(tensor):
    """A fingerprint by which a tensor of a file finds the parameter of the model that it was made of."""
    flat = tensor.detach().contiguous().reshape(-1)
    return str(tuple(tensor.shape)) + hashlib.sha1(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


class Trace:
    """Records the inputs and outputs of the projections of some attentions, in the order in which they run."""

    def __init__(self):
        self.calls, self.names, self.handles = {}, {}, []

    def watch(self, layer, modules):
        """`modules` are the projections of one attention, by their names."""
        self.calls[layer], self.names[layer] = [], set(modules)
        for name, module in modules.items():
            keep = (lambda module, args, kwargs, result, name=name, calls=self.calls[layer]:
                    calls.append((name, args, kwargs, result)))
            self.handles.append(module.register_forward_hook(keep, with_kwargs=True))

    def clear(self):
        for calls in self.calls.values():
            calls.clear()

    def stop(self):
        for handle in self.handles:
            handle.remove()

    def questions(self, layer):
        """Returns what the attention got and gave, once for each time it ran: tensors of a request, and the output."""
        calls = self.calls[layer]
        if calls and isinstance(calls[0][3], tuple):  # torch.nn.MultiheadAttention has no projections of its own
            return [multihead(args, kwargs, result) for _, args, kwargs, result in calls]
        found, run = [], []
        for call in calls:
            run.append(call)
            if {name for name, *_ in run} == self.names[layer]:  # a run that an error ended has no output
                found.append(one_run(run))
                run = []
        return found


def input_of(call):
    return call[1][0] if call[1] else next(iter(call[2].values()))


def one_run(run):
    """The inputs of the projections in one run of an attention, and the output of the last one."""
    def of(letters):
        names = [call for call in run[:-1] if re.match(letters, call[0].rsplit(".", 1)[-1], re.IGNORECASE)]
        return input_of(names[0]) if names else None
    X = of(r"q|lin_q|w_?q|to_q")
    X = input_of(run[0]) if X is None else X
    K, V = of(r"k|lin_k|w_?k|to_k"), of(r"v|lin_v|w_?v|to_v")
    given = {"X": X}
    if K is not None and K is not X and not (K.shape == X.shape and torch.equal(K, X)):
        given["context"] = K
    if V is not None and K is not None and V is not K and not (V.shape == K.shape and torch.equal(V, K)):
        given["value_context"] = V
    output = run[-1][3]
    return given, output.reshape(*X.shape[:-1], -1)


def multihead(args, kwargs, result):
    names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    given = {**dict(zip(names, args)), **kwargs}
    question = {"X": given["query"], "context": given["key"], "value_context": given["value"]}
    if given.get("attn_mask") is not None:
        mask = given["attn_mask"]
        question["bias"] = torch.zeros(mask.shape, dtype=given["query"].dtype).masked_fill(mask, -torch.inf) \
            if mask.dtype == torch.bool else mask
    return question, result[0]
