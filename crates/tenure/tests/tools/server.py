"""A server of tools that speaks MCP, for tests: over its standard input and output, or over HTTP.

What it is asked goes to the file LOG, a line for each. Its tasks are files in the directory STATE: NAME.task is a task,
NAME.done has its end, which a test writes. So tasks outlive the server, as those of real servers do.
"""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NEWEST = "2026-07-28"
OLDER = "2025-11-25"
TASKS = "io.modelcontextprotocol/tasks"

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--state", default=".")
parser.add_argument("--older", action="store_true", help="speaks the versions with sessions alone")
parser.add_argument("--deaf", action="store_true", help="says nothing before it is initialized")
parser.add_argument("--port", help="speaks HTTP, and writes its port into this file")
parser.add_argument("--token")
args = parser.parse_args()
lock = threading.Lock()


def log(**entry):
    with lock, open(args.log, "a") as file:
        file.write(json.dumps(entry) + "\n")


class Refused(Exception):
    def __init__(self, code, message, data=None):
        self.error = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


def text(said, **more):
    return {"resultType": "complete", "content": [{"type": "text", "text": said}], **more}


def question(message, properties, required=()):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def path(name, kind):
    return os.path.join(args.state, f"{name}.{kind}")


def stored(name, kind):
    try:
        with open(path(name, kind)) as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def store(name, kind, value):
    with open(path(name, kind) + ".new", "w") as file:
        json.dump(value, file)
    os.rename(path(name, kind) + ".new", path(name, kind))


def task(name, kind):
    """A task as it is now. It completes when its file says so."""
    made = stored(name, "task")
    if made is None:
        raise Refused(-32602, "no such task")
    now = {"resultType": kind, "taskId": name, "status": "working", "statusMessage": "at work",
           "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None,
           "pollIntervalMs": 100}
    if kind == "task":
        return now
    if stored(name, "cancelled"):
        return {**now, "status": "cancelled"}
    answer = stored(name, "answer")
    if made.get("asks") and answer is None:
        return {**now, "status": "input_required", "inputRequests": made["asks"]}
    if made.get("asks"):
        city = answer["city"]["content"]["city"]
        return {**now, "status": "completed", "result": text(f"off to {city}")}
    return {**now, **(stored(name, "done") or {})}


def call(params, progress):
    name, given = params["name"], params.get("arguments", {})
    answers, state = params.get("inputResponses", {}), params.get("requestState")
    if name == "echo":
        return text(given["text"])
    if name == "sum":
        return text("", structuredContent={"sum": given["a"] + given["b"]})
    if name == "picture":
        image = {"type": "image", "data": "aGVsbG8=" * given.get("times", 1), "mimeType": "image/png"}
        return {"resultType": "complete", "content": [{"type": "text", "text": "see"}, image]}
    if name == "fails":
        return text("the disk is full", isError=True)
    if name == "refuses":
        raise Refused(given.get("code", -32602), "wrong arguments")
    if name == "environment":
        return text("", structuredContent={"names": sorted(os.environ), "cwd": os.getcwd()})
    if name == "slow":
        for part in range(given["parts"]):
            progress(part + 1, given["parts"], f"part {part + 1}")
            time.sleep(0.05)
        while given.get("until") and not os.path.exists(given["until"]):
            time.sleep(0.01)
        return text("done")
    if name == "hangs":
        while True:
            progress(None, None, None)
            time.sleep(0.05)
    if name == "dies":
        os._exit(3)
    if name == "where":
        if given.get("twice") and "sure" in answers:
            return text(f"off to {state}, {answers['sure']['action']}")
        if "city" not in answers:
            asked = {"city": question("where to?", {"city": {"type": "string"}}, ["city"])}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "first"}
        if given.get("twice"):
            city = answers["city"]["content"]["city"]
            asked = {"sure": question(f"to {city}, sure?", {})}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": city}
        return text(f"off to {answers['city']['content']['city']}, {state}")
    if name == "sure":
        if "sure" in answers:
            return text(f"{answers['sure']['action']}, {state}")
        return {"resultType": "input_required", "inputRequests": {"sure": question("sure?", {})}, "requestState": "s"}
    if name == "busy":
        if state == "later":
            return text("now")
        return {"resultType": "input_required", "requestState": "later"}
    if name == "samples":
        return {"resultType": "input_required", "inputRequests": {"m": {"method": "sampling/createMessage"}}}
    if name == "job":
        asks = {"city": question("where to?", {"city": {"type": "string"}}, ["city"])} if given.get("asks") else None
        store(given["name"], "task", {"asks": asks})
        return task(given["name"], "task")
    raise Refused(-32602, f"no tool {name}")


