"""Calls to launchers that do not answer: a machine and a tenant hold so many threads, and no more."""

from __future__ import annotations

from contextlib import ExitStack

import grpc
import pytest

from virt_core.rpc.status import RpcFailure
from virt_handler.service.turnstile import Turnstile


def test_one_machine_and_one_tenant_leave_room_for_others() -> None:
    turnstile = Turnstile(per_vmi=2, per_namespace=3)
    with ExitStack() as stack:
        for vmi in ("a", "a", "b"):
            stack.enter_context(turnstile.through("tenant", vmi))
        for vmi in ("a", "b"):
            with pytest.raises(RpcFailure) as refused, turnstile.through("tenant", vmi):
                pass
            assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        with turnstile.through("another", "c"):
            pass
    with turnstile.through("tenant", "a"), turnstile.through("tenant", "a"):
        pass
