"""DSec for asyncio: the names of dsec, with await. No threads: the loop watches a descriptor.

    async with dsec.aio.connect() as client, await client.create("debian") as sandbox:
        result = await sandbox.exec(["make", "test"], timeout=600)

A client belongs to the event loop in which it was made. A cancelled task takes with it what it
waited for: the program of exec() is killed, what create() made is destroyed, else it is cancelled.
"""
from dsec._client_aio import Client, connect
from dsec._function_aio import Function
from dsec._process_aio import Process, Stream
from dsec._sandbox_aio import Sandbox
from dsec._subscription_aio import Subscription

__all__ = ["Client", "Function", "Process", "Sandbox", "Stream", "Subscription", "connect"]
