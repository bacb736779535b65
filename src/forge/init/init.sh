#!/bin/sh
# Sets up what the project needs to be built. It starts nothing and runs nothing of the project. Change it as the project needs.
set -eu

cd "$(dirname "$0")/.."

if [ -f Cargo.toml ]; then
  command -v cargo >/dev/null || { echo "cargo is missing" >&2; exit 1; }
  cargo fetch
fi
if [ -f package-lock.json ]; then
  command -v npm >/dev/null || { echo "npm is missing" >&2; exit 1; }
  npm ci --ignore-scripts
elif [ -f package.json ]; then
  command -v npm >/dev/null || { echo "npm is missing" >&2; exit 1; }
  npm install --ignore-scripts
fi
if [ -f requirements.txt ]; then
  command -v python3 >/dev/null || { echo "python3 is missing" >&2; exit 1; }
  [ -d .venv ] || python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --requirement requirements.txt
fi
