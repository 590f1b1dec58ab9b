#!/usr/bin/env bash
# A worker in curl and jq, one step at a time: it runs what a step has under `run` in its input in the shell, and
# completes it with what that prints; without `run`, with its input. docs/http.md has the requests.
#   TENURE_URL=http://127.0.0.1:7677 [TENURE_TOKEN=…] examples/curl-worker.sh [POOL [HANDLER…]]
set -euo pipefail
root=${TENURE_URL:-http://127.0.0.1:7677}/v1/pools/${1:-default}/workers dir=$(mktemp -d) link='' held='' pid='' after=0
me=$(jq -n --arg boot "$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')" '{concurrency: 1, boot: $boot} +
    if $ARGS.positional == [] then {} else {handlers: $ARGS.positional} end' --args "${@:2}")

ask() { # METHOD PATH [BODY]: prints the answer, and fails if it is a refusal.
    ${as-} curl -sS --fail-with-body --max-time "${most:-30}" -X "$1" "$root$2" ${3:+--json "$3"} --config <(
        [ -z "${TENURE_TOKEN-}" ] || printf 'header = "Authorization: Bearer %s"' "$TENURE_TOKEN")
}
join() { # Always under the same boot: at another gateway, too, the worker goes on with what it has in hand.
    local joined; joined=$(ask POST '' "$me") || return
    [ "$(jq -r .link <<<"$joined")" = "$link" ] || after=$(jq .after <<<"$joined")
    link=$(jq -r .link <<<"$joined")
}
say() { # WHAT FIELDS: repeats a report on the step in hand until it is recorded or refused.
    local said body; body=$(jq -c ". + $2" <<<"$held")
    until said=$(ask POST "/$link/attempts/$(jq -r .attempt_id <<<"$held")/$1" "$body"); do
        case $(jq -r '.retryable // .code' <<<"$said") in '' | true) sleep 1 ;; worker_gone) join || sleep 1 ;;
        *) echo "refused: $said" >&2; break ;; esac
    done >/dev/null
    held=''
}
run() { # CLAIM: while the command runs, its lease is renewed. If nobody renews it, the command ends before it does.
    local line lease fence pulse output stopped=''; output=$(jq -c '.step.input // {data: "null"}' <<<"$1")
    held=$(jq -c '{session_id, task_id, run_id, attempt_id, fencing_token, lease_ms, step_id: .step.step_id}' <<<"$1")
    if line=$(jq -er '.data | fromjson? | .run? // empty' <<<"$output"); then
        lease=$(jq '.lease_ms / 1000 | floor' <<<"$held") fence=$((SECONDS + lease / 3)); rm -f "$dir/done"
        setsid bash -c 'sh -c "$1" && : >"$2/done"' - "$line" "$dir" >"$dir/printed" 2>&1 & pid=$!
        while kill -0 "$pid" 2>/dev/null; do
            pulse=$(most=5 ask POST "/$link/heartbeat" "{\"holdings\": [$held]}" | jq -r '.code // (.pulses[] |
                .error.code // if .cancel_requested then "cancelled" else "renewed" end)') || true
            case $pulse in renewed) fence=$((SECONDS + lease / 2)) ;; worker_gone) join || true ;;
            cancelled | stale_* | *_terminal) fence=0 ;; esac # Somebody wants it to end, or it is over.
            if [ "$SECONDS" -ge "$fence" ]; then stopped=1; kill -- "-$pid" || true; break; fi
            sleep "$((lease / 9)).5" & wait -n "$pid" $! || true
        done
        pid='' output=$(head -c 50000 "$dir/printed" | jq -Rsc '{data: tojson}')
        [ -e "$dir/done" ] || output=''
    fi
    if [ -n "$stopped" ]; then say end '{outcome: "cancelled"}'
    elif [ -n "$output" ]; then say report "{status: \"completed\", output: $output}"
    else say report '{status: "failed", reason: {code: "exit_status", message: "the command failed"}}'; fi
}
trap 'set +e; kill ${poll-} 2>/dev/null; [ -z "$pid" ] || kill -- "-$pid"; [ -z "$held" ] || ask POST \
    "/$link/attempts/$(jq -r .attempt_id <<<"$held")/release" "$(jq -c ". + {reason: \"draining\"}" <<<"$held")"
    ask DELETE "/$link?after=$after"; rm -r "$dir"' EXIT
trap 'exit 0' INT TERM
until join; do sleep 2; done
while true; do
    as=exec ask GET "/$link/deliveries?after=$after&wait=20s" >"$dir/page" & poll=$! # A signal ends a wait at once.
    if wait "$poll"; then poll='' after=$(jq .last "$dir/page"); else poll=''; join || sleep 2; continue; fi
    while read -r it <&3; do
        case $it in *'"grant":'*) run "$(jq -c .grant <<<"$it")" ;; *'"drain":true'*) exit ;; esac
    done 3< <(jq -c '.deliveries[]' "$dir/page")
done
