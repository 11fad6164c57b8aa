"""`virt-share`: becomes the virtiofsd that shares one directory with the guest. Process 1 of a container of its own.

    virt-share --socket /var/run/kubevirt/virtiofs-containers/data.sock --directory /var/run/kubevirt-shared

The container is the sandbox (decisions/0030): virtiofsd's own would need rights that nobody should have there. It is
started for every share, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys

from virt_core.apis import names

#: Debian's place, for which no PATH has an entry. What the PATH has goes first.
_PLACES = ("/usr/libexec",)
_PROGRAM = "virtiofsd"
_MISSING = (
    "this image has no virtiofsd that runs without root; Debian has it since 13, in the package virtiofsd, and on a"
    " Debian 12 machine hack/virtiofsd brings it to virt-local"
)
_USAGE = "usage: virt-share --socket PATH --directory PATH [--as-root] [--mounted]"
#: What others brought into the container is shared, if anything is, and only to be read.
_AS_ROOT, _MOUNTED = "--as-root", "--mounted"


class ShareError(Exception):
    """Why nothing can be shared: the last words of the container."""


def main() -> int:
    try:
        argv = command(sys.argv[1:], find(os.environ.get("PATH", os.defpath)))
        if _MOUNTED in sys.argv:
            _check_mounted(_flags(sys.argv[1:])[0], argv[0])
        # Who may not reach the socket cannot speak to virtiofsd.
        os.umask(0o077)
        os.execv(argv[0], argv)  # noqa: S606 - no shell is the point
    except (ShareError, OSError) as error:
        sys.stderr.write(f"virt-share: {error}\n")
    return 1


def find(path: str) -> str:
    for directory in (*path.split(":"), *_PLACES):
        candidate = os.path.join(directory, _PROGRAM)
        if directory and os.access(candidate, os.X_OK):
            return candidate
    raise ShareError(_MISSING)


def _check_mounted(flags: dict[str, str], program: str) -> None:
    from virt_launcher.shares.mounted import objection  # Few shares need it.

    with open("/proc/self/mountinfo") as file:
        own = (sys.executable, __file__, program, flags["--socket"])
        why = objection(flags["--directory"], own, file.read())
    if why:
        raise ShareError(why)


def command(argv: list[str], program: str) -> list[str]:
    """virtiofsd's words for ours. What a guest's cache holds follows the directory within a second, since others may
    write to it. A file that is in use is found again by its path should the machine ever move."""
    flags, rest = _flags(argv)
    if rest or set(flags) != {"--socket", "--directory"}:
        raise ShareError(_USAGE)
    wanted = [program, f"--socket-path={flags['--socket']}", f"--shared-dir={flags['--directory']}"]
    wanted += ["--sandbox=none", "--cache=auto", "--migration-on-error=guest-error", "--migration-mode=find-paths"]
    if _MOUNTED in argv:
        wanted.append("--readonly")
    if _AS_ROOT in argv:
        # What belongs to the launcher's user shall look like root's in the guest, where that user is nobody.
        wanted.append(f"--translate-uid=host:{names.LAUNCHER_UID}:0:1")
    return wanted


def _flags(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    words, flags, rest = iter(argv), dict[str, str](), list[str]()
    for word in words:
        if word in ("--socket", "--directory"):
            flags[word] = next(words, "")
        elif word not in (_AS_ROOT, _MOUNTED):
            rest.append(word)
    return {flag: value for flag, value in flags.items() if value.startswith("/")}, rest


if __name__ == "__main__":
    sys.exit(main())
