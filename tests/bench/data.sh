#!/usr/bin/env bash
# Compares `tailor data prepare` with SentencePiece's own Python package on this machine: the same model,
# the same text, one thread, processor time of the whole process, least of N rounds; the ids are compared.
#
#   tests/bench/data.sh [--rounds N] [--bytes N] [--bin FOLDER]
#
# Text: the kernel documentation of the demo (deploy/fetch_demo_corpus.sh), joined to JSON lines of about
# --bytes (default 60M). The peers go to tests/bench/peers/data (ignored by git), pinned, from PyPI.
set -euo pipefail
started=$PWD
cd "$(dirname "$0")"

fail() { printf 'data.sh: error: %s\n' "$*" >&2; exit 1; }

rounds=3 bytes=60000000 bin=../../build/release/bin
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --bytes) bytes=$2; shift 2 ;;
    --bin) bin=$(cd "$started" && cd "$2" && pwd); shift 2 ;;
    *) fail "unknown option $1" ;;
  esac
done
[ -x "$bin/tailor-tokenize" ] || fail "$bin/tailor-tokenize is missing: build tailor and tailor-tokenize, or give --bin"
bin=$(cd "$bin" && pwd)

pins=(sentencepiece==0.2.0 numpy==1.26.4)
work=peers/data
python=$work/venv/bin/python
mkdir -p "$work"
if [ "$(cat $work/pins 2>/dev/null)" != "${pins[*]}" ]; then
  printf 'data.sh: installing %s into tests/bench/%s\n' "${pins[*]}" "$work"
  [ -x "$python" ] || python3 -m venv "$work/venv" || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  printf '%s' "${pins[*]}" >"$work/pins"
fi
[ -d "$work/corpus/Documentation" ] || bash ../../deploy/fetch_demo_corpus.sh "$work/corpus"
exec nice -n 15 "$python" data.py "$work" "$bin" "$rounds" "$bytes"
