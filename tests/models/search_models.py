#!/usr/bin/env python3
"""Searches for stored layers that are served with wrong numbers.

    ATTENTIOND_BIN=build/attentiond search_models.py [--calls 3000] [--seed 7] [--types bert,llama] [--case TYPE/SEED]

For each model_type of transformers it draws a config.json (configurations.py), makes the tiny model with random weights,
saves it, and lets the daemon serve it. Every layer that is served is compared with the eager attention of the model: in
float32 to 1e-5 of the largest output, in float64 to 1e-12. What is not served must be listed with a reason. In some cases
config.json is edited by hand before: the model that transformers makes of the edited file is then the one to compare with.
"""

import argparse
import collections
import contextlib
import copy
import inspect
import json
import pathlib
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings

import torch
import transformers
from safetensors.torch import load_file
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import configurations
import published
from edits import edit_config, edit_files
from eager import Daemon, Trace, in_float64, print_of, remade_in_float64

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
MOST_PARAMETERS = 3_000_000
MOST_MEMORY = 8 << 30  # a drawn size that is too large for its model ends this model, and not the search
SECONDS = 20  # of one model
BATCH = 40  # models in the folder at once
STORED = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


class Unfit(Exception):
    """This configuration makes no model, or a model that does not run."""


@contextlib.contextmanager
def limited(seconds):
    def stop(*_):
        raise TimeoutError(f"longer than {seconds} s")
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def known_types():
    """The model types that the daemon's source names. Only the first choice of the search depends on them."""
    texts = "".join(path.read_text() for path in sorted((HERE.parents[1] / "server" / "layers").glob("*.[ch]*")))
    return [name for name in CONFIG_MAPPING.keys() if f'"{name}"' in texts]


def classes_of(config):
    """All classes that transformers makes of a config, with the plain model first."""
    found = []
    for name in ["MODEL_MAPPING"] + sorted(dir(modeling_auto)):
        mapping = getattr(modeling_auto, name)
        if name.startswith("MODEL_") and name.endswith("MAPPING") and "BACKBONE" not in name:
            classes = mapping.get(type(config), None)
            for one in classes if isinstance(classes, (list, tuple)) else [classes]:
                if one is not None and one not in found:
                    found.append(one)
    if not found:  # a part of a larger model has a class, but no entry in the tables
        name = configurations.modeling_of(type(config))
        configurations.source_of(name)
        found = [one for one in vars(sys.modules.get(name, object)).values() if isinstance(one, type) and "forward" in vars(one)
                 and getattr(one, "config_class", None) is type(config)]
    return found


class Case:
    """One drawn model. Its name is enough to make it again: TYPE/SEED."""

    def __init__(self, name, edits):
        self.name, self.edits = name, edits
        self.model_type, seed = name.rsplit("/", 1)
        self.rng = random.Random(name)
        self.edited, self.parts, self.most = "", {}, MOST_PARAMETERS

    def make(self, folder):
        """Draws configurations until one makes a model, and saves it. Raises Unfit if none does."""
        self.refusals = []
        for _ in range(8):
            try:
                with limited(SECONDS):
                    self.draw()
                    self.save(folder)
                return
            except TimeoutError as error:
                raise Unfit(str(error)) from error
            except Exception as error:  # whatever stops a class from making a model: draw another one
                shutil.rmtree(folder, ignore_errors=True)
                self.refusals.append(f"{type(error).__name__}: {error}".split("\n")[0][:160])
        raise Unfit(self.refusals[-1])

    def draw(self):
        cls = CONFIG_MAPPING[self.model_type]
        change = 0.0 if len(self.refusals) >= 5 else None  # the last draws are plain ones
        self.values = configurations.draw(self.rng, cls, change)
        self.config = cls(**copy.deepcopy(self.values))
        classes = classes_of(self.config)
        if not classes:
            raise Unfit("no model class")
        self.cls = classes[0] if self.rng.random() < 0.6 else self.rng.choice(classes)
        self.stored = self.rng.choice(("float32", "float32", "float32", "bfloat16", "float16", "float64"))
        self.sharp = self.rng.choice((1.0, 1.0, 1.7))

    def build(self, config):
        for attribute in ("_attn_implementation", "_experts_implementation"):
            setattr(config, attribute, "eager")
        return self.cls(config).eval()

    def save(self, folder):
        torch.manual_seed(self.rng.randrange(1 << 30))
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in self.cls(copy.deepcopy(self.config)).parameters())
        if size > self.most:
            raise Unfit(f"{size} parameters")
        self.model = self.build(copy.deepcopy(self.config))
        with torch.no_grad():
            for parameter in self.model.parameters():
                if not parameter.is_floating_point():
                    continue
                noise = torch.randn_like(parameter)
                inputs = parameter.shape[-1] if parameter.dim() > 1 else 1
                parameter.copy_(self.sharp * noise / inputs**0.5 if parameter.dim() > 1 else parameter + 0.3 * noise)
                parameter.copy_(parameter.to(STORED[self.stored]))
        saved = self.model
        if self.stored != "float32":
            saved = copy.deepcopy(self.model).to(STORED[self.stored])
        saved.save_pretrained(folder, max_shard_size=self.rng.choice(("8KB", "1GB", "1GB", "1GB")))
        if self.edits and self.rng.random() < 0.3:
            self.edited, self.parts = edit_files(self.rng, folder, self.model, STORED[self.stored])
        if self.edits and not self.edited:
            self.edit_config(folder)

    def edit_config(self, folder):
        """Changes config.json by hand, and lets transformers make the model of the files again."""
        path = folder / "config.json"
        config = json.loads(path.read_text())
        self.edited = edit_config(self.rng, config, known_types())
        path.write_text(json.dumps(config, indent=1))
        try:
            loaded = transformers.AutoConfig.from_pretrained(folder)
            cls = self.cls if isinstance(loaded, self.cls.config_class or type(None)) else (classes_of(loaded) or [None])[0]
            self.model, report = cls.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32,
                                                     output_loading_info=True)
            self.cls, self.config = cls, loaded
            self.model.eval()
            if report["missing_keys"] or report["mismatched_keys"] or report.get("error_msgs"):
                self.edited += " (transformers misses weights)"
        except TimeoutError:
            raise
        except Exception as error:
            self.model = None
            self.edited += f" (transformers: {type(error).__name__})"

    def inputs(self):
        """What the model may be called with: several guesses, of which the first that runs is taken."""
        config, rng = self.model.config, self.rng
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        vocabulary = getattr(text, "vocab_size", None)
        vocabulary = vocabulary if isinstance(vocabulary, int) and vocabulary > 4 else configurations.VOCABULARY
        length, other = rng.choice((1, 2, 7, 13, 23, 40)), rng.choice((1, 5, 9))
        def words(n):
            return torch.randint(3, max(4, vocabulary), (2, n))
        names = forward_names(self.model)
        guesses = []
        def add(**given):
            given["decoder_input_ids"] = words(other)
            given["lang_ids"] = torch.zeros(2, dtype=torch.int64)
            guesses.append({name: value for name, value in given.items() if name in names})
        image = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", 16)
        image = list(image) if isinstance(image, (list, tuple)) else [image, image]
        channels = getattr(config, "num_channels", 3)
        pixels = torch.randn(2, channels if isinstance(channels, int) else 3, *image[:2])
        if "pixel_values" in names and "input_ids" in names:
            add(input_ids=words(length), pixel_values=pixels)
        if "input_ids" in names:
            if rng.random() < 0.6:
                states = torch.randn(2, other, getattr(text, "hidden_size", 16))
                add(input_ids=words(length), **({"encoder_hidden_states": states} if "decoder_input_ids" not in names else {}))
            add(input_ids=words(length))
            add(input_ids=words(5))
        if "spatial_shapes" in names:  # patches of images of any size
            patch = getattr(getattr(config, "vision_config", config), "patch_size", 4)
            patches = torch.randn(2, 6, pixels.shape[1] * (patch if isinstance(patch, int) else 4)**2)
            add(input_ids=words(length), pixel_values=patches, pixel_attention_mask=torch.ones(2, 6, dtype=torch.int64),
                spatial_shapes=torch.tensor([[2, 3], [3, 2]]))
        if "pixel_values" in names:
            add(pixel_values=pixels)
            add(pixel_values=pixels[:, None])
            add(pixel_values=torch.randn(2, getattr(config, "num_frames", 2) or 2, *pixels.shape[1:]))
        if "input_features" in names:
            bins = getattr(config, "num_mel_bins", 16)
            add(input_features=torch.randn(2, bins, 2 * getattr(config, "max_source_positions", 20)))
            add(input_features=torch.randn(2, 20, bins))
        if "input_values" in names:
            add(input_values=torch.randn(2, 1200))
            add(input_values=torch.randn(2, getattr(config, "max_length", 20), getattr(config, "num_mel_bins", 16)))
            add(input_values=torch.randn(2, 1, 1200))
        if "inputs_embeds" in names:
            add(inputs_embeds=torch.randn(2, length, getattr(text, "hidden_size", 16)))
        return guesses

    def call(self):
        """The arguments that make this case again."""
        return f"--case {self.name}" + (" --edited" if self.edits else "")

    def described(self):
        """The keys of the config that are not the default."""
        return f"{self.cls.__name__} {self.stored} {json.dumps(self.values, default=str)}" \
               + (f" edited: {self.edited}" if self.edited else "")


