"""Runs the webhooks of a write: the mutating ones in order, then, at the end, the validating ones at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from virt_core.runtime.logs import get_logger
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object
from virt_local.apiserver.security.objects import Kept, Source
from virt_local.apiserver.security.webhooks.client import CallFailed, WebhookClient
from virt_local.apiserver.security.webhooks.conditions import ConditionFailed, concerned
from virt_local.apiserver.security.webhooks.match import EXEMPT_GROUP, Webhook, matching_version
from virt_local.apiserver.security.webhooks.review import (
    BadAnswer,
    Verdict,
    denial,
    in_version,
    make_question,
    make_review,
    read_answer,
)

log = get_logger("virt-local.apiserver.webhooks")

ApplyPatch = Callable[[Object, list[Object]], Object]


class PatchFailed(Exception):
    """The webhook's JSON patch does not fit the object."""


class Webhooks:
    def __init__(self, source: Source, client: WebhookClient, apply_patch: ApplyPatch) -> None:
        self._mutating = Kept(source, f"mutatingwebhookconfigurations.{EXEMPT_GROUP}")
        self._validating = Kept(source, f"validatingwebhookconfigurations.{EXEMPT_GROUP}")
        self._namespaces = Kept(source, "namespaces")
        self._client = client
        self._apply_patch = apply_patch

    async def mutate(self, request: AdmissionRequest) -> None:
        webhooks = _entries(self._mutating, mutating=True)
        if not webhooks:
            return
        changed_after: set[int] = set()
        seen: list[int] = []
        for index, webhook in enumerate(webhooks):
            if await self._mutate_by(webhook, request):
                changed_after |= set(seen)
            seen.append(index)
        for index in sorted(changed_after):
            if webhooks[index].reinvoked:
                await self._mutate_by(webhooks[index], request)

    async def validate(self, request: AdmissionRequest) -> None:
        webhooks = _entries(self._validating, mutating=False)
        calls = [self._validate_by(webhook, request) for webhook in webhooks]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _validate_by(self, webhook: Webhook, request: AdmissionRequest) -> None:
        await self._ask(webhook, request)

    async def _mutate_by(self, webhook: Webhook, request: AdmissionRequest) -> bool:
        """True when the object changed."""
        asked = await self._ask(webhook, request)
        if asked is None or not asked[0].patch or request.object is None:
            return False
        verdict, version = asked
        own_version = request.object.get("apiVersion")
        seen = in_version(request.object, request.group, version) or {}
        try:
            patched = self._apply_patch(seen, verdict.patch)
        except PatchFailed as err:
            # The webhook did answer: its failurePolicy does not excuse an answer that makes no sense.
            failure = errors.internal(str(err))
            failure.causes = [errors.Cause("", str(err), "")]
            raise failure from None
        if own_version is not None:
            patched = {**patched, "apiVersion": own_version}
        changed = patched != request.object
        request.object = patched
        return changed

    async def _ask(self, webhook: Webhook, request: AdmissionRequest) -> tuple[Verdict, str] | None:
        """The verdict and the version it speaks of; None when the webhook was not concerned or may be ignored."""
        version = matching_version(webhook, request, self._namespace_labels(request))
        if not version:
            return None
        question = make_question(request, version)
        if not self._concerns(webhook, request, question):
            return None
        if request.dry_run and not webhook.supports_dry_run:
            raise errors.bad_request(f'admission webhook "{webhook.name}" does not support dry run')
        try:
            verdict = read_answer(question["uid"], await self._client.call(webhook, make_review(question)))
        except (CallFailed, BadAnswer) as err:
            self._failed(webhook, str(err))
            return None
        request.warnings += verdict.warnings
        if not verdict.allowed:
            raise denial(webhook, verdict.status)
        return verdict, version

    def _concerns(self, webhook: Webhook, request: AdmissionRequest, question: Object) -> bool:
        try:
            return concerned(webhook.spec.get("matchConditions") or [], question)
        except ConditionFailed as error:
            if webhook.ignores_failure:
                log.warning("a match condition failed and its failurePolicy says Ignore", error=str(error))
                return False
            raise errors.forbidden(request.resource, request.group, request.name, str(error)) from None

    def _failed(self, webhook: Webhook, why: str) -> None:
        if webhook.ignores_failure:
            log.warning("a webhook failed and its failurePolicy says Ignore", webhook=webhook.name, error=why)
            return
        text = f'failed calling webhook "{webhook.name}": failed to call webhook: {why}'
        failure = errors.internal(text)
        failure.causes = [errors.Cause("", text, "")]
        raise failure

    def _namespace_labels(self, request: AdmissionRequest) -> dict[str, str] | None:
        if not request.namespace:
            return None
        namespace = self._namespaces.get("", request.namespace)
        labels: dict[str, str] = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        return labels


def _entries(kept: Kept, *, mutating: bool) -> list[Webhook]:
    return [
        Webhook(configuration["metadata"]["name"], spec, mutating)
        for configuration in kept.all()
        for spec in configuration.get("webhooks") or ()
    ]
