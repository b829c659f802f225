"""`make sbom`: a CycloneDX list of what accord is made of: Python packages that it needs, JavaScript in its pages.

Versions and digests are the locks'; licences and edges are those of the installed packages. Validated before it is
written.
"""

import argparse
import re
import sys
from base64 import b64decode
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

import accord
from requirements.locked import ROOT, RUNTIME, Pin, Script, bundled, pins

LICENCES = LicenseFactory()


class Invalid(Exception):
    """What was made is not what CycloneDX says it should be."""


def python_component(pin: Pin) -> Component:
    """Return a Python package, with the digest of each file that may be installed for it: which it is, the system says.

    The address of a file is its package's name: where it is got from is whoever installs it to say.
    """
    purl = PackageURL("pypi", name=pin.name, version=pin.version)
    licence = _licence(pin.name)
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=[LICENCES.make_from_string(licence)] if licence else None,
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(purl.to_string()),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pin.hashes],
            )
        ],
    )


def _licence(name: str) -> str | None:
    """What an installed package says; one for another system is not installed."""
    try:
        said: Any = distribution(name).metadata
    except PackageNotFoundError:
        return None
    licence: str | None = said.get("License-Expression") or said.get("License")
    if licence and "\n" not in licence:  # a whole text is no name
        return licence
    named = [one for one in said.get_all("Classifier", ()) if one.startswith("License ::")]
    return str(named[0]).rpartition(" :: ")[2] if named else None


def javascript_component(script: Script) -> Component:
    """Return a JavaScript package, with the digest of what was installed."""
    group, _, name = script.name.rpartition("/")
    purl = PackageURL("npm", group or None, name, script.version)
    algorithm, _, digest = script.integrity.partition("-")
    hashed = {"sha512": HashAlgorithm.SHA_512, "sha256": HashAlgorithm.SHA_256, "sha1": HashAlgorithm.SHA_1}[algorithm]
    return Component(
        name=name,
        group=group or None,
        version=script.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        hashes=[HashType(alg=hashed, content=b64decode(digest).hex())],
        licenses=[LICENCES.make_from_string(script.licence.strip("()"))],
    )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _needed(name: str) -> set[str]:
    """The names of what an installed package needs, whatever the extras and the system."""
    try:
        wanted = distribution(name).requires or ()
    except PackageNotFoundError:
        return set()
    return {_normal(re.split(r"[ ;\[(<>=!~]", one, maxsplit=1)[0]) for one in wanted if "extra ==" not in one}


def bom() -> Bom:
    """Return the whole list."""
    made = Bom()
    root = Component(
        name="accord",
        version=accord.__version__,
        type=ComponentType.LIBRARY,
        bom_ref="accord",
        licenses=[LICENCES.make_from_string("MIT")],
    )
    made.metadata.component = root
    python = {_normal(pin.name): python_component(pin) for pin in pins(RUNTIME)}
    scripts = bundled()
    pages = {script.path: javascript_component(script) for script in scripts}
    made.components.update([*python.values(), *pages.values()])
    for name, component in python.items():
        made.register_dependency(component, [python[one] for one in _needed(name) if one in python])
    for script in scripts:
        made.register_dependency(pages[script.path], [pages[path] for path in script.needs])
    direct = [python[name] for name in _needed("accord") if name in python]
    made.register_dependency(root, [*direct, *pages.values()])
    return made


def written() -> str:
    """Return the list as JSON, and complain if that is not valid."""
    text = JsonV1Dot6(bom()).output_as_string(indent=1)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise Invalid(str(problem))
    return text + "\n"


def main() -> int:
    """Write the list into a folder, and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m requirements.sbom", description="List what accord is made of.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="where to write it (dist/)")
    folder: Path = parser.parse_args().folder
    path = folder / f"accord-{accord.__version__}.cdx.json"
    folder.mkdir(exist_ok=True)
    path.write_text(written(), encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
