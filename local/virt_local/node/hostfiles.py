"""The files of /etc that a Pod gets from its node: hosts, hostname, resolv.conf. Text in, text out."""

from __future__ import annotations

from pathlib import Path

from virt_core.apis.pods import Pod

#: Where the real name servers are when the first file only names the local stub.
_UPSTREAM = Path("/run/systemd/resolve/resolv.conf")
_HOSTNAME_MAX = 63


def hostname_of(pod: Pod) -> str:
    return (pod.spec.hostname or pod.metadata.name)[:_HOSTNAME_MAX].rstrip("-.")


def hosts_file(pod: Pod, hostname: str, ips: list[str]) -> str:
    lines = [
        "# Written by virt-local.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "ff02::1\tip6-allnodes",
        "ff02::2\tip6-allrouters",
    ]
    names = hostname
    if pod.spec.subdomain:
        names = f"{hostname}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.cluster.local\t{hostname}"
    lines += [f"{ip}\t{names}" for ip in ips]
    lines += [f"{alias.ip}\t" + "\t".join(alias.hostnames) for alias in pod.spec.host_aliases]
    return "\n".join(lines) + "\n"


def resolv_conf(pod: Pod, host_file: Path) -> str:
    """The host's servers (there is no cluster DNS on one machine), then what the Pod adds; `None` takes only that."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    if pod.spec.dns_policy != "None":
        servers, searches, options = _parse(_host_text(host_file))
    if (extra := pod.spec.dns_config) is not None:
        servers = [*extra.nameservers, *servers]
        searches = [*searches, *extra.searches]
        options = [*options, *(f"{o.name}:{o.value}" if o.value else o.name for o in extra.options)]
    lines = [f"nameserver {server}" for server in dict.fromkeys(servers)]
    if searches:
        lines.insert(0, "search " + " ".join(dict.fromkeys(searches)))
    if options:
        lines.append("options " + " ".join(dict.fromkeys(options)))
    return "\n".join(lines) + "\n"


def _host_text(path: Path) -> str:
    """A stub that listens on the host's loopback cannot be reached from a Pod."""
    text = path.read_text() if path.exists() else ""
    if "127.0.0.53" in text and _UPSTREAM.exists():
        return _UPSTREAM.read_text()
    return text


def _parse(text: str) -> tuple[list[str], list[str], list[str]]:
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if len(words) < 2:
            continue
        if words[0] == "nameserver" and not words[1].startswith(("127.", "::1")):
            servers.append(words[1])
        elif words[0] in ("search", "domain"):
            searches = words[1:]
        elif words[0] == "options":
            options += words[1:]
    return servers, searches, options