class Published(Case):
    """A config.json of a published model, as it is there but small, with the weights that transformers makes of it."""

    def __init__(self, number, entry):
        super().__init__(f"{entry['model_type']}/published.{number}", False)
        self.published = published.smaller(entry["config"])
        self.most = 100_000_000

    def draw(self):
        self.values = self.published
        kind = self.published.get("model_type") or published.type_of(self.published)
        if kind not in CONFIG_MAPPING:
            raise Unfit(f"transformers has no {kind}")
        self.config = CONFIG_MAPPING[kind].from_dict(copy.deepcopy(self.published))
        for inner in self.config.sub_configs_defaults:  # `build` makes the weights in float32
            if getattr(self.config, inner, None) is not None:
                getattr(self.config, inner).dtype = None
        named = [getattr(transformers, name, None) for name in self.published.get("architectures") or []]
        self.cls = next((cls for cls in named if cls is not None), None) or classes_of(self.config)[0]
        self.stored, self.sharp = "float32", 1.0

    def save(self, folder):
        super().save(folder)
        (folder / "config.json").write_text(json.dumps(self.published, indent=1))


def forward_names(model):
    return set(inspect.signature(model.forward).parameters)


class Search:
    def __init__(self, folder, verbose):
        self.folder, self.verbose = folder, verbose
        self.daemon = Daemon(folder)
        self.counts, self.reasons, self.unfit = collections.Counter(), collections.Counter(), collections.Counter()
        self.types = collections.defaultdict(collections.Counter)
        self.wrong, self.worst = {}, {dtype: 0.0 for dtype in TOLERANCE}
        self.served_types = set()
        self.number = 0

    def run(self, cases):
        """Makes the models of a batch, waits until the daemon lists them, and compares what it serves."""
        made = []
        for case in cases:
            self.number += 1
            case.model_name = f"m{self.number}"
            self.counts["drawn configurations"] += 1
            try:
                case.make(self.folder / f".{case.model_name}")
                (self.folder / f".{case.model_name}").rename(self.folder / case.model_name)
                made.append(case)
            except Unfit as error:
                self.counts["configurations of which transformers makes no model"] += 1
                self.types[case.model_type]["unfit"] += 1
                self.unfit[f"{case.model_type}: {error}"] += 1
            self.counts["draws that transformers refused, and that were drawn again"] += len(case.refusals)
        listed = self.wait({case.model_name for case in made})
        for case in made:
            layers, refused = listed[case.model_name]
            try:
                self.judge(case, layers, refused)
            except Exception as error:  # the search itself failed at this case, which must be seen
                self.fail(case, "the search failed: " + "".join(traceback.format_exception(error)[-3:]))
            case.model = None
            shutil.rmtree(self.folder / case.model_name)

    def wait(self, names):
        """Returns the layers and the refusals of each model, as soon as all models are listed."""
        end, before = time.monotonic() + 60, None
        while time.monotonic() < end:
            found = {name: ([], []) for name in names}
            for page in self.daemon.pages():
                for index, kind in enumerate(("layers", "refused")):
                    for entry in page[kind]:
                        if entry["model"] in found:
                            found[entry["model"]][index].append(entry)
            if all(any(lists) for lists in found.values()) and found == before:
                return found  # twice the same: no page is older than another
            before = found
            time.sleep(0.05)
        for name, lists in found.items():
            if not any(lists):
                self.wrong[name] = 1
                print(f"WRONG {name} is not listed at all", flush=True)
        return found

    def judge(self, case, layers, refused):
        self.counts["models"] += 1
        self.counts["layers served"] += len(layers)
        self.counts["layers or files refused"] += len(refused)
        for entry in refused:
            self.types[case.model_type]["refused"] += 1
            self.reasons[grouped(entry["reason"])] += 1
            if entry["reason"].strip() == "":
                self.fail(case, f"{entry} is refused without a reason")
        if not layers:
            self.counts["models refused"] += 1
            return
        self.counts["models served"] += 1
        self.types[case.model_type]["served"] += len(layers)
        if case.model is None:
            self.counts["models served though transformers cannot load the edited files"] += 1
            self.note(case, "served, but " + case.edited)
            return
        self.compare(case, layers, refused)

    def compare(self, case, layers, refused):
        owners, unknown = self.owners(case, layers, refused)
        for entry in unknown:
            self.counts["served layers whose weights transformers does not use"] += 1
            self.note(case, f"{entry['name']} is served, but no module has its weights")
        given, right = None, set()
        for dtype in TOLERANCE:
            try:
                with limited(SECONDS):
                    model = remade_in_float64(case.model) if dtype == torch.float64 else case.model
                    trace = Trace()
                    modules = dict(model.named_modules())
                    for layer, names in owners.items():
                        trace.watch(layer, {name: modules[name] for name in names})
                    mode = in_float64() if dtype == torch.float64 else contextlib.nullcontext()
                    with torch.no_grad(), mode:
                        given = forward(model, case.inputs() if given is None else [given], dtype, trace)
                    trace.stop()
            except Exception as error:
                self.counts[f"served models that do not run in {dtype}"] += 1
                self.types[case.model_type]["not run"] += 1
                self.note(case, f"does not run in {dtype}: {type(error).__name__} {error}"[:300])
                continue
            for layer in owners:
                if self.compare_layer(case, layer, dtype, trace, layer in right):
                    right.add(layer)

    def compare_layer(self, case, layer, dtype, trace, exact):
        """Returns whether all outputs of the layer are right. `exact` says that they were in float64."""
        questions = trace.questions(layer)
        if not questions:
            self.counts["served layers that did not run"] += 1
            self.types[case.model_type]["did not run"] += 1
        for question, want in questions:
            if not torch.isfinite(want).all() or not all(torch.isfinite(value).all() for value in question.values()):
                self.counts["outputs that are not finite"] += 1
                continue
            if want.numel() == 0:
                continue
            got = self.daemon.compute(layer, question)
            if isinstance(got, str) and "scales its queries from position" in got:
                self.counts["requests beyond the positions of a layer"] += 1
                continue
            if isinstance(got, str):
                self.counts["requests with an error"] += 1
                self.fail(case, f"{layer} answers {got[:300]}")
                continue
            if got.shape != want.shape:
                self.fail(case, f"{layer} gives {tuple(got.shape)}, not {tuple(want.shape)}")
                continue
            largest = want.abs().max().item()
            error = (got - want).abs().max().item() / largest if largest > 0 else got.abs().max().item()
            if error > TOLERANCE[dtype] and exact and self.is_noise(layer, question, got, largest):
                self.counts["outputs in float32 where transformers is less exact than the daemon"] += 1
                continue
            self.counts[f"outputs compared in {str(dtype)[6:]}"] += 1
            self.types[case.model_type]["compared"] += 1
            self.served_types.add(case.model_type)
            if not error <= TOLERANCE[dtype]:
                self.fail(case, f"{layer} in {dtype}: error {error:.3g}")
                return False
            self.worst[dtype] = max(self.worst[dtype], error)
        return True

    def is_noise(self, layer, question, got, largest):
        """Whether the daemon's float32 agrees with its own float64, which is compared with transformers in float64."""
        exact = self.daemon.compute(layer, {name: value.double() for name, value in question.items()})
        return not isinstance(exact, str) and (got - exact).abs().max().item() <= TOLERANCE[torch.float32] * largest

    def owners(self, case, layers, refused):
        """Finds the projections of each layer: the modules that hold the tensors of the file. Reports attentions of the
        model that the daemon lists nowhere."""
        tensors = {}
        for file in (self.folder / case.model_name).glob("*.safetensors"):
            tensors |= load_file(file)
        stored = {}
        for name, parameter in case.model.named_parameters(remove_duplicate=False):
            stored.setdefault(print_of(parameter.to(STORED[case.stored])), []).append(name)
        modules = dict(case.model.named_modules())
        in_file = {print_of(tensor) for tensor in tensors.values()}
        owners, unknown, listed = {}, [], set()
        for entry in layers + refused:
            if "name" not in entry:
                continue
            prefix = entry["name"].removeprefix(case.model_name + ".")
            names = {}
            for name, tensor in tensors.items():
                if tensor.dim() > 1 and (cleaned(name).startswith(prefix + ".") or prefix == "attention"):
                    for parameter in case.parts.get(name) or stored.get(print_of(tensor), [])[:1]:
                        names[parameter.rpartition(".")[0]] = True
            names = {name: True for name in names if is_projection(modules[name])}
            listed |= set(names)
            if entry in layers and names:
                owners[entry["name"]] = list(names)
            elif entry in layers:
                unknown.append(entry)
        for name, module in modules.items():
            if is_attention(module, in_file, STORED[case.stored]) and not any(
                    other == name or other.startswith(name + ".") for other in listed):
                self.counts["attentions that are neither served nor refused"] += 1
                if refused:  # no number is wrong, and the file has a reason beside it
                    self.note(case, f"{name} ({type(module).__name__}) is not listed, but other layers are refused")
                else:
                    self.fail(case, f"{name} ({type(module).__name__}) is neither served nor refused")
        return owners, unknown

    def fail(self, case, text):
        """Reports a fault: the first one of a case with its configuration, the others by their number alone."""
        self.types[case.model_type]["wrong"] += 1
        if self.wrong.get(case.name, 0) == 0:
            print(f"WRONG {case.call()}: {text}\n      {case.described()}", flush=True)
        self.wrong[case.name] = self.wrong.get(case.name, 0) + 1

    def note(self, case, text):
        if self.verbose:
            print(f"note {case.call()}: {text}\n      {case.described()}", flush=True)

    def report(self, seconds):
        print(f"\n{seconds:.0f} s")
        for name, count in self.counts.items():
            print(f"{count:7d} {name}")
        print(f"{len(self.served_types):7d} model types of which layers were served and compared: "
              + ", ".join(sorted(self.served_types)))
        refused = sorted(name for name in self.types if name not in self.served_types and self.types[name]["refused"])
        print(f"{len(refused):7d} model types of which nothing was served")
        none = sorted(name for name in self.types if set(self.types[name]) == {"unfit"})
        print(f"{len(none):7d} model types of which no tiny model could be made" + (": " + ", ".join(none) if none else ""))
        for dtype, error in self.worst.items():
            print(f"largest error in {str(dtype)[6:]}: {error:.2g}")
        print("reasons of what was refused:")
        for reason, count in self.reasons.most_common(None if self.verbose else 40):
            print(f"{count:7d} {reason}")
        if self.verbose:
            print("not made:")
            for reason, count in self.unfit.most_common():
                print(f"{count:7d} {reason}")
            for name, counts in sorted(self.types.items()):
                print(f"{name}: {dict(counts)}")
        print(f"{len(self.wrong)} configurations are wrong, with {sum(self.wrong.values())} faults")


