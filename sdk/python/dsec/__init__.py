"""DSec: sandboxes on one engine.

    import dsec

    with dsec.connect() as client, client.create("debian") as sandbox:
        result = sandbox.exec(["python3", "-c", "print(6 * 7)"], timeout=10)
        print(result.reason, result.code, result.stdout)

The same names for asyncio are in dsec.aio. Sizes are bytes, times are seconds, output is bytes; an
exit code that is not 0 is a result, not an exception. docs/python.md has it all.
"""
from dsec import aio, errors, news, options, policies, values
from dsec._client import Client, connect
from dsec._function import Function
from dsec._process import Process, Stream
from dsec._requests import request_id
from dsec._sandbox import Sandbox
from dsec._subscription import Subscription
from dsec.errors import *  # noqa: F403
from dsec.news import *  # noqa: F403
from dsec.policies import *  # noqa: F403
from dsec.values import *  # noqa: F403

__all__ = ["Client", "Function", "Process", "Sandbox", "Stream", "Subscription", "aio", "connect",
           "errors", "news", "options", "policies", "request_id", "values", *errors.__all__,
           *news.__all__, *policies.__all__, *values.__all__]
