"""What a sandbox of network `shared` finds: run in its cgroup by test_guard_shared.c.

Arguments: the sandbox's own name, and a neighbour's addresses (v4, v6). Each row says what is tried
and what must come of it. Exit status: how many rows were wrong, 250 at most.
"""
import errno
import http.server
import socket as S
import struct
import sys
import threading
import urllib.request

ME, OTHER4, OTHER6 = sys.argv[1], sys.argv[2], sys.argv[3]
V4, V6, TCP, UDP = S.AF_INET, S.AF_INET6, S.SOCK_STREAM, S.SOCK_DGRAM
MAPPED = "::ffff:127.0.0.1"
wait_s = 5
rows = []


def row(name, expected, attempt, *arguments):
    try:
        found = attempt(*arguments)
    except OSError as error:
        found = errno.errorcode.get(error.errno, repr(error))
    rows.append((name, expected, found))


def opened(family, kind=TCP, v6only=None):
    one = S.socket(family, kind)
    one.settimeout(wait_s)
    if v6only is not None:
        one.setsockopt(S.IPPROTO_IPV6, S.IPV6_V6ONLY, v6only)
    return one


def server(family, address, port=0, kind=TCP, v6only=None):
    one = opened(family, kind, v6only)
    one.bind((address, port))
    if kind == TCP:
        one.listen()
    return one


def pair(family, bound, client_family, to, v6only=None, client_v6only=None):
    """What the two ends of a connection are called by all four calls."""
    with server(family, bound, v6only=v6only) as listener, \
            opened(client_family, v6only=client_v6only) as client:
        client.connect((to, listener.getsockname()[1]))
        accepted, seen = listener.accept()
        with accepted:
            accepted.send(ME.encode())
            assert client.recv(64).decode() == ME
            assert seen[:2] == accepted.getpeername()[:2]
            assert seen[1] == client.getsockname()[1]
            return (listener.getsockname()[0], client.getsockname()[0], client.getpeername()[0],
                    accepted.getsockname()[0], seen[0])


def datagrams(family, bound, client_family, to, connected, v6only=None):
    with server(family, bound, kind=UDP, v6only=v6only) as one, \
            opened(client_family, UDP) as client:
        port = one.getsockname()[1]
        if connected:
            client.connect((to, port))
            client.send(ME.encode())
        else:
            client.sendto(ME.encode(), (to, port))
        got, seen = one.recvfrom(64)
        assert got.decode() == ME
        one.sendto(b"back", seen)
        _, answered = client.recvfrom(64)
        assert answered[1] == port
        return one.getsockname()[0], seen[0], answered[0]


def names():
    lo4, lo6 = "127.0.0.1", "::1"
    row("0.0.0.0 by 127.0.0.1", ("0.0.0.0", lo4, lo4, lo4, lo4), pair, V4, "0.0.0.0", V4, lo4)
    row("127.0.0.1 by itself", (lo4,) * 5, pair, V4, lo4, V4, lo4)
    row("127.0.0.53 by itself", ("127.0.0.53", lo4, "127.0.0.53", lo4, lo4),
        pair, V4, "127.0.0.53", V4, "127.0.0.53")
    row("0.0.0.0 by 0.0.0.0", ("0.0.0.0", lo4, lo4, lo4, lo4), pair, V4, "0.0.0.0", V4, "0.0.0.0")
    row("0.0.0.0 by mapped", ("0.0.0.0", MAPPED, MAPPED, lo4, lo4),
        pair, V4, "0.0.0.0", V6, MAPPED)
    row("0.0.0.0 is not at ::1", "ECONNREFUSED", pair, V4, "0.0.0.0", V6, lo6)
    row(":: by ::1", ("::", lo6, lo6, MAPPED, MAPPED), pair, V6, "::", V6, lo6, 0)
    row(":: by 127.0.0.1", ("::", lo4, lo4, MAPPED, MAPPED), pair, V6, "::", V4, lo4, 0)
    row(":: by mapped", ("::", MAPPED, MAPPED, MAPPED, MAPPED), pair, V6, "::", V6, MAPPED, 0)
    row(":: v6only by ::1", ("::", lo6, lo6, lo6, lo6), pair, V6, "::", V6, lo6, 1)
    row(":: v6only is not at 127.0.0.1", "ECONNREFUSED", pair, V6, "::", V4, lo4, 1)
    row("::1 by itself", (lo6,) * 5, pair, V6, lo6, V6, lo6)
    row("mapped by 127.0.0.1", (MAPPED, lo4, lo4, MAPPED, MAPPED), pair, V6, MAPPED, V4, lo4)
    for connected in (False, True):
        how = "connected" if connected else "sendto"
        row(f"udp 0.0.0.0 {how}", ("0.0.0.0", lo4, lo4), datagrams, V4, "0.0.0.0", V4, lo4,
            connected)
        row(f"udp 127.0.0.1 {how}", (lo4,) * 3, datagrams, V4, lo4, V4, lo4, connected)
        row(f"udp ::1 {how}", (lo6,) * 3, datagrams, V6, lo6, V6, lo6, connected)
        row(f"udp :: v6only {how}", ("::", lo6, lo6), datagrams, V6, "::", V6, lo6, connected, 1)
        row(f"udp :: by 127.0.0.1 {how}", ("::", MAPPED, lo4), datagrams, V6, "::", V4, lo4,
            connected, 0)
        row(f"udp :: by mapped {how}", ("::", MAPPED, MAPPED), datagrams, V6, "::", V6, MAPPED,
            connected, 0)
    row("udp :: by ::1 connected", ("::", MAPPED, MAPPED), datagrams, V6, "::", V6, lo6, True, 0)


