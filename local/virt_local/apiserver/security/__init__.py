"""Who may do what: authentication, authorization, admission. `build_hooks` plugs them into the API server.

Imports happen inside the function, so that reading one module here does not load all the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_local.apiserver.hooks import Hooks
    from virt_local.apiserver.process import Options
    from virt_local.apiserver.server import Server


def build_hooks(server: Server, options: Options) -> Hooks:
    from virt_local.apiserver.security.build import build

    return build(server, options)
