#!/bin/sh
# An MCP server over stdio whose tools do what servers do when they are good and when they are not. It works in its current
# folder: `tools.json` is its list of tools, `starts` and `calls` get a line each time.
echo $$ >>starts
echo "started with $TOKEN" >&2
[ -e refuse ] && exit 4
[ -e delay ] && sleep "$(cat delay)"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
error() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"%s"}}\n' "$id" "$1"; }
text() { answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
# Puts what follows across the end of what is passed on.
pad() { case $line in *cut*) head -c 1015 /dev/zero | tr '\0' x ;; esac; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  token=$(printf '%s' "$line" | sed -n 's/.*"progressToken":\([0-9]*\).*/\1/p')
  case $line in
  *'"method":"initialize"'*)
    [ -e mute ] && continue
    [ -e say_handshake ] && { error "no handshake for $TOKEN"; continue; }
    if [ -e modern ]; then
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no handshake here"}}\n' "$id"
    else
      answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"script","version":"1"}}'
    fi ;;
  *'"method":"server/discover"'*)
    [ -e say_handshake ] && { error "no discovery for $TOKEN"; continue; }
    answer '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}' ;;
  *'"method":"tools/list"'*)
    [ -e say_list ] && { error "no tools for $TOKEN"; continue; }
    answer "{\"tools\":$(cat tools.json)}" ;;
  *'"method":"notifications/cancelled"'*) echo "$line" >>cancelled ;;
  *'"method":"tools/call"'*)
    echo "$line" >>calls
    case $line in
    *'"name":"count"'*) text "call $(wc -l <calls | tr -d ' ')" ;;
    *'"name":"hint"'*) answer "{\"content\":[{\"type\":\"text\",\"text\":\"call $(wc -l <calls | tr -d ' ')\"}],\"_meta\":$(cat meta.json)}" ;;
    *'"name":"slow"'*) sleep 0.3; text "slow" ;;
    *'"name":"structured"'*) answer '{"content":[{"type":"text","text":"{}"}],"structuredContent":{"n":1}}' ;;
    *'"name":"list"'*) answer '{"content":[],"structuredContent":[1,2]}' ;;
    *'"name":"nested"'*) answer "{\"content\":[],\"structuredContent\":$(cat nested.json)}" ;;
    *'"name":"fail"'*) answer '{"content":[{"type":"text","text":"the disk is full"}],"isError":true}' ;;
    *'"name":"unknown"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool"}}\n' "$id" ;;
    *'"name":"die"'*) kill -9 $$ ;;
    *'"name":"hang"'*) : ;;
    *'"name":"flood"'*) head -c 6000000 /dev/zero | tr '\0' x ;;
    *'"name":"large"'*) text "$(head -c 200000 /dev/zero | tr '\0' x)" ;;
    *'"name":"garbage"'*) printf 'not json\n{"half": \n[1]\n'; text "after garbage" ;;
    *'"name":"progress"'*)
      printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"total":4,"message":"a quarter"}}\n' "$token"
      sleep 0.2
      text "done" ;;
    *'"name":"change"'*)
      cp changed.json tools.json
      printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
      text "changed" ;;
    *'"name":"token"'*) text "the token is $TOKEN" ;;
    *'"name":"tell"'*)
      case $line in
      *is_error*) answer "{\"content\":[{\"type\":\"text\",\"text\":\"$(pad)$TOKEN is wrong\"}],\"isError\":true}" ;;
      *rpc_error*) error "$(pad)$TOKEN is wrong" ;;
      *progress*)
        printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":"%s with"}}\n' "$token" "$(pad)$TOKEN"
        sleep 0.2
        text "done" ;;
      esac ;;
    *'"name":"ask"'*)
      printf '{"jsonrpc":"2.0","id":9001,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}\n'
      IFS= read -r sampling
      printf '{"jsonrpc":"2.0","id":9002,"method":"roots/list"}\n'
      IFS= read -r roots
      printf '%s\n%s\n' "$sampling" "$roots" >refusals
      text "asked" ;;
    esac ;;
  esac
done
