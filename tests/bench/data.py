"""Times `tailor data prepare` beside SentencePiece's Python package; see data.sh."""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys

PEER = """
import json, sys
import numpy, sentencepiece
model, source, out = sys.argv[1:]
processor = sentencepiece.SentencePieceProcessor(model_file=model, num_threads=1)
eos = processor.eos_id()
with open(source, encoding="utf-8", newline="\\n") as lines, open(out, "wb") as file:
    for line in lines:
        ids = processor.encode(json.loads(line)["text"])
        ids.append(eos)
        file.write(numpy.array(ids, dtype=numpy.uint16).tobytes())
"""


def corpus(folder: pathlib.Path, size: int) -> pathlib.Path:
    """The documentation as JSON lines, repeated until there are `size` bytes."""
    out = folder / f"text-{size}.jsonl"
    if out.exists():
        return out
    texts = []
    for path in sorted(folder.glob("corpus/Documentation/**/*")):
        if path.name.endswith((".txt.gz", ".rst.gz", ".txt", ".rst")) and path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            try:
                text = data.decode()
            except UnicodeDecodeError:
                continue
            if text and "\u2581" not in text:  # SentencePiece's own space mark: it does not keep it
                texts.append(text)
    written, index = 0, 0
    with open(out.with_suffix(".tmp"), "w", encoding="utf-8", newline="\n") as file:
        while written < size:
            text = texts[index % len(texts)]
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            written += len(text.encode())
            index += 1
    out.with_suffix(".tmp").rename(out)
    return out


def timed(command: list[str]) -> tuple[float, float]:
    """Processor seconds of a process and its largest resident size in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"data.py: {command} failed with {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    work, bin_folder, rounds, size = sys.argv[1:]
    folder = pathlib.Path(work)
    tokenize = f"{bin_folder}/tailor-tokenize"
    source = corpus(folder, int(size))
    model = folder / "docs-4096.model"
    if not model.exists():
        subprocess.run([tokenize, "train", "--input", source, "--vocab-size", "4096", "--model", model],
                       check=True)
    text_bytes = sum(len(json.loads(line)["text"].encode()) for line in open(source, encoding="utf-8"))
    best: dict[str, tuple[float, float]] = {}
    out = folder / "out"
    for _ in range(int(rounds)):
        shutil.rmtree(out, ignore_errors=True)
        ours = timed([tokenize, "prepare", str(source), "--tokenizer", str(model), "--out", str(out),
                      "--validation-fraction", "0", "--threads", "1"])
        peer = timed([sys.executable, "-c", PEER, str(model), str(source), str(folder / "peer.bin")])
        for name, seen in (("tailor", ours), ("sentencepiece", peer)):
            best[name] = min(best.get(name, seen), seen)
    tokens = b"".join(path.read_bytes()[128:] for path in sorted(out.glob("train-*.tokens")))
    same = tokens == (folder / "peer.bin").read_bytes()
    print(f"{text_bytes / 1e6:.1f} MB of text, {len(tokens) // 2} tokens, ids equal: {same}")
    for name, (seconds, memory) in best.items():
        print(f"{name:<14} {seconds:7.2f} s  {text_bytes / 1e6 / seconds:6.1f} MB/s  "
              f"{len(tokens) / 2e6 / seconds:5.2f} M tokens/s  {memory:.0f} MiB")
    print(f"ratio {best['sentencepiece'][0] / best['tailor'][0]:.2f}")


if __name__ == "__main__":
    main()
