#!/usr/bin/env python3
"""dsec.aio against a real engine: many at once, cancelled tasks, two loops, an engine that goes."""
import asyncio
import inspect
import os
import resource
import signal
import threading
import time
import unittest
from pathlib import Path

from fixture import PythonTest, SLOWNESS, fewer

import dsec
import dsec.aio


class AioTest(PythonTest):
    """What each test does runs in a loop of its own, on a sandbox of its own."""

    def run_in_loop(self, body):
        async def run():
            async with dsec.aio.connect(self.address) as client:
                async with await client.create("small", labels={"test": self.id()}) as sandbox:
                    return await asyncio.wait_for(body(client, sandbox), 120 * SLOWNESS)

        return asyncio.run(run())

    def test_500_execs_at_once(self):
        async def body(client, sandbox):
            sandboxes = [sandbox, *await client.create_many(9, "small", ttl=600)]

            async def one(number):
                result = await sandboxes[number % 10].exec(["sh", "-c", f"echo {number}; exit {number % 7}"])
                self.assertEqual((result.code, result.stdout), (number % 7, b"%d\n" % number))
                return number % 10, result.exec

            numbers = await asyncio.gather(*map(one, range(fewer(500, 100))))
            self.assertEqual(len(set(numbers)), len(numbers))
            self.assertEqual((await client.check())["execs"], 0)
            self.assertEqual(client._link._exchanges, {})
            await client.destroy([one.id for one in sandboxes])

        self.run_in_loop(body)
        self.assertEqual(len(list(Path("/proc/self/task").iterdir())), 1, "no thread was started")

    def test_a_cancelled_exec_leaves_nothing(self):
        async def body(client, sandbox):
            async def cancel_after(seconds, argv, **options):
                task = asyncio.create_task(sandbox.exec(argv, **options))
                await asyncio.sleep(seconds)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

            # Before it was sent, on its way, started, and in the middle of its input.
            for seconds in (0, 0.0005, 0.002, 0.01, 0.3):
                await cancel_after(seconds, ["sh", "-c", "sleep 4444 & exec sleep 4444"])
                self.assertEqual((await sandbox.inspect()).execs_running, 0, seconds)
            await cancel_after(0.3, ["sleep", "4444"], input=bytes(4 << 20))
            tasks = [asyncio.create_task(sandbox.exec(["sleep", "4444"])) for _ in range(60)]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self.assertEqual((await sandbox.inspect()).execs_running, 0)
            self.assertLessEqual((await sandbox.stats()).processes, 1)
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await sandbox.exec(["sleep", "4444"])
            self.assertEqual((await sandbox.inspect()).execs_running, 0)
            self.assertEqual(client._link._exchanges, {})

        self.run_in_loop(body)

    def test_hundreds_of_programs_run_at_once_and_leave_room_to_end_them(self):
        async def body(client, sandbox):
            sandboxes = await client.create_many(10, "small", ttl=600)
            # As many as fit, 384, and some that wait for one to end.
            tasks = [asyncio.create_task(one.exec(["sleep", "4444"]))
                     for one in sandboxes for _ in range(40)]
            while (await client.check())["execs"] < 384:
                await asyncio.sleep(0.05)
            for row in await sandboxes[0].execs():
                while True:
                    try:
                        await sandboxes[0].signal(row.exec, signal.SIGKILL, everyone=True)
                        break
                    except dsec.DsecRefusedError as error:  # it is starting
                        await asyncio.sleep(error.retry_after or 0.01)
            results = await asyncio.gather(*tasks[:40])
            self.assertEqual({result.signal for result in results}, {9})
            while (await client.check())["execs"] != 360:
                await asyncio.sleep(0.05)
            for task in tasks[40:]:
                task.cancel()
            await asyncio.wait(tasks[40:])
            self.assertEqual({task.cancelled() for task in tasks[40:]}, {True})
            self.assertEqual((await client.check())["execs"], 0)
            await client.destroy([one.id for one in sandboxes])

        self.run_in_loop(body)

    def test_asked_once_a_refusal_is_raised_and_else_it_is_asked_until_there_is_room(self):
        async def body(client, sandbox):
            made = await client.create_many(200, "small")
            held = [one.id for one in made if isinstance(one, dsec.aio.Sandbox)]
            try:
                late = asyncio.create_task(client.create("small", request_timeout=60 * SLOWNESS))
                with self.assertRaises(dsec.DsecRefusedError):  # not in an hour
                    await client.create("small", request_timeout=3600, once=True)
                self.assertFalse(late.done())
                await client.destroy(held)  # all: a create is its id's shard's
                held.append((await late).id)
            finally:
                await client.destroy(held)

        self.run_in_loop(body)

    def test_a_cancelled_create_leaves_nothing(self):
        async def body(client, sandbox):
            for seconds in (0, 0.001, 0.003, 0.01, 0.03):
                task = asyncio.create_task(client.create_many(20, "small", labels={"gone": "1"}))
                await asyncio.sleep(seconds)
                if task.cancel():
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                else:
                    await client.destroy([one.id for one in task.result()])
                self.assertEqual(await client.list(labels={"gone": "1"}), [], seconds)

        self.run_in_loop(body)

    def test_50_megabytes_pass_through_bounded_memory(self):
        async def body(client, sandbox):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            async with await sandbox.start(["head", "-c", "50000000", "/dev/zero"]) as process:
                first = await anext(aiter(process.stdout))
                await asyncio.sleep(0.3)
                row, = [row for row in await sandbox.execs() if row.exec == process.exec]
                self.assertLess(row.stdout_bytes, 1 << 20, "the program waits for its reader")
                count = len(first)
                async for chunk in process.stdout:
                    count += len(chunk)
                result = await process.wait()
            self.assertEqual((count, result.code, result.output(1).total_bytes),
                             (50_000_000, 0, 50_000_000))
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            self.assertLess(grown, 16 << 10, "KiB more than before")

        self.run_in_loop(body)

    def test_a_slow_reader_stops_its_own_stream_only(self):
        async def body(client, sandbox):
            async with await sandbox.start(["sh", "-c", "yes >&2 & yes"]) as slow:
                await anext(aiter(slow.stdout))
                async for chunk in slow.stderr:
                    if chunk.offset > 1_000_000:
                        break
                results = await asyncio.gather(*[sandbox.exec(["true"]) for _ in range(20)])
                self.assertTrue(all(result.ok for result in results))

        self.run_in_loop(body)

    def test_input_output_and_result_by_several_tasks(self):
        async def body(client, sandbox):
            async with await sandbox.start(["sh", "-c", "cat; echo end >&2; exit 3"],
                                           stdin=True) as process:
                async def feed():
                    for at in range(30):
                        await process.write(bytes([at]) * 10000)
                    await process.close_stdin()

                _, out, err, result = await asyncio.gather(
                    feed(), process.stdout.read(), process.stderr.read(), process.wait())
            self.assertEqual(out, b"".join(bytes([at]) * 10000 for at in range(30)))
            self.assertEqual((err, result.code), (b"end\n", 3))

        self.run_in_loop(body)

    def test_wait_alone_drops_what_nobody_reads(self):
        async def body(client, sandbox):
            async with await sandbox.start(["head", "-c", "5000000", "/dev/zero"]) as process:
                result = await process.wait()
            self.assertEqual((result.code, result.output(1).total_bytes), (0, 5_000_000))

        self.run_in_loop(body)

    def test_two_loops_in_two_threads(self):
        counts = []

        async def body(client, sandbox):
            results = await asyncio.gather(*[sandbox.exec(["echo", "x"]) for _ in range(60)])
            counts.append(sum(result.stdout == b"x\n" for result in results))

        threads = [threading.Thread(target=self.run_in_loop, args=(body,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(counts, [60, 60])

    def test_a_client_of_another_loop_is_refused(self):
        async def open_it():
            return dsec.aio.connect(self.address)

        async def use(client):
            await client.list()

        with asyncio.Runner() as one, asyncio.Runner() as other:
            client = one.run(open_it())
            with self.assertRaises(RuntimeError):
                other.run(use(client))
            one.run(client.close())

    def test_errors_are_those_of_the_blocking_client(self):
        async def body(client, sandbox):
            with self.assertRaises(FileNotFoundError):
                await sandbox.read("/none")
            with self.assertRaises(dsec.DsecAbsentError):
                await client.create("no-such-image")
            with self.assertRaises(dsec.DsecDeadlineError):
                await sandbox.exec(["sleep", "9"], request_timeout=0.2)
            self.assertEqual((await sandbox.inspect()).execs_running, 0)
            self.assertEqual((await sandbox.exec(["nonesuch"])).code, 127)

        self.run_in_loop(body)

    def test_a_subscription_tells_what_happens_until_it_is_left(self):
        async def body(client, sandbox):
            async with await client.subscribe(labels={"seen": "1"}) as events:
                async with await client.create("small", labels={"seen": "1"}) as seen:
                    await seen.exec(["sh", "-c", "exit 3"])
                    await sandbox.exec(["true"])  # another's: not told
                    with self.assertRaises(dsec.DsecInvalidError):
                        await client.subscribe(topics=["nonsense"])
                told = []
                async for news in events:
                    told.append(news)
                    if news.topic == "ended":
                        break
                self.assertEqual([news.topic for news in told],
                                 ["creating", "running", "exec-started", "exec-ended",
                                  "destroying", "ended"])
                self.assertEqual({news.sandbox for news in told}, {seen.id})
                self.assertEqual((told[3].reason, told[3].code, told[3].exec), ("exit", 3, 1))
                self.assertEqual((told[0].image, told[5].cause), ("small", "destroyed"))
                waits = asyncio.create_task(anext(events))
                await asyncio.sleep(0.05)
                events.close()
                with self.assertRaises(StopAsyncIteration):
                    await waits
            async with await client.subscribe(topics=["exec-ended"], ids=[seen.id],
                                              from_seq=told[0].seq, epoch=told[0].epoch) as again:
                self.assertEqual(await anext(again), told[3])
            while client._link._exchanges:  # their last events are on their way
                await asyncio.sleep(0.01)

        self.run_in_loop(body)
        with dsec.connect(self.address) as client, client.subscribe(from_seq=1) as events:
            self.assertEqual(next(events).topic, "creating")

    def test_who_waits_for_a_sandbox_is_told_its_end_and_cause(self):
        async def body(client, sandbox):
            async with await client.create("small", ttl=1) as short:
                waits = [asyncio.create_task(short.wait()) for _ in range(3)]
                for found in await asyncio.gather(*waits):
                    self.assertEqual((found.state, found.cause), ("ended", "ttl"))
                self.assertEqual((await short.wait()).cause, "ttl")
            with self.assertRaises(dsec.DsecAbsentError):
                await client.sandbox("0" * 25 + "1").wait()

        self.run_in_loop(body)

    def test_a_forked_child_is_told_so_and_harms_nothing(self):
        async def body(client, sandbox):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    asyncio.events._set_running_loop(None)
                    with self.assertRaises(dsec.DsecForkedError):
                        asyncio.run(sandbox.exec(["true"]))
                    asyncio.run(client.close())
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertTrue((await sandbox.exec(["true"])).ok)

        self.run_in_loop(body)

    def test_a_closed_client_ends_who_waits_for_it(self):
        async def body(client, sandbox):
            other = dsec.aio.connect(self.address)
            there = other.sandbox(sandbox.id)
            task = asyncio.create_task(there.exec(["sleep", "5555"]))
            process = await there.start(["sleep", "5555"])
            await asyncio.sleep(0.1)
            await other.close()
            with self.assertRaises((ConnectionError, dsec.DsecCancelledError)):
                await task
            with self.assertRaises((ConnectionError, dsec.DsecCancelledError)):
                await process.wait()
            with self.assertRaises(ConnectionError):
                await other.list()

        self.run_in_loop(body)

    def test_clients_outlive_the_engines_restart(self):
        async def body():
            async with dsec.aio.connect(self.address) as client:
                sandbox = await client.create("small")
                tasks = [asyncio.create_task(sandbox.exec(["sleep", "6666"])) for _ in range(5)]
                await asyncio.sleep(0.3)
                os.kill(self.child(), signal.SIGKILL)
                for ended in await asyncio.gather(*tasks, return_exceptions=True):
                    self.assertIsInstance(ended, dsec.DsecPlatformError)
                    self.assertEqual(ended.code, "unknown")
                async with await client.create("small") as anew:
                    self.assertTrue((await anew.exec(["true"])).ok)
                self.assertEqual(client._link.reconnections, 1)

        asyncio.run(body())

    def test_an_engine_that_is_gone_for_good_is_a_lost_connection(self):
        async def body():
            async with dsec.aio.connect(self.address, reconnect_timeout=0) as client:
                sandbox = await client.create("small")
                task = asyncio.create_task(sandbox.exec(["sleep", "6666"]))
                await asyncio.sleep(0.2)
                os.kill(self.child(), signal.SIGKILL)
                with self.assertRaises(dsec.DsecPlatformError):
                    await task
                with self.assertRaises(ConnectionError):
                    await client.list()
                spent = time.process_time()
                await asyncio.sleep(0.5)
                self.assertLess(time.process_time() - spent, 0.3, "the loop does not spin")

        asyncio.run(body())

    def test_both_clients_have_the_same_names_and_options(self):
        for name in dsec.aio.__all__:
            one, other = getattr(dsec, name), getattr(dsec.aio, name)
            if not inspect.isclass(one):
                self.assertEqual(str(inspect.signature(one)), str(inspect.signature(other)))
                continue
            names = [n for n in dir(one) if not n.startswith("_")]
            self.assertEqual(names, [n for n in dir(other) if not n.startswith("_")])
            for method in names:
                if callable(getattr(one, method)):
                    self.assertEqual(list(inspect.signature(getattr(one, method)).parameters),
                                     list(inspect.signature(getattr(other, method)).parameters))


if __name__ == "__main__":
    unittest.main()
