#!/usr/bin/env bash
# Compares training steps with PyTorch on this machine: one thread, processor time, one run.
#
#   tests/bench/training.sh [--shapes S,M] [--types f32,bf16] [--rounds N] [--program FILE]
#   tests/bench/training.sh --parity [--program-folder DIR]     the same recipe to the same loss (minutes)
#
# First time: a virtual environment with pinned peers from PyPI (torch with all it needs: 5 GB) goes to
# tests/bench/peers (ignored by git). The programs come from
#   cmake --preset release && cmake --build build/release --target tailor-trainer tailor-tokenize
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() { printf 'training.sh: error: %s\n' "$*" >&2; exit 1; }

pins=(torch==2.11.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6)
peers=$here/peers
python=$peers/training/bin/python
if [ "$(cat "$peers/training.pins" 2>/dev/null)" != "${pins[*]}" ]; then
  printf 'training.sh: installing %s into tests/bench/peers\n' "${pins[*]}"
  mkdir -p "$peers"
  [ -x "$python" ] || python3 -m venv "$peers/training" || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  printf '%s' "${pins[*]}" >"$peers/training.pins"
fi
script=training.py
if [ "${1:-}" = --parity ]; then script=training_parity.py; shift; fi
exec nice -n 10 "$python" "$here/$script" "$@"
