"""A burst: many sandboxes in one request, a program in all at once. usage: burst.py IMAGE [500]"""
import asyncio
import sys

import dsec.aio


async def main(image: str, count: int) -> None:
    async with dsec.aio.connect() as client:
        made = await client.create_many(count, image, ttl=600, on_disconnect="destroy")
        sandboxes = [one for one in made if isinstance(one, dsec.aio.Sandbox)]
        results = await asyncio.gather(*[one.exec(["true"], timeout=60) for one in sandboxes])
        print(f"{len(sandboxes)} made, {count - len(sandboxes)} refused, "
              f"{sum(result.ok for result in results)} ran")
        await client.destroy([one.id for one in sandboxes])

asyncio.run(main(sys.argv[1], int((sys.argv[2:] or ["500"])[0])))
