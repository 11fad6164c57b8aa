"""Whom virt-api believes, as the cluster describes it, while that changes."""

from __future__ import annotations

from typing import Any

import pytest
from framework.fake_kube import fake_kube
from framework.waiting import eventually, running
from multidict import CIMultiDict, CIMultiDictProxy

from virt_api.authn import from_headers
from virt_api.frontproxy import FrontProxy, FrontProxyWatcher, from_config_map
from virt_core.apis.config import ConfigMap

PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
DATA = {
    "client-ca-file": "not this one",
    "requestheader-client-ca-file": "CA",
    "requestheader-allowed-names": '["front-proxy-client", "other"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


def certificate(name: str) -> dict[str, Any]:
    return {"subject": ((("commonName", name),),)}


@pytest.mark.parametrize(
    ("proxy", "shown", "believed"),
    [
        (FrontProxy(b"ca", frozenset({"a"})), certificate("a"), True),
        (FrontProxy(b"ca", frozenset({"a"})), certificate("b"), False),
        (FrontProxy(b"ca", frozenset({"a"})), None, False),
        (FrontProxy(b"ca", frozenset({"a"})), {}, False),
        (FrontProxy(b"ca"), certificate("anybody"), True),  # The cluster names nobody: any of that CA's.
        (FrontProxy(b"ca"), None, False),
        (FrontProxy(), certificate("a"), False),  # Without a CA nothing has been verified.
        (FrontProxy(names=frozenset({"a"})), certificate("a"), False),
    ],
)
def test_who_is_believed(proxy: FrontProxy, shown: Any, believed: bool) -> None:
    assert proxy.trusts(shown) is believed


def test_the_clusters_own_words() -> None:
    found = from_config_map(ConfigMap(data=DATA))
    assert found == FrontProxy(b"CA", frozenset({"front-proxy-client", "other"}))
    assert from_config_map(ConfigMap()) == FrontProxy()


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '"x"'])
def test_a_list_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="requestheader-allowed-names is not a JSON list"):
        from_config_map(ConfigMap(data={**DATA, "requestheader-allowed-names": text}))


def test_other_headers_than_the_usual_ones() -> None:
    proxy = FrontProxy(
        b"ca",
        user_headers=("X-A", "X-B"),
        uid_headers=("X-Id",),
        group_headers=("X-G", "X-H"),
        extra_prefixes=("X-E-",),
    )
    headers = [("X-B", "bob"), ("X-Id", "7"), ("X-G", "g"), ("X-H", "h"), ("x-e-Scope", "s"), ("X-Remote-User", "eve")]
    who = from_headers(CIMultiDictProxy(CIMultiDict(headers)), proxy)
    assert (who.user, who.uid, who.groups, who.extra) == ("bob", "7", ("g", "h"), {"scope": ["s"]})


def test_it_follows_the_config_map() -> None:
    seen: list[bytes] = []
    with fake_kube() as kube:
        watcher = FrontProxyWatcher(kube.client(), lambda found: seen.append(found.ca))
        assert watcher.ready() == "ConfigMap kube-system/extension-apiserver-authentication has not been read yet"
        with running(watcher.run):
            eventually(lambda: watcher.ready() is None)
            assert watcher.current() == FrontProxy()
            kube.put(PATH, {"data": DATA})
            eventually(lambda: watcher.current().ca == b"CA")
            kube.put(PATH, {"data": {**DATA, "requestheader-client-ca-file": "NEW"}})
            eventually(lambda: watcher.current().ca == b"NEW")
            kube.put(PATH, {"data": {**DATA, "requestheader-allowed-names": "garbage"}})
            kube.put(PATH, {"data": {**DATA, "requestheader-client-ca-file": "NEWER"}})
            eventually(lambda: watcher.current().ca == b"NEWER")
            kube.remove(PATH)
            eventually(lambda: watcher.current() == FrontProxy())
    assert seen == [b"CA", b"NEW", b"NEWER", b""]
