"""Addresses and ports of Services: given, kept, refused and given back; and what is wrong with a Service."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from virt_local.apiserver.addresses import parse_ranges
from virt_local.apiserver.errors import ApiError
from virt_local.apiserver.server import Server

from .conftest import Client

PLACE = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"
RANGES = ["10.9.224.0/20", "fd00:9::/112"]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    counter = itertools.count()

    def call(scenario: Any, ranges: list[str] | None = None) -> None:
        async def main() -> None:
            path = tmp_path / f"{next(counter)}.db"
            server = Server.open(path, ranges=parse_ranges(RANGES if ranges is None else ranges))
            await server.start()
            try:
                await scenario(Client(server))
            finally:
                await server.close()

        asyncio.run(main())

    return call


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}], **spec},
    }


async def made(client: Client, name: str, **spec: Any) -> dict[str, Any]:
    return dict((await client.send("POST", PLACE, service(name, **spec)))["spec"])


async def refused(client: Client, **spec: Any) -> str:
    with pytest.raises(ApiError) as error:
        await client.send("POST", PLACE, service("bad", **spec))
    assert error.value.code == 422
    return error.value.message


def test_each_has_its_own_address_and_ports(run: Any) -> None:
    async def scenario(client: Client) -> None:
        found = await asyncio.gather(*(made(client, f"s{index}", type="NodePort") for index in range(40)))
        assert len({spec["clusterIP"] for spec in found}) == 40
        assert len({spec["ports"][0]["nodePort"] for spec in found}) == 40
        assert all(spec["clusterIPs"] == [spec["clusterIP"]] for spec in found)
        assert all(30000 <= spec["ports"][0]["nodePort"] <= 32767 for spec in found)

    run(scenario)


def test_headless_and_plain_ones_take_nothing(run: Any) -> None:
    async def scenario(client: Client) -> None:
        bare = await made(client, "bare", clusterIP="None", selector={"a": "b"})
        assert (bare["clusterIP"], bare["clusterIPs"]) == ("None", ["None"])
        assert "nodePort" not in (await made(client, "plain"))["ports"][0]

    run(scenario)


def test_families(run: Any) -> None:
    async def scenario(client: Client) -> None:
        one = await made(client, "one")
        assert (one["ipFamilies"], one["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
        both = await made(client, "both", ipFamilyPolicy="PreferDualStack")
        assert both["ipFamilies"] == ["IPv4", "IPv6"]
        assert [":" in each for each in both["clusterIPs"]] == [False, True]
        six = await made(client, "six", ipFamilies=["IPv6"])
        assert ":" in six["clusterIP"]

    run(scenario)

    async def single(client: Client) -> None:
        assert (await made(client, "soft", ipFamilyPolicy="PreferDualStack"))["ipFamilies"] == ["IPv4"]
        assert "not configured for dual-stack" in await refused(client, ipFamilyPolicy="RequireDualStack")
        assert "spec.ipFamilies[0]" in await refused(client, ipFamilies=["IPv6"])

    run(single, RANGES[:1])


def test_a_chosen_address_is_given_unless_it_is_taken_or_elsewhere(run: Any) -> None:
    async def scenario(client: Client) -> None:
        assert (await made(client, "a", clusterIP="10.9.224.7"))["clusterIP"] == "10.9.224.7"
        message = await refused(client, clusterIP="10.9.224.7")
        assert "failed to allocate IP 10.9.224.7: provided IP is already allocated" in message
        message = await refused(client, clusterIP="10.1.1.1")
        assert "The range of valid IPs is 10.9.224.0/20" in message
        assert "must be a valid IP address" in await refused(client, clusterIP="10.9.224.007")
        await client.send("DELETE", f"{PLACE}/a")
        assert (await made(client, "b", clusterIP="10.9.224.7"))["clusterIP"] == "10.9.224.7"

    run(scenario)


def test_a_chosen_port_of_the_machine(run: Any) -> None:
    async def scenario(client: Client) -> None:
        ports = [{"port": 80, "nodePort": 30001}]
        await made(client, "a", type="NodePort", ports=ports)
        assert "provided port is already allocated" in await refused(client, type="NodePort", ports=ports)
        low = [{"port": 80, "nodePort": 22}]
        assert "The range of valid ports is 30000-32767" in await refused(client, type="NodePort", ports=low)
        assert "may not be used when `type` is 'ClusterIP'" in await refused(
            client, ports=[{"port": 80, "nodePort": 30002}]
        )
        shared = [
            {"name": "t", "port": 53, "nodePort": 30053},
            {"name": "u", "port": 53, "nodePort": 30053, "protocol": "UDP"},
        ]
        spec = await made(client, "both", type="NodePort", ports=shared)
        assert [port["nodePort"] for port in spec["ports"]] == [30053, 30053]

    run(scenario)


def test_what_failed_gives_back_what_it_held(run: Any) -> None:
    async def scenario(client: Client) -> None:
        for _ in range(3):
            await refused(client, clusterIP="10.9.224.9", type="NodePort", ports=[{"port": 0, "nodePort": 30009}])
        spec = await made(
            client, "good", clusterIP="10.9.224.9", type="NodePort", ports=[{"port": 1, "nodePort": 30009}]
        )
        assert spec["clusterIP"] == "10.9.224.9"

    run(scenario)


def test_a_full_range_says_so(run: Any) -> None:
    async def scenario(client: Client) -> None:
        for index in range(6):
            await made(client, f"s{index}")
        assert "range 10.9.224.0/29 is full" in await refused(client)

    run(scenario, ["10.9.224.0/29"])


def test_updates_keep_and_give_back(run: Any) -> None:
    async def scenario(client: Client) -> None:
        before = await made(client, "a", type="NodePort")
        after = (await client.send("PUT", f"{PLACE}/a", service("a", type="NodePort")))["spec"]
        assert (after["clusterIP"], after["ports"]) == (before["clusterIP"], before["ports"])
        change = {"spec": {"type": "ClusterIP"}}
        after = (await client.send("PATCH", f"{PLACE}/a", change, content_type=MERGE))["spec"]
        assert "nodePort" not in after["ports"][0]
        assert "externalTrafficPolicy" not in after
        with pytest.raises(ApiError, match="may not change once set"):
            await client.send("PATCH", f"{PLACE}/a", {"spec": {"clusterIP": "10.9.224.3"}}, content_type=MERGE)
        change = {"spec": {"type": "ExternalName", "externalName": "example.org"}}
        after = (await client.send("PATCH", f"{PLACE}/a", change, content_type=MERGE))["spec"]
        assert "clusterIP" not in after
        assert (await made(client, "b", clusterIP=before["clusterIP"]))["clusterIP"] == before["clusterIP"]

    run(scenario)


def test_a_second_family_comes_and_goes(run: Any) -> None:
    async def scenario(client: Client) -> None:
        first = (await made(client, "a"))["clusterIP"]
        dual = {"spec": {"ipFamilyPolicy": "RequireDualStack"}}
        spec = (await client.send("PATCH", f"{PLACE}/a", dual, content_type=MERGE))["spec"]
        assert (spec["clusterIPs"][0], len(spec["clusterIPs"])) == (first, 2)
        single = {"spec": {"ipFamilyPolicy": "SingleStack"}}
        spec = (await client.send("PATCH", f"{PLACE}/a", single, content_type=MERGE))["spec"]
        assert (spec["clusterIPs"], spec["ipFamilies"]) == ([first], ["IPv4"])

    run(scenario)


def test_a_dry_run_holds_nothing(run: Any) -> None:
    async def scenario(client: Client) -> None:
        body = service("dry", clusterIP="10.9.224.5")
        assert (await client.send("POST", PLACE, body, dryRun="All"))["spec"]["clusterIP"] == "10.9.224.5"
        assert (await made(client, "wet", clusterIP="10.9.224.5"))["clusterIP"] == "10.9.224.5"

    run(scenario)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"sessionAffinity": "Sticky"}, "spec.sessionAffinity"),
        ({"internalTrafficPolicy": "Near"}, "spec.internalTrafficPolicy"),
        ({"externalTrafficPolicy": "Local"}, "spec.externalTrafficPolicy"),
        ({"clusterIP": "None", "type": "NodePort"}, "spec.clusterIPs[0]"),
        ({"selector": {"a b": "c"}}, "spec.selector"),
        ({"ports": [{"port": 80, "targetPort": "no_name"}]}, "spec.ports[0].targetPort"),
        ({"ports": [{"port": 80, "name": "No"}]}, "spec.ports[0].name"),
        ({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}, "spec.ports[1].name"),
    ],
)
def test_what_is_wrong_is_named(run: Any, spec: dict[str, Any], field: str) -> None:
    async def scenario(client: Client) -> None:
        assert field in await refused(client, **spec)

    run(scenario)


def test_affinity_gets_its_default(run: Any) -> None:
    async def scenario(client: Client) -> None:
        spec = await made(client, "a", sessionAffinity="ClientIP")
        assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}

    run(scenario)


def test_what_was_given_is_known_after_a_restart(tmp_path: Path) -> None:
    async def once(body: dict[str, Any]) -> dict[str, Any]:
        server = Server.open(tmp_path / "state.db", ranges=parse_ranges(RANGES))
        await server.start()
        try:
            return dict((await Client(server).send("POST", PLACE, body))["spec"])
        finally:
            await server.close()

    spec = asyncio.run(once(service("before", type="NodePort")))
    with pytest.raises(ApiError, match="already allocated"):
        asyncio.run(once(service("after", clusterIP=spec["clusterIP"])))
    number = spec["ports"][0]["nodePort"]
    with pytest.raises(ApiError, match="already allocated"):
        asyncio.run(once(service("after", type="NodePort", ports=[{"port": 80, "nodePort": number}])))
