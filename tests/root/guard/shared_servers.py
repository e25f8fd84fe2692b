"""Real servers in two sandboxes of network `shared`: run in the cgroup of each by test_guard_shared.c.

Arguments: the sandbox's own name, and a folder of both. nginx, redis and node are started here, at
the same ports in both sandboxes, of v4 and v6; nobody asks before all of both are up, and nobody
ends before both have asked. What is not installed is skipped by name. Exit status: how many rows
were wrong.
"""
import contextlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ME, SHARED = sys.argv[1], Path(sys.argv[2])
HERE = SHARED / ME
WAIT_S = 60
MAPPED = "::ffff:127.0.0.1"

NGINX = f"""
daemon off; master_process off; user root; pid {HERE}/nginx.pid; error_log stderr crit;
events {{ worker_connections 64; }}
http {{
	access_log off;
	client_body_temp_path {HERE}; proxy_temp_path {HERE}; fastcgi_temp_path {HERE};
	uwsgi_temp_path {HERE}; scgi_temp_path {HERE};
	server {{ listen 80; listen [::]:80; location / {{ return 200 "{ME} $remote_addr"; }}
		location /behind {{ proxy_pass http://localhost:8082; }} }}
	server {{ listen 127.0.0.1:8082; listen [::1]:8082;
		location / {{ return 200 "{ME} behind $remote_addr"; }} }}
}}
"""
NODE = f"""
const http = require("http");
http.createServer((ask, answer) => {{
	if (ask.url === "/self")
		http.get("http://localhost:8090/", inner => inner.pipe(answer));
	else
		answer.end("{ME} " + ask.socket.remoteAddress);
}}).listen(8090);
"""


def page(url):
    return urllib.request.urlopen(url, timeout=WAIT_S).read().decode()


def redis(address, words):
    with socket.create_connection((address, 6379), WAIT_S) as one:
        one.sendall((words + "\r\n").encode())
        return one.recv(256).decode()


def nginx_rows():
    yield "nginx 127.0.0.1", f"{ME} 127.0.0.1", page("http://127.0.0.1/")
    yield "nginx [::1]", f"{ME} ::1", page("http://[::1]/")
    yield "nginx 0.0.0.0", f"{ME} 127.0.0.1", page("http://0.0.0.0/")
    behind = page("http://localhost/behind")
    yield "nginx as a proxy of localhost", f"{ME} behind", behind.rpartition(" ")[0]
    yield "who it is behind it", True, behind.rpartition(" ")[2] in ("127.0.0.1", "::1")


def redis_rows():
    for address in ("127.0.0.1", "::1"):
        yield f"redis set {address}", "+OK\r\n", redis(address, f"SET who-{address} {ME}")
    for address in ("127.0.0.1", "::1"):
        for key in ("127.0.0.1", "::1"):
            yield (f"redis get {address}", f"${len(ME)}\r\n{ME}\r\n",
                   redis(address, f"GET who-{key}"))
    yield "redis keys", ":2\r\n", redis("127.0.0.1", "DBSIZE")


def node_rows():
    for host in ("127.0.0.1", "[::1]", "localhost"):
        yield f"node {host}", f"{ME} {MAPPED}", page(f"http://{host}:8090/")
    yield "node asks itself", f"{ME} {MAPPED}", page("http://localhost:8090/self")


SERVERS = (
    ("nginx", "nginx-light", (80, 8082), nginx_rows,
     ["nginx", "-p", str(HERE), "-c", str(HERE / "nginx.conf")]),
    ("redis-server", "redis-server", (6379,), redis_rows,
     ["redis-server", "--port", "6379", "--bind", "127.0.0.1", "::1", "--save", "",
      "--appendonly", "no", "--dir", str(HERE), "--daemonize", "no"]),
    ("node", "nodejs", (8090,), node_rows, ["node", "-e", NODE]),
)


def until(what, name):
    end = time.monotonic() + WAIT_S
    while not what():
        if time.monotonic() > end:
            sys.exit(f"{ME}: not in time: {name}")
        time.sleep(0.01)


def is_up(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


def together(name):
    """Both are as far."""
    (SHARED / f"{name}-{ME}").touch()
    until(lambda: len(list(SHARED.glob(f"{name}-*"))) == 2, f"the neighbour, {name}")


def rows_run(servers):
    wrong = count = 0
    for name, _, _, rows, _ in servers:
        try:
            for row, expected, found in rows():
                count += 1
                if found != expected:
                    wrong += 1
                    print(f"{ME}: {row}: {found!r}, not {expected!r}", file=sys.stderr)
        except OSError as error:
            wrong += 1
            print(f"{ME}: {name}: {error}", file=sys.stderr)
    print(f"{ME}: {count} rows", file=sys.stderr)
    return wrong


HERE.mkdir()
(HERE / "nginx.conf").write_text(NGINX)
there = [one for one in SERVERS if shutil.which(one[0], path="/usr/sbin:/usr/bin:/sbin:/bin")]
for one in SERVERS:
    if one not in there:
        print(f"skipped: no {one[0]} (apt-get install {one[1]})", file=sys.stderr)
environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(HERE)}
with contextlib.ExitStack() as stack:
    for _, _, ports, _, command in there:
        process = stack.enter_context(subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        stack.callback(process.kill)
        for port in ports:
            until(lambda of=port, server=process: is_up(of) or server.poll() is not None,
                  command[0])
    together("up")
    status = rows_run(there)
    together("asked")
sys.exit(status)
