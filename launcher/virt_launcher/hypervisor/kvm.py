"""Whether KVM can run guests here: the device opens and the processor can virtualise.

A device that opens is not enough: on some nested hosts KVM even runs firmware and then hangs in the first real kernel.
"""

from __future__ import annotations

import os
from pathlib import Path

_FLAGS = frozenset({"vmx", "svm"})


def kvm_usable(device: str = "/dev/kvm", cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    return _opens(device) and virtualises(cpuinfo)


def _opens(device: str) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def virtualises(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    with open(cpuinfo) as file:
        for line in file:
            if line.startswith("flags"):
                return not _FLAGS.isdisjoint(line.split())
    return os.uname().machine != "x86_64"  # Elsewhere the device is there only if the processor can.
