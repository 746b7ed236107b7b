#!/usr/bin/env bash
# Integer widths of `tailor geometry allocate` against an exact dynamic program, on random problems.
#
#   tests/parity/allocate.sh [--program build/release/bin/tailor] [--problems 1000] [--seed 0]
#
# Needs Python 3 and nothing else. Fails on any difference.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { printf 'allocate.sh: error: python3 is missing: apt-get install python3\n' >&2; exit 1; }
exec python3 tests/parity/allocate.py "$@"
