"""A headless Chromium over its debugging pipe: just what a test of a page asks of it."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import zlib

PROGRAMS = ("chromium-headless-shell", "chromium")


def program():
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        ours, theirs_out = os.pipe()
        theirs_in, self.to = os.pipe()
        # It reads messages from 3 and writes to 4. Only pages of the test are shown, and root has
        # no sandbox of Chromium's.
        command = ["sh", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "sh", program()]
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update",
                   "--disable-sync", "--disable-quic", "--remote-debugging-pipe",
                   f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(
            command + options,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": self.folder.name},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.answers = os.fdopen(ours, "rb", buffering=0)
        self.buffer, self.number = b"", 0
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                more = self.answers.read(65536)
                if not more:
                    raise OSError(f"the browser ended during {method}")
                self.buffer += more
            line, self.buffer = self.buffer.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise OSError(f"{method}: {answer['error']}")
                return answer["result"]

    def show(self, page, width, scheme):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, mobile=width < 600,
                 deviceScaleFactor=1)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])
        frame = self.ask("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.ask("Page.setDocumentContent", frameId=frame, html=page)

    def run(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise OSError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def screenshot(self):
        """The lines of the picture as bytes, each with PNG's filter byte before it."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        picture = base64.b64decode(shot["data"])
        at, data = 8, b""
        while at < len(picture):
            length = int.from_bytes(picture[at : at + 4], "big")
            if picture[at + 4 : at + 8] == b"IDAT":
                data += picture[at + 8 : at + 8 + length]
            at += length + 12
        lines = zlib.decompress(data)
        height = int.from_bytes(picture[20:24], "big")
        step = len(lines) // height
        return [lines[i * step : (i + 1) * step] for i in range(height)]

    def close(self):
        os.close(self.to)
        self.answers.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()
