#!/usr/bin/env bash
# Measures an agent that speaks A2A with Tenure and with its peers: README.md. Options go to compare-a2a.js.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

for tool in node python3 redis-server; do
    if ! command -v "$tool" >/dev/null; then
        echo "$tool is missing; on Debian: apt-get install nodejs python3-venv redis-server" >&2
        exit 1
    fi
done

# Packages go below target/, each peer's apart: they need different versions of a2a-sdk. They are fetched again when
# their list has changed.
for peer in sdk akit; do
    list=$here/a2a/requirements-$peer.txt
    packages=target/peers/a2a-$peer
    if ! cmp -s "$list" "$packages/fetched.txt"; then
        rm -rf "$packages"
        python3 -m venv "$packages"
        "$packages/bin/pip" install --quiet --no-deps --requirement "$list"
        cp "$list" "$packages/fetched.txt"
    fi
done
exec node "$here/compare-a2a.js" "$@"
