"""A request in the words of authorization, and the refusal in the words of the client."""

from __future__ import annotations

from collections.abc import Mapping

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Attributes, User
from virt_local.apiserver.request import Target
from virt_local.apiserver.selectors import single_name


def attributes_of(target: Target, query: Mapping[str, str]) -> Attributes:
    """A list or a watch of one object by its name asks about that object."""
    name = target.name
    if not name and target.verb in ("list", "watch"):
        name = single_name(query.get("fieldSelector", ""))
    return Attributes(
        verb=target.verb,
        path=target.path,
        is_resource=bool(target.resource),
        group=target.group,
        version=target.version,
        resource=target.resource,
        subresource=target.right,
        namespace=target.namespace,
        name=name,
    )


def refusal(user: User, asked: Attributes, reason: str = "") -> errors.ApiError:
    if not asked.is_resource:
        text = f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
        return errors.ApiError(403, "Forbidden", text, bare=True)
    what = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
    why = f'User "{user.name}" cannot {asked.verb} resource "{what}" in API group "{asked.group}"{where}'
    if reason:
        why += f": {reason}"
    full = errors.qualified(asked.resource, asked.group)
    quoted = f'{full} "{asked.name}"' if asked.name else full
    text = f"{quoted} is forbidden: {why}"
    return errors.ApiError(403, "Forbidden", text, name=asked.name, group=asked.group, kind=asked.resource)
