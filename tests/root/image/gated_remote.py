"""A remote by HTTP on loopback that answers when it is allowed to."""
import http.server
import re
import threading


class GatedRemote:
    """What it has is in `source`, by name."""

    def __init__(self, source):
        self.gate, self.waiting = threading.Event(), threading.Event()
        self.gate.set()
        remote = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if not remote.gate.is_set():
                    remote.waiting.set()
                    remote.gate.wait(120)
                path = source / self.path.rsplit("/", 1)[1]
                if not path.exists():
                    self.send_error(404)
                    return
                data = path.read_bytes()
                first, last = map(int, re.match(r"bytes=(\d+)-(\d+)",
                                                self.headers["Range"]).groups())
                part = data[first:last + 1]
                self.send_response(206)
                self.send_header("Content-Length", str(len(part)))
                self.send_header("Content-Range",
                                 f"bytes {first}-{first + len(part) - 1}/{len(data)}")
                self.end_headers()
                try:
                    self.wfile.write(part)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def shut(self):
        self.waiting.clear()
        self.gate.clear()

    def open(self):
        self.gate.set()

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()