def forward(model, guesses, dtype, trace):
    """Runs the model on the first guess that it takes, and returns this guess. A head that fails behind the attentions
    does no harm, because they have run."""
    failure = None
    options = {"use_cache": False} if "use_cache" in forward_names(model) else {}
    for given in guesses:
        trace.clear()
        cast = {name: value.to(dtype) if value.is_floating_point() else value for name, value in given.items()}
        try:
            model(**cast, **options)
            return given
        except TimeoutError:
            raise
        except Exception as error:
            if any(trace.questions(layer) for layer in trace.calls):
                return given
            failure = failure or error
    raise failure or Unfit("nothing is known to call it with")


def cleaned(name):
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def is_projection(module):
    return not isinstance(module, (torch.nn.Embedding, torch.nn.LayerNorm))


def is_attention(module, in_file, stored):
    """Whether a module is an attention with projections of its own, which the file has."""
    if "Attention" not in type(module).__name__:
        return False
    inner = [child for child in module.modules() if child is not module and "Attention" in type(child).__name__]
    weights = [child.weight for child in module.modules()
               if isinstance(child, (torch.nn.Linear, transformers.pytorch_utils.Conv1D))]
    return not inner and len(weights) >= 2 and all(print_of(weight.to(stored)) in in_file for weight in weights)


