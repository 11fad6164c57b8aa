"""A container's environment and command line, with references resolved and $(VAR) expanded."""

from __future__ import annotations

import base64
import re
from typing import Protocol

from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.pods import Container, EnvFromSource, EnvVar, EnvVarSource, Pod
from virt_local.node.images.layout import RunConfig
from virt_local.node.oci.context import ContainerConfigError
from virt_local.node.oci.downward import DownwardFacts, pod_field, resource_field

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class ConfigSource(Protocol):
    """Where ConfigMaps and Secrets come from; None when there is none of that name."""

    def config_map(self, namespace: str, name: str) -> ConfigMap | None: ...

    def secret(self, namespace: str, name: str) -> Secret | None: ...


def expand(text: str, variables: dict[str, str]) -> str:
    """`$(NAME)` → its value, `$$` → `$`; an unknown name stays as it is."""

    def replace(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return variables.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replace, text)


def command_line(container: Container, config: RunConfig, env: dict[str, str]) -> list[str]:
    """A command of the Pod replaces the image's entrypoint and its default arguments."""
    if container.command:
        args = [*container.command, *container.args]
    else:
        args = [*(config.entrypoint or []), *(container.args or config.cmd or [])]
    if not args:
        raise ContainerConfigError(f"neither container {container.name!r} nor its image names a command")
    return [expand(arg, env) for arg in args]


def environment(
    pod: Pod, container: Container, config: RunConfig, facts: DownwardFacts, source: ConfigSource
) -> dict[str, str]:
    """In the order of precedence: image, hostname, envFrom, env."""
    env = {"PATH": DEFAULT_PATH}
    for line in config.env or []:
        name, _, value = line.partition("=")
        env[name] = value
    env["HOSTNAME"] = facts.hostname
    for group in container.env_from:
        env.update(_env_from(pod, group, source))
    for variable in container.env:
        found = _value(pod, container, variable, env, facts=facts, source=source)
        if found is not None:
            env[variable.name] = found
    return env


def _value(
    pod: Pod,
    container: Container,
    variable: EnvVar,
    env: dict[str, str],
    *,
    facts: DownwardFacts,
    source: ConfigSource,
) -> str | None:
    origin = variable.value_from
    if origin is None:
        return expand(variable.value, env)
    if origin.field_ref is not None:
        return pod_field(pod, origin.field_ref.field_path, facts)
    if origin.resource_field_ref is not None:
        return resource_field(pod, container, origin.resource_field_ref, facts)
    return _referenced(pod, origin, source)


def _referenced(pod: Pod, origin: EnvVarSource, source: ConfigSource) -> str | None:
    namespace = pod.metadata.namespace
    if (selector := origin.config_map_key_ref) is not None:
        found = source.config_map(namespace, selector.name)
        if found is not None and selector.key in found.data:
            return found.data[selector.key]
        _absent(f"ConfigMap {namespace}/{selector.name} with the key {selector.key!r}", selector.optional)
    if (chosen := origin.secret_key_ref) is not None:
        secret = source.secret(namespace, chosen.name)
        if secret is not None and chosen.key in secret.data:
            return base64.b64decode(secret.data[chosen.key]).decode(errors="replace")
        _absent(f"Secret {namespace}/{chosen.name} with the key {chosen.key!r}", chosen.optional)
    return None


def _absent(what: str, optional: bool | None) -> None:
    if not optional:
        raise ContainerConfigError(f"there is no {what}")


def _env_from(pod: Pod, group: EnvFromSource, source: ConfigSource) -> dict[str, str]:
    data: dict[str, str] = {}
    namespace = pod.metadata.namespace
    if (reference := group.config_map_ref) is not None:
        found = source.config_map(namespace, reference.name)
        if found is None:
            _absent(f"ConfigMap {namespace}/{reference.name}", reference.optional)
        else:
            data = dict(found.data)
    elif (chosen := group.secret_ref) is not None:
        secret = source.secret(namespace, chosen.name)
        if secret is None:
            _absent(f"Secret {namespace}/{chosen.name}", chosen.optional)
        else:
            data = {key: base64.b64decode(value).decode(errors="replace") for key, value in secret.data.items()}
    return {group.prefix + key: value for key, value in data.items() if _NAME.fullmatch(group.prefix + key)}
