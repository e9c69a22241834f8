"""Tests of transformers_attention.py: models of Hugging Face transformers give the same numbers with the daemon's attention as with
eager attention. The models are small, their weights are drawn from a seed, and nothing is downloaded."""

import collections
import contextlib
import inspect
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from http.client import HTTPConnection
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402 pylint: disable=wrong-import-position
import transformers  # noqa: E402 pylint: disable=wrong-import-position
import transformers_attention  # noqa: E402 pylint: disable=wrong-import-position
from safetensors import safe_open  # noqa: E402 pylint: disable=wrong-import-position
from safetensors.torch import load, save  # noqa: E402 pylint: disable=wrong-import-position
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM  # noqa: E402 pylint: disable=wrong-import-position
from transformers.models.auto import CONFIG_MAPPING, MODEL_MAPPING  # noqa: E402 pylint: disable=wrong-import-position

# The service is $ATTENTIOND_URL, or a daemon that the test starts.
DAEMON = None if "ATTENTIOND_URL" in os.environ else subprocess.Popen(  # pylint: disable=consider-using-with
    [os.environ["ATTENTIOND_BIN"], "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
URL = os.environ.get("ATTENTIOND_URL") or DAEMON.stdout.readline().split()[-1]
LENGTHS = (11, 7), (11, 11)
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
# The drawn weights are so large that a query attends to some keys much more than to others.
DRAWN = {"initializer_range": 0.15, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "tie_word_embeddings": False}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
DECODERS = {
    "Llama": transformers.LlamaConfig(**SIZES, **DRAWN, **GROUPED),
    "GPT-2": transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, scale_attn_by_inverse_layer_idx=True, **DRAWN),
    "Mistral with a window": transformers.MistralConfig(**SIZES, **DRAWN, **GROUPED, sliding_window=4),
    "Gemma 2 with softcap": transformers.Gemma2Config(**SIZES, **DRAWN, **GROUPED, sliding_window=6, attn_logit_softcapping=0.7),
    "gpt-oss with sinks": transformers.GptOssConfig(**SIZES, **DRAWN, **GROUPED, sliding_window=6, num_local_experts=2,
                                                    num_experts_per_tok=1, experts_implementation="eager"),
}
BERT = transformers.BertConfig(**SIZES, initializer_range=0.2)
T5 = transformers.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
                           initializer_factor=1.0, eos_token_id=None, pad_token_id=0)
