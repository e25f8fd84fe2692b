"""An SWE-style task: the test fails, the patch goes in, it passes. usage: swe_task.py IMAGE"""
import sys

import dsec

TEST = ["python3", "-c", "import mean; assert mean.mean([1, 2, 6, 2]) == 2.75"]
with dsec.connect() as client, client.create(sys.argv[1], ttl=600) as sandbox:
    sandbox.write("/testbed/mean.py", b"def mean(x):\n    return sum(x) // len(x)\n")
    before = sandbox.exec(TEST, cwd="/testbed", timeout=60)
    sandbox.write("/testbed/mean.py", b"def mean(x):\n    return sum(x) / len(x)\n")
    after = sandbox.exec(TEST, cwd="/testbed", timeout=60)
    print(f"before: exit {before.code}, {before.stderr.decode().splitlines()[-1]}")
    print(f"after: exit {after.code}, reward {float(after.ok)}")
