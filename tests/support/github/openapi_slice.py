#!/usr/bin/env python3
"""Cuts GitHub's OpenAPI description (npm @octokit/openapi) down to some paths and the components that they reach.

usage: openapi_slice.py IN.json OUT.json 'REGEX of paths'
"""
import json
import re
import sys


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def main(source, target, pattern):
    with open(source, encoding="utf8") as file:
        document = json.load(file)
    wanted = re.compile(pattern)
    document["paths"] = {path: value for path, value in document["paths"].items() if wanted.search(path)}
    document.pop("x-webhooks", None)
    document.pop("webhooks", None)
    keep, todo = set(), [document["paths"]]
    while todo:
        for reference in references(todo.pop()):
            if reference not in keep and reference.startswith("#/components/"):
                keep.add(reference)
                _, _, kind, name = reference.split("/", 3)
                todo.append(document["components"][kind][name])
    document["components"] = {
        kind: {name: value for name, value in parts.items() if f"#/components/{kind}/{name}" in keep}
        for kind, parts in document["components"].items()
    }
    with open(target, "w", encoding="utf8") as file:
        json.dump(document, file)
    print(len(document["paths"]), "paths,", len(keep), "components")


main(*sys.argv[1:4])
