"""A guest that would notice: it counts by its own clock, holds a connection out, serves one and writes numbered blocks.

What it runs comes to it as user data. The blocks go to two disks, one after the other, each filled with its number, so
that one that is lost, torn or out of its place is seen by comparing all of them with what must be there.
"""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import dataclass, field

from .console import Console
from .engine import eventually
from .segment import OUTSIDE, SUBNET, Segment

PORT = 7000
ADDRESS = f"{SUBNET}2"
MAC = "02:bb:00:00:09:02"
#: Gaps that are not worth a line, in hundredths of a second.
_USUAL = 6
_MOST_BLOCKS = 3500

USER_DATA = f"""#!/bin/sh
cat >/run/pulse.sh <<'EOF'
last=
while :; do
  read -r now _ </proc/uptime
  now=${{now%.*}}${{now#*.}}
  [ -n "$last" ] && [ $((now - last)) -gt {_USUAL} ] && echo "gap $((now - last))" >>/run/gaps
  last=$now
  usleep 20000
done
EOF
cat >/run/blocks.sh <<'EOF'
n=0
while [ ! -e /run/stop ] && [ $n -lt {_MOST_BLOCKS} ]; do
  printf '%0511d\\n%0511d\\n%0511d\\n%0511d\\n%0511d\\n%0511d\\n%0511d\\n%0511d\\n' $n $n $n $n $n $n $n $n >/run/block
  for disk in "$@"; do dd if=/run/block of=$disk bs=4096 seek=$n conv=notrunc,fsync 2>/dev/null || exit 1; done
  n=$((n + 1))
  echo $n >/run/written
done
touch /run/stopped
EOF
cat >/run/talk.sh <<'EOF'
n=0
while :; do n=$((n + 1)); echo $n; usleep 50000; done | nc {OUTSIDE} {PORT}
EOF
: >/run/gaps
sh /run/pulse.sh &
"""


@dataclass
class Listener:
    """The other end of the connection that the guest holds."""

    door: socket.socket
    connections: int = 0
    last: int = 0
    #: What came and was not the next number.
    wrong: list[str] = field(default_factory=list)
    ended: bool = False

    def start(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.door.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        with connection, connection.makefile() as lines:
            try:
                for line in lines:
                    self._take(line.strip())
            except OSError as error:
                self.wrong.append(str(error))
        self.ended = True

    def _take(self, text: str) -> None:
        if text != str(self.last + 1):
            self.wrong.append(f"{text} after {self.last}")
        self.last = int(text)

    def goes_on(self) -> None:
        """More numbers come, all in their order, by the same connection."""
        before = self.last
        eventually(lambda: self.last > before + 5, within_s=60, what="the guest speaks on")
        assert (self.connections, self.wrong, self.ended) == (1, [], False)


class Witness:
    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._listener = Listener(segment.listen(PORT))
        self._listener.start()
        self._served: socket.socket | None = None

    def begin(self, console: Console, *disks: str) -> None:
        """Takes up all that it is to keep up."""
        # Its shell is there before its user data has run.
        eventually(lambda: "there-42" in console.shell("[ -e /run/gaps ] && echo there-$((6*7))"), within_s=60)
        card = _card(console)
        # There is no DHCP server on this network, and the guest's client would take the address away again.
        end = f"kill $(cat /run/udhcpc.{card}.pid) && echo ended-$((6*7))"
        eventually(lambda: "ended-42" in console.shell(end), within_s=30, what="no DHCP client on the second card")
        console.shell(f"ip addr add {ADDRESS}/24 dev {card}; ip link set {card} up")
        for command in (f"sh /run/blocks.sh {' '.join(disks)}", "sh /run/talk.sh"):
            console.shell(f"({command} >/dev/null 2>&1 &)")
        self._served = eventually(lambda: self._segment.dial(ADDRESS, 8080), within_s=60, what="the guest's server")
        self._listener.goes_on()

    def checked(self, word: str) -> None:
        """The connection that it holds and the one that it serves live, and are the same as ever."""
        self._listener.goes_on()
        assert self._served is not None
        self._served.sendall(f"{word}\n".encode())
        assert self._served.recv(200).decode().strip().endswith(word)

    def close(self) -> None:
        self._listener.door.close()
        if self._served is not None:
            self._served.close()


def _card(console: Console) -> str:
    look = f"grep -il {MAC} /sys/class/net/*/address"

    def find() -> str:
        found = re.search(r"/sys/class/net/(\w+)/address\r?\n", console.shell(look))
        return found[1] if found else ""

    return str(eventually(find, within_s=30, what=f"a card {MAC} in the guest"))


def gaps(console: Console) -> list[int]:
    """In milliseconds, all that it had so far, by its own clock."""
    return [10 * int(each) for each in re.findall(r"\bgap (\d+)\r?\n", console.shell("cat /run/gaps"))]


def blocks(console: Console, *disks: str) -> int:
    """Ends the writing and compares what is on the disks with what was written. The number of blocks."""
    console.shell("touch /run/stop; until [ -e /run/stopped ]; do usleep 100000; done; sync", within_s=60)
    console.shell("echo 3 >/proc/sys/vm/drop_caches")
    written = int(re.findall(r"written (\d+)", console.shell("echo written $(cat /run/written)"))[-1])
    count = 'for (i = 0; i < n; i++) for (k = 0; k < 8; k++) printf "%0511d\\n", i'
    wanted = _sum(console, f"awk -v n={written} 'BEGIN {{ {count} }}' | md5sum")
    for disk in disks:
        found = _sum(console, f"dd if={disk} bs=4096 count={written} 2>/dev/null | md5sum")
        assert found == wanted, f"{disk}: {written} blocks were written, and some are not there"
    return written


def _sum(console: Console, command: str) -> str:
    found = re.search(r"\b[0-9a-f]{32}\b", console.shell(command, within_s=120))
    assert found is not None, console.seen[-500:]
    return found.group()
