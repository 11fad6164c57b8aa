"""Transcripts without what differs by nature. Everything that is left out or masked is listed here, by name.

Masked values stay visible as a word in capitals, so that a field that is missing is still a difference.
"""

from __future__ import annotations

import re
from typing import Any

#: Left out altogether.
DROPPED = {
    "managedFields": "compared in the cases about ownership only",
    "description": "documentation, whose words are each project's own",
    "serverAddressByClientCIDRs": "the address of the server",
    "storageVersionHash": "a hash of how the real server keeps the kind",
    "serverRelativeURL": "carries a hash of the document",
}
#: The value differs in each run: only that there is one is compared.
MASKED = {
    "uid": "UID",
    "resourceVersion": "RV",
    "creationTimestamp": "TIME",
    "deletionTimestamp": "TIME",
    "lastTransitionTime": "TIME",
    "lastUpdateTime": "TIME",
    "expirationTimestamp": "TIME",
    "time": "TIME",
    "continue": "TOKEN",
    "token": "TOKEN",
    "caBundle": "CA",
    "authentication.kubernetes.io/credential-id": "ID",
}
#: Each server chooses from a range of its own.
ALLOCATED = ("clusterIP", "clusterIPs", "nodePort")
#: Columns of a table that show how long ago something was.
AGES = ("Age", "Last Seen", "First Seen", "Created At", "Last Schedule")

_GENERATED = re.compile(r"\b(kube-api-access-|made-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_FLOOR = re.compile(r"(too old resource version: \d+|current:) \(?\d+\)?")
_QUERY = re.compile(r"(resourceVersion|continue)=[\w%-]{3,}")
#: Words that only one implementation can say: where its source lies, how its storage names things.
_INNER = re.compile(
    r' in scheme "[^"]*"'
    r"|StorageError: invalid object, Code: 4, Key: \S+, ResourceVersion: 0, AdditionalErrorMsg: "
    r"|: converting \([^)]*\) to \([^)]*\): unknown conversion"
)
_ISSUER = re.compile(r"https://kubernetes\.default\.svc(\.cluster\.local)?")
_PRINT = re.compile(r"X509SHA256=[0-9a-f]{64}")
_WHOLE = re.compile(r'Invalid value: "\{.*\}": ')
_NODE_PORT, _ADDRESS = re.compile(r":\d{5}/"), re.compile(r"10\.\d+\.\d+\.\d+")
_PORT = re.compile(r"\b((?:\d{1,3}\.){3}\d{1,3}):\d{2,5}\b")


class Normal:
    """Normalises the answers of one conversation. `names` maps what only this run has (its namespace) to a word."""

    def __init__(self, *, words: bool = True, ownership: bool = False) -> None:
        self.names: dict[str, str] = {}
        self._words = words
        self._dropped = set(DROPPED) - ({"managedFields"} if ownership else set())
        self._revisions: set[str] = set()

    def body(self, value: Any) -> Any:
        self.learn(value)
        return self._value(value, "")

    def text(self, text: str) -> str:
        for name, word in sorted(self.names.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(name, word)
        text = _GENERATED.sub(r"\1XXXXX", _UUID.sub("UID", _TIME.sub("TIME", text)))
        for revision in sorted(self._revisions, key=len, reverse=True):
            alone = rf"(?<![\w.]){revision}(?![\w.])" if len(revision) > 2 else rf"(?<=\(){revision}(?=\))"
            text = re.sub(alone, "RV", text)
        text = _ISSUER.sub("ISSUER", text)
        text = _PRINT.sub("X509SHA256=HASH", text)
        text = _WHOLE.sub("Invalid value: OBJECT: ", text)
        text = _FLOOR.sub(r"\1 (RV)", text).replace("current: RV", "current: (RV)")
        return _INNER.sub("", _PORT.sub(r"ADDRESS", text))

    def path(self, text: str) -> str:
        """A path with its query, whose revisions and tokens are this run's own."""
        return self.text(_QUERY.sub(lambda found: f"{found[1]}=" + ("abc" if found[0].endswith("=abc") else "X"), text))

    def learn(self, value: Any) -> None:
        """Remembers resource versions, which also stand in messages. Short ones could be any number."""
        if isinstance(value, dict):
            revision = value.get("resourceVersion")
            if isinstance(revision, str) and revision:
                self._revisions.add(revision)
            for item in value.values():
                self.learn(item)
        elif isinstance(value, list):
            for item in value:
                self.learn(item)

    def _value(self, value: Any, key: str) -> Any:
        if value is not None and value != "" and key in MASKED and not isinstance(value, dict):
            return MASKED[key]
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            if key == "managedFields":
                value = sorted(value, key=lambda e: (e.get("operation"), e.get("manager"), e.get("subresource", "")))
            return [self._value(item, "") for item in value]
        if isinstance(value, str):
            return "TEXT" if key == "message" and not self._words and value else self.text(value)
        return value

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        if value.get("kind") == "Status" and isinstance(value.get("details"), dict):
            value = _sorted_causes(value)
        value = without_ages(value)
        return {self.text(k): self._value(item, k) for k, item in value.items() if not self._left_out(k, item)}

    def _left_out(self, key: str, value: Any) -> bool:
        return key in self._dropped or (key in ALLOCATED and value not in ("None", ["None"]))


def without_ages(value: Any) -> Any:
    """A table without the cells that grow with time. Anything else is returned as it is."""
    if not isinstance(value, dict) or value.get("kind") != "Table" or not isinstance(value.get("rows"), list):
        return value
    return {**value, "rows": [_masked_ages(value, row) for row in value["rows"]]}


def _sorted_causes(status: dict[str, Any]) -> dict[str, Any]:
    """The real server walks over maps in any order, so several causes come in any order, also in the message."""
    causes = status["details"].get("causes") or []
    if len(causes) < 2 or status.get("reason") != "Invalid":
        return status
    ordered = sorted(causes, key=lambda cause: sorted(cause.items()))
    message = str(status.get("message")).partition(": ")[0] + ": SEVERAL"
    return {**status, "message": message, "details": {**status["details"], "causes": ordered}}


_ages: list[int] = []


def _masked_ages(table: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The header of a table comes once in a watch: what it said holds for the rows after it."""
    if table.get("columnDefinitions"):
        _ages[:] = [i for i, column in enumerate(table["columnDefinitions"]) if column["name"] in AGES]
    row = {**row, "cells": [_NODE_PORT.sub("/", c) if isinstance(c, str) else c for c in row["cells"]]}
    row["cells"] = ["<none>" if isinstance(c, str) and _ADDRESS.fullmatch(c) else c for c in row["cells"]]
    cells = ["AGE" if i in _ages and cell is not None else cell for i, cell in enumerate(row["cells"])]
    return {**row, "cells": cells}
