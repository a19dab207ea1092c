"""An OTLP collector for tests: what it takes, by gRPC and by HTTP, comes out as one JSON object a line.

Decoding is that of Google's protobuf runtime and the official stubs, so it shares nothing with the
sender. Says `@ready GRPC_PORT HTTP_PORT`, and ends when its standard input does.

A line has `via` (grpc or http), `signal` (traces, logs or metrics), `headers`, `encoding` (how the
body was packed), `resource`, and `items`: spans, records or metrics with ids in hex and attributes
as one object.
"""

import argparse
import base64
import gzip
import http.server
import json
import socket
import ssl
import sys
import threading
from concurrent import futures

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

SIGNALS = {
    "traces": (traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse, "resourceSpans", "scopeSpans", "spans"),
    "logs": (logs.ExportLogsServiceRequest, logs.ExportLogsServiceResponse, "resourceLogs", "scopeLogs", "logRecords"),
    "metrics": (
        metrics.ExportMetricsServiceRequest,
        metrics.ExportMetricsServiceResponse,
        "resourceMetrics",
        "scopeMetrics",
        "metrics",
    ),
}
"""By signal: request, answer, and the names of its three levels in JSON."""

saying = threading.Lock()
kept = []


def say(*words):
    with saying:
        print(*words, flush=True)


def value(wire):
    """An attribute's value as JSON has it."""
    (kind, inner), *_ = wire.items() or [(None, None)]
    if kind == "arrayValue":
        return [value(item) for item in inner.get("values", [])]
    return int(inner) if kind == "intValue" else inner


def plain(wire):
    """Ids in hex, attributes as one object, everything else as it is."""
    if isinstance(wire, list):
        return [plain(item) for item in wire]
    if not isinstance(wire, dict):
        return wire
    made = {}
    for name, inner in wire.items():
        if name == "attributes":
            made[name] = {item["key"]: value(item.get("value", {})) for item in inner}
        elif name == "body":
            made[name] = value(inner)
        else:
            made[name] = plain(inner)
    return made


def hexed(message):
    """The JSON form of a message has ids in base64; OTLP wants hex."""
    made = MessageToDict(message)

    def walk(wire):
        if isinstance(wire, list):
            for item in wire:
                walk(item)
        elif isinstance(wire, dict):
            for name, inner in wire.items():
                if name in ("traceId", "spanId", "parentSpanId"):
                    wire[name] = base64.b64decode(inner).hex()
                else:
                    walk(inner)

    walk(made)
    return made


def told(via, signal, message, headers, encoding):
    _, _, outer, inner, items = SIGNALS[signal]
    for part in plain(hexed(message)).get(outer, []):
        for scope in part.get(inner, []):
            say(
                json.dumps(
                    {
                        "via": via,
                        "signal": signal,
                        "headers": headers,
                        "encoding": encoding,
                        "resource": part.get("resource", {}).get("attributes", {}),
                        "scope": scope.get("scope", {}),
                        "items": scope.get(items, []),
                    }
                )
            )


def servicer(signal, base):
    _, answer, *_ = SIGNALS[signal]

    class Servicer(base):
        def Export(self, request, context):
            headers = {pair.key: pair.value for pair in context.invocation_metadata() if isinstance(pair.value, str)}
            told("grpc", signal, request, headers, headers.get("grpc-encoding", ""))
            return answer()

    return Servicer()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        signal = self.path.removeprefix("/v1/")
        if signal not in SIGNALS or self.headers["content-type"] != "application/x-protobuf":
            self.send_error(404)
            return
        encoding = self.headers.get("content-encoding", "")
        request, answer, *_ = SIGNALS[signal]
        message = request()
        message.ParseFromString(gzip.decompress(body) if encoding == "gzip" else body)
        told("http", signal, message, {name.lower(): text for name, text in self.headers.items()}, encoding)
        out = answer().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)


def read(path):
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def serve_grpc(options):
    server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    traces_grpc.add_TraceServiceServicer_to_server(servicer("traces", traces_grpc.TraceServiceServicer), server)
    logs_grpc.add_LogsServiceServicer_to_server(servicer("logs", logs_grpc.LogsServiceServicer), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(servicer("metrics", metrics_grpc.MetricsServiceServicer), server)
    address = f"127.0.0.1:{options.grpc}"
    if options.cert:
        client_ca = read(options.client_ca)
        credentials = grpc.ssl_server_credentials(
            [(read(options.key), read(options.cert))], client_ca, require_client_auth=client_ca is not None
        )
        port = server.add_secure_port(address, credentials)
    else:
        port = server.add_insecure_port(address)
    server.start()
    # A server that nobody holds stops.
    kept.append(server)
    return port


def serve_http(options):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", options.http), Handler)
    server.daemon_threads = True
    if options.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.cert, options.key)
        if options.client_ca:
            context.load_verify_locations(options.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def deaf(port):
    """Takes every connection and reads nothing."""
    listener = socket.create_server(("127.0.0.1", port), backlog=64)

    def accept():
        while True:
            kept.append(listener.accept())

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grpc", type=int, default=0, help="port; 0: any")
    parser.add_argument("--http", type=int, default=0, help="port; 0: any")
    parser.add_argument("--cert", help="certificate chain (PEM): TLS on both ports")
    parser.add_argument("--key", help="its key (PEM)")
    parser.add_argument("--client-ca", help="clients must show a certificate of this CA (PEM)")
    parser.add_argument("--deaf", action="store_true", help="take connections and read nothing")
    options = parser.parse_args()
    if options.deaf:
        ports = deaf(options.grpc), deaf(options.http)
    else:
        ports = serve_grpc(options), serve_http(options)
    say("@ready", *ports)
    sys.stdin.read()


main()
