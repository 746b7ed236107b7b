#!/usr/bin/env bash
# Trains tiny networks, loads what tailor-trainer exported with transformers and compares the logits.
#
#   tests/parity/transformers_export.sh [--programs FOLDER]      default: build/release/bin
#
# First time: the pinned peers of tests/bench/training.sh (torch with all it needs: 5 GB) go to
# tests/bench/peers (ignored by git). The program comes from
#   cmake --preset release && cmake --build build/release --target tailor-trainer
set -euo pipefail
cd "$(dirname "$0")"

fail() { printf 'transformers_export.sh: error: %s\n' "$*" >&2; exit 1; }

# The same environment as tests/bench/training.sh.
pins=(torch==2.11.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6)
peers=../bench/peers
python=$peers/training/bin/python
if [ "$(cat $peers/training.pins 2>/dev/null)" != "${pins[*]}" ]; then
  printf 'transformers_export.sh: installing %s into tests/bench/peers\n' "${pins[*]}"
  mkdir -p $peers
  [ -x "$python" ] || python3 -m venv $peers/training || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  printf '%s' "${pins[*]}" >$peers/training.pins
fi
exec "$python" transformers_export.py "$@"
