"""Python loads this first in every process that the tests start: nothing but this machine can be reached.

An audit hook sees each look-up and each connection before it happens. What goes elsewhere is written to
KVVIZ_OFFLINE_LOG, where a test reads it, and refused.
"""

import ipaddress
import os
import sys


def _here(host: object) -> bool:
    """Is this host the machine itself? Names, addresses, and None (which means any or this machine)."""
    if host is None:
        return True
    name = host.decode() if isinstance(host, bytes) else str(host)
    if name in ("", "localhost", "localhost.localdomain", "::"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def refuse(event: str, args: tuple) -> None:
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in ("socket.connect", "socket.sendto"):
        # A tuple is an internet address; a string or bytes is a Unix socket's path.
        host = args[1][0] if isinstance(args[1], tuple) else None
    elif event in ("socket.gethostbyname", "socket.gethostbyaddr"):
        host = args[0]
    else:
        return
    if _here(host):
        return
    log = os.environ.get("KVVIZ_OFFLINE_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as f:
            f.write(f"{event} {host}\n")
    raise OSError(f"the tests allow no traffic beyond this machine: {event} {host}")


if not getattr(sys, "_kvviz_offline", False):
    sys._kvviz_offline = True
    sys.addaudithook(refuse)
