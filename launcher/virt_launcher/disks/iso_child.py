"""The child that packs files into an ISO image with Rock Ridge and Joliet names: `LABEL DIRECTORY TARGET MOMENT`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pycdlib

_BLOCK = 1 << 16
#: Of Joliet's names, which only Windows needs; what does not fit in has its Rock Ridge name alone.
_MAX_JOLIET, _MAX_JOLIET_LABEL = 64, 16


def build(label: str, source: Path, target: Path) -> None:
    """Whole or not at all: the image appears under its name when it is complete."""
    iso = pycdlib.PyCdlib()
    joliet = len(label) <= _MAX_JOLIET_LABEL
    iso.new(interchange_level=3, sys_ident="LINUX", vol_ident=label, joliet=3 if joliet else None, rock_ridge="1.09")
    iso_names = {".": ""}
    for number, path in enumerate(sorted(source.rglob("*"))):
        relative = path.relative_to(source)
        parent = iso_names[str(relative.parent)]
        short = joliet and all(len(part) <= _MAX_JOLIET for part in relative.parts)
        joliet_path = f"/{relative}" if short else None
        if path.is_dir():
            iso_names[str(relative)] = f"{parent}/D{number}"
            iso.add_directory(f"{parent}/D{number}", rr_name=path.name, joliet_path=joliet_path)
        else:
            iso.add_file(str(path), f"{parent}/F{number}.;1", rr_name=path.name, joliet_path=joliet_path)
    temporary = target.with_name(f".{target.name}.new")
    iso.write(str(temporary))
    iso.close()
    # Direct IO works in whole blocks, so the image must end on one.
    os.truncate(temporary, -(-temporary.stat().st_size // _BLOCK) * _BLOCK)
    os.chmod(temporary, 0o640)
    temporary.rename(target)


if __name__ == "__main__":
    # pycdlib stamps everything with the time of its work, so that no two images were alike.
    moment = float(sys.argv[4])
    time.time = lambda: moment
    build(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