# These models are captured. The daemon has no layers of the types deepseek_v3, gpt_bigcode, falcon_h1 and persimmon.
MLA = {"q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
EXPERTS = {"num_experts_per_tok": 1, "moe_intermediate_size": 16, "experts_implementation": "eager"}
CAPTURED = {
    **{name: (AutoModelForCausalLM, config) for name, config in DECODERS.items()},
    "BERT": (AutoModel, BERT),
    "T5": (AutoModelForSeq2SeqLM, T5),
    "DeepSeek V3 with MLA": (AutoModelForCausalLM, transformers.DeepseekV3Config(
        **SIZES, **DRAWN, **MLA, **EXPERTS, num_key_value_heads=4, n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=1)),
    "Gemma 4": (AutoModelForCausalLM, transformers.Gemma4TextConfig(
        **SIZES, **DRAWN, **GROUPED, global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=6,
        layer_types=["sliding_attention", "full_attention"], vocab_size_per_layer_input=64, hidden_size_per_layer_input=8,
        num_kv_shared_layers=0)),
    "Qwen3-Next with gates": (AutoModelForCausalLM, transformers.Qwen3NextConfig(
        **SIZES, **DRAWN, **GROUPED, **EXPERTS, num_experts=2, layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
        shared_expert_intermediate_size=16)),
    "GPT-BigCode": (AutoModelForCausalLM, transformers.GPTBigCodeConfig(vocab_size=64, n_embd=32, n_layer=2, n_head=4, **DRAWN)),
    "Falcon-H1": (AutoModelForCausalLM, transformers.FalconH1Config(
        **SIZES, **DRAWN, **GROUPED, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_expand=1)),
    "Persimmon": (AutoModelForCausalLM, transformers.PersimmonConfig(**SIZES, **DRAWN)),
}
# The sweep gives these values to all keys of these names.
SMALL = {**dict.fromkeys("vocab_size n_positions".split(), 64),
         **dict.fromkeys("hidden_size d_model n_embd embedding_size dim image_size".split(), 32),
         **dict.fromkeys("intermediate_size d_ff encoder_ffn_dim decoder_ffn_dim ffn_dim hidden_dim n_inner".split(), 48),
         **dict.fromkeys("num_hidden_layers num_layers num_decoder_layers num_encoder_layers encoder_layers decoder_layers n_layers "
                         "n_layer num_key_value_heads num_experts_per_tok".split(), 2),
         **dict.fromkeys("num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
                         "num_local_experts n_routed_experts".split(), 4),
         **dict.fromkeys("head_dim d_kv patch_size rotary_dim".split(), 8), "moe_intermediate_size": 16}
POOLS = {"aimv2_vision_model", "deepseek_v4"}  # They pool with a softmax of their own, beside the attention of their layers.
MOST = 3_000_000  # parameters of a model of the sweep
BRIDGE = r"cannot have attn_implementation='attentiond'|attentiond has no|attentiond answers"


def make(kind, config, dtype=torch.float32):
    torch.manual_seed(17)
    return kind.from_config(config).eval().to(dtype)


def tokens(lengths=LENGTHS[0]):
    """Returns sentences of these lengths, padded on the left, and their mask."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(1, 64, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


@contextlib.contextmanager
def implementation(model, name):
    """Lets the model compute its attention in another way. The eager attention of many models rounds its weights to float32. Here it
    keeps float64."""
    softmax = torch.nn.functional.softmax

    def exact(x, dim=None, dtype=None, **others):
        return softmax(x, dim=dim, dtype=x.dtype if x.dtype == torch.float64 else dtype, **others)

    model.set_attn_implementation(name)
    assert model.config._attn_implementation == name  # pylint: disable=protected-access
    with torch.no_grad(), mock.patch("torch.nn.functional.softmax", exact):
        yield


def both(model, function):
    """Returns what the function returns with eager attention, and with the daemon's."""
    results = []
    for name in ("eager", "attentiond"):
        with implementation(model, name):
            results.append(function())
    return results


def generate(model, given, cache):
    """Returns the tokens and the logits of 20 steps. They are taken from the last layer, because generate() gives them as float32."""
    steps = []
    hook = model.get_output_embeddings().register_forward_hook(lambda module, given, logits: steps.append(logits[:, -1]))
    try:
        return model.generate(**given, max_new_tokens=20, do_sample=False, cache_implementation=cache), torch.stack(steps)
    finally:
        hook.remove()


def shrink(config):
    for name, value in SMALL.items():
        with contextlib.suppress(Exception):  # Some keys of some models cannot be set.
            if type(getattr(config, name)) is int:  # pylint: disable=unidiomatic-typecheck
                setattr(config, name, value)
    config.pad_token_id = 0
    for name in config.sub_configs:
        if getattr(config, name, None) is not None:
            shrink(getattr(config, name))


def tiny(kind, name):
    """Returns a small model of a model_type with this implementation of attention, or None if it does not get small."""
    config = kind()
    with contextlib.suppress(Exception):  # Some models do not fit together with these sizes, and keep their own.
        config = kind(**{key: x for key, x in SMALL.items() if isinstance(getattr(config, key, None), int)})
    shrink(config)
    config._attn_implementation = name  # pylint: disable=protected-access
    model = MODEL_MAPPING[kind]
    model = model[0] if isinstance(model, tuple) else model
    with torch.device("meta"):
        if name == "eager" and sum(x.numel() for x in model(config).parameters()) > MOST:
            return None
    torch.manual_seed(1)
    return model(config).eval()


def some_input(model):
    """Returns words, or else a picture or sounds."""
    names, numbers = inspect.signature(type(model).forward).parameters, torch.Generator().manual_seed(3)
    given = {name: torch.randint(2, 60, (2, n), generator=numbers)
             for name, n in (("input_ids", 9), ("decoder_input_ids", 5)) if name in names}
    shapes = {"pixel_values": (3, 32, 32), "input_features": (80, 64), "input_values": (4000,)}
    if model.main_input_name in shapes:
        given[model.main_input_name] = torch.randn(2, *shapes[model.main_input_name], generator=numbers)
    return given


def numbers_of(output):
    """Yields all tensors of floats of an output."""
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif hasattr(output, "values"):
        yield from numbers_of(list(output.values()))
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from numbers_of(part)


class Models(unittest.TestCase):
    def close(self, got, expected, tolerance):
        self.assertEqual((got.shape, got.dtype), (expected.shape, expected.dtype))
        self.assertTrue(got.isfinite().all())
        self.assertGreater(expected.std(), 0.05, "the numbers differ too little to test anything")
        self.assertLessEqual((got - expected).abs().max().item(), tolerance)

    def test_logits(self):
        """The rows of padding are left out, because eager attention gives them the mean of all values, and the daemon zeros."""
        for name, config in DECODERS.items():
            for dtype, tolerance in TOLERANCES.items():
                for lengths in LENGTHS:
                    with self.subTest(name, dtype=dtype, lengths=lengths):
                        model, given = make(AutoModelForCausalLM, config, dtype), tokens(lengths)
                        words = given["attention_mask"].bool()
                        expected, got = both(model, lambda: model(**given, output_attentions=True))
                        self.close(got.logits[words], expected.logits[words], tolerance)
                        if name == "GPT-2":  # It does not tell its layers that weights are wanted.
                            continue
                        for mine, theirs in zip(got.attentions, expected.attentions, strict=True):
                            self.close(mine.transpose(1, 2)[words], theirs.transpose(1, 2)[words], tolerance)

    def test_generation(self):
        """The cache grows by one key in each step. A static cache has room for later keys from the beginning."""
        for name, config in DECODERS.items():
            for dtype, tolerance in TOLERANCES.items():
                for cache, lengths in itertools.product(("dynamic", "static"), LENGTHS):
                    with self.subTest(name, dtype=dtype, cache=cache, lengths=lengths):
                        model, given = make(AutoModelForCausalLM, config, dtype), tokens(lengths)
                        (expected, expected_logits), (got, logits) = both(model, lambda: generate(model, given, cache))
                        self.assertEqual(got.shape, (2, 11 + 20))
                        self.assertTrue(got.equal(expected))
                        self.assertGreater(got[:, 11:].unique().numel(), 4)
                        self.close(logits, expected_logits, tolerance)

    def test_encoders(self):
        """BERT has no causal mask. T5 has no scale, and adds a bias for each head. Its decoder attends to an encoder."""
        for (dtype, tolerance), lengths in itertools.product(TOLERANCES.items(), LENGTHS):
            given = tokens(lengths)
            with self.subTest("BERT", dtype=dtype, lengths=lengths):
                model = make(AutoModel, BERT, dtype)
                words = given["attention_mask"].bool()
                expected, got = both(model, lambda: model(**given).last_hidden_state[words])
                self.close(got, expected, tolerance)
            with self.subTest("T5", dtype=dtype, lengths=lengths):
                model = make(AutoModelForSeq2SeqLM, T5, dtype)
                expected, got = both(model, lambda: model(**given, decoder_input_ids=given["input_ids"][:, -5:]).logits)
                self.close(got, expected, tolerance)


class EveryType(unittest.TestCase):
    """All model types of transformers that get small have the numbers of eager attention, or a clear error."""

    def forward(self, model, given, name):
        """Returns the numbers of an output. With the daemon's attention, nothing else computes a softmax over keys."""
        own = []

        def spy(function):
            return lambda x, *args, **options: (own.append(function) if x.dim() > 3 else None, function(x, *args, **options))[1]

        functional = torch.nn.functional
        torch.manual_seed(4)  # ViT-MAE draws what it masks.
        with torch.no_grad(), mock.patch.object(functional, "softmax", spy(functional.softmax)), \
                mock.patch.object(torch, "softmax", spy(torch.softmax)), \
                mock.patch.object(functional, "scaled_dot_product_attention", spy(functional.scaled_dot_product_attention)):
            results = list(numbers_of(model(**given)))
        self.assertTrue(name == "eager" or not own or model.config.model_type in POOLS, "some layers compute their attention themselves")
        return results

    def try_type(self, kind):
        try:
            model = tiny(kind, "eager")
            if model is None:
                return "large"
        except Exception:  # pylint: disable=broad-exception-caught
            model = None
        try:
            mine = tiny(kind, "attentiond")
        except ValueError as error:
            if not str(error).startswith(("Could not", "Unrecognized")) and model is not None:
                self.assertRegex(str(error), BRIDGE)
                with self.assertRaisesRegex(ValueError, BRIDGE):
                    model.set_attn_implementation("attentiond")
            return "refused" if "attentiond" in str(error) else "not built"
        except Exception:  # pylint: disable=broad-exception-caught
            if model is not None:
                raise
            return "not built"
        with torch.no_grad():
            numbers = torch.Generator().manual_seed(2)
            for x in model.parameters():
                if x.dim() > 1:
                    x.normal_(0, 0.15, generator=numbers)
        mine.load_state_dict(model.state_dict())
        given = some_input(model)
        try:
            expected = self.forward(model, given, "eager")
            if not expected or not all(x.isfinite().all() for x in expected):
                return "no numbers"
        except Exception:  # pylint: disable=broad-exception-caught
            return "other inputs"
        before = SERVICE.calls
        try:
            got = self.forward(mine, given, "attentiond")
        except (ValueError, RuntimeError, NotImplementedError) as error:
            self.assertRegex(str(error), BRIDGE)
            return "refused"
        self.assertGreater(SERVICE.calls, before)
        for a, b in zip(got, expected, strict=True):
            self.assertLessEqual((a - b).abs().max().item(), 1e-4 * b.abs().max().item())
        self.check_capture(model, {key: x[:1] for key, x in given.items()})
        return "right"

    def check_capture(self, model, given):
        """The numbers of a captured model are those of the file, because capture() computes its attention from what it writes."""
        expected = self.forward(model, given, "eager")
        with tempfile.TemporaryDirectory() as folder, transformers_attention.capture(f"{folder}/text.safetensors", model):
            got = self.forward(model, given, "eager")
        for a, b in zip(got, expected, strict=True):
            self.assertLessEqual((a - b).abs().max().item(), 1e-4 * b.abs().max().item())

    def test_every_type(self):
        found, threads = collections.Counter(), torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        torch.set_num_threads(1)
        for name in sorted(CONFIG_MAPPING):
            with self.subTest(name):
                kind = CONFIG_MAPPING[name]
                found[self.try_type(kind) if kind in MODEL_MAPPING else "no model"] += 1
        print(f"model types of transformers: {dict(found)}", flush=True)
        self.assertGreater(found["right"], 180)
        self.assertGreater(found["refused"], 50)


class Refused(unittest.TestCase):
    """These models computed eager attention silently, died with KeyError, or became causal."""

    def test_own_attention(self):
        for name in "deberta-v2 bloom mpnet xlnet falcon gptj gpt_neo splinter".split():
            with self.subTest(name), self.assertRaisesRegex(ValueError, BRIDGE):
                tiny(CONFIG_MAPPING[name], "attentiond")
            with self.subTest(name):
                model = tiny(CONFIG_MAPPING[name], "eager")
                with self.assertRaisesRegex(ValueError, BRIDGE):
                    model.set_attn_implementation("attentiond")

    def test_parts(self):
        """A part of a model that keeps its own attention is refused, too."""
        model = tiny(CONFIG_MAPPING["t5"], "eager")
        with mock.patch.object(type(model), "_can_set_attn_implementation", lambda *_: False), \
                self.assertRaisesRegex(ValueError, "T5Model .*does not change the attention of its T5Config"):
            model.set_attn_implementation({"": "attentiond"})

    def test_first_forward(self):
        """A model whose first forward asks nothing is refused, and one that asks is not looked at again."""
        model, given = make(AutoModelForCausalLM, DECODERS["Llama"]), tokens()
        with mock.patch.object(transformers.models.llama.modeling_llama.LlamaAttention, "forward",
                               lambda self, hidden_states, **others: (hidden_states, None)):
            with implementation(model, "attentiond"), self.assertRaisesRegex(ValueError, "LlamaForCausalLM .*first forward"):
                model(**given)
            with implementation(model, "eager"):
                model(**given)
        with implementation(model, "attentiond"):
            before = SERVICE.calls
            model(**given)
            self.assertEqual(SERVICE.calls, before + len(model.model.layers))


class Calls(unittest.TestCase):
    def setUp(self):
        self.model, self.given = make(AutoModelForCausalLM, DECODERS["Llama"]), tokens()

    def call(self, name="attentiond", mask=None, dtype=torch.float32, keys=7, **options):
        generator = torch.Generator().manual_seed(5)
        shapes = (2, 4, 5, 8), (2, 2, keys, 8), (2, 2, 7, 8)
        matrices = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
        module = self.model.model.layers[0].self_attn
        return transformers.AttentionInterface()[name](module, *matrices, mask, **options)

    def test_types(self):
        """The result has the type of the query, and its numbers are those of PyTorch's own attention."""
        mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(1)) > 0.3
        exact, _ = self.call("sdpa", mask, torch.float64)
        for dtype, tolerance in ((torch.float16, 1e-2), (torch.bfloat16, 5e-2), *TOLERANCES.items()):
            for given in (mask, torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)):
                with self.subTest(dtype=dtype, mask=given.dtype):
                    got, weights = self.call("attentiond", given, dtype)
                    self.assertEqual((got.dtype, got.shape, got.is_contiguous(), weights), (dtype, (2, 5, 4, 8), True, None))
                    self.assertLessEqual((got.double() - exact).abs().max().item(), tolerance)

        got, _ = self.call(mask=mask, dtype=torch.bfloat16, position_bias=torch.zeros(1, 4, 5, 7))
        self.assertEqual(got.dtype, torch.bfloat16)

    def test_one_connection(self):
        transformers_attention.register(URL, "counted")
        with implementation(self.model, "counted"), \
                mock.patch.object(HTTPConnection, "connect", autospec=True, side_effect=HTTPConnection.connect) as connect:
            self.model.generate(**self.given, max_new_tokens=5, do_sample=False)
            self.assertEqual(connect.call_count, 1)

    def test_lost_connection(self):
        """The daemon closes idle connections. The next call opens another one."""
        service = transformers_attention.register(URL, "lost")
        expected, _ = self.call("lost")
        connection = service.connection
        connection.sock.shutdown(2)
        self.assertTrue(self.call("lost")[0].equal(expected))

    def test_errors(self):
        """What the daemon says becomes an exception, and the next call works."""
        with self.assertRaisesRegex(RuntimeError, "422 .*V has 7 rows but K has 6"):
            self.call(keys=6)
        with self.assertRaisesRegex(RuntimeError, "422 .*mask"):
            self.call(mask=torch.ones(2, 1, 5, 6, dtype=torch.bool))
        with self.assertRaisesRegex(NotImplementedError, "dropout"):
            self.call(dropout=0.1)
        with self.assertRaisesRegex(NotImplementedError, "indices"):
            self.call(indices=torch.zeros(1))
        self.model.set_attn_implementation("attentiond")
        with self.assertRaisesRegex(NotImplementedError, "gradients"):
            self.model(**self.given)
        self.assertEqual(self.call()[0].shape, (2, 5, 4, 8))

    def test_no_daemon(self):
        transformers_attention.register("http://127.0.0.1:1", "nobody")
        with self.assertRaises(ConnectionRefusedError):
            self.call("nobody")


