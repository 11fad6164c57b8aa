"""Which launchers of this node have a session, and how they come by it and lose it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from virt_core.apis.facts import grace_seconds
from virt_core.apis.podroles import PodRole, Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.store import key_of
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.steps import due_here
from virt_handler.loop.records import GhostRecord, RecordStore
from virt_handler.loop.sessions import Session
from virt_handler.pods.contacts import Contacts
from virt_handler.pods.network import NetworkWiring

log = get_logger(__name__)


class Sessions:
    """By the Pod's UID. A VMI can have several (a move within the node, a Pod that is still ending), and so can a key:
    a VMI that was deleted and made again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_pod: dict[str, Session] = {}

    def get(self, pod_uid: str) -> Session | None:
        with self._lock:
            return self._by_pod.get(pod_uid)

    def add(self, session: Session) -> None:
        with self._lock:
            self._by_pod[session.pod_uid] = session

    def remove(self, pod_uid: str) -> Session | None:
        with self._lock:
            return self._by_pod.pop(pod_uid, None)

    def of_vmi(self, vmi_uid: str) -> list[Session]:
        return [session for session in self if session.vmi_uid == vmi_uid]

    def of_key(self, key: str) -> list[Session]:
        return [session for session in self if session.key == key]

    def active(self, vmi_uid: str) -> Session | None:
        """The one that speaks for the VMI, if it is here."""
        return next((session for session in self.of_vmi(vmi_uid) if session.role is Role.ACTIVE), None)

    def __iter__(self) -> Iterator[Session]:
        with self._lock:
            return iter(list(self._by_pod.values()))


@dataclass(frozen=True, slots=True)
class Roster:
    """Opens and closes sessions, with all that is kept about each."""

    node_name: str
    clock: Clock
    sessions: Sessions
    ghosts: RecordStore[GhostRecord]
    contacts: Contacts
    network: NetworkWiring
    #: Pods whose launchers have ended while their VMIs still record them, by the VMI's key.
    _over: dict[str, set[str]] = field(default_factory=dict)

    def restore(self) -> list[str]:
        """Takes up what a former process of ours left; returns the keys of its VMIs."""
        self.ghosts.take_over()
        records = list(self.ghosts.all())
        self.network.take_over(records)
        for record in records:
            self._add(record)
        return [record.key for record in records]

    def _open(self, vmi: VirtualMachineInstance) -> None:
        """A session for each launcher of the VMI that is due here. The record comes before the first contact."""
        meta = vmi.metadata
        for pod in due_here(vmi, self.node_name):
            if self.sessions.get(pod.uid) is not None or self._has_ended(vmi, pod):
                continue
            record = GhostRecord(
                vmi_uid=meta.uid,
                namespace=meta.namespace,
                name=meta.name,
                pod_uid=pod.uid,
                grace_seconds=grace_seconds(vmi),
            )
            self.ghosts.put(record)
            self._add(record)

    def _has_ended(self, vmi: VirtualMachineInstance, pod: PodRole) -> bool:
        """The guest's own launcher is met again, dead or alive: somebody has to tell."""
        return pod.role is not Role.ACTIVE and pod.uid in self._over.get(key_of(vmi), ())

    def due(self, key: str, vmi: VirtualMachineInstance | None) -> list[Session]:
        """The sessions of a key, each with its present role. First the guest's own: no other may hold it up."""
        if vmi is None:
            self._over.pop(key, None)
        else:
            self._open(vmi)
        sessions = self.sessions.of_key(key)
        for session in sessions:
            if vmi is not None and vmi.metadata.uid == session.vmi_uid:
                session.follow(vmi, self.node_name)
        return sorted(sessions, key=lambda session: session.role is not Role.ACTIVE)

    def _add(self, record: GhostRecord) -> None:
        session = Session(record, self.clock)
        self.network.recall(session)
        self.sessions.add(session)

    def close(self, session: Session) -> None:
        """The launcher is gone, and what was to be told of it is told."""
        self.contacts.close(session)
        self.network.forget(session.pod_uid)
        self.ghosts.delete(session.pod_uid)
        self.sessions.remove(session.pod_uid)
        if session.role in (Role.SOURCE, Role.TARGET):
            self._over.setdefault(session.key, set()).add(session.pod_uid)
        log.info("cleaned up", vmi=session.key, pod=session.pod_uid)
