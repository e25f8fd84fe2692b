"""A judge: one submission, a verdict for each input. usage: judge.py IMAGE FILE.py INPUT..."""
import os
import sys

import dsec

image, path, *inputs = sys.argv[1:]
with dsec.connect() as client, open(path) as source:
    judge = client.register(f"judge-{os.getpid()}", image,
                            ["python3", "-c", source.read()], cpu=1, memory_bytes=256 << 20,
                            allow_degraded=True)
    for given, called in zip(inputs, judge.invoke_many([text.encode() for text in inputs])):
        if isinstance(called, dsec.DsecError):
            raise called
        print(f"{given}: {called.verdict} {called.stdout.decode().strip()}".rstrip())
    judge.remove()
