#!/usr/bin/env bash
# Random tokenizers and texts against Hugging Face's tokenizers: added tokens with every flag and every layout of ids,
# normalisers, pre-tokenizers and options of the model. Ids must be equal; what is refused is counted apart. Also
# compares the ids of texts in parts with those of the whole.
#
#   tests/parity/tokenizers.sh [BUILD] [--pairs N] [--seed S] [--keep FOLDER]
#
# BUILD is build/release unless said; 2,000 pairs of seed 1. First time: pinned packages from PyPI (10 MB) go to
# tests/bench/peers/tokenizers (ignored by git). The program comes from
#   cmake --preset release && cmake --build build/release --target parity_tokens
set -euo pipefail
build=
case ${1:-} in
  '' | --*) ;;
  *) build=$1; shift ;;
esac
build=$(realpath "${build:-$(dirname "$0")/../../build/release}")
cd "$(dirname "$0")/../bench"

fail() { printf 'tokenizers.sh: error: %s\n' "$*" >&2; exit 1; }

[ -x "$build/tests/parity_tokens" ] || fail "$build/tests/parity_tokens is missing: build parity_tokens first"
pins=(tokenizers==0.23.3)
peers=peers/tokenizers
python=$peers/venv/bin/python
if [ "$(cat $peers/pins 2>/dev/null)" != "${pins[*]}" ]; then
  printf 'tokenizers.sh: installing %s into tests/bench/%s\n' "${pins[*]}" "$peers"
  mkdir -p $peers
  [ -x "$python" ] || python3 -m venv $peers/venv || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peer could not be installed"
  printf '%s' "${pins[*]}" >$peers/pins
fi
# The library tells on stderr of each id of a file that it does not take.
"$python" ../parity/random_tokenizers.py "$build/tests/parity_tokens" "$@" 2>/dev/null ||
  fail "ids differ from the library's, or too few were compared (see above)"
