"""Fetches the source distributions whose Python files take part in a test. `pip download` would run their setup.py, so their
links are looked up here, and each is pinned by its SHA-256."""

import hashlib
import io
import os
import pathlib
import re
import tarfile
import tempfile
import urllib.parse
import urllib.request

from pip._internal.models.index import PyPI


def address(package):
    """Returns the address of a package in the index that pip uses."""
    project = package.rsplit("-", 1)[0].replace("_", "-")
    page = f"{os.environ.get('PIP_INDEX_URL', PyPI.simple_url).rstrip('/')}/{project}/"
    with urllib.request.urlopen(page, timeout=60) as response:
        links = re.findall(r'href="([^"#]+)', response.read().decode())
    return next(urllib.parse.urljoin(page, link) for link in links if link.endswith(f"/{package}"))


def fetched(folder, package, expected):
    """Returns the folder that has the Python files of a package with the `expected` SHA-256. The first call downloads it."""
    place = folder / package.removesuffix(".tar.gz")
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(address(package), timeout=60) as response:
            data = response.read()
        digest = hashlib.sha256(data).hexdigest()
        assert digest == expected, f"{package} has the SHA-256 {digest}, not {expected}"
        with tempfile.TemporaryDirectory(dir=folder) as work, tarfile.open(fileobj=io.BytesIO(data)) as files:
            for file in files:
                if file.isfile() and file.name.endswith(".py"):
                    target = pathlib.Path(work, file.name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(files.extractfile(file).read())
            pathlib.Path(work, place.name).rename(place)
    return place
