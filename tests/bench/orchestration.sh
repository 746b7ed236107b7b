#!/usr/bin/env bash
# Durable trials a second beside Optuna (SQLite, journal file) and Vizier, in the same window on the same disk.
#
#   tests/bench/orchestration.sh [--rounds N] [--seconds S] [--clients 1,8] [--only tailor,vizier] [--bin FOLDER]
#                                [--folder FOLDER]
#
# The peers go to tests/bench/peers/orchestration (ignored by git), pinned, from PyPI. The programs come from
#   cmake --preset release && cmake --build build/release --target tailor-bench tailor-coordinator
set -euo pipefail
started=$PWD
cd "$(dirname "$0")"

fail() { printf 'orchestration.sh: error: %s\n' "$*" >&2; exit 1; }

bin=../../build/release/bin folder= rest=()
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$(cd "$started" && cd "$2" && pwd); shift 2 ;;
    --folder) folder=$(cd "$started" && cd "$2" && pwd); shift 2 ;;
    --rounds|--seconds|--clients|--only) rest+=("$1" "$2"); shift 2 ;;
    *) fail "unknown option $1" ;;
  esac
done
[ -x "$bin/tailor-bench" ] || fail "$bin/tailor-bench is missing: build tailor-bench, or give --bin"
bin=$(cd "$bin" && pwd)

# Vizier needs jax to start its server and breaks with a newer one.
pins=(optuna==5.0.0 "google-vizier[jax]==0.1.24" jax==0.4.38 jaxlib==0.4.38)
work=peers/orchestration
python=$work/venv/bin/python
mkdir -p "$work"
if [ "$(cat $work/pins 2>/dev/null)" != "${pins[*]}" ]; then
  printf 'orchestration.sh: installing %s into tests/bench/%s\n' "${pins[*]}" "$work"
  [ -x "$python" ] || python3 -m venv "$work/venv" || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  printf '%s' "${pins[*]}" >"$work/pins"
fi
exec "$python" orchestration.py --bench "$bin/tailor-bench" --folder "${folder:-$PWD/$work}" "${rest[@]}"
