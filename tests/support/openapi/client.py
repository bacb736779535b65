"""Calls ten routes of a server with the client that openapi-python-client made of its document.

usage: client.py FOLDER_OF_THE_CLIENT URL TOKEN
"""

import sys

sys.path.insert(0, sys.argv[1])

from made import AuthenticatedClient
from made.api.jobs import list_jobs, show_job, start_job
from made.api.memory import list_entries, list_facts, recall_facts, store_fact
from made.api.operations import health, readiness
from made.api.packs import list_packs, run_pack, show_pack
from made.api.test import run_test_plain
from made.models import Input, NewFact, Problem, RecallFacts, TestPlainV1Input

client = AuthenticatedClient(base_url=sys.argv[2], token=sys.argv[3])
said = []


def check(name, answer, status=200):
    assert answer.status_code == status, (name, answer)
    assert answer.parsed is not None, (name, answer)
    said.append(name)
    return answer.parsed


assert check("health", health.sync_detailed(client=client)).status == "ok"
check("readiness", readiness.sync_detailed(client=client))
names = [pack.name for pack in check("list_packs", list_packs.sync_detailed(client=client)).packs]
assert "test.plain" in names, names
assert check("show_pack", show_pack.sync_detailed("test.plain", client=client)).name == "test.plain"
body = Input.from_dict({"repo": "a"})
assert check("run_pack", run_pack.sync_detailed("test.plain", client=client, body=body)).output["input"] == {"repo": "a"}
typed = run_test_plain.sync_detailed(client=client, body=TestPlainV1Input(repo="b"))
assert check("run_test_plain", typed).to_dict()["output"]["input"] == {"repo": "b"}
job = check("start_job", start_job.sync_detailed("test.plain", client=client, body=body), 202)
assert check("show_job", show_job.sync_detailed(job.id, client=client)).id == job.id
assert check("list_jobs", list_jobs.sync_detailed(client=client, limit=5)).jobs
check("store_fact", store_fact.sync_detailed(client=client, body=NewFact.from_dict({"key": "k", "value": "v"})))
assert check("list_facts", list_facts.sync_detailed(client=client)).facts
check("recall_facts", recall_facts.sync_detailed(client=client, body=RecallFacts.from_dict({"key": "k"})))
check("list_entries", list_entries.sync_detailed(client=client, limit=10))
refused = show_pack.sync_detailed("test.nowhere", client=client)
assert refused.status_code == 404 and isinstance(refused.parsed, Problem) and refused.parsed.code == "not_found", refused
print(len(said))
