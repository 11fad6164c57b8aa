"""How the node reaches into a guest: its sockets in the Pod's volume, a port at its Pod's address, a vsock.

Never more than that. A socket is found by the safe way only, and whoever listens on it must be of that Pod; an address
is the one that this node gave the Pod, not one that the guest, its launcher or a caller names.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl

from virt_core.apis import names
from virt_core.rpc.peer import peer_credentials
from virt_core.rpc.status import RpcFailure, failed_precondition, internal, invalid_argument, unavailable
from virt_core.runtime.logs import get_logger
from virt_handler.loop.sessions import Session
from virt_handler.pods import isolation
from virt_handler.pods.files import PodFiles, UnsafeFileError, checked_name, connect
from virt_handler.pods.peers import PodOf
from virt_handler.streams.ends import DatagramWire, StreamWire, TlsWire, Wire

log = get_logger(__name__)

CONNECT_TIMEOUT_S = 5.0
#: Below are the hypervisor, the loopback and the node itself.
_FIRST_GUEST_CID = 3
_MAX_CID = 0xFFFFFFFF


def device(files: PodFiles, session: Session, name: str, pod_of: PodOf = isolation.pod_of) -> Wire:
    """Connects to a character device of the machine by its socket. Raises RpcFailure."""
    try:
        fd = files.open_socket(session.pod_uid, names.VOLUME_PRIVATE, checked_name(session.vmi_uid), name)
    except FileNotFoundError as error:
        raise failed_precondition(f"the machine has no {name}") from error
    except UnsafeFileError as error:
        log.error("refused to connect", vmi=session.key, error=str(error))
        raise failed_precondition(f"{name} is not a socket of the machine") from error
    try:
        connected = connect(fd, CONNECT_TIMEOUT_S)
    except OSError as error:
        raise unavailable(f"cannot connect to {name} of the machine: {error}") from error
    finally:
        os.close(fd)
    listener = peer_credentials(connected).pid
    if not _is_of_pod(listener, session.pod_uid, pod_of):
        connected.close()
        log.error("refused to connect: the listener is not of the Pod", vmi=session.key, pid=listener)
        raise failed_precondition(f"{name} is not a socket of the machine")
    return StreamWire(connected)


def _is_of_pod(pid: int, pod_uid: str, pod_of: PodOf) -> bool:
    """A listener that has ended (libvirt opens QEMU's sockets and may be restarted) is no reason to refuse."""
    owner = pod_of(pid)
    return owner == pod_uid or (owner is None and pid > 0 and not os.path.exists(f"/proc/{pid}"))


def tcp(session: Session, port: int) -> Wire:
    return StreamWire(_connected(session, port, socket.SOCK_STREAM))


def udp(session: Session, port: int) -> Wire:
    return DatagramWire(_connected(session, port, socket.SOCK_DGRAM))


def _connected(session: Session, port: int, kind: int) -> socket.socket:
    if not 0 < port <= 65535:
        raise invalid_argument(f"{port} is not a port from 1 to 65535")
    addresses = [address for ip in session.pod_ips() if (address := pod_address(ip))]
    if not addresses:
        raise failed_precondition(f"VMI {session.key} has no address on the Pod network")
    failures = []
    for address in addresses:
        try:
            return _dial(address, port, kind)
        except OSError as error:
            failures.append(f"{address}: {error}")
    raise internal(f"port {port} of VMI {session.key} cannot be reached: {'; '.join(failures)}")


def _dial(address: str, port: int, kind: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        sock.settimeout(CONNECT_TIMEOUT_S)
        sock.connect((address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def pod_address(text: str) -> str:
    """The bare address, if a Pod can have it; empty for what would lead to the node itself or to everybody."""
    try:
        address = ipaddress.ip_interface(text).ip
    except ValueError:
        return ""
    special = address.is_loopback or address.is_unspecified or address.is_multicast or address.is_link_local
    return "" if special else str(address)


def vsock(session: Session, cid: int, port: int, tls: ssl.SSLContext | None) -> Wire:
    if not _FIRST_GUEST_CID <= cid < _MAX_CID:
        raise invalid_argument(f"{cid} is not the vsock address of a guest")
    try:
        sock = _vsock_socket()
    except OSError as error:
        raise failed_precondition("this node has no vsock support") from error
    try:
        sock.settimeout(CONNECT_TIMEOUT_S)
        sock.connect((cid, port))
        return StreamWire(sock) if tls is None else TlsWire(sock, tls)
    except OSError as error:
        sock.close()
        raise _no_vsock(session, port, error) from error


def _vsock_socket() -> socket.socket:
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


def _no_vsock(session: Session, port: int, error: OSError) -> RpcFailure:
    return internal(f"vsock port {port} of VMI {session.key} cannot be reached: {error}")
