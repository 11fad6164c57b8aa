"""The four images as `make images` left them: no bigger than they may be, nothing in them that has no business there,
and each program starts where a Pod would start it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.framework import imagebox
from tests.framework.imagebox import IMAGES, BuiltImage
from tests.framework.xmlparts import lost
from tests.unit.launcher.cases import CASES
from virt_launcher.converge.difference import difference
from virt_launcher.domain.domain import from_xml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN = ROOT / "tests/golden/launcher"
LIMITS = tomllib.loads((ROOT / "hack/images/limits.toml").read_text())
NAMES = ("virt-api", "virt-controller", "virt-handler", "virt-launcher")
KEYS = ("virtApi", "virtController", "virtHandler", "virtLauncher")
USERS = {
    "virt-api": (65532, 65532),
    "virt-controller": (65532, 65532),
    "virt-handler": (0, 0),
    "virt-launcher": (107, 107),
}
PACKAGES = {name: (name.replace("-", "_"),) for name in NAMES} | {"virt-handler": ("virt_handler", "virt_netsetup")}
#: libvirt counts memory in KiB, and knows `q35` by the name that this QEMU has for it.
IN_ITS_OWN_WORDS = re.compile(r"'unit': 'b'|^/os/type ")
LABELS = ("title", "version", "revision", "source", "created", "licenses")
#: Shells, installers, compilers.
UNWELCOME = {"sh", "bash", "dash", "pip", "pip3", "apt", "apt-get", "dpkg", "gcc", "cc", "ld", "as", "perl", "make"}

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: runc, and files of other users"),
    pytest.mark.skipif(not (IMAGES / "values.yaml").exists(), reason="no images here: make images"),
]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BuiltImage]:
    folder = tmp_path_factory.mktemp("images")
    return {name: imagebox.unpack(IMAGES / f"{name}.tar", folder / name) for name in NAMES}


@pytest.fixture(params=NAMES)
def image(request: pytest.FixtureRequest, images: dict[str, BuiltImage]) -> BuiltImage:
    built: BuiltImage = images[request.param]
    return built


def test_an_image_is_not_bigger_than_its_limit(image: BuiltImage) -> None:
    limit = LIMITS[image.name]
    assert image.compressed <= limit["compressed"] * 1e6
    assert image.unpacked <= limit["unpacked"] * 1e6


def test_an_image_says_what_it_is(image: BuiltImage) -> None:
    config = image.config["config"]
    assert config["Entrypoint"] == [image.name]
    assert image.user == USERS[image.name]
    assert all(config["Labels"].get(f"org.opencontainers.image.{label}") for label in LABELS)
    assert config["Labels"]["org.opencontainers.image.title"] == image.name
    assert "Healthcheck" not in config


def test_all_images_share_their_lowest_layer(images: dict[str, BuiltImage]) -> None:
    assert len({image.layers[0] for image in images.values()}) == 1


def test_the_charts_values_name_these_images(images: dict[str, BuiltImage]) -> None:
    values = yaml.safe_load((IMAGES / "values.yaml").read_text())["images"]
    assert values["registry"] == "virtpod.internal"
    assert [values[key]["digest"] for key in KEYS] == [images[name].digest for name in NAMES]


def test_nothing_is_in_an_image_that_has_no_business_there(image: BuiltImage) -> None:
    files = list(image.files())
    assert not {path.name for path in files} & UNWELCOME
    assert not [path for path in files if not path.is_symlink() and path.stat().st_mode & 0o6022]
    assert not [path for path in files if "secrets" in path.parts or path.name in ("pip.conf", "apt.conf")]


def test_no_link_in_an_image_leads_nowhere(image: BuiltImage) -> None:
    for path in image.files():
        if path.is_symlink() and not str(path.readlink()).startswith(("/run", "/proc")):
            target = path.readlink()
            place = image.root / str(target).lstrip("/") if target.is_absolute() else path.parent / target
            assert place.exists(), f"{path.relative_to(image.root)} -> {target}"


def test_all_python_is_compiled_and_never_checked_again(image: BuiltImage) -> None:
    site = image.root / "usr/local/lib/python3.13/dist-packages"
    for source in site.rglob("*.py"):
        compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
        # PEP 552: the flags say that a hash is kept, and not that it is compared.
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", source


def test_package_records_are_there_for_scanners(image: BuiltImage) -> None:
    records = {path.name for path in (image.root / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "libssl3t64", "python3.13-minimal"} <= records
    assert all((image.root / "usr/share/doc" / name / "copyright").exists() for name in records)


def test_a_program_starts_with_a_read_only_root(image: BuiltImage, tmp_path: Path) -> None:
    done = imagebox.run(image, image.name, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert image.name in done.stdout


def test_every_module_of_a_component_can_be_imported(image: BuiltImage, tmp_path: Path) -> None:
    """An import inside a function counts too: what it names must be in the image, whenever it is called."""
    done = imagebox.run(image, "python3", "-I", "-c", IMPORT_ALL, *PACKAGES[image.name], folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_handlers_helpers_start(images: dict[str, BuiltImage], tmp_path: Path) -> None:
    handler = images["virt-handler"]
    assert imagebox.run(handler, "virt-netsetup", "--help", folder=tmp_path).returncode == 0
    assert imagebox.run(handler, "dnsmasq", "--conf-file=", "--user=nobody", "--test", folder=tmp_path).returncode == 0
    code = "import ctypes; ctypes.CDLL('libnftables.so.1')"
    assert imagebox.run(handler, "python3", "-c", code, folder=tmp_path).returncode == 0


def test_a_node_can_be_probed(images: dict[str, BuiltImage], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    os.chown(out, 107, 107)
    done = imagebox.run(images["virt-launcher"], "virt-launcher", "--node-probe", "/out", folder=tmp_path, writable=out)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / "probe.json").read_text())
    assert found["qemu"]
    assert found["libvirt"]
    assert list(out.glob("capabilities/*.xml"))


def test_machines_with_one_of_every_device_start(images: dict[str, BuiltImage], tmp_path: Path) -> None:
    done, _ = run_script(images["virt-launcher"], "every_device", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


#: What it says of hardware that this computer has not, and of TDX, which a newer libvirt knows.
NOT_HERE = re.compile(
    r"does not support virt type 'kvm'|launch security is not supported with this QEMU binary"
    r"|Invalid value for attribute 'type' in element 'launchSecurity': 'tdx'"
)


def test_the_images_libvirt_takes_every_domain_on_record(images: dict[str, BuiltImage], tmp_path: Path) -> None:
    """What it makes of one, read again, is the machine on record: nothing is lost, and nothing is there to change."""
    image = images["virt-launcher"]
    done, out = run_script(image, "every_record", tmp_path, domains=GOLDEN)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = json.loads((out / "refused.json").read_text())
    arch = {"amd64": "x86_64", "arm64": "aarch64"}[image.config["architecture"]]
    for name in CASES:
        ours = (GOLDEN / f"{name}.xml").read_text()
        domain = from_xml(ours)
        # Of these libvirt says that it cannot run them here, before it looks at the rest.
        if domain.os.arch != arch or NOT_HERE.search(refused.get(name, "")):
            continue
        assert name not in refused, refused[name]
        theirs = (out / "defined" / f"{name}.xml").read_text()
        assert [what for what in lost(ours, theirs) if not IN_ITS_OWN_WORDS.search(what)] == [], name
        assert difference(domain, from_xml(theirs)) == (), name


def run_script(
    image: BuiltImage, name: str, tmp_path: Path, domains: Path | None = None
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Runs one of the scripts beside this file in the image; it sees the directory that is given back as /out."""
    out = tmp_path / "out"
    out.mkdir()
    for script in ("in_image", name):
        shutil.copyfile(HERE / f"{script}.py", out / f"{script}.py")
    if domains is not None:
        shutil.copytree(domains, out / "domains")
    os.chown(out, *image.user)
    start = f"import sys; sys.path.insert(0, '/out'); import {name}; {name}.main()"
    return imagebox.run(image, "python3", "-IB", "-c", start, folder=tmp_path, writable=out), out


#: Imports every module of the named packages, and whatever their functions import.
IMPORT_ALL = """
import ast, importlib, pkgutil, sys
failed = []
def attempt(name):
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")
for package in sys.argv[1:]:
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        attempt(info.name)
        with open(importlib.util.find_spec(info.name).origin) as file:
            tree = ast.parse(file.read())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    attempt(alias.name)
            elif isinstance(node, ast.ImportFrom):
                attempt(node.module)
sys.exit("\\n".join(failed) or 0)
"""
