"""Makes the lowest layer, the same for all four images: Python, the libraries it loads, users and empty directories.

No shell, no package manager, no pip: an intruder finds Python and what the program itself needs.

Usage: base.py TREE
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tree

PYTHON = f"/usr/lib/{tree.PYTHON}"
CONTENT = (
    f"/usr/bin/{tree.PYTHON}",
    "/usr/bin/python3",
    PYTHON,
    # Names of parts of libc from before they were one library; compiled Python packages are linked to them.
    *(f"/usr/lib/*/{name}" for name in ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")),
    # Loaded by name when a thread is cancelled, so no program lists it.
    "/usr/lib/*/libgcc_s.so.1",
    # What Debian decided about ciphers and signatures.
    "/etc/ssl/openssl.cnf",
    "/usr/lib/ssl/openssl.cnf",
    # For scanners: which release the package records belong to.
    "/etc/os-release",
    "/etc/debian_version",
)
#: Parts of the standard library that a service never loads: terminals, windows, databases, tests, tools of developers.
WITHOUT = (
    *(f"{PYTHON}/{name}/*" for name in (
        "_pyrepl", "config-3*", "curses", "dbm", "ensurepip", "idlelib", "pydoc_data", "sqlite3", "test", "tkinter",
        "turtledemo", "unittest", "venv", "wsgiref", "xmlrpc",
    )),
    *(f"{PYTHON}/lib-dynload/{name}.*" for name in (
        "_bz2_test", "_ctypes_test", "_curses*", "_dbm", "_gdbm", "_sqlite3", "_test*", "_tkinter", "_xx*", "readline",
        "xxlimited*",
    )),
    *(f"{PYTHON}/{name}.py" for name in ("antigravity", "doctest", "pdb", "pydoc", "sitecustomize", "this", "turtle")),
    "*/__pycache__/*",
    f"{PYTHON}/LICENSE.txt",
    f"{PYTHON}/EXTERNALLY-MANAGED",
)  # fmt: skip

#: libvirt and Python look up the user they run as; 107 is the launcher's, 65532 that of virt-api and virt-controller.
USERS = {"root": 0, "qemu": 107, "virtpod": 65532, "nobody": 65534}


def write_skeleton(root: Path) -> None:
    (root / "etc").mkdir(exist_ok=True)
    passwd = "".join(f"{name}:x:{number}:{number}:{name}:/:/usr/sbin/nologin\n" for name, number in USERS.items())
    (root / "etc/passwd").write_text(passwd)
    (root / "etc/group").write_text("".join(f"{name}:x:{number}:\n" for name, number in USERS.items()))
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for name in ("dev", "proc", "sys", "run", "var/lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).mkdir()
        (root / name).chmod(0o1777)
    (root / "var/run").symlink_to("/run")


def main() -> None:
    root = Path(sys.argv[1])
    options = [f"--without={pattern}" for pattern in WITHOUT]
    here = Path(__file__).parent
    command = [sys.executable, str(here / "files.py"), f"--to={root}", f"--bytecode={PYTHON[1:]}", *options, *CONTENT]
    subprocess.run(command, check=True)
    write_skeleton(root)
    tree.same_times(root)


if __name__ == "__main__":
    main()
