"""How this machine reaches package mirrors, handed to a build without a trace in the image.

A build runs apt and pip in a root of its own, which knows nothing of a proxy, an index or an authority that the machine
has been told of. They go in as build secrets: files that are there while a command runs and in no layer.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: Where the Dockerfiles see the authorities.
CA_INSIDE = "/run/secrets/ca.crt"
#: What is about the way to the packages; nothing that is about where or what to install.
PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "retries", "timeout")
APT_LINES = re.compile(
    r'^Acquire::(?:(?:http|https|ftp)(?:::[\w.-]+)*::Proxy\b|Check-Valid-Until|Retries|Force).* ".*";$'
)
CA_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
CA_DEFAULTS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def write_secrets(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The secrets by their name in the Dockerfiles."""
    texts = {"pip.conf": pip_conf(pip_settings(environ)), "apt.conf": apt_conf(apt_dump())}
    authorities = find_authorities(environ)
    if authorities is not None:
        texts["ca.crt"] = authorities.read_text()
        texts["apt.conf"] += f'Acquire::https::CaInfo "{CA_INSIDE}";\n'
        texts["pip.conf"] += f"cert = {CA_INSIDE}\n"
    for name, text in texts.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)
    return {name: folder / name for name in texts}


def find_authorities(environ: Mapping[str, str]) -> Path | None:
    named = [environ[name] for name in CA_VARIABLES if environ.get(name)]
    return next((Path(path) for path in (*named, *CA_DEFAULTS) if os.path.isfile(path)), None)


def pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """As pip reads them: the machine's file, the user's, the named one, the environment; the last one wins."""
    home = Path(environ.get("HOME") or "/")
    config_home = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", config_home / "pip/pip.conf"]
    files += [Path(environ["PIP_CONFIG_FILE"])] if environ.get("PIP_CONFIG_FILE") else []
    parser = configparser.RawConfigParser()
    parser.read(path for path in files if path.is_file())
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {key: value for key, value in parser.items(section) if key in PIP_KEYS}
    for key in PIP_KEYS:
        for variable in (f"PIP_DEFAULT_{_upper(key)}", f"PIP_{_upper(key)}"):
            if environ.get(variable):
                found[key] = environ[variable]
    return found


def _upper(key: str) -> str:
    return key.upper().replace("-", "_")


def pip_conf(settings: Mapping[str, str]) -> str:
    # A list is a value of several lines, which an ini file wants indented.
    lines = (f"{key} = " + "\n    ".join(value.split("\n")) for key, value in settings.items())
    return "\n".join(("[global]", *lines)) + "\n"


def apt_conf(dump: str) -> str:
    return "".join(f"{line}\n" for line in dump.splitlines() if APT_LINES.match(line))


def apt_dump() -> str:
    try:
        done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout
