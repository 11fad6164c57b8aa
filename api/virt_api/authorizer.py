"""May they? Every subresource is asked for by exactly its own path; whatever is not allowed is refused."""

from __future__ import annotations

from virt_api.authn import Identity
from virt_api.kube import Kube
from virt_api.problems import Problem
from virt_core.apis.auth import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from virt_core.apis.names import SUBRESOURCE_GROUP
from virt_core.kube.errors import ApiError

_VERBS = {"GET": "get", "PUT": "update", "POST": "create", "DELETE": "delete", "PATCH": "patch"}


class Authorizer:
    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def require(
        self,
        who: Identity,
        *,
        method: str,
        version: str,
        namespace: str,
        resource: str,
        name: str,
        subresource: str,
        group: str = SUBRESOURCE_GROUP,
    ) -> None:
        """Raises Problem 403."""
        wanted = ResourceAttributes(
            namespace=namespace,
            verb=_VERBS.get(method, method.lower()),
            group=group,
            version=version,
            resource=resource,
            subresource=subresource,
            name=name,
        )
        if not await self._allowed(who, wanted):
            asked = f"{resource}/{subresource}" if subresource else resource
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            raise Problem(
                403,
                f'{resource}.{group} "{name}" is forbidden: user "{who.user}" cannot {wanted.verb} '
                f'resource "{asked}" {where}',
            )

    async def _allowed(self, who: Identity, wanted: ResourceAttributes) -> bool:
        spec = SubjectAccessReviewSpec(
            resource_attributes=wanted, user=who.user, uid=who.uid, groups=list(who.groups), extra=dict(who.extra)
        )
        try:
            review = await self._kube.review_access(SubjectAccessReview(spec=spec))
        except ApiError as error:
            raise Problem(500, f"the access cannot be checked: {error}") from error
        return review.status.allowed and not review.status.denied
