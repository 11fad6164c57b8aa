"""Volumes in use stay: claims while a Pod uses them, volumes while they are bound."""

from __future__ import annotations

import asyncio
from typing import Any

from virt_local.apiserver.errors import ApiError
from virt_local.apiserver.protection import VolumeProtection

from .conftest import Client

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}


def _pod(claim: str) -> dict[str, Any]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}}


async def _gone(client: Client, path: str) -> bool:
    """Lets the task run until there is nothing left for it to do."""
    for _ in range(50):
        await asyncio.sleep(0)
    try:
        await client.send("GET", path)
    except ApiError as error:
        return error.code == 404
    return False


def test_a_claim_stays_while_a_pod_uses_it(run: Any) -> None:
    async def scenario(client: Client) -> None:
        protection = VolumeProtection(client.server)
        protection.attach()
        task = asyncio.create_task(protection.run())
        await client.send("POST", CLAIMS, {"metadata": {"name": "used"}, "spec": CLAIM})
        await client.send("POST", CLAIMS, {"metadata": {"name": "free"}, "spec": CLAIM})
        await client.send("POST", PODS, _pod("used"))
        held = await client.send("DELETE", f"{CLAIMS}/used")
        assert held["metadata"]["deletionTimestamp"]
        await client.send("DELETE", f"{CLAIMS}/free")
        deadline = asyncio.get_running_loop().time() + 5
        while not await _gone(client, f"{CLAIMS}/free"):
            assert asyncio.get_running_loop().time() < deadline
        assert not await _gone(client, f"{CLAIMS}/used")
        await client.send("DELETE", f"{PODS}/p")
        while not await _gone(client, f"{CLAIMS}/used"):
            assert asyncio.get_running_loop().time() < deadline
        task.cancel()

    run(scenario)