def bound(family, address, port=0, kind=TCP):
    with server(family, address, port, kind) as one:
        return one.getsockname()[0]


def two_reuse():
    ends = []
    try:
        for reuse in (True, True, False):
            one = opened(V4)
            ends.append(one)
            if reuse:
                one.setsockopt(S.SOL_SOCKET, S.SO_REUSEPORT, 1)
            one.bind(("0.0.0.0", 7100))
            one.listen()
        return "no conflict"
    finally:
        for one in ends:
            one.close()


def both_families(v6only):
    with server(V4, "0.0.0.0", 7200), server(V6, "::", 7200, v6only=v6only):
        return "both"


def loopbacks():
    with server(V4, "127.0.0.1", 7300), server(V6, "::1", 7300):
        return "both"


def zero_port(kind):
    with server(V4, "0.0.0.0", 0, kind) as one:
        return 10000 <= one.getsockname()[1] < 32768


def binds():
    row("port 80 is anybody's", "0.0.0.0", bound, V4, "0.0.0.0", 80)
    row("port 80 of v6", "::", bound, V6, "::", 80)
    row("port 0 of tcp", True, zero_port, TCP)
    row("port 0 of udp", True, zero_port, UDP)
    row("a port of connect()'s", "EADDRINUSE", bound, V4, "0.0.0.0", 40000)
    row("two of SO_REUSEPORT, a third", "EADDRINUSE", two_reuse)
    row("0.0.0.0 and :: of v6 alone", "both", both_families, 1)
    row("0.0.0.0 and :: of both", "EADDRINUSE", both_families, 0)
    row("127.0.0.1 and ::1", "both", loopbacks)
    for address in ("10.9.0.1", OTHER4, "169.254.77.2"):
        row(f"bind {address}", "EADDRNOTAVAIL", bound, V4, address, 7000)
    row("bind v4 multicast", "EADDRNOTAVAIL", bound, V4, "224.0.0.251", 5353, UDP)
    for address in (OTHER6, "ff02::1", "::ffff:" + OTHER4, "fd09::1"):
        row(f"bind {address}", "EADDRNOTAVAIL", bound, V6, address, 7000)


def reach(family, address, port=9, kind=TCP):
    with opened(family, kind) as one:
        one.connect((address, port))
        return "reached"


def send(family, address, source=None):
    with opened(family, UDP) as one:
        ancillary = []
        if source:
            ancillary = [(S.IPPROTO_IP, 8, struct.pack("I4s4s", 0, S.inet_aton(source), b"\0" * 4))]
        one.sendmsg([b"x"], ancillary, 0, (address, 7001))
        return "sent"


def spoofed_source():
    """IP_PKTINFO names the neighbour as source: the packet has our own, or does not come."""
    with server(V4, "0.0.0.0", kind=UDP) as one, opened(V4, UDP) as client:
        client.sendmsg([b"x"], [(S.IPPROTO_IP, 8, struct.pack(
            "I4s4s", 0, S.inet_aton(OTHER4), b"\0" * 4))], 0,
            ("127.0.0.1", one.getsockname()[1]))
        return one.recvfrom(8)[1][0]


def spoofed_source_connected():
    """Of a connected socket no call is asked: the kernel takes its route, or the packet is dropped."""
    with server(V4, "0.0.0.0", kind=UDP) as one, opened(V4, UDP) as client:
        client.connect(("127.0.0.1", one.getsockname()[1]))
        client.sendmsg([b"x"], [(S.IPPROTO_IP, 8, struct.pack(
            "I4s4s", 0, S.inet_aton(OTHER4), b"\0" * 4))])
        return one.recvfrom(8)[1][0]


