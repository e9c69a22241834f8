"""check-sbom.py ROOT VERSION COMMIT ARCHITECTURE checks the list of parts in the files of an image, which are in ROOT.

spdx-tools finds what SPDX forbids. The rest is compared with the files: every file has its SHA-256 in the list, every
shared library belongs to a Debian package, and what status.d says of a package is what the list says of it.
"""

import email
import hashlib
import pathlib
import sys

from spdx_tools.spdx.model import ChecksumAlgorithm, RelationshipType
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

SBOM = "usr/share/sbom/attentiond.spdx.json"


def faults(root, version, commit, architecture):
    document = parse_file(str(root / SBOM))
    for message in validate_full_spdx_document(document):
        yield message.validation_message

    found = {f"./{path.relative_to(root)}": hashlib.sha256(path.read_bytes()).hexdigest()
             for path in root.rglob("*") if path.is_file() and path != root / SBOM}
    listed = {file.name: sum_.value for file in document.files for sum_ in file.checksums
              if sum_.algorithm == ChecksumAlgorithm.SHA256}
    for name in sorted(found.keys() | listed.keys()):
        if found.get(name) != listed.get(name):
            yield f"{name}: the SHA-256 is {found.get(name)}, and in the list {listed.get(name)}"

    packages = {package.name: package for package in document.packages}
    own = packages.pop("attentiond")
    if (own.version, own.source_info) != (version, f"commit {commit}"):
        yield f"attentiond is version {own.version} of {own.source_info}, not {version} of commit {commit}"
    def related(kind):
        return {edge.related_spdx_element_id for edge in document.relationships
                if edge.relationship_type == kind and edge.spdx_element_id == own.spdx_id}

    linked = {name for name, package in packages.items()
              if package.spdx_id in related(RelationshipType.STATIC_LINK)}
    if not any(name.startswith("libstdc++-") for name in linked):
        yield "libstdc++ is linked into the daemon, but it is not in the list"
    contained = related(RelationshipType.CONTAINS)
    for file in document.files:
        if ".so" in file.name and file.spdx_id in contained:
            yield f"{file.name} belongs to no Debian package"

    status = {path.name: email.message_from_bytes(path.read_bytes())
              for path in (root / "var/lib/dpkg/status.d").iterdir()}
    for name in sorted(status.keys() ^ (packages.keys() - linked)):
        yield f"{name} is either in the list or in status.d, but not in both"
    for name in sorted(status.keys() & packages.keys()):
        if status[name]["Version"] != packages[name].version:
            yield f"{name} has version {status[name]['Version']}, and in the list {packages[name].version}"
        # base-files has the version of Debian, and comes from the machine that built the image.
        if name != "base-files" and status[name]["Architecture"] != architecture:
            yield f"{name} is for {status[name]['Architecture']} and not for {architecture}"
    print(f"SBOM: {len(packages)} Debian packages, {len(linked)} of them in the daemon; {len(listed)} files")


def main(root, *arguments):
    messages = list(faults(pathlib.Path(root), *arguments))
    for message in messages:
        print(message)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
