"""cert-manager makes the serving certificate: as virt-controller would, and nothing of it is left to that."""

from __future__ import annotations

from framework.chart import all_of, args, one, rendered

from virt_controller.certificates.roles import roles
from virt_controller.certificates.targets import TARGETS
from virt_core.apis import names
from virt_core.runtime.x509 import CLIENT, SERVER

VALUES, NAMESPACE = "certificates: {provider: cert-manager}\ndataVolumes: {enabled: true}", "elsewhere"
USAGES = {SERVER: "server auth", CLIENT: "client auth"}


def test_the_certificate_is_the_one_that_virt_controller_would_make() -> None:
    secret = names.CERTS_API_SERVING
    leaf = roles(NAMESPACE)[secret]
    spec = one("Certificate", secret, VALUES, NAMESPACE)["spec"]
    assert (spec["secretName"], spec["dnsNames"]) == (secret, list(leaf.names))
    assert set(spec["usages"]) & set(USAGES.values()) == {USAGES[usage] for usage in leaf.usage}
    assert spec["issuerRef"] == {"name": "virtpod-ca", "kind": "Issuer", "group": "cert-manager.io"}


def test_everybody_who_calls_virt_api_gets_the_ca() -> None:
    for target in TARGETS:
        annotations = one(target.cls.__name__, target.name, VALUES, NAMESPACE)["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{names.CERTS_API_SERVING}"}


def test_a_new_ca_has_the_old_key() -> None:
    """cert-manager knows no time with two CAs: with another key each side would refuse the other for a while."""
    assert one("Certificate", "virtpod-ca", VALUES)["spec"]["privateKey"]["rotationPolicy"] == "Never"
    serving = one("Certificate", names.CERTS_API_SERVING, VALUES)
    assert serving["spec"]["privateKey"]["rotationPolicy"] == "Always"


def test_virt_controller_has_no_hand_in_it() -> None:
    """What our own programs show one another stays its own: cert-manager cannot tell one node from another."""
    assert "--certificates=external" in args("virt-controller", VALUES)
    for kind in ("Role", "ClusterRole"):
        # An empty role is changed early in an upgrade; an absent one would be removed last.
        assert one(kind, "virtpod:certificates:serving", VALUES)["rules"] == []
        assert one(kind, "virtpod:certificates:serving")["rules"]
        rules = (
            one(kind, "virtpod:virt-controller", VALUES)["rules"] + one(kind, "virtpod:certificates", VALUES)["rules"]
        )
        assert rules[-1:] == one(kind, "virtpod:certificates")["rules"][-1:]
        touched = {name for rule in rules for name in rule.get("resourceNames", ())}
        assert not touched & {names.CERTS_API_SERVING, *(target.name for target in TARGETS)}


def test_the_two_makers_of_certificates_share_no_ca() -> None:
    secret = one("Certificate", "virtpod-ca", VALUES)["spec"]["secretName"]
    assert secret != names.CERTS_CA
    assert one("Issuer", "virtpod-ca", VALUES)["spec"] == {"ca": {"secretName": secret}}


def test_an_issuer_of_the_user_is_the_only_one() -> None:
    reference = "{name: company, kind: ClusterIssuer, group: cert-manager.io}"
    values = f"certificates: {{provider: cert-manager, certManager: {{issuerRef: {reference}}}}}"
    assert all_of("Issuer", values) == []
    assert {each["spec"]["issuerRef"]["name"] for each in all_of("Certificate", values)} == {"company"}
    assert [each["metadata"]["name"] for each in all_of("Certificate", values)] == [names.CERTS_API_SERVING]


def test_builtin_needs_no_cert_manager() -> None:
    assert not [o for o in rendered() if o["apiVersion"].startswith("cert-manager.io")]