def answer(message, progress, initialized):
    """The result of a request."""
    method, params = message["method"], message.get("params", {})
    if method == "server/discover":
        if args.older:
            raise Refused(-32601, "no such method")
        return {"resultType": "complete", "supportedVersions": [NEWEST], "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
                "ttlMs": 0, "cacheScope": "private"}
    if method == "initialize":
        initialized()
        return {"protocolVersion": OLDER, "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}
    if not args.older:
        meta = params.get("_meta", {})
        if meta.get("io.modelcontextprotocol/protocolVersion") != NEWEST:
            raise Refused(-32022, "which version?")
        if TASKS not in meta["io.modelcontextprotocol/clientCapabilities"]["extensions"]:
            raise Refused(-32021, "no tasks?")
    if method == "tools/call":
        return call(params, progress)
    if method == "tasks/get":
        return task(params["taskId"], "complete")
    if method == "tasks/update":
        store(params["taskId"], "answer", params["inputResponses"])
        return {"resultType": "complete"}
    if method == "tasks/cancel":
        store(params["taskId"], "cancelled", True)
        return {"resultType": "complete"}
    raise Refused(-32601, "no such method")


def reply(message, progress, initialized=lambda: None):
    try:
        return {"jsonrpc": "2.0", "id": message["id"], "result": answer(message, progress, initialized)}
    except Refused as refused:
        return {"jsonrpc": "2.0", "id": message["id"], "error": refused.error}


def told(message, done, total, said):
    token = message["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": done, "total": total, "message": said}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def stdio():
    log(started=os.getpid(), names=sorted(os.environ))
    print("a word on the standard error", file=sys.stderr, flush=True)

    def say(message):
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def serve(message):
        def progress(done, total, said):
            if done is not None:
                say(told(message, done, total, said))

        name = message.get("params", {}).get("name")
        if name == "prints":
            with lock:
                print("Server started!", flush=True)
        if name == "answers_another":
            return say({"jsonrpc": "2.0", "id": 4711, "result": text("for somebody else")})
        if name == "leaves_a_child":
            import subprocess
            child = subprocess.Popen(["sleep", "600"])
            log(child=child.pid)
        if name in ("prints", "leaves_a_child"):
            return say({"jsonrpc": "2.0", "id": message["id"], "result": text("all is well")})
        say(reply(message, progress))

    is_silent = args.deaf
    for line in sys.stdin:
        message = json.loads(line)
        log(**message)
        is_silent = is_silent and message.get("method") != "initialize"
        if "id" in message and "method" in message and not is_silent:
            threading.Thread(target=serve, args=[message], daemon=True).start()
    log(ended=os.getpid())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sessions = set()

    def log_message(self, *_):
        pass

    def say(self, status, message, **headers):
        body = json.dumps(message).encode() if message is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self):
        log(deleted=self.headers.get("Mcp-Session-Id"))
        self.say(200, {})

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        log(session=self.headers.get("Mcp-Session-Id"), **message)
        if args.token and self.headers.get("Authorization") != f"Bearer {stored('all', 'token') or args.token}":
            return self.say(401, {"error": "who are you?"})
        if "id" not in message:
            return self.say(202, None)
        method, params = message["method"], message.get("params", {})
        wanted = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": method}
        if "name" in params or "taskId" in params:
            wanted["Mcp-Name"] = params.get("name") or params.get("taskId")
        if not args.older and any(self.headers.get(name) != value for name, value in wanted.items()):
            return self.say(400, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32020, "message": "headers"}})
        if args.older and method not in ("initialize", "server/discover"):
            session = self.headers.get("Mcp-Session-Id")
            if session not in self.sessions or os.path.exists(path("all", "forgotten")):
                self.sessions.discard(session)
                if os.path.exists(path("all", "forgotten")):
                    os.remove(path("all", "forgotten"))
                return self.say(404, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32001, "message": "session"}})
        name = params.get("name")
        if name == "elsewhere":
            return self.say(302, None, Location="http://127.0.0.1:1/other")
        if name == "answers_another":
            return self.say(200, {"jsonrpc": "2.0", "id": 4711, "result": text("for somebody else")})
        if name == "prints":
            return self.page()
        if name in ("slow", "hangs", "breaks_off", "goes_on"):
            return self.stream(message)
        session = f"s{len(self.sessions)}-{time.time()}"
        made = {"Mcp_Session_Id": session} if method == "initialize" else {}
        said = reply(message, None, lambda: self.sessions.add(session))
        self.say(200 if "result" in said or args.older else 400, said, **made)

    def do_GET(self):
        last = self.headers.get("Last-Event-ID")
        log(resumed=last, session=self.headers.get("Mcp-Session-Id"))
        self.events()
        number, part = (int(word) for word in last.split("-"))
        if part < 3:
            self.wfile.write(f"id: {number}-{part + 1}\ndata:\n\n".encode())
        else:
            said = {"jsonrpc": "2.0", "id": number, "result": text("all of it")}
            self.wfile.write(f"id: {number}-{part + 1}\ndata: {json.dumps(said)}\n\n".encode())
        self.close_connection = True

    def page(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"<h1>")

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def stream(self, message):
        self.events()
        if message["params"]["name"] == "goes_on":
            self.wfile.write(f"id: {message['id']}-1\ndata:\n\n".encode())
            self.close_connection = True
            return

        def event(said):
            self.wfile.write(f"data: {json.dumps(said)}\n\n".encode() if said else b": alive\n\n")
            self.wfile.flush()

        def progress(done, total, said):
            event(told(message, done, total, said) if done is not None else None)

        try:
            if message["params"]["name"] != "breaks_off":
                event(reply(message, progress))
        except OSError:
            log(closed=message["id"])
        self.close_connection = True


if args.port:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(args.port + ".new", "w") as file:
        file.write(str(server.server_port))
    os.rename(args.port + ".new", args.port)
    server.serve_forever()
else:
    stdio()
