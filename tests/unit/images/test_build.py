"""The parts of the build of the images: what is built from what, with which settings of the machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "hack/images"))
sys.path.append(str(ROOT / "hack/images/inside"))

import archive  # noqa: E402
import debian  # noqa: E402
import engines  # noqa: E402
import host  # noqa: E402
import lock  # noqa: E402
import plan  # noqa: E402
import tree  # noqa: E402
from problems import ImageError  # noqa: E402

API = plan.IMAGES[0]


@pytest.fixture
def checkout(tmp_path: Path) -> plan.Checkout:
    for name, text in {
        "api/Dockerfile": "FROM debian:x AS code\nCOPY setup.txt code /source/\nCOPY --from=code /a /\n",
        ".dockerignore": "*\n!code\ncode/left-out\n",
        "setup.txt": "1",
        "code/one.py": "1",
        "code/left-out/two.py": "1",
        "core/virt_core/__init__.py": '__version__ = "1.2.3"\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return plan.Checkout(tmp_path)


def test_inputs_are_what_the_dockerfile_copies(checkout: plan.Checkout) -> None:
    assert checkout.inputs(API) == [".dockerignore", "api/Dockerfile", "code", "setup.txt"]
    assert checkout.version() == "1.2.3"


@pytest.mark.parametrize(
    ("name", "counts"),
    [("code/one.py", True), ("setup.txt", True), ("api/Dockerfile", True), ("code/new.py", True),
     ("code/left-out/two.py", False), ("code/__pycache__/one.pyc", False), ("README.md", False)],
)  # fmt: skip
def test_only_what_goes_in_makes_an_image_stale(checkout: plan.Checkout, name: str, counts: bool) -> None:
    before = checkout.digest(API)
    path = checkout.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n# more\n")
    assert (checkout.digest(API) != before) is counts


def test_the_revision_is_the_last_commit_that_touched_the_image(checkout: plan.Checkout) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(checkout.root), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert checkout.revision(API)[0] == "unknown"
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    first = git("rev-parse", "HEAD")
    (checkout.root / "README.md").write_text("x")
    git("add", ".")
    git("commit", "-qm", "two")
    assert checkout.revision(API)[0] == first
    (checkout.root / "setup.txt").write_text("2")
    assert checkout.revision(API)[0] == f"{first}-dirty"


def test_a_copied_path_that_is_missing_is_named(checkout: plan.Checkout) -> None:
    (checkout.root / "setup.txt").unlink()
    with pytest.raises(ImageError, match=r"api/Dockerfile copies setup\.txt"):
        checkout.digest(API)


def test_requirements_of_an_extra_open_up_extras_of_our_own() -> None:
    extras = {"a": ["us[b,c]", "x>=1"], "b": ["y"], "c": ["us[b]", "z"], "d": ["w"]}
    project = {"name": "us", "dependencies": ["always"], "optional-dependencies": extras}
    assert lock.requirements({"project": project}, "a") == ["always", "x>=1", "y", "z"]


def test_a_lock_has_one_line_for_each_package_of_pips_report() -> None:
    def entry(name: str, version: str) -> dict[str, object]:
        found = {"archive_info": {"hashes": {"sha256": "ab"}}}
        return {"metadata": {"name": name, "version": version}, "download_info": found}

    report = {"install": [entry("PyYAML", "6"), entry("ast_x", "1")]}
    assert lock.lines(report) == ["ast-x==1 --hash=sha256:ab", "pyyaml==6 --hash=sha256:ab"]


def test_a_changed_constraint_makes_a_lock_stale() -> None:
    assert lock.heading(["a"], "b==1") != lock.heading(["a"], "b==2")


def test_another_python_in_the_images_makes_a_lock_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    before = lock.heading(["a"], "b==1")
    monkeypatch.setattr(lock, "PYTHON", (3, 99))
    assert lock.heading(["a"], "b==1") != before


def test_a_lock_asks_for_wheels_of_the_python_that_the_images_have() -> None:
    words = lock.target()
    assert f"python{words[words.index('--python-version') + 1]}" == tree.PYTHON
    assert {"cp313", "abi3", "none"} == {words[at + 1] for at, word in enumerate(words) if word == "--abi"}


def test_pip_settings_of_the_machine_are_merged_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example/simple\nno-cache-dir = yes\ntimeout = 5\n"
    )
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_TIMEOUT": "9"}
    settings = host.pip_settings(environ)
    assert settings["index-url"] == "https://a.example/simple"
    assert settings["timeout"] == "9"
    assert "no-cache-dir" not in settings


def test_a_list_in_pips_settings_stays_a_list() -> None:
    assert host.pip_conf({"trusted-host": "a\nb"}) == "[global]\ntrusted-host = a\n    b\n"


def test_only_the_way_to_the_mirror_is_taken_from_apt() -> None:
    dump = 'APT::Architecture "amd64";\nAcquire::http::Proxy "http://p:1";\nAcquire::Check-Valid-Until "false";\n'
    dump += 'Acquire::http::Proxy::deb.example.org "DIRECT";\nAcquire::http "";\n'
    kept = host.apt_conf(dump).splitlines()
    assert [line.split()[0] for line in kept] == [
        "Acquire::http::Proxy", "Acquire::Check-Valid-Until", "Acquire::http::Proxy::deb.example.org",
    ]  # fmt: skip


def test_secrets_are_readable_by_us_alone_and_point_to_the_authorities(tmp_path: Path) -> None:
    (tmp_path / "own.crt").write_text("CERTIFICATE")
    secrets = host.write_secrets(tmp_path, {"HOME": "/nowhere", "PIP_CERT": str(tmp_path / "own.crt")})
    assert secrets["ca.crt"].read_text() == "CERTIFICATE"
    assert f"cert = {host.CA_INSIDE}" in secrets["pip.conf"].read_text()
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secrets.values())


def test_steps_of_a_build_are_read_from_its_output() -> None:
    output = "STEP 1/2: FROM x\n--> Using cache 0123456789abcdef\n--> 0123456789a\nSTEP 2\n--> fedcba98765\n"
    assert engines.step_images(output) == ["0123456789a", "0123456789a", "fedcba98765"]


def test_a_machine_that_can_build_nothing_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="apt-get install buildah"):
        engines.choose(tmp_path)
    with pytest.raises(ImageError, match="does not answer"):
        engines.choose(tmp_path, "docker")
    with pytest.raises(ImageError, match="use docker or buildah"):
        engines.choose(tmp_path, "kaniko")


def test_a_failed_command_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"(?s)code 3:.*so sad.*whole log"):
        engines.call(["sh", "-c", "echo so sad; exit 3"], log=tmp_path / "log")


def test_only_debian_can_be_made_from_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert debian.release_of("debian:trixie-slim") == "trixie"
    with pytest.raises(ImageError, match="only debian:"):
        debian.release_of("alpine:3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="apt-get install mmdebstrap"):
        debian.make_root("debian:trixie-slim", [], tmp_path / "root.tar", tmp_path / "log")


def test_an_archive_tells_its_digest_and_sizes(tmp_path: Path) -> None:
    layer = gzip.compress(tar_of({"a": b"12345", "b/c": b"678"}))
    blobs = {f"blobs/sha256/{hashlib.sha256(layer).hexdigest()}": layer}

    def add(value: object) -> str:
        content = json.dumps(value).encode()
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return f"sha256:{digest}"

    layers = [{"digest": f"sha256:{hashlib.sha256(layer).hexdigest()}", "size": len(layer)}]
    manifest = add({"config": {"digest": add({"os": "linux"})}, "layers": layers})
    entry = {"digest": manifest, "annotations": {"org.opencontainers.image.ref.name": "a/b:1"}}
    blobs["index.json"] = json.dumps({"manifests": [entry]}).encode()
    (tmp_path / "x.tar").write_bytes(tar_of(blobs))
    found = archive.read(tmp_path / "x.tar")
    assert (found.digest, found.reference, found.config) == (manifest, "a/b:1", {"os": "linux"})
    assert (found.compressed, found.unpacked) == (len(layer), 8)


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_the_mirror_is_this_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "http://m.example/debian-security\nhttp://m.example/debian/\nhttp://m.example/debian/\n"
    assert debian.first_mirror(listed) == "http://m.example"
    assert debian.first_mirror("http://m.example/ubuntu\n") == ""
    monkeypatch.setenv("VIRTPOD_DEBIAN_MIRROR", "http://other.example")
    assert debian.mirror() == "http://other.example"
