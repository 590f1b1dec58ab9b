"""A small server that takes the updates that an agent sends by itself (push notifications)."""
import http.server
import json
import queue
import threading


class Receiver:
    """Listens on a free port of 127.0.0.1 until the end of the program."""

    def __init__(self):
        self.came = queue.Queue()
        came = self.came

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                came.put((self.headers, json.loads(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}/updates"

    def until(self, is_last, seconds=20):
        """The headers and bodies of the updates up to this one."""
        told = []
        while not told or not is_last(told[-1][1]):
            told.append(self.came.get(timeout=seconds))
        return told
