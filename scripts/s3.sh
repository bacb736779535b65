# Functions for the other scripts: an S3-compatible server (SeaweedFS) that tests share, on loopback ports of its own, in a folder
# that goes with it. Sourced by bash after need.sh, run by nobody.

# start_s3: starts a server, exports HELMDECK_TEST_S3_URL (with the credentials of whom it lets make buckets), and stops it when the
# script ends.
start_s3() {
    local weed
    weed="$(tests/support/s3/install.sh)"
    s3_folder="$(mktemp -d)"
    # What else is to happen at the end still does.
    local others
    others="$(trap -p EXIT | sed -e "s/^trap -- '//" -e "s/' EXIT\$//")"
    # shellcheck disable=SC2064
    trap "stop_s3; ${others:-:}" EXIT
    local secret
    secret="$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')"
    printf '{"identities": [{"name": "tests", "credentials": [{"accessKey": "tests", "secretKey": "%s"}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}' "$secret" >"$s3_folder/identities.json"
    # The ports of a try may be taken by somebody between choosing and using them.
    local try port
    for try in 1 2 3 4 5; do
        port=$((33000 + RANDOM % 3000 * 8))
        setsid "$weed" -logtostderr=true server -dir="$s3_folder" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
            -master.port="$port" -master.port.grpc=$((port + 1)) -volume.port=$((port + 2)) -volume.port.grpc=$((port + 3)) \
            -filer.port=$((port + 4)) -filer.port.grpc=$((port + 5)) -s3 -s3.port=$((port + 6)) -s3.port.grpc=$((port + 7)) \
            -s3.port.iceberg=0 -s3.port.lance=0 -s3.iam=false -s3.autoCreateBucket=false -s3.localSocket="$s3_folder/s3.sock" \
            -s3.config="$s3_folder/identities.json" -volume.max=0 -master.volumeSizeLimitMB=64 \
            >"$s3_folder/log" 2>&1 </dev/null &
        s3_process=$!
        local waited
        for ((waited = 0; waited < 300; waited++)); do
            if ! kill -0 "$s3_process" 2>/dev/null; then break; fi
            # Whoever does not say who it is is refused: that is an answer.
            if (exec 3<>"/dev/tcp/127.0.0.1/$((port + 6))" && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && grep -q '403' <&3) 2>/dev/null; then
                export HELMDECK_TEST_S3_URL="http://tests:$secret@127.0.0.1:$((port + 6))"
                return
            fi
            sleep 0.1
        done
        kill "$s3_process" 2>/dev/null || true
        if [[ "$try" -eq 5 ]]; then fail "the S3 server does not start: $(tail -n 5 "$s3_folder/log")"; fi
    done
}

stop_s3() {
    kill "$s3_process" 2>/dev/null || true
    wait "$s3_process" 2>/dev/null || true
    rm -rf "$s3_folder"
}
