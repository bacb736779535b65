#!/usr/bin/env python3
"""Checks request bodies that replay.py logged against GitHub's OpenAPI description (needs PyPI jsonschema).

usage: body_check.py SLICE.json LOG.jsonl
Ends with 1 if a body is invalid, or if nothing was checked: a check that saw nothing proves nothing.
"""
import json
import re
import sys
from urllib.parse import urlsplit

from jsonschema import Draft4Validator


def main(slice_path, log_path):
    with open(slice_path, encoding="utf8") as file:
        document = json.load(file)
    # Paths with fewer places first, so that a fixed word wins over a place.
    routes = [
        (re.compile("^" + re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path)) + "$"), operations)
        for path, operations in sorted(document["paths"].items(), key=lambda item: item[0].count("{"))
    ]
    passed = failed = 0
    with open(log_path, encoding="utf8") as log:
        for entry in map(json.loads, log):
            if not entry["body"]:
                continue
            path, method = urlsplit(entry["path"]).path, entry["method"].lower()
            operation = next((found[method] for route, found in routes if route.match(path) and method in found), None)
            if operation is None:
                print("not in the description:", entry["method"], path)
                failed += 1
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            validator = Draft4Validator({**schema, "components": document["components"]})
            problems = [problem.message for problem in validator.iter_errors(json.loads(entry["body"]))]
            unknown = set(json.loads(entry["body"])) - set(schema.get("properties", {}))
            problems += [f"unknown member {name}" for name in sorted(unknown)]
            if problems:
                failed += 1
                print(operation["operationId"], path, problems)
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main(*sys.argv[1:3]))