def fast_open(address):
    with opened(V4) as one:
        return one.sendto(b"x", S.MSG_FASTOPEN, (address, 9))


def source_route():
    with opened(V4, UDP) as one:
        one.setsockopt(S.IPPROTO_IP, 4, b"\x83\x07\x04" + S.inet_aton(OTHER4) + b"\0")
        return one.sendto(b"x", ("127.0.0.1", 7001))


def walls():
    row("refused v4", "ECONNREFUSED", reach, V4, "127.0.0.1")
    row("refused v6", "ECONNREFUSED", reach, V6, "::1")
    # E55: metadata addresses, by every family and form.
    for address in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
                    "2852039166", "0251.0376.0251.0376"):
        row(f"E55 {address}", "EPERM", reach, V4, S.inet_ntoa(S.inet_aton(address)), 80)
    for address in ("::ffff:169.254.169.254", "fd00:ec2::254", "fe80::1"):
        row(f"E55 {address}", "EPERM", reach, V6, address, 80)
    # E56, E57: gateways, the host's other addresses, another sandbox.
    for address in (OTHER4, "10.9.0.1", "169.254.77.1", "255.255.255.255", "224.0.0.1"):
        row(f"E57 tcp {address}", "EPERM", reach, V4, address, 7000)
        row(f"E57 udp {address}", "EPERM", reach, V4, address, 7000, UDP)
        row(f"E57 sendto {address}", "EPERM", send, V4, address)
    for address in (OTHER6, "::ffff:" + OTHER4, "fd09::1", "ff02::1"):
        row(f"E57 tcp {address}", "EPERM", reach, V6, address, 7000)
        row(f"E57 udp {address}", "EPERM", reach, V6, address, 7000, UDP)
        row(f"E57 sendto {address}", "EPERM", send, V6, address)
    row("E57 a spoofed source", "127.0.0.1", spoofed_source)
    row("E57 a spoofed source, connected", "127.0.0.1", spoofed_source_connected)
    row("MSG_FASTOPEN", "EPERM", fast_open, OTHER4)
    # E59: what is neither TCP nor UDP.
    for name, family, kind, protocol, expected in (
            ("raw", V4, S.SOCK_RAW, 1, "EPERM"), ("raw v6", V6, S.SOCK_RAW, 58, "EPERM"),
            ("ping", V4, UDP, 1, "EPROTONOSUPPORT"), ("ping v6", V6, UDP, 58, "EPROTONOSUPPORT"),
            ("mptcp", V4, TCP, 262, "EPROTONOSUPPORT"), ("sctp", V4, TCP, 132, "EPROTONOSUPPORT"),
            ("udplite", V4, UDP, 136, "EPROTONOSUPPORT"),
            ("gre", V4, S.SOCK_RAW, 47, "EPERM")):
        row(f"E59 {name}", expected, lambda *of: S.socket(*of).close(), family, kind, protocol)
    row("E59 options of IPv4", "EPERM", source_route)


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"{ME} to {self.client_address[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Dual(http.server.ThreadingHTTPServer):
    address_family = S.AF_INET6

    def server_bind(self):
        self.socket.setsockopt(S.IPPROTO_IPV6, S.IPV6_V6ONLY, 0)
        super().server_bind()


def page(url):
    return urllib.request.urlopen(url, timeout=wait_s).read().decode()


def pages():
    """Both sandboxes have their servers at the same ports at once, and see their own."""
    for kind, address, port in ((http.server.ThreadingHTTPServer, ("0.0.0.0", 8080), 8080),
                                (Dual, ("::", 8081), 8081)):
        with kind(address, Page) as server_:
            thread = threading.Thread(target=server_.serve_forever, args=(0.02,))
            thread.start()
            try:
                if port == 8080:
                    row("http 127.0.0.1", f"{ME} to 127.0.0.1", page, "http://127.0.0.1:8080/")
                    row("http localhost", f"{ME} to 127.0.0.1", page, "http://localhost:8080/")
                    row("http 0.0.0.0", f"{ME} to 127.0.0.1", page, "http://0.0.0.0:8080/")
                else:
                    for host in ("127.0.0.1", "[::1]", "localhost", f"[{MAPPED}]"):
                        row(f"http dual {host}", f"{ME} to {MAPPED}", page,
                            f"http://{host}:8081/")
            finally:
                server_.shutdown()
                thread.join()


names()
binds()
walls()
pages()
wrong = [one for one in rows if one[1] != one[2]]
for name, expected, found in wrong:
    print(f"{ME}: {name}: {found!r}, not {expected!r}", file=sys.stderr)
print(f"{ME}: {len(rows)} rows", file=sys.stderr)
sys.exit(min(len(wrong), 250) if len(rows) >= 75 else 251)
