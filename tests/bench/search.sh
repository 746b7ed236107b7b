#!/usr/bin/env bash
# How good the searches of coordinator/search are beside Optuna's TPE and GP, on five problems.
#
#   tests/bench/search.sh [--seeds N] [--trials N] [--peers tpe,gp] [--problems branin,shape] [--bin FOLDER]
#
# First time: Optuna at a pinned version, with the torch that its GP needs (2 GB), goes to tests/bench/peers/search
# (ignored by git). Runs that are there already, in peers/search/*.jsonl, are not done again. The program comes from
#   cmake --preset release -DTAILOR_BENCH=ON && cmake --build build/release --target search_bench
set -euo pipefail
started=$PWD
cd "$(dirname "$0")"

fail() { printf 'search.sh: error: %s\n' "$*" >&2; exit 1; }

bin=../../build/release/bin seeds=20 trials=200 peers=tpe,gp problems=branin,hartmann6,mixed,constrained,shape
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$(cd "$started" && cd "$2" && pwd); shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --trials) trials=$2; shift 2 ;;
    --peers) peers=$2; shift 2 ;;
    --problems) problems=$2; shift 2 ;;
    *) fail "unknown option $1" ;;
  esac
done
[ -x "$bin/search_bench" ] || fail "$bin/search_bench is missing: build search_bench, or give --bin"

pins=(optuna==5.0.0 numpy==1.26.4 scipy==1.17.1 torch==2.11.0)
work=peers/search
python=$work/venv/bin/python
mkdir -p "$work"
if [ "$(cat $work/pins 2>/dev/null)" != "${pins[*]}" ]; then
  printf 'search.sh: installing %s into tests/bench/%s\n' "${pins[*]}" "$work"
  [ -x "$python" ] || python3 -m venv "$work/venv" || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  printf '%s' "${pins[*]}" >"$work/pins"
fi
# Both sides must mean the same problems.
diff <("$bin/search_bench" values) <("$python" search.py values) || fail "the problems differ between the two sides"
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
"$python" search.py peers --out "$work/optuna-$trials.jsonl" --peers "$peers" --problems "$problems" --seeds "$seeds" \
  --trials "$trials"
"$bin/search_bench" run --algorithms random,tpe,gp,evolution --problems "$problems" --seeds "$seeds" --trials "$trials" \
  >"$work/tailor-$trials.jsonl"
"$python" search.py table "$work/tailor-$trials.jsonl" "$work/optuna-$trials.jsonl"
"$bin/search_bench" speed
