#!/bin/sh
# An MCP server whose tool reports the texts in `first`, one JSON string a line, then those in `second` once there is a
# file `next`, and ends once there is a file `go`. After each file it reports that it is through.
say() {
  count=$((count + 1))
  printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":100,"message":%s}}\n' "$token" "$count" "$1"
}
report() {
  while IFS= read -r text; do say "$text"; done <"$1"
  # Notifications may overtake each other.
  sleep 0.5
  say "\"through $1\""
}
wait_for() { while [ ! -e "$1" ]; do sleep 0.05; done; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  token=$(printf '%s' "$line" | sed -n 's/.*"progressToken":\([0-9]*\).*/\1/p')
  case $line in
  *'"method":"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"steps","version":"1"}}' ;;
  *'"method":"tools/list"'*) result='{"tools":[{"name":"walk","description":"Walks","inputSchema":{"type":"object"}}]}' ;;
  *'"method":"tools/call"'*)
    count=0
    report first
    wait_for next
    report second
    wait_for go
    result='{"content":[{"type":"text","text":"walked"}]}' ;;
  *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
