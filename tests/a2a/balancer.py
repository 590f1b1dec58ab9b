"""A balancer before gateways: each request goes to the next one of them in turn, also those over one connection.

It may give the card of one agent at the root of its address: the kit for 0.3 looks for a card nowhere else.
"""
import itertools
import socket
import socketserver
import threading

CARD = b"/.well-known/agent-card.json"
CLOSE = b"Connection: close\r\n\r\n"


class Way(socketserver.StreamRequestHandler):
    def handle(self):
        lines = [self.rfile.readline()]
        while lines[-1] not in (b"\r\n", b""):
            lines.append(self.rfile.readline())
        if lines.pop() == b"":
            return  # The caller has gone.
        first, *headers = lines
        first = first.replace(b" " + CARD, b" " + self.server.root + CARD)
        # Over a connection that the gateway closes comes only one request.
        headers = [header for header in headers if not header.lower().startswith(b"connection:")]
        with socket.create_connection(("127.0.0.1", next(self.server.turns))) as onward:
            onward.sendall(first + b"".join(headers) + CLOSE)
            threading.Thread(target=pass_on, args=(self.rfile.read1, onward), daemon=True).start()
            pass_on(onward.recv, self.connection)


def pass_on(read, to):
    try:
        while data := read(65536):
            to.sendall(data)
    except (OSError, ValueError):
        pass  # One of both has gone.


class Balancer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def balance(ports, root=""):
    """Listens in the background; returns the address."""
    balancer = Balancer(("127.0.0.1", 0), Way)
    balancer.turns, balancer.root = itertools.cycle(ports), root.encode()
    threading.Thread(target=balancer.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{balancer.server_address[1]}"
