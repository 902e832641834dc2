#!/usr/bin/env bash
# Checks the measured arm on one GPU in under 8 minutes, without a network: see gpu_check.py. --dry-run: a tiny model on
# the CPU. Results: one JSON and one table, in bench/results or where --out says.
set -euo pipefail
cd "$(dirname "$0")/.."
exec timeout --signal=INT "${LIMIT:-480}" "${PYTHON:-python3}" bench/gpu_check.py "$@"
