#!/usr/bin/env bash
# mqtt.js for the wire tests, at the version that package-lock.json pins; nothing to do when it is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/wire"

stamp=node_modules/.installed-lock.json
cmp -s package-lock.json "$stamp" && exit 0
npm ci --silent --no-audit --no-fund --no-update-notifier </dev/null
cp package-lock.json "$stamp"
