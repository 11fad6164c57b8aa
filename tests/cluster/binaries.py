"""The real programs, built from the Go module proxy into a cache outside the checkout, one directory for each set of
versions. Whatever can change the result (module files, sources, flags) is in the directory's name, so a second start
builds nothing and a new version never meets an old file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError

HERE = Path(__file__).resolve().parent
MODULES = HERE / "go"
NAMES = ("kubernetes", "names", "containers")
PAUSE = HERE / "c" / "pause.c"
CALLED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
_BUILD_MINUTES = 60
_CONTAINERD = "github.com/containerd/containerd/v2"
_KUBERNETES = "k8s.io/component-base/version"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Target:
    """One `go build`: a module of ours, packages, the programs that come out."""

    module: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    flags: tuple[str, ...] = ()
    set_variables: tuple[str, ...] = ()
    cgo: bool = False

    def argv(self, go: str, output: Path) -> list[str]:
        linker = " ".join(["-s -w", *(f"-X {variable}" for variable in self.set_variables)])
        # One program is named by us, several are named by their packages.
        where = output / self.programs[0] if len(self.programs) == 1 else f"{output}/"
        return [go, "build", "-trimpath", *self.flags, f"-ldflags={linker}", "-o", str(where), *self.packages]


def versions(modules: Path = MODULES) -> dict[str, str]:
    """Kubernetes, etcd, containerd and runc, as the module files pin them."""
    text = "".join((modules / name / "go.mod").read_text() for name in NAMES)
    wanted = {
        "kubernetes": "k8s.io/kubernetes",
        "etcd": "go.etcd.io/etcd/server/v3",
        "coredns": "github.com/coredns/coredns",
        "containerd": _CONTAINERD,
        "runc": "github.com/opencontainers/runc",
    }
    found = {name: re.search(rf"^(?:require)?\s*{re.escape(path)} (v\S+)", text, re.M) for name, path in wanted.items()}
    missing = [name for name, match in found.items() if match is None]
    if missing:
        raise ClusterError(f"{modules}/*/go.mod pin no version of {', '.join(missing)}.")
    return {name: match[1] for name, match in found.items() if match}


def targets(pinned: Mapping[str, str]) -> tuple[Target, ...]:
    _, major, minor = re.split(r"[v.]", pinned["kubernetes"])[:3]
    # Without these, clients see version v0.0.0 and refuse features.
    stamp = (f"{_KUBERNETES}.gitVersion={pinned['kubernetes']}", f"{_KUBERNETES}.gitMajor={major}")
    return (
        Target("kubernetes", ("./kube",), ("kube",), (), (*stamp, f"{_KUBERNETES}.gitMinor={minor}")),
        Target("kubernetes", ("./etcd",), ("etcd",)),
        Target("names", (".",), ("coredns",)),
        Target(
            "containers",
            tuple(f"{_CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
            ("containerd", "containerd-shim-runc-v2", "ctr"),
            ("-tags=no_btrfs,no_devmapper,no_zfs",),
            (f"{_CONTAINERD}/version.Version={pinned['containerd']}",),
        ),
        Target("containers", ("github.com/opencontainers/runc",), ("runc",), ("-tags=seccomp",), cgo=True),
    )


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    own = environment.get("VIRTPOD_CACHE")
    if own:
        return Path(own)
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "/root"), ".cache"))
    return Path(base, "virtpod")


def directory(cache: Path, modules: Path = MODULES, pause: Path = PAUSE) -> Path:
    pinned = versions(modules)
    digest = hashlib.sha256(repr(targets(pinned)).encode())
    for path in [*sorted(modules.rglob("*")), pause]:
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    readable = "_".join(f"{name}-{pinned[name][1:]}" for name in ("kubernetes", "containerd", "runc"))
    return cache / "cluster" / f"{readable}_{digest.hexdigest()[:10]}"


def ensure(say: Say, cache: Path | None = None) -> Path:
    """The directory with the programs; builds what it lacks. Slow the first time, and it says so."""
    place = directory(cache or cache_root())
    if (place / "complete").exists():
        return place
    go = find_go()
    work = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        for target in targets(versions()):
            say(f"building {', '.join(target.programs)} (the first time only; minutes)")
            _build(target, go, work, say)
        _finish(work, say)
        _put_in_place(work, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place


def _put_in_place(work: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    work.rename(place)


def _finish(work: Path, say: Say) -> None:
    for name in CALLED:
        (work / name).symlink_to("kube")
    compiler = ["gcc", "-Os", "-Wall", "-static", "-s", "-o", str(work / "pause"), str(PAUSE)]
    _run(compiler, {}, PAUSE.parent, "pause", say)
    (work / "complete").touch()


def _build(target: Target, go: str, output: Path, say: Say) -> None:
    settings = {"GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "1" if target.cgo else "0"}
    _run(target.argv(go, output), settings, MODULES / target.module, ", ".join(target.programs), say)


def _run(argv: list[str], settings: Mapping[str, str], where: Path, what: str, say: Say) -> None:
    """A person who waits for minutes hears every minute that something happens."""
    command = ["nice", "-n", "5", *argv]
    with subprocess.Popen(
        command, env={**os.environ, **settings}, cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        for _ in range(_BUILD_MINUTES):
            try:
                _, err = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                say(f"still building {what}")
                continue
            if process.returncode != 0:
                raise ClusterError(f"{what} could not be built: {_reason(err)}")
            return
        process.kill()
    raise ClusterError(f"{what} could not be built within {_BUILD_MINUTES} minutes.")


def _reason(text: str) -> str:
    """The compiler's last words; a missing library has a package."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("go: downloading")]
    hint = " (apt-get install libseccomp-dev pkg-config)" if "seccomp" in text and "pkg-config" in text else ""
    return " | ".join(lines[-3:]) + hint


def find_go(search: str | None = None) -> str:
    wanted = _wanted_go()
    path = search if search is not None else f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin:/usr/lib/go/bin"
    go = shutil.which("go", path=path)
    if go is None:
        raise ClusterError(f"The cluster's programs are built with Go {wanted} or newer, and there is no `go` here.")
    # In the module's directory, because a `go` that may fetch a newer one of itself does so there.
    done = subprocess.run(
        [go, "env", "GOVERSION"], cwd=MODULES / "kubernetes", capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0 or _numbers(done.stdout) < _numbers(wanted):
        own = subprocess.run([go, "version"], cwd="/", capture_output=True, text=True, timeout=60, check=False).stdout
        has = " ".join(own.split()[2:3]) or "of an unknown version"
        raise ClusterError(f"The cluster's programs need Go {wanted} or newer, and {go} is {has}.")
    return go


def _wanted_go(modules: Path = MODULES) -> str:
    lines = [(modules / name / "go.mod").read_text() for name in NAMES]
    found = [match[1] for text in lines if (match := re.search(r"^go (\S+)$", text, re.M))]
    return max(found, key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
