"""A TCP port, or several consecutive ones, for servers of a test or a benchmark, reserved until a server has bound it and after.

As common/port_reservation.h: the socket is bound, has SO_REUSEADDR and does not listen. The kernel selects the port for
no other process, and a server that sets SO_REUSEADDR can bind it. As a program it prints a port and keeps it until its
standard input ends.
"""
import socket
import sys


def _bound(number: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    try:
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("", number))
        # Not before bind(): the port must not be that of a server about to listen.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        bound.close()
        raise
    return bound


class ReservedPort:
    """`number` is the first of `count` consecutive ports."""

    def __init__(self, count: int = 1) -> None:
        self._sockets: list[socket.socket] = []
        while len(self._sockets) < count:
            try:
                self._sockets.append(_bound(self.number + len(self._sockets) if self._sockets else 0))
            except (OSError, OverflowError):  # the next port is in use, or above 65535
                if not self._sockets:
                    raise
                self._close()

    @property
    def number(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def _close(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets = []

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *_: object) -> None:
        self._close()


if __name__ == "__main__":
    with ReservedPort() as number:
        print(number, flush=True)
        sys.stdin.read()
