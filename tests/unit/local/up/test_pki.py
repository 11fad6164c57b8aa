"""Certificates: one role each, kept while they fit, private keys for their owner only."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509

from virt_local.up import pki
from virt_local.up.instance import make_instance
from virt_local.up.kubeconfig import Credentials, write_kubeconfig
from virt_local.up.material import make_material
from virt_local.up.pki import CLIENT, SERVER, Leaf


def names_of(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def usage_of(path: Path) -> list[x509.ObjectIdentifier]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


@pytest.fixture
def authority(tmp_path: Path) -> pki.Authority:
    return pki.ensure_authority(tmp_path, "ca", "test CA")


def test_an_authority_is_made_once(tmp_path: Path, authority: pki.Authority) -> None:
    assert pki.ensure_authority(tmp_path, "ca", "test CA").pem == authority.pem


def test_a_fitting_certificate_is_kept(tmp_path: Path, authority: pki.Authority) -> None:
    cert, key = tmp_path / "a.crt", tmp_path / "a.key"
    pki.ensure_leaf(authority, cert, key, Leaf("a", names=("localhost", "127.0.0.1")))
    before = cert.read_bytes()
    pki.ensure_leaf(authority, cert, key, Leaf("a", names=("localhost", "127.0.0.1")))
    assert cert.read_bytes() == before


@pytest.mark.parametrize("change", ["names", "subject", "authority", "key"])
def test_a_certificate_that_does_not_fit_is_replaced(tmp_path: Path, authority: pki.Authority, change: str) -> None:
    cert, key = tmp_path / "a.crt", tmp_path / "a.key"
    pki.ensure_leaf(authority, cert, key, Leaf("a", names=("x",)))
    before, leaf = cert.read_bytes(), Leaf("a", names=("x",))
    if change == "names":
        leaf = Leaf("a", names=("x", "y"))
    elif change == "subject":
        leaf = Leaf("a", ("system:masters",), ("x",))
    elif change == "authority":
        authority = pki.ensure_authority(tmp_path / "other", "ca", "test CA")
    else:
        key.write_bytes(b"broken")
    pki.ensure_leaf(authority, cert, key, leaf)
    assert cert.read_bytes() != before


def test_private_keys_are_private(tmp_path: Path, authority: pki.Authority) -> None:
    directory = pki.ensure_tls_dir(tmp_path / "tls", authority, Leaf("a"))
    assert stat.S_IMODE((directory / "tls.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


def test_each_component_has_one_role(tmp_path: Path) -> None:
    """CVE-2025-64434: one identity for all let a handler's certificate pass for virt-api's."""
    instance = make_instance("t", str(tmp_path), nodes=2)
    material = make_material(instance)
    tls = instance.tls_dir
    assert names_of(tls / "virt-api" / "tls.crt") == ["virt-api.virtpod.internal"]
    assert usage_of(tls / "virt-api" / "tls.crt") == [CLIENT]
    for node in ("node1", "node2"):
        assert names_of(tls / f"virt-handler-{node}" / "tls.crt") == [f"{node}.virt-handler.virtpod.internal"]
        assert usage_of(tls / f"virt-handler-{node}" / "tls.crt") == [SERVER, CLIENT]
    assert names_of(tls / "virt-api-serving" / "tls.crt") == ["virt-api.virtpod.svc", "localhost", "127.0.0.1"]
    assert len({material.cluster_ca.pem, material.front_proxy_ca.pem, material.virtpod_ca.pem}) == 3


def test_kubeconfigs(tmp_path: Path, authority: pki.Authority) -> None:
    pki.ensure_leaf(authority, tmp_path / "u.crt", tmp_path / "u.key", Leaf("u"))
    by_cert = Credentials(cert=tmp_path / "u.crt", key=tmp_path / "u.key")
    path = write_kubeconfig(tmp_path / "k", server="https://x", ca_pem=b"ca", user="u", credentials=by_cert)
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://x"
    assert "client-key-data" in config["users"][0]["user"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="credentials need"):
        Credentials().to_plain()
