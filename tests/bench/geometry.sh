#!/usr/bin/env bash
# Compares geometry/ with its peers on this machine: one thread, processor time, one run.
#
#   tests/bench/geometry.sh [--only h1,residual,w2,ties,gw,profile,threads,large] [--rounds N] [--program FILE]
#
# First time: a virtual environment with pinned peers from PyPI goes to tests/bench/peers (ignored by git),
# and Debian's ripser is installed if it is missing and this is root. The program comes from
#   cmake --preset release -DTAILOR_BENCH=ON && cmake --build build/release --target geometry_bench
set -euo pipefail
cd "$(dirname "$0")"

fail() { printf 'geometry.sh: error: %s\n' "$*" >&2; exit 1; }

pins=(numpy==1.26.4 scipy==1.17.1 giotto-ph==0.2.4 gudhi==3.13.0 POT==0.9.7.post1)
python=peers/venv/bin/python
if [ "$(cat peers/pins 2>/dev/null)" != "${pins[*]}" ]; then
  printf 'geometry.sh: installing %s into tests/bench/peers\n' "${pins[*]}"
  mkdir -p peers
  [ -x "$python" ] || python3 -m venv peers/venv || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  printf '%s' "${pins[*]}" >peers/pins
fi
if ! command -v ripser >/dev/null; then
  [ "$(id -u)" -eq 0 ] || fail "the ripser program is missing: apt-get install ripser"
  apt-get install -y -q --no-install-recommends ripser >/dev/null || fail "apt-get install ripser failed"
fi
case " $* " in
  *" --program "*) ;;
  *) [ -x ../../build/release/bin/geometry_bench ] ||
       fail "build/release/bin/geometry_bench is missing: cmake --preset release -DTAILOR_BENCH=ON, then build geometry_bench" ;;
esac
exec nice -n 15 "$python" geometry.py "$@"
