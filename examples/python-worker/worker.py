#!/usr/bin/env python3
"""A worker in Python with three handlers: echo, sleep, fail."""

import argparse, asyncio

from tenure import Failed, Worker

async def echo(given):
    return given

async def sleep(given):
    await asyncio.sleep(given["ms"] / 1000)

async def fail(given):
    raise Failed(given.get("code", "failed"), given.get("message", "as asked"), given.get("retryable"))

HANDLERS = {"echo": echo, "sleep": sleep, "fail": fail}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", default="nats://127.0.0.1:4222")
    parser.add_argument("--user", default="worker-1", help="password: TENURE_PASSWORD")
    parser.add_argument("--pool", default="default")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--grace", type=float, default=10, help="seconds for handlers at the end")
    asyncio.run(Worker(parser.parse_args(), HANDLERS).run())
