"""Receives OTLP over HTTP and decodes it with the classes that Google's compiler generated.

Usage: collector.py FILE [REFUSED]
Prints its port. For each request it appends one line of JSON to FILE: signal, headers, and the decoded message with ids in
hexadecimal. The first REFUSED requests are answered 503. A message with a field that the classes do not know is answered
400. GET /echo answers with the request's own headers.
"""

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}
IDS = {"traceId", "spanId", "parentSpanId"}
lock = Lock()
left = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def known(message):
    """Says whether the classes know every field of a message."""
    if len(UnknownFieldSet(message)):
        return False
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = value if field.is_repeated else [value]
            if not all(known(part) for part in parts):
                return False
    return True


def in_hexadecimal(value):
    if isinstance(value, list):
        return [in_hexadecimal(part) for part in value]
    if isinstance(value, dict):
        return {
            name: base64.b64decode(part).hex() if name in IDS else in_hexadecimal(part) for name, part in value.items()
        }
    return value


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", media_type="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.answer(200, json.dumps(headers).encode())

    def do_POST(self):
        global left
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with lock:
            refused = left > 0
            left -= 1
        if refused:
            return self.answer(503)
        media_type = self.headers["Content-Type"]
        if media_type == "application/json":
            # The ids of OTLP's JSON are hexadecimal, so the generated classes cannot read it.
            decoded = json.loads(body)
        else:
            message = MESSAGES[self.path]()
            message.ParseFromString(body)
            if not known(message):
                return self.answer(400)
            decoded = in_hexadecimal(MessageToDict(message))
        headers = {name.lower(): value for name, value in self.headers.items()}
        line = {"signal": self.path.rsplit("/", 1)[1], "headers": headers, "message": decoded}
        with lock, open(sys.argv[1], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.answer(200, b"" if media_type != "application/json" else b"{}", media_type)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
