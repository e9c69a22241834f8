"""check_manifests.py DAEMON renders docker/kubernetes, and checks every object with its schema and with the daemon.

kubernetes-validate has the schemas of Kubernetes, and refuses unknown fields. The models of KServe's package say which
fields its objects have. The schema of the Gateway API comes from npm, and its package lies in the virtual environment.
All in the manifests that the daemon must agree with is compared with a running daemon, its --help and the Dockerfile.
"""
import ast
import base64
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
KEY = "0123456789abcdef0123456789abcdef"
faults = []


def expect(met, what):
    if not met:
        faults.append(what)


def render(part):
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(FOLDER, copy, dirs_exist_ok=True)
        (pathlib.Path(copy) / "base/keys.txt").write_text(KEY + "\n")
        done = subprocess.run(["kubectl", "kustomize", f"{copy}/{part}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kubectl cannot render docker/kubernetes/{part}: {done.stderr[:1000]}")
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
    except kubernetes_validate.SchemaNotFoundError as error:
        expect(False, f"{where}: {error}")


class Models:
    """The classes of kserve.models. Their files are only parsed, because they would load a hundred packages."""

    def __init__(self):
        package = pathlib.Path(importlib.util.find_spec("kserve").origin).parent
        self.mount = re.search(r'^MODEL_MOUNT_DIRS = "(.*)"', (package / "model_repository.py").read_text(), re.M)[1]
        self.tables = {}
        for path in (package / "models").glob("v1*.py"):
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


def closed(schema):
    """Makes a schema refuse unknown fields."""
    if "items" in schema:
        closed(schema["items"])
    if "properties" in schema:
        schema["additionalProperties"] = False
        for inner in schema["properties"].values():
            closed(inner)
    return schema


def route_schema():
    """The schema of an HTTPRoute. The package has it as JSON in the middle of a script."""
    (archive,) = pathlib.Path(sys.prefix).glob("kubernetes-models-gateway-api-*.tgz")
    with tarfile.open(archive) as files:
        script = files.extractfile("package/gateway.networking.k8s.io/v1/HTTPRoute.js").read().decode()
    schema = json.loads(re.search(r"^const schema = (\{.*?^\});", script, re.M | re.S)[1])
    schema["properties"]["metadata"] = {}  # kubernetes-validate knows it
    return closed(schema)


def check_schema(thing, where, models):
    group, version = thing["apiVersion"].split("/") if "/" in thing["apiVersion"] else ("", thing["apiVersion"])
    if group == "serving.kserve.io":
        models.check(thing, version.capitalize() + thing["kind"], where)
    elif group == "gateway.networking.k8s.io":
        check_kubernetes(Part(thing["metadata"], "ObjectMeta"), f"{where}.metadata")
        for error in jsonschema.Draft202012Validator(route_schema()).iter_errors(thing):
            expect(False, f"{where}.{'.'.join(map(str, error.path))}: {error.message}")
    else:
        check_kubernetes(thing, where)


# ------------------------------------------------------------------------------------- the daemon

class Daemon:
    """A daemon with the variables of a container, and what it says about itself."""

    def __init__(self, program, variables):
        self.version = run(program, "--version").split()[1]
        self.help = run(program, "--help")
        usual = {key: value for key, value in os.environ.items() if not key.startswith(("ATTENTIOND_", "OPENBLAS_"))}
        self.process = subprocess.Popen([program, "--port", "0", "--layers", ROOT / "tests/data/layers"], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=usual | variables)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the daemon does not start with {variables}: {self.process.stderr.read()}")
        self.url = line.split()[-1]

    def get(self, path, **headers):
        """The status and the body; the status is 0 if the daemon does not answer."""
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def stop(self):
        self.process.kill()
        self.process.communicate()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def of_dockerfile(pattern):
    return re.search(pattern, (ROOT / "docker" / "Dockerfile").read_text(), re.M)[1]


def check_probes(container, port, daemon, where):
    """While the daemon drains, it must be alive and not ready."""
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[probe]["httpGet"]
        expect(daemon.get(get["path"])[0] == 200, f"{where}: {probe}: GET {get['path']} is no 200")
        expect(get["port"] in (port["name"], port["containerPort"]), f"{where}: {probe}: no port is {get['port']}")
    ready, alive = (container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe"))
    daemon.process.send_signal(signal.SIGTERM)
    while (status := daemon.get(ready)[0]) == 200:  # this ends at the latest when the daemon ends
        time.sleep(0.01)
    expect(status == 503, f"{where}: GET {ready} is {status} and not 503 after SIGTERM")
    status = daemon.get(alive)[0]
    expect(status == 200, f"{where}: GET {alive} is {status} and not 200 after SIGTERM")


def mounted_secret(path, container, pod, secret):
    """What is in a file of a secret that is mounted into a container, and that the daemon's group alone can read."""
    folder, _, name = path.rpartition("/")
    (mount,) = (mount for mount in container["volumeMounts"] if mount["mountPath"] == folder)
    (volume,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == mount["name"])
    expect(volume["secretName"] == secret["metadata"]["name"], f"no secret is called {volume['secretName']}")
    expect(volume["defaultMode"] == 0o440 and pod["securityContext"]["fsGroup"] == 65532, "others can read the secret")
    return base64.b64decode(secret["data"][name]).decode()


def check_container(container, pod, program, where, secret=None):
    """Compares a container and its pod with the daemon, and returns the port and the text of /metrics."""
    variables = {item["name"]: item["value"] for item in container["env"]}
    port = container["ports"][0]
    local, keys = dict(variables), tempfile.NamedTemporaryFile("w")
    if secret:
        keys.write(mounted_secret(variables["ATTENTIOND_API_KEY_FILE"], container, pod, secret))
        keys.flush()
        local["ATTENTIOND_API_KEY_FILE"] = keys.name
    daemon = Daemon(program, local)
    try:
        for name in variables:
            expect(re.search(rf"^ +{name}\b", daemon.help, re.M), f"{where}: the daemon has no variable {name}")
        ports = {variables.get("ATTENTIOND_PORT"), str(port["containerPort"]), of_dockerfile(r"^EXPOSE (\d+)")}
        expect(len(ports) == 1, f"{where}: ATTENTIOND_PORT, containerPort and EXPOSE of the Dockerfile differ: {ports}")
        image = of_dockerfile(r"docker build .* -t (\S+) \.") + ":" + daemon.version
        expect(container["image"] == image, f"{where}: the image is {container['image']} and not {image}")
        layers = of_dockerfile(r"ATTENTIOND_LAYERS=(\S+)")
        expect(variables.get("ATTENTIOND_LAYERS", layers) == layers, f"{where}: the layers are not at {layers}")
        metrics = daemon.get("/metrics", Authorization=f"Bearer {KEY}")[1]
        expect(daemon.get("/metrics")[0] == (401 if secret else 200), f"{where}: keys are not asked for as they should be")
        check_probes(container, port, daemon, where)
    finally:
        daemon.stop()
    seconds = sum(int(variables.get(f"ATTENTIOND_DRAIN_{name}", -10000)) for name in ("DELAY", "TIMEOUT"))
    seconds += container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    grace = pod["terminationGracePeriodSeconds"]
    expect(0 < seconds < grace, f"{where}: the pod has {grace} s to end, and needs more than {seconds} s")
    resources = container["resources"]
    expect(resources["limits"].keys() == {"cpu", "memory"} and resources["limits"] == resources["requests"],
           f"{where}: limits and requests are not the same cpu and memory: {resources}")
    for name in ("enableServiceLinks", "automountServiceAccountToken"):
        expect(pod.get(name) is False, f"{where}: {name} is not false")
    user, group = of_dockerfile(r"^USER (\d+:\d+)").split(":")
    security = pod.get("securityContext", {}) | container["securityContext"]
    for name, value in {"runAsUser": int(user), "runAsGroup": int(group), "runAsNonRoot": True,
                        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                        "seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"drop": ["ALL"]}}.items():
        expect(security.get(name) == value, f"{where}: {name} is {security.get(name)} and not {value}")
    return port, metrics


def check_base(things, part, program):
    """Compares the objects of base or queue with the daemon and with each other."""
    deployment, service = things["Deployment"], things["Service"]["spec"]
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    port, metrics = check_container(container, pod["spec"], program, part, things["Secret"])
    scraped = pod["metadata"]["annotations"]["prometheus.io/port"]
    expect(scraped == str(port["containerPort"]), f"{part}: prometheus.io/port is {scraped}")
    labels = pod["metadata"]["labels"]
    for selector in (service["selector"], deployment["spec"]["selector"]["matchLabels"],
                     things["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
                     things["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
                     *(rule["labelSelector"]["matchLabels"] for rule in pod["spec"]["topologySpreadConstraints"])):
        expect(selector == labels, f"{part}: the selector {selector} is not {labels}")
    for name in (service["ports"][0]["targetPort"],
                 things["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"]):
        expect(name == port["name"], f"{part}: the port {name} is not {port['name']}")
    autoscaler = things["HorizontalPodAutoscaler"]["spec"]
    target = {key: deployment[key] for key in ("apiVersion", "kind")} | {"name": deployment["metadata"]["name"]}
    expect(autoscaler["scaleTargetRef"] == target, f"{part}: the target of the autoscaler is not {target}")
    asked = [item["pods"]["metric"]["name"] for item in autoscaler["metrics"] if item["type"] == "Pods"]
    if part == "queue":
        (rule,) = yaml.safe_load((FOLDER / part / "adapter-values.yaml").read_text())["rules"]["custom"]
        served = rule["name"]["matches"]
        expect(asked == [served], f"{part}: the autoscaler asks for {asked}, and the adapter serves {served}")
        asked.append(rule["seriesQuery"].partition("{")[0])
    for metric in asked:
        expect(re.search(rf"^# TYPE {metric} gauge$", metrics, re.M), f"{part}: the daemon has no gauge {metric}")


def check_gateway(route, base, program):
    (service,) = (thing for thing in base if thing["kind"] == "Service")
    limit = int(re.search(r"ATTENTIOND_COMPUTE_TIMEOUT, default (\d+)", run(program, "--help"))[1])
    backend = {"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}
    for rule in route["spec"]["rules"]:
        expect(rule["backendRefs"] == [backend], f"gateway: the route does not lead to {backend}")
        seconds = rule["timeouts"]["request"]
        expect(int(seconds.rstrip("s")) > limit, f"gateway: {seconds} is not longer than --compute-timeout")


def check_kserve(runtime, service, program, models):
    predictor, name = service["spec"]["predictor"], runtime["metadata"]["name"]
    (container,) = runtime["spec"]["containers"]
    expect(container["name"] == "kserve-container", "kserve: KServe wants a container named kserve-container")
    check_container(container, predictor, program, "kserve")
    mounted = {item["name"]: item["value"] for item in container["env"]}.get("ATTENTIOND_LAYERS")
    expect(mounted == models.mount, f"kserve: the layers are at {mounted}, and KServe mounts them at {models.mount}")
    model = predictor["model"]
    expect(model["storageUri"].startswith("pvc://"), f"kserve: {model['storageUri']} is no claim of a volume")
    expect(model["runtime"] == name, f"kserve: {model['runtime']} is not the runtime {name}")
    formats = [known["name"] for known in runtime["spec"]["supportedModelFormats"]]
    expect(model["modelFormat"]["name"] in formats, f"kserve: the runtime knows only the formats {formats}")
    protocols = runtime["spec"]["protocolVersions"]
    expect([model["protocolVersion"]] == protocols == ["v2"], f"kserve: the daemon speaks v2 and not {protocols}")


def main(program):
    models = Models()
    parts = {path.parent.name: render(path.parent.name) for path in sorted(FOLDER.glob("*/kustomization.yaml"))}
    for part, things in parts.items():
        try:
            for thing in things:
                check_schema(thing, f"{part}: {thing['kind']}", models)
            kinds = {thing["kind"]: thing for thing in things}
            if faults:  # some field is not where it should be
                break
            if part == "gateway":
                check_gateway(kinds["HTTPRoute"], parts["base"], program)
            elif part == "kserve":
                check_kserve(kinds["ServingRuntime"], kinds["InferenceService"], program, models)
            else:
                check_base(kinds, part, program)
        except KeyError as name:
            expect(False, f"{part}: there is no {name}")
        print(f"docker/kubernetes/{part}: {len(things)} objects")
    for fault in faults:
        print("FAULT:", fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main(sys.argv[1])
