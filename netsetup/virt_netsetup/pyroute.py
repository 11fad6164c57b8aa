"""The only `import pyroute2` beside virt-local's: its client for rtnetlink, and no more of it.

Importing it takes longer than all our work, so a node pays for it once (see `serve`). The package itself imports every
part that it has, of which we need a few, and one of those asks for unittest, which our images do not have, to make a
mock for a socket that we do not use. Both are passed over here, which saves half of the time and a quarter of the
memory that each fork has to copy. Who imports them later gets all of them.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType, SimpleNamespace


def _bare_package() -> ModuleType:
    spec = PathFinder.find_spec("pyroute2")
    if spec is None:
        raise ModuleNotFoundError("virt-netsetup needs pyroute2, which is not installed", name="pyroute2")
    return module_from_spec(spec)


def _no_mocks() -> ModuleType:
    module = ModuleType("unittest")
    module.__dict__["mock"] = SimpleNamespace(Mock=object)
    return module


_stand_ins = {
    name: make() for name, make in {"pyroute2": _bare_package, "unittest": _no_mocks}.items() if name not in sys.modules
}
sys.modules.update(_stand_ins)
try:
    from pyroute2.iproute.linux import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError
finally:
    for _name in _stand_ins:
        del sys.modules[_name]

__all__ = ["IPRoute", "NetlinkError"]
