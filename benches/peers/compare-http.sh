#!/usr/bin/env bash
# Measures creating jobs over HTTP with Tenure and with its peers: README.md. Options go to compare-http.js.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

for tool in node npm redis-server wrk; do
    if ! command -v "$tool" >/dev/null; then
        echo "$tool is missing; on Debian: apt-get install nodejs npm redis-server wrk" >&2
        exit 1
    fi
done

# Packages go below target/, and are fetched again when their list has changed.
packages=target/peers
mkdir -p "$packages"
if ! cmp -s "$here/package-lock.json" "$packages/node_modules/fetched.json"; then
    cp "$here/package.json" "$here/package-lock.json" "$packages/"
    npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund
    cp "$here/package-lock.json" "$packages/node_modules/fetched.json"
fi
NODE_PATH=$PWD/$packages/node_modules exec node "$here/compare-http.js" "$@"
