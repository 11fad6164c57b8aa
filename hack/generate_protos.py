"""Generates the Python code of all .proto files into DIR (default: beside them): `make generate` and tests/rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROTOS = Path(__file__).resolve().parent.parent / "protos"


def generate(out: Path) -> None:
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("virt_protos/*/v1*/*.proto"))
    args = [
        "-I.",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
    ]
    plugins = Path(sys.executable).parent
    path = {"PATH": f"{plugins}:/usr/local/bin:/usr/bin:/bin"}
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *args, *sources], cwd=PROTOS, check=True, env=path)


if __name__ == "__main__":
    generate(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else PROTOS)