class Captures(unittest.TestCase):
    """The file of capture() has what the service needs to compute the attention of each layer of a model."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "text.safetensors"

    def capture(self, model, given, words=None):
        """Returns the tensors and the texts of the file, and the outputs of the layers as their eager attention gives them."""
        own, numbers = [], {}
        modules = {sys.modules[type(module).__module__] for module in model.modules()}
        with contextlib.ExitStack() as stack:
            for module in modules:
                if hasattr(module, "eager_attention_forward"):
                    def spy(*args, eager=module.eager_attention_forward, **options):
                        output, weights = eager(*args, **options)
                        own.append(output.transpose(1, 2)[0])
                        return output, weights
                    stack.enter_context(mock.patch.object(module, "eager_attention_forward", spy))
            stack.enter_context(implementation(model, "eager"))
            numbers["eager"] = next(numbers_of(model(**given)))
        with transformers_attention.capture(self.file, model, words), torch.no_grad():
            numbers["capture"] = next(numbers_of(model(**given)))
        self.assertEqual(model.config._attn_implementation, "eager")  # pylint: disable=protected-access
        self.assertLessEqual((numbers["capture"] - numbers["eager"]).abs().max(), 1e-5)
        with safe_open(self.file, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata(), own

    def ask(self, at, tensors, texts, results):
        """Sends a layer, and returns the results. Only the number of the layer is taken off the names."""
        given, options = ({name.removesuffix(f".{at}"): x for name, x in each.items() if name.endswith(f".{at}")}
                          for each in (tensors, texts))
        kind = "application/vnd.safetensors"
        connection = HTTPConnection(URL.removeprefix("http://"))
        connection.request("POST", "/attention", save(given, {"dtype": "float32", "return": json.dumps(results), **options}),
                           {"Content-Type": kind, "Accept": kind})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        self.assertEqual(response.status, 200, body[:500])
        return load(body)

    def test_outputs(self):
        """The output of each layer is that of the model's own attention."""
        self.assertGreaterEqual(len(CAPTURED), 12)
        for name, (kind, config) in CAPTURED.items():
            with self.subTest(name):
                model, given = make(kind, config), {"input_ids": tokens()["input_ids"][:1]}
                if kind is AutoModelForSeq2SeqLM:
                    given["decoder_input_ids"] = given["input_ids"][:, -5:]
                words = [str(word) for word in given["input_ids"][0].tolist()]
                tensors, texts, own = self.capture(model, given, words)
                layers = json.loads(texts["layers"])
                self.assertEqual((len(layers), json.loads(texts["words"])), (len(own), words))
                self.assertGreater(len(own), 0)
                for at, expected in enumerate(own):
                    output = self.ask(at, tensors, texts, ["output"])["output"]
                    self.assertEqual(output.shape, expected.shape)
                    self.assertGreater(expected.std(), 0.01)
                    self.assertLessEqual((output - expected).abs().max().item(), 1e-5, layers[at])

    def test_file(self):
        """Grouped keys have their own number of heads, the types are those of the model, and causality is an option."""
        given = {"input_ids": tokens()["input_ids"][:1]}
        model = make(AutoModelForCausalLM, DECODERS["Mistral with a window"], torch.bfloat16)
        with transformers_attention.capture(self.file, model), torch.no_grad():
            model(**given)
        with safe_open(self.file, "pt") as file:
            shapes = {name: (file.get_tensor(name).dtype, tuple(file.get_tensor(name).shape)) for name in file.keys()}
            texts = file.metadata()
        half = torch.bfloat16
        one = {"Q": (half, (4, 11, 8)), "K": (half, (2, 11, 8)), "V": (half, (2, 11, 8)), "mask": (torch.bool, (11, 11))}
        self.assertEqual(shapes, {f"{name}.{at}": shape for at in range(2) for name, shape in one.items()})
        self.assertEqual(texts, {"model": "MistralForCausalLM", "scale.0": str(8 ** -0.5), "scale.1": str(8 ** -0.5),
                                 "layers": json.dumps([f"model.layers.{at}.self_attn" for at in range(2)])})
        tensors, texts, _ = self.capture(make(AutoModelForCausalLM, DECODERS["Llama"]), given)
        self.assertEqual((sorted(tensors), texts["causal.1"]), (sorted(f"{name}.{at}" for at in range(2) for name in "QKV"), "true"))

    def test_refused(self):
        model, given = make(AutoModelForCausalLM, DECODERS["Llama"]), {"input_ids": tokens()["input_ids"][:1]}
        before = model.config._attn_implementation  # pylint: disable=protected-access
        cases = {
            "one forward of one text. generate\\(\\)": lambda: model.generate(**given, max_new_tokens=3),
            "one forward of one text": lambda: (model(**given), model.model(**given)),
            "takes one text, and the layer model.layers.0.self_attn has a batch of 2": lambda: model(**tokens()),
            "no attention: call the model inside": lambda: None,
            "there are 2 words, but the layers have 11 keys": lambda: model(**given),
            "has no dropout": lambda: model.train()(**given),
        }
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.1
        for message, does in cases.items():
            with self.subTest(message), self.assertRaisesRegex((ValueError, NotImplementedError), message), torch.no_grad(), \
                    transformers_attention.capture(self.file, model, ["a", "b"]):
                does()
            self.assertFalse(self.file.exists())
            self.assertEqual(model.config._attn_implementation, before)  # pylint: disable=protected-access
        for name in "deberta-v2 bloom falcon".split():
            model = tiny(CONFIG_MAPPING[name], "eager")
            with self.subTest(name), self.assertRaisesRegex(ValueError, "cannot have attn_implementation='capture'"), \
                    transformers_attention.capture(self.file, model):
                model(**given)

    def test_other_arithmetic(self):
        """A layer whose own attention makes something else of what it is given is refused."""
        model, given = make(AutoModelForCausalLM, DECODERS["Llama"]), {"input_ids": tokens()["input_ids"][:1]}
        module = transformers.models.llama.modeling_llama
        eager = module.eager_attention_forward

        def other(*args, **options):
            output, weights = eager(*args, **options)
            return output * 1.001, weights

        with mock.patch.object(module, "eager_attention_forward", other), torch.no_grad(), \
                self.assertRaisesRegex(ValueError, r"model.layers.0.self_attn is not that of its Q, K, V and mask: .* differs by 0\.0"), \
                transformers_attention.capture(self.file, model):
            model(**given)
        self.assertFalse(self.file.exists())


def tearDownModule():
    if DAEMON is not None:
        DAEMON.terminate()
        assert DAEMON.wait(30) == 0
        DAEMON.stdout.close()


SERVICE = transformers_attention.register(URL)
if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    unittest.main()