def grouped(reason):
    """A reason without the numbers and names of one model, so that equal ones can be counted."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "N", reason)[:150]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=120, help="how many configurations are drawn")
    parser.add_argument("--seconds", type=float, default=1e9, help="draw no more after this time")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--types", help="only these model types, with commas between them")
    parser.add_argument("--others", type=float, default=0.2, help="the share of model types that are not served")
    parser.add_argument("--edits", type=float, default=0.2, help="the share of files whose config.json is edited")
    parser.add_argument("--case", action="append", help="only this case, TYPE/SEED, as a report names it")
    parser.add_argument("--edited", action="store_true", help="the config.json of --case is edited")
    parser.add_argument("--published", type=pathlib.Path, help="a list of config.json files: [{model_type, config}]")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, help="copy the files of --case there")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL + 1)
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    begin = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="models"))
    search = Search(folder, given.verbose or bool(given.case))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    try:
        for batch in batches(given):
            search.run(batch)
            if time.monotonic() - begin > given.seconds:
                break
    finally:
        search.daemon.stop()
        shutil.rmtree(folder)
    search.report(time.monotonic() - begin)
    sys.exit(bool(search.wrong) or not (given.case or search.served_types))


def batches(given):
    """Yields the cases, in batches. Each name of a case says all that is random in it."""
    if given.published:
        entries = list(enumerate(json.loads(given.published.read_text())))
        if given.case:
            entries = [pair for pair in entries if Published(*pair).name in given.case]
        for first in range(0, len(entries), BATCH):
            yield [Published(*pair) for pair in entries[first:first + BATCH]]
        return
    if given.case:
        yield [Case(name, given.edited) for name in given.case]
        return
    served = known_types()
    others = [name for name in CONFIG_MAPPING.keys() if name not in served]
    if given.types:
        served, others = given.types.split(","), []
    rng = random.Random(f"order of {given.seed}")
    rng.shuffle(served)
    rng.shuffle(others)
    turns = {True: 0, False: 0}
    cases = []
    for number in range(given.calls):
        of_others = bool(others) and rng.random() < given.others
        names = others if of_others else served
        cases.append(Case(f"{names[turns[of_others] % len(names)]}/{given.seed}.{number}", rng.random() < given.edits))
        turns[of_others] += 1
        if len(cases) == BATCH:
            yield cases
            cases = []
    if cases:
        yield cases


if __name__ == "__main__":
    main()
