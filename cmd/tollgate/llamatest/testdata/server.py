"""Serves a GGUF model with llama.cpp's HTTP server until standard input ends.

Usage: server.py FILE

Prints the address of the server on one line once it listens on a free port of 127.0.0.1. It ends with standard input so
that no server outlives the test that started it, however that test ended.
"""

import socket
import sys

import xllamacpp


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = free_port()
    params.n_ctx = 8192
    params.n_parallel = 4
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


main()
