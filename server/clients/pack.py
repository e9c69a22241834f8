#!/usr/bin/python3
"""pack.py FOLDER [BUNDLE] packs the clients into FOLDER, each as its language wants it: .tgz for npm, .crate for cargo, .whl for pip, .zip for
Go's proxy, and .jar with .pom for Maven. With a bundle (docker/bundle) it packs a wheel for Linux instead, which has the client in Python and
the command `attentiond`. All have the version of the library. It needs javac, and no other packer. The same files give the same bytes."""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

CLIENTS = pathlib.Path(__file__).resolve().parent
ROOT = CLIENTS.parents[1]
EPOCH = max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800)  # a zip file knows no time before 1980
VERSION = re.search(r'ATTN_VERSION +"(.*)"', (ROOT / "lib/include/attention.h").read_text())[1]
OF_PYTHON = VERSION.replace("-rc.", "rc")
COMMAND = b'''#!python
import importlib.util
import os
import sys

# This does not import the package, which would import NumPy.
folder = importlib.util.find_spec("attentiond").submodule_search_locations[0]
program = os.path.join(folder, "bundle", "attentiond")
os.execv(program, [program, *sys.argv[1:]])
'''
OF_LIBRARIES = ", and those of the libraries in attentiond/bundle/root/usr/share/doc"
METADATA = f"""Metadata-Version: 2.1
Name: attentiond
Version: {OF_PYTHON}
Summary: A client of attentiond, the service that computes attention
License: MIT{{}}
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == 'numpy'
Description-Content-Type: text/markdown

"""


def find(pattern, path):
    """Returns what a file says, which must be the version."""
    found = re.search(pattern, (CLIENTS / path).read_text(), re.MULTILINE)[1]
    if found not in (VERSION, OF_PYTHON):
        sys.exit(f"pack.py: server/clients/{path} has version {found}, and attention.h has {VERSION}")


def files_of(folder, *patterns):
    """Returns {name: (is a program, bytes)} of the files of a client, with its README.md and the licence."""
    paths = sorted(path for pattern in (*patterns, "README.md") for path in (CLIENTS / folder).glob(pattern))
    return {**{str(path.relative_to(CLIENTS / folder)): (False, path.read_bytes()) for path in paths},
            "LICENSE": (False, (ROOT / "LICENSE").read_bytes())}


def write_tar(path, prefix, files):
    text = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, text, EPOCH) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for name, (program, data) in files.items():
            entry = tarfile.TarInfo(f"{prefix}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), EPOCH, 0o755 if program else 0o644
            out.addfile(entry, io.BytesIO(data))
    path.write_bytes(text.getvalue())


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as out:
        for name, (program, data) in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            entry.create_system = 3  # Unix
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            out.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


def write_wheel(out, tags, files):
    own = f"attentiond-{OF_PYTHON}"
    info = f"{own}.dist-info"
    for path in sorted((CLIENTS / "python/attentiond").glob("*.*")):
        files[f"attentiond/{path.name}"] = (False, path.read_bytes())
    bundled = any(name.startswith("attentiond/bundle/") for name in files)
    if bundled:
        files[f"{own}.data/scripts/attentiond"] = (True, COMMAND)
    wheel = ["Wheel-Version: 1.0", "Generator: attentiond", f"Root-Is-Purelib: {str(tags == ['any']).lower()}", *(f"Tag: py3-none-{tag}" for tag in tags)]
    files[f"{info}/licenses/LICENSE"] = (False, (ROOT / "LICENSE").read_bytes())
    files[f"{info}/METADATA"] = (False, METADATA.format(OF_LIBRARIES if bundled else "").encode() + (CLIENTS / "python/README.md").read_bytes())
    files[f"{info}/WHEEL"] = (False, "".join(f"{line}\n" for line in wheel).encode())
    record = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
              for name, (_, data) in files.items()]
    files[f"{info}/RECORD"] = (False, "".join([*record, f"{info}/RECORD,,\n"]).encode())
    write_zip(out / f"{own}-py3-none-{'.'.join(tags)}.whl", files)


def pack_java(out):
    name = f"attentiond-client-{VERSION}"
    pom = (CLIENTS / "java/pom.xml").read_bytes()
    files = {"META-INF/MANIFEST.MF": (False, b"Manifest-Version: 1.0\r\nAutomatic-Module-Name: attentiond\r\n\r\n"),
             "META-INF/LICENSE": (False, (ROOT / "LICENSE").read_bytes()),
             "META-INF/maven/attentiond/attentiond-client/pom.xml": (False, pom)}
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "--release", "17", "-d", classes, CLIENTS / "java/src/main/java/attentiond/Client.java"], check=True)
        for path in sorted(pathlib.Path(classes).rglob("*.class")):
            files[str(path.relative_to(classes))] = (False, path.read_bytes())
    write_zip(out / f"{name}.jar", files)
    (out / f"{name}.pom").write_bytes(pom)


def main():
    out = pathlib.Path(sys.argv[1])
    find('^__version__ = "(.*)"', "python/attentiond/__init__.py")
    find('^version = "(.*)"', "rust/Cargo.toml")
    find('^  "version": "(.*)"', "javascript/package.json")
    find("^  <version>(.*)</version>", "java/pom.xml")
    if len(sys.argv) > 2:
        bundle = pathlib.Path(sys.argv[2])
        machine = bundle.name.rsplit("-", 1)[1]
        paths = sorted(path for path in bundle.rglob("*") if path.is_file())
        files = {f"attentiond/bundle/{path.relative_to(bundle)}": (os.access(path, os.X_OK), path.read_bytes()) for path in paths}
        # The bundle brings its own loader, so it is for every C library of Linux.
        return write_wheel(out, [f"{system}_{machine}" for system in ("manylinux2014", "manylinux_2_17", "musllinux_1_1")], files)
    module = re.search("^module (.*)", (CLIENTS / "go/go.mod").read_text(), re.MULTILINE)[1]
    write_tar(out / f"attentiond-{VERSION}.tgz", "package", files_of("javascript", "attentiond.js", "attentiond.d.ts", "package.json"))
    write_tar(out / f"attentiond-{VERSION}.crate", f"attentiond-{VERSION}", files_of("rust", "Cargo.toml", "src/*.rs"))
    go = files_of("go", "attentiond.go", "go.mod")
    write_zip(out / f"attentiond-go-{VERSION}.zip", {f"{module}@v{VERSION}/{name}": file for name, file in go.items()})
    write_wheel(out, ["any"], {})
    return pack_java(out)


main()
