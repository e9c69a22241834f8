"""check_manifests.py DAEMON renders docker/kubernetes, checks every object against its schema, and compares it with the daemon.

kubernetes-validate has the schemas of Kubernetes, and refuses unknown fields. The models of KServe's package say which fields
its objects have. No package of PyPI knows the Gateway API, so ROUTE below lists the fields of an HTTPRoute that we use.
Everything in the manifests that the daemon must agree with is compared with a running daemon, its --help and the Dockerfile.
"""
import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.request

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
PARTS = ("base", "queue", "gateway", "kserve")
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
faults = []


def fields(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def listed(item):
    return {"type": "array", "minItems": 1, "items": item}


ROUTE = fields(
    ["parentRefs", "rules"], hostnames=listed(TEXT),
    parentRefs=listed(fields(["name"], name=TEXT, namespace=TEXT, sectionName=TEXT, port=NUMBER)),
    rules=listed(fields(
        ["backendRefs"], matches=listed(fields(["path"], path=fields(["type", "value"], type=TEXT, value=TEXT))),
        backendRefs=listed(fields(["name", "port"], name=TEXT, port=NUMBER, weight=NUMBER)),
        timeouts=fields([], request=TEXT, backendRequest=TEXT))))


def expect(met, what):
    if not met:
        faults.append(what)


def render(part):
    done = subprocess.run(["kubectl", "kustomize", FOLDER / part], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kubectl (1.21 or later) cannot render docker/kubernetes/{part}: {done.stderr[:1000]}")
    return list(yaml.safe_load_all(done.stdout))


# ---------------------------------------------------------------------------------------- schemas

class Part(dict):
    """A part of an object, such as a Container. It has no field that says so, but kubernetes-validate asks for one."""

    def __init__(self, value, kind):
        super().__init__(value)
        self.kind = kind

    def __missing__(self, key):
        return {"kind": self.kind, "apiVersion": "meta/v1" if self.kind == "ObjectMeta" else "v1"}[key]


def check_kubernetes(thing, where):
    try:
        kubernetes_validate.validate(thing, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        expect(False, f"{where}.{'.'.join(map(str, error.path))}: {error.message}")


class Models:
    """The classes of kserve.models. Their files are only parsed, because they would load a hundred packages."""

    def __init__(self):
        spec = importlib.util.find_spec("kserve")
        self.tables = {}
        for path in (pathlib.Path(spec.origin).parent / "models").glob("v1*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    self.tables[node.name] = {
                        statement.targets[0].id: ast.literal_eval(statement.value) for statement in node.body
                        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict)}

    def check(self, value, type_, where):
        if item := re.fullmatch(r"list\[(.*)\]", type_):
            expect(isinstance(value, list), f"{where} is no list")
            for i, element in enumerate(value):
                self.check(element, item[1], f"{where}[{i}]")
        elif table := self.tables.get(type_):
            keys = {key: name for name, key in table["attribute_map"].items()}
            for key, inner in value.items():
                expect(key in keys, f"{where}: {type_} of KServe has no field {key}")
                if key in keys:
                    self.check(inner, table["openapi_types"][keys[key]], f"{where}.{key}")
        elif type_.startswith("V1"):
            check_kubernetes(Part(value, type_[2:]), where)
        else:
            python = {"str": str, "int": int, "bool": bool}.get(type_)
            expect(python in (None, type(value)), f"{where}: {value!r} is no {type_}")


def check_schema(thing, where, models):
    kind, group = thing["kind"], thing["apiVersion"].partition("/")[0]
    if group == "serving.kserve.io":
        version = thing["apiVersion"].partition("/")[2].capitalize()
        models.check(thing, version + kind, where)
    elif group == "gateway.networking.k8s.io":
        for error in jsonschema.Draft202012Validator(ROUTE).iter_errors(thing["spec"]):
            expect(False, f"{where}: {error.message}")
    else:
        check_kubernetes(thing, where)


# ------------------------------------------------------------------------------------- the daemon

class Daemon:
    """A daemon with the variables of a container, what its Dockerfile says, and what it knows."""

    def __init__(self, program, variables):
        dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
        self.exposed = int(re.search(r"^EXPOSE (\d+)", dockerfile, re.M)[1])
        self.user = int(re.search(r"^USER (\d+):", dockerfile, re.M)[1])
        self.image = re.search(r"docker build .* -t (\S+) \.", dockerfile)[1]
        self.layers = re.search(r"ATTENTIOND_LAYERS=(\S+)", dockerfile)[1]
        self.version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        self.help = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
        usual = {key: value for key, value in os.environ.items() if not key.startswith(("ATTENTIOND_", "OPENBLAS_"))}
        self.process = subprocess.Popen([program, "--port", "0", "--layers", str(ROOT / "tests/data/layers")],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=usual | variables)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the daemon does not start with {variables}: {self.process.stderr.read()}")
        self.url = line.split()[-1]

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=10)


def check_container(container, daemon_program, where, grace, preceding):
    """Compares a container with the daemon. `grace` is the time that the pod has to end."""
    variables = {item["name"]: item["value"] for item in container["env"]}
    daemon = Daemon(daemon_program, variables)
    try:
        for name in variables:
            expect(re.search(rf"^ +{name}\b", daemon.help, re.M), f"{where}: the daemon has no variable {name}")
        port = container["ports"][0]
        expect(variables.get("ATTENTIOND_PORT") == str(port["containerPort"]) == str(daemon.exposed),
               f"{where}: ATTENTIOND_PORT, containerPort and EXPOSE of the Dockerfile differ")
        expect(container["image"] == f"{daemon.image}:{daemon.version}", f"{where}: the image is not {daemon.image}:{daemon.version}")
        expect(variables.get("ATTENTIOND_LAYERS", daemon.layers) == daemon.layers, f"{where}: the layers are not at {daemon.layers}")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            for get in [container[probe]["httpGet"]] if probe in container else []:
                expect(daemon.get(get["path"])[0] == 200, f"{where}: {probe}: GET {get['path']} is no 200")
                expect(get["port"] in (port["name"], port["containerPort"]), f"{where}: {probe}: there is no port {get['port']}")
        seconds = preceding + sum(int(variables.get(f"ATTENTIOND_DRAIN_{name}", -1000)) for name in ("DELAY", "TIMEOUT"))
        expect(0 < seconds < grace, f"{where}: the pod has {grace} s to end, and needs more than {seconds} s")
        return daemon.user, port, daemon.get("/metrics")[1]
    finally:
        daemon.stop()


def check_agreement(part, things, program):
    """Compares the objects of one rendering with the daemon and with each other."""
    of_kind = {thing["kind"]: thing for thing in things}
    if part == "kserve":
        runtime, predictor = of_kind["ServingRuntime"], of_kind["InferenceService"]["spec"]["predictor"]
        (container,) = runtime["spec"]["containers"]
        user, _, _ = check_container(container, program, part, predictor["terminationGracePeriodSeconds"], 0)
        expect(container["securityContext"]["runAsUser"] == user, f"{part}: the user is not {user}")
        expect(predictor["model"]["runtime"] == runtime["metadata"]["name"], f"{part}: there is no runtime of this name")
        formats = [known["name"] for known in runtime["spec"]["supportedModelFormats"]]
        expect(predictor["model"]["modelFormat"]["name"] in formats, f"{part}: the runtime does not know this format")
        expect(predictor["enableServiceLinks"] is False, f"{part}: enableServiceLinks must be false")
        return
    pod = of_kind["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    user, port, metrics = check_container(container, program, part, pod["spec"]["terminationGracePeriodSeconds"], sleep)
    expect(pod["spec"]["securityContext"]["runAsUser"] == user, f"{part}: the user is not {user}")
    expect(pod["spec"]["enableServiceLinks"] is False, f"{part}: enableServiceLinks must be false")
    expect(pod["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"]), f"{part}: prometheus.io/port is wrong")
    labels, name = pod["metadata"]["labels"], of_kind["Deployment"]["metadata"]["name"]
    service = of_kind["Service"]
    selectors = [service["spec"]["selector"], of_kind["Deployment"]["spec"]["selector"]["matchLabels"],
                 of_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
                 of_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
                 *(rule["labelSelector"]["matchLabels"] for rule in pod["spec"]["topologySpreadConstraints"])]
    expect(all(selector == labels for selector in selectors), f"{part}: a selector is not {labels}")
    ports = [service["spec"]["ports"][0]["targetPort"], of_kind["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"]]
    expect(ports == [port["name"]] * 2, f"{part}: a port is not {port['name']}")
    expect(of_kind["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == name, f"{part}: the autoscaler has another target")
    asked = [item["pods"]["metric"]["name"] for item in of_kind["HorizontalPodAutoscaler"]["spec"]["metrics"] if "pods" in item]
    if part == "queue":
        rule = yaml.safe_load((FOLDER / part / "adapter-values.yaml").read_text())["rules"]["custom"][0]
        asked += [rule["name"]["matches"], rule["seriesQuery"].partition("{")[0]]
    for metric in asked:
        expect(re.search(rf"^# TYPE {metric} gauge$", metrics, re.M), f"{part}: the daemon has no gauge {metric}")
    for rule in of_kind.get("HTTPRoute", {"spec": {"rules": []}})["spec"]["rules"]:
        expect(rule["backendRefs"][0] == {"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]},
               f"{part}: the route does not lead to the service")


def main():
    models = Models()
    for part in PARTS:
        things = render(part)
        for thing in things:
            check_schema(thing, f"{part}: {thing['kind']}", models)
        if not faults:  # every field is where it should be
            check_agreement(part, things, sys.argv[1])
        print(f"docker/kubernetes/{part}: {len(things)} objects")
    for fault in faults:
        print("FAULT:", fault)
    sys.exit(bool(faults))


main()
