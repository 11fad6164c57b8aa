"""How exports, and uploads, are reached from outside of the cluster: by virt-api, where the administrator says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from virt_controller.export.links import Way
from virt_core.apis import exportplan
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entrance:
    """`url` as https://HOST[:PORT]; empty: there is none. `authority` is a file, which may be renewed."""

    url: str = ""
    authority: str = ""

    def way(self, namespace: str, export: str) -> Way | None:
        if not self.url:
            return None
        base = self.url + exportplan.outside_path(namespace, export)
        return Way(exportplan.EXTERNAL, base, self.certificates())

    def certificates(self) -> str:
        if not self.authority:
            return ""
        try:
            return Path(self.authority).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            log.warning("the certificates for external links cannot be read", file=self.authority, error=str(error))
            return ""
