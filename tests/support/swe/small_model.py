#!/usr/bin/env python3
"""A real, small language model as an OpenAI-compatible endpoint on loopback, by llama.cpp (PyPI xllamacpp).

usage: small_model.py MODEL.gguf       (a free port; prints `ready <base URL>` when it answers, and serves until it is ended)

One thread: two on a busy machine with two cores are several times slower, for they wait for each other by spinning.
"""
import signal
import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {"small"}
parameters.n_ctx = 8192
parameters.n_parallel = 1
parameters.cpuparams.n_threads = 1
parameters.cpuparams_batch.n_threads = 1
parameters.hostnames = ["127.0.0.1"]
parameters.port = 0
parameters.use_jinja = True
parameters.ui = False
parameters.offline = True
# It goes round in circles, and an answer without a limit would be as long as the context.
parameters.n_predict = 160
# The same prompt gives the same answer at temperature 0.
parameters.sampling.seed = 1
server = xllamacpp.Server(parameters)
print(f"ready {server.listening_address}/v1", flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
