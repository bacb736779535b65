#!/usr/bin/env python3
"""The official Python client (PyPI `mcp`), driven by a plan.

The plan is one JSON object on stdin:
    target   {"url": ..., "headers": {...}} or {"command": [...], "env": {...}}
    mode     "auto" (the newest revision that both speak), or "legacy" (the handshake of 2025-11-25 and before)
    steps    a list of
        {"do": "tools"}                 lists the tools, page after page
        {"do": "resources"}             lists the resources
        {"do": "read", "uri": ...}      reads one
        {"do": "call", "name": ..., "arguments": {...}, "meta": {...}}
        {"do": "cancel", "name": ..., "arguments": {...}, "once": FILE}   calls, and gives up as soon as the file exists
The answer is one JSON object on stdout: protocol, server, and for each step {"result": ...} or {"error": {code, message, data}};
calls also say their "progress", cancels {"cancelled": true} if the call was given up before it was answered. Over HTTP
each step also says how many requests it "sent": what the client has in its own cache takes none.
"""

import asyncio
import json
import os
import sys

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


sent = []


async def note(request):
    sent.append(request.method)


def transport(target):
    if "url" in target:
        import httpx2

        client = httpx2.AsyncClient(
            headers=target.get("headers") or {}, timeout=300, event_hooks={"request": [note]}
        )
        return streamable_http_client(target["url"], http_client=client)
    program, *arguments = target["command"]
    return stdio_client(StdioServerParameters(command=program, args=arguments, env=target.get("env")))


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def pages(fetch, field):
    found, cursor = [], None
    while True:
        page = plain(await fetch(cursor=cursor))
        found += page[field]
        cursor = page.get("nextCursor")
        if cursor is None:
            return {**page, field: found}


async def exists(path):
    while not os.path.exists(path):
        await asyncio.sleep(0.01)


async def call(client, step):
    progress = []

    async def on_progress(done, total, message):
        progress.append({"progress": done, "total": total, "message": message})

    result = await client.call_tool(
        step["name"], step.get("arguments"), progress_callback=on_progress, meta=step.get("meta")
    )
    return {"result": plain(result), "progress": progress}


async def cancel(client, step):
    running = asyncio.create_task(client.call_tool(step["name"], step.get("arguments")))
    started = asyncio.create_task(exists(step["once"]))
    await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if running.done():
        return {"cancelled": False, "result": plain(running.result())}
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        return {"cancelled": True}
    return {"cancelled": False}


async def take(client, step):
    try:
        match step["do"]:
            case "tools":
                return {"result": await pages(client.list_tools, "tools")}
            case "resources":
                return {"result": await pages(client.list_resources, "resources")}
            case "read":
                return {"result": plain(await client.read_resource(step["uri"]))}
            case "call":
                return await call(client, step)
            case "cancel":
                return await cancel(client, step)
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message, "data": error.data}}
    raise ValueError(step)


async def main():
    plan = json.load(sys.stdin)
    async with Client(transport(plan["target"]), mode=plan.get("mode", "auto"), read_timeout_seconds=300) as client:
        steps = []
        for step in plan["steps"]:
            before = len(sent)
            steps.append({**await take(client, step), "sent": len(sent) - before})
        server = client.server_info
        json.dump(
            {"protocol": client.protocol_version, "server": server and plain(server), "steps": steps}, sys.stdout
        )


asyncio.run(main())
