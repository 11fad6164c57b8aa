"""A file by HTTP: taken in one go, and taken up again where it broke off.

What is taken up again must be the same file: the server says so by a strong ETag, or by date and length. Nothing is
followed out of HTTP, and credentials stay with the host that they are for.
"""

from __future__ import annotations

import base64
import http.client
import re
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit

from virt_core.apis import importplan
from virt_core.runtime.clock import Clock
from virt_core.runtime.record import record
from virt_launcher.importer.errors import Refused, SourceChanged, Trouble
from virt_launcher.importer.target import CHUNK

#: Our image has the bundle and not the directory in which the library looks.
_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_TIMEOUT_S = 60.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 8
_ATTEMPTS = 8
_MAX_PAUSE_S = 20.0
_NOT_HERE = frozenset({404, 410})
_NOT_ALLOWED = frozenset({401, 403, 407})
#: A server that wants to be asked again later says so by one of these.
_LATER = frozenset({408, 425, 429})


@record(frozen=True, slots=True)
class Identity:
    """Which file it is, as far as the server says so."""

    url: str
    etag: str = ""
    modified: str = ""
    length: int = -1

    @property
    def certain(self) -> bool:
        return bool(self.etag) or bool(self.modified and self.length >= 0)


@record(frozen=True, slots=True)
class Access:
    """What goes with a request. `secret` is for the first host only."""

    headers: tuple[tuple[str, str], ...] = ()
    secret: tuple[tuple[str, str], ...] = ()
    trust: ssl.SSLContext | None = None


