"""`virt-probe`: asks the launcher of its container to run a command in the guest, or whether the guest agent answers.

The kubelet starts it for every single check, so it imports next to nothing: no gRPC, no flags library.

    virt-probe --timeoutSeconds 5 --guestAgentPing
    virt-probe --timeoutSeconds 5 --command /usr/bin/test -- -e /run/ready

Its exit code is the command's; 125 when nothing could be asked.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from virt_core.apis import names

#: Where the launcher listens: beside what else is private to its container.
SOCKET = "guest-probe-sock"
MAX_ANSWER = 256 << 10
NOT_ASKED = 125
#: The launcher gives up first, so that its sentence is what people see.
_MARGIN_S = 0.7

_USAGE = "usage: virt-probe [--timeoutSeconds N] (--guestAgentPing | --command COMMAND [-- ARGUMENT...])"


class UsageError(Exception):
    pass


def main() -> int:
    try:
        request = parse(sys.argv[1:])
        answer = ask(os.path.join(os.environ.get("HOME") or names.PATH_PRIVATE, SOCKET), request)
    except UsageError as error:
        return _fail(f"{error}\n{_USAGE}")
    except OSError as error:
        return _fail(f"the launcher does not answer: {error}")
    except ValueError:
        return _fail("the launcher answered something that is not understood")
    if output := answer.get("output"):
        sys.stdout.write(str(output))
    if problem := answer.get("error"):
        return _fail(str(problem))
    return int(str(answer.get("exitCode", NOT_ASKED)))


def _fail(words: str) -> int:
    sys.stderr.write(f"virt-probe: {words}\n")
    return NOT_ASKED


def parse(argv: list[str]) -> dict[str, object]:
    words, request = iter(argv), dict[str, object](timeout=1.0)
    for word in words:
        if word == "--guestAgentPing":
            request["ping"] = True
        elif word == "--":
            request["args"] = list(words)
        elif word in ("--command", "--timeoutSeconds"):
            value = next(words, None)
            if value is None:
                raise UsageError(f"{word} needs a value")
            request |= {"command": value} if word == "--command" else {"timeout": _seconds(value)}
        else:
            raise UsageError(f"{word!r} is not known")
    if ("ping" in request) == ("command" in request):
        raise UsageError("either --guestAgentPing or --command is needed")
    return request


def ask(path: str, request: dict[str, object]) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(float(str(request["timeout"])) + _MARGIN_S)
        door.connect(path)
        door.sendall(json.dumps(request).encode() + b"\n")
        received = b""
        while not received.endswith(b"\n"):
            piece = door.recv(64 << 10)
            if not piece or len(received) > MAX_ANSWER:
                raise ValueError
            received += piece
    answer = json.loads(received)
    if not isinstance(answer, dict):
        raise ValueError
    return answer


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--timeoutSeconds: {text!r} is not a number") from None


if __name__ == "__main__":
    sys.exit(main())
