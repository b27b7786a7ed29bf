"""A TCP port for a server of a test or a benchmark, reserved until the server has bound it and after.

As common/port_reservation.h: the socket is bound, has SO_REUSEADDR and does not listen. The kernel selects the port for
no other process, and a server that sets SO_REUSEADDR can bind it. As a program it prints a port and keeps it until its
standard input ends.
"""
import socket
import sys


class ReservedPort:
    def __init__(self):
        self._socket = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        if self._socket.family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.bind(("", 0))
        # Not before bind(): the port must not be that of a server about to listen.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number = self._socket.getsockname()[1]

    def __enter__(self):
        return self.number

    def __exit__(self, *_):
        self._socket.close()


if __name__ == "__main__":
    with ReservedPort() as number:
        print(number, flush=True)
        sys.stdin.read()