def access(headers: Sequence[str], secrets: Sequence[str], credentials: Path, certificates: Path) -> Access:
    """From the plan and what is mounted. Raises Refused."""
    secret = [_header(text) for text in secrets]
    if credentials.is_dir():
        user = (credentials / "accessKeyId").read_text().strip()
        word = (credentials / "secretKey").read_text().strip()
        secret.append(("Authorization", "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()))
    return Access(tuple(_header(text) for text in headers), tuple(secret), trust(certificates))


def trust(certificates: Path) -> ssl.SSLContext:
    """What the image trusts, and what the ConfigMap adds."""
    context = ssl.create_default_context()
    if _BUNDLE.exists():
        context.load_verify_locations(_BUNDLE)
    for file in sorted(certificates.glob("*")) if certificates.is_dir() else ():
        if file.is_file():
            try:
                context.load_verify_locations(file)
            except ssl.SSLError as error:
                raise Refused(importplan.INVALID, f"{file.name} of certConfigMap is no certificate: {error}") from error
    return context


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
        raise Refused(importplan.INVALID, "a header must be `Name: value`")
    return name, value.strip()


def parsed(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused(importplan.INVALID, f"{url!r} is no http or https URL")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise Refused(importplan.INVALID, "a URL has no blanks or control characters")
    return parts


class HttpSource:
    """One URL. `identity` is known after the first answer."""

    def __init__(self, url: str, given: Access, clock: Clock) -> None:
        self._url, self._client, self._clock = url, Client(given), clock
        self.identity = Identity(url)
        self.ranges = False
        #: A cut connection can be told from the end of the file.
        self.bounded = True

    def look(self) -> None:
        """Asks what it is. Raises Refused, Trouble."""
        for failures in range(1, _ATTEMPTS + 1):
            try:
                connection, response = self._client.ask(self._url, {"Range": "bytes=0-0"})
            except (OSError, http.client.HTTPException) as error:
                if failures == _ATTEMPTS:
                    raise Trouble(f"{self._url} cannot be reached: {_words(error)}") from error
                self._clock.sleep(min(2.0 ** (failures - 1), _MAX_PAUSE_S))
            else:
                self._learn(response)
                connection.close()
                return

    def _learn(self, response: http.client.HTTPResponse) -> None:
        etag = response.headers.get("ETag", "")
        length = _total(response)
        self.identity = Identity(
            self._url, "" if etag.startswith("W/") else etag, response.headers.get("Last-Modified", ""), length
        )
        self.ranges = response.status == 206 and self.identity.certain and length > 0
        self.bounded = length >= 0 or "chunked" in response.headers.get("Transfer-Encoding", "")

    def read(self, offset: int, length: int) -> bytes:
        """One part of it, within the file. Raises Trouble, SourceChanged."""
        return b"".join(self._pieces(offset, offset + length))

    def stream(self, start: int = 0) -> Iterator[bytes]:
        """From there to its end, taken up again as often as it gets somewhere. Raises Trouble, SourceChanged."""
        yield from self._pieces(start, self.identity.length)

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        position, failures = start, 0
        while True:
            try:
                for data in self._once(position, end):
                    position, failures = position + len(data), 0
                    yield data
                return
            except (OSError, http.client.HTTPException) as error:
                failures += 1
                if failures >= _ATTEMPTS or (position > 0 and not self.ranges):
                    raise Trouble(f"{self._url} broke off after {position} bytes: {_words(error)}") from error
                self._clock.sleep(min(2.0 ** (failures - 1), _MAX_PAUSE_S))

    def _once(self, position: int, end: int) -> Iterator[bytes]:
        wanted = {}
        if position or self.ranges:
            last = str(end - 1) if end > 0 else ""
            wanted = {"Range": f"bytes={position}-{last}", "If-Range": self.identity.etag or self.identity.modified}
        connection, response = self._client.ask(self._url, wanted)
        try:
            self._check(response, position)
            left = end - position
            while data := response.read(CHUNK):
                left -= len(data)
                if end >= 0 and left < 0:
                    raise Trouble(f"{self._url} sends more than it said")
                yield data
            if response.length or (end >= 0 and left > 0):
                raise http.client.IncompleteRead(b"", left)
        finally:
            connection.close()

    def _check(self, response: http.client.HTTPResponse, position: int) -> None:
        if response.status == 206:
            found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != position:
                raise Trouble(f"{self._url} answered with another part than was asked for")
            if found[2] != "*" and self.identity.length >= 0 and int(found[2]) != self.identity.length:
                raise SourceChanged
        elif position or self.ranges:
            raise SourceChanged
        etag = response.headers.get("ETag", "")
        if self.identity.etag and etag != self.identity.etag:
            raise SourceChanged


Answer = tuple[http.client.HTTPConnection, http.client.HTTPResponse]


class Client:
    """Asks, and follows where it is sent."""

    def __init__(self, given: Access) -> None:
        self._access = given

    def ask(
        self,
        url: str,
        extra: dict[str, str],
        *,
        secret: dict[str, str] | None = None,
        also: frozenset[int] = frozenset(),
    ) -> Answer:
        """The final answer; one that is neither good nor in `also` raises. Raises Refused, OSError, HTTPException."""
        first, start = parsed(url), url
        for _ in range(_MAX_REDIRECTS):
            parts = parsed(url)
            same = (parts.scheme, parts.netloc) == (first.scheme, first.netloc)
            connection = self._connect(parts)
            try:
                self._send(connection, parts, extra | (secret or dict(self._access.secret) if same else {}))
                response = connection.getresponse()
                if response.status not in _REDIRECTS:
                    _demand_good(response, url, also)
                    return connection, response
                url = urljoin(url, response.headers.get("Location", ""))
            except BaseException:
                connection.close()
                raise
            connection.close()
            if first.scheme == "https" and parsed(url).scheme != "https":
                raise Refused(importplan.INVALID, f"{start} leads from https to {url}")
        raise Refused(importplan.INVALID, f"{start} leads in circles")

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=_TIMEOUT_S, context=self._access.trust)
        return http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_S)

    def _send(self, connection: http.client.HTTPConnection, parts: SplitResult, extra: dict[str, str]) -> None:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Accept-Encoding": "identity", "User-Agent": importplan.PROGRAM}
        connection.request("GET", path, headers=headers | dict(self._access.headers) | extra)


def _demand_good(response: http.client.HTTPResponse, url: str, also: frozenset[int]) -> None:
    if response.status in (200, 206) or response.status in also:
        return
    words = f"{url} answered {response.status} {response.reason}"
    if response.status in _NOT_HERE:
        raise Refused(importplan.NOT_FOUND, words)
    if response.status in _NOT_ALLOWED:
        raise Refused(importplan.DENIED, words)
    if response.status < 500 and response.status not in _LATER:
        raise Refused(importplan.INVALID, words)
    raise http.client.HTTPException(words)


def _total(response: http.client.HTTPResponse) -> int:
    """The length of the whole file; -1: the server does not say."""
    if response.status == 206:
        total = response.headers.get("Content-Range", "").rpartition("/")[2]
        return int(total) if total.isdigit() else -1
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isdigit() and "chunked" not in response.headers.get("Transfer-Encoding", "") else -1


def _words(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the connection was cut"
    return str(error) or type(error).__name__
