"""A root file system from Debian packages with what README says that a user has, and this machine's way to packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "images"))

import debian  # noqa: E402
import host  # noqa: E402
from problems import ImageError  # noqa: E402

#: Beside Debian's own minimum (`minbase`).
PACKAGES = ("git", "make", "ca-certificates")
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
#: Where the clone is: a place that every user of the machine may read, as a home directory is not.
CLONE = "srv/virtpod"
MAKE_S = 900
KEEP_DAYS = 30
#: Programs here that a run needs, by package.
TOOLS = {"mmdebstrap": "mmdebstrap", "ip": "iproute2", "nft": "nftables"}
#: Settings of Go that are about the way to modules.
GO_KEYS = ("GOPROXY", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOSUMDB", "GONOSUMDB", "GOAUTH")
PROXY_KEYS = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


class FreshError(Exception):
    """Why there is no such machine, in one sentence."""


def install_tools() -> None:
    packages = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise FreshError(f"these are missing, and there is no apt-get that could install them: {' '.join(packages)}")
    install = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", *packages]
    for command in (["apt-get", "-q", "update"], install):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=MAKE_S, check=False)
        if done.returncode != 0:
            raise FreshError(f"{' '.join(packages)} could not be installed: {last_words(done.stdout + done.stderr)}")


def make(root: Path, suite: str, cache: Path, log: Path) -> None:
    debs = cache / f"base-{suite}"
    debs.mkdir(parents=True, exist_ok=True)
    forget_old(debs)
    try:
        sources = debian.sources(suite, debian.mirror())
    except ImageError as error:
        raise FreshError(str(error)) from error
    command = ["mmdebstrap", "--variant=minbase", "--format=directory", f"--include={','.join(PACKAGES)}"]
    command += [f"--aptopt={line}" for line in host.apt_conf(host.apt_dump()).splitlines()]
    # Packages that an earlier run has fetched, and logins to mirrors, which stay out of command lines.
    command += ["--skip=download/empty,essential/unlink", '--setup-hook=mkdir -p "$1/var/cache/apt/archives"']
    command += [f"--setup-hook=sync-in {debs} /var/cache/apt/archives"]
    command += [
        '--setup-hook=for f in auth.conf auth.conf.d; do [ ! -e /etc/apt/$f ] || cp -a /etc/apt/$f "$1/etc/apt/"; done'
    ]
    command += [f"--customize-hook=sync-out /var/cache/apt/archives {debs}", suite, str(root), *sources]
    with log.open("w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=MAKE_S, check=False)
    if done.returncode != 0:
        raise FreshError(f"mmdebstrap made no {suite}: {last_words(log.read_text(errors='replace'))}")


def furnish(root: Path, checkout: Path) -> None:
    """The clone, and the few files that are about the way out and not about what is installed."""
    clone = root / CLONE
    git("clone", "-q", "--no-hardlinks", str(checkout), str(clone))
    # What `make images` writes into the images as their source is where the code is from, not this directory.
    origin = git("-C", str(checkout), "config", "--default", "", "remote.origin.url")
    git("-C", str(clone), "remote", *(["set-url", "origin", origin] if origin else ["remove", "origin"]))
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/hosts").write_text("127.0.0.1 localhost fresh\n::1 localhost\n")
    (root / "etc/hostname").write_text("fresh\n")
    authorities = host.find_authorities(os.environ)
    if authorities is not None:
        shutil.copyfile(authorities, root / AUTHORITIES)
    (root / "etc/pip.conf").write_text(host.pip_conf(host.pip_settings(os.environ)) + f"cert = /{AUTHORITIES}\n")
    # There is no init here that could start a service.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)


def git(*words: str) -> str:
    """The checkout may be another user's, as with sudo; git takes the permission only from a file of the caller's."""
    with tempfile.NamedTemporaryFile("w") as permission:
        permission.write("[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n")
        permission.flush()
        env = {**os.environ, "GIT_CONFIG_GLOBAL": permission.name}
        done = subprocess.run(["git", *words], env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise FreshError(f"git {words[0]} failed: {last_words(done.stderr)}")
    return done.stdout.strip()


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """All that a program in there gets from here: the way to packages, and nothing about this machine."""
    kept = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    kept |= {"GOMODCACHE": "/root/.cache/go-mod", "PYTHONUNBUFFERED": "1"}
    kept |= {key: environ[key] for key in environ if key.lower() in PROXY_KEYS}
    kept |= {"TERM": environ["TERM"]} if environ.get("TERM") else {}
    kept |= {key: environ[key] for key in ("VIRTPOD_DEBIAN_MIRROR",) if environ.get(key)}
    return kept | go_settings()


def go_settings() -> dict[str, str]:
    go = find_go()
    if go is None:
        return {}
    done = subprocess.run([go, "env", *GO_KEYS], capture_output=True, text=True, timeout=60, check=False)
    values = done.stdout.split("\n")[: len(GO_KEYS)]
    return {key: value for key, value in zip(GO_KEYS, values, strict=False) if value}


def find_go() -> str | None:
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")


def go_tree() -> Path | None:
    """README asks for Go for the cluster, and Debian 12 has none that is new enough: this machine's own is lent."""
    go = find_go()
    if go is None:
        return None
    done = subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, timeout=60, check=False)
    return Path(done.stdout.strip()) if done.stdout.strip() else None


def forget_old(folder: Path) -> None:
    """Packages that no run has fetched or used for a month: newer ones have come."""
    old = time.time() - KEEP_DAYS * 86400
    for path in folder.glob("*.deb"):
        if path.stat().st_mtime < old and path.stat().st_atime < old:
            path.unlink()


def last_words(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-4:])
