"""Where we answer otherwise than the recorded KubeVirt, and why."""

from __future__ import annotations

from virt_core.apis.support.table import TODAY

#: Subresources that belong to things which are not built yet; they are not found.
NOT_BUILT = {name: feature.what for name, feature in TODAY.subresources.items()}

_NO_AGENT = (409, "no agent is a state of the guest, not an internal error")
_ABSENT = (404, "an absent VMI is not found, whatever is asked of it")
_NO_ATTESTATION = (409, "a guest that asks for no attestation is a state, not an internal error")
_SEV_READS = ("sev/fetchcertchain", "sev/querylaunchmeasurement")
_NO_UPGRADE = (400, "a request without an upgrade is refused before the guest's port is dialled")

#: (state, subresource, body) → (our code, reason)
DEVIATIONS: dict[tuple[str, str, str], tuple[int, str]] = {
    **{(state, sub, "null"): _NO_AGENT for state in ("running", "paused") for sub in ("guestosinfo", "userlist")},
    **{(state, "filesystemlist", "null"): _NO_AGENT for state in ("running", "paused")},
    **{("absent", sub, "null"): _ABSENT for sub in ("guestosinfo", "userlist", "filesystemlist", "vnc/screenshot")},
    **{(state, sub, "null"): _NO_ATTESTATION for state in ("running", "paused") for sub in _SEV_READS},
    **{("absent", sub, "null"): _ABSENT for sub in _SEV_READS},
    ("running", "portforward/22", "null"): _NO_UPGRADE,
    ("always", "portforward/22", "null"): _NO_UPGRADE,
    **{
        (state, "freeze", "{}"): (400, "a missing unfreezeTimeout is the caller's mistake, not an internal error")
        for state in ("running", "paused")
    },
    **{(state, "unfreeze", "null"): _NO_AGENT for state in ("running", "paused")},
    ("manual, running", "stop", '{"gracePeriod": -1}'): (400, "a negative grace period means nothing"),
}
