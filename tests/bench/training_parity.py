#!/usr/bin/env python3
"""Trains one small LLaMA twice, with tailor-trainer and with PyTorch, and compares the losses.

Called by training.sh --parity. Text: the kernel documentation (deploy/fetch_demo_corpus.sh), tokenized once into
tests/bench/peers. Both start from the same weights, which tailor-trainer exports as safetensors and transformers
loads, see the same batches in the same order, and use the same recipe: AdamW with decay on matrices only,
clipping at norm 1, warm-up and cosine. The order of the batches is written here anew from its definition
(model/data/README.md, base/rng.h). The validation loss is the mean over every token of the held-out documents.

Ends with 1 if the validation losses differ by more than 0.01 nats.
"""
import argparse
import glob
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402  (after the threads are set)
import torch  # noqa: E402
from transformers import LlamaForCausalLM  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEED = 7
MASK = (1 << 64) - 1
HEADER_BYTES = 128
RECIPE = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0, warmup=0.1, final=0.1)
SHAPE = dict(d_model=128, layers=4, heads=4, ffn=344, vocab=2048)


# ---------------------------------------------------------------- data

def ensure_data(folder, programs):
    """Token shards of the kernel documentation in `folder`, vocabulary 2048."""
    if not glob.glob(f"{folder}/linux-doc/validation-*.tokens"):
        subprocess.run([ROOT / "deploy/fetch_demo_corpus.sh", folder / "corpus"], check=True)
        tokenize = programs / "tailor-tokenize"
        subprocess.run([tokenize, "train", "--input", folder / "corpus", "--vocab-size", str(SHAPE["vocab"]),
                        "--sample-bytes", "8000000", "--model", folder / "linux-doc.model"], check=True)
        subprocess.run([tokenize, "prepare", folder / "corpus", "--tokenizer", folder / "linux-doc.model",
                        "--out", folder / "linux-doc", "--validation-fraction", "0.02"], check=True)


def read_tokens(pattern):
    parts = [np.fromfile(path, dtype="<u2", offset=HEADER_BYTES) for path in sorted(glob.glob(str(pattern)))]
    return np.concatenate(parts).astype(np.int64)


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


GOLDEN = 0x9E3779B97F4A7C15


def stable_hash(text, seed):
    h = 0xCBF29CE484222325 ^ mix(seed + GOLDEN & MASK)
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return mix(h)


def keyed(key, i, j):
    return mix(mix(mix(key + GOLDEN & MASK) + (i + 1) * GOLDEN & MASK) + (j + 1) * 0xD1B54A32D192ED03 & MASK)


def permuted(size, key, value):
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = value >> half, value & mask
        for r in range(4):
            left, right = right, left ^ (keyed(key, r, right) & mask)
        value = left << half | right
        if value < size:
            return value


class Batches:
    def __init__(self, tokens, time_steps, rows):
        self.tokens, self.time, self.rows = tokens, time_steps, rows
        self.windows = (len(tokens) - 1) // time_steps
        self.order = stable_hash("loader.order", SEED)

    def __getitem__(self, step):
        out = np.empty((self.rows, self.time + 1), np.int64)
        for row in range(self.rows):
            epoch, place = divmod(step * self.rows + row, self.windows)
            first = permuted(self.windows, keyed(self.order, epoch, 0), place) * self.time
            out[row] = self.tokens[first:first + self.time + 1]
        return torch.from_numpy(out)


# ---------------------------------------------------------------- the two trainers

def run_tailor(program, folder, data, options, tokens, lr):
    """Losses of every step, the final validation loss and the folder with the exported weights."""
    spec = {
        "trial": 1, "attempt": 1, "token": 1, "sweep_name": "parity", "candidate_name": "llama", "seed": SEED,
        "architecture": {
            "family": "FAMILY_LLAMA", "d_model": SHAPE["d_model"], "heads": SHAPE["heads"],
            "kv_heads": SHAPE["heads"], "head_dim": SHAPE["d_model"] // SHAPE["heads"],
            "vocab_size": SHAPE["vocab"], "tie_embeddings": True, "ffn_kind": "FFN_KIND_SWIGLU",
            "ffn_norm": "FFN_NORM_PER_SUB", "widths": [{"d_h": [SHAPE["ffn"]]}] * SHAPE["layers"],
            "rope_theta": 10000, "norm_eps": 1e-5},
        "data": {"train": f"{data}/linux-doc/train-*.tokens", "validation": f"{data}/linux-doc/validation-*.tokens",
                 "sequence_length": options.sequence},
        "train": {
            "tokens": tokens, "batch_tokens": options.rows * options.sequence,
            "optimizer": {"lr": lr, "beta1": RECIPE["beta1"], "beta2": RECIPE["beta2"], "eps": RECIPE["eps"],
                          "weight_decay": RECIPE["weight_decay"], "clip": RECIPE["clip"]},
            "schedule": {"kind": "LR_SCHEDULE_KIND_COSINE", "warmup_fraction": RECIPE["warmup"],
                         "warmup_steps": -1, "final_fraction": RECIPE["final"]},
            "precision": "PRECISION_BF16" if options.type == "bf16" else "PRECISION_F32",
            "log_every_steps": 1, "checkpoint_every_ms": 3600000, "init_std": 0.02},
        "geometry": {"enabled": False, "tokens": 256, "subsamples": 8, "rho": 0.5}, "device": "cpu", "threads": 1}
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run([program, "run", folder], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tailor-trainer failed with {done.returncode}:\n{done.stderr[-2000:]}")
    losses, validation = [], None
    for line in (folder / "reports.jsonl").read_text().splitlines():
        values = json.loads(line).get("metric", {}).get("values", {})
        if "train_loss" in values:
            losses.append(values["train_loss"])
        validation = values.get("validation_loss", validation)
    return losses, validation, folder / "artifacts"


def run_torch(weights, batches, validation_tokens, options, steps):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    model = LlamaForCausalLM.from_pretrained(weights, dtype=torch.float32)
    low = options.type == "bf16"
    decayed = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=RECIPE["weight_decay"]), dict(params=plain, weight_decay=0.0)],
        betas=(RECIPE["beta1"], RECIPE["beta2"]), eps=RECIPE["eps"], fused=True)
    warmup = math.ceil(RECIPE["warmup"] * steps)

    def rate(step):
        if step < warmup:
            return RECIPE["lr"] * (step + 1) / warmup
        lowest = RECIPE["final"] * RECIPE["lr"]
        progress = (step - warmup + 1) / (steps - warmup)
        return lowest + (RECIPE["lr"] - lowest) / 2 * (1 + math.cos(math.pi * progress))

    def loss_of(rows, reduction):
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            logits = model(input_ids=rows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(),
                                                 reduction=reduction)

    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = loss_of(batches[step], "mean")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), RECIPE["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    stream, t = torch.from_numpy(validation_tokens), options.sequence
    total = 0.0
    with torch.no_grad():
        for first in range(0, len(stream) - 1, t):
            total += loss_of(stream[first:first + t + 1].unsqueeze(0), "sum").item()
    return losses, total / (len(stream) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_500_000)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--type", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--data", type=pathlib.Path, default=HERE / "peers/linux-doc")
    parser.add_argument("--program-folder", type=pathlib.Path, default=ROOT / "build/release/bin")
    options = parser.parse_args()
    program = options.program_folder / "tailor-trainer"
    if not os.access(program, os.X_OK):
        sys.exit(f"training_parity.py: {program} is missing: build tailor-trainer and tailor-tokenize")
    ensure_data(options.data, options.program_folder)
    batch_tokens = options.rows * options.sequence
    steps = -(-options.tokens // batch_tokens)
    train = Batches(read_tokens(options.data / "linux-doc/train-*.tokens"), options.sequence, options.rows)
    validation = read_tokens(options.data / "linux-doc/validation-*.tokens")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # One step at a rate that changes no weight: its export is the initial values.
        _, _, weights = run_tailor(program, folder / "start", options.data, options, batch_tokens, 1e-30)
        began = time.process_time()
        theirs, their_validation = run_torch(weights, train, validation, options, steps)
        print(f"PyTorch: {time.process_time() - began:.0f} s", flush=True)
        ours, our_validation, _ = run_tailor(program, folder / "run", options.data, options, steps * batch_tokens,
                                             RECIPE["lr"])
    tail = max(1, steps // 10)
    apart = np.abs(np.array(ours) - np.array(theirs))
    shown = [k for k in (1, 3, 10, 30, 100, 300, 1000) if k <= steps]
    gap = abs(our_validation - their_validation)
    print(f"{options.type}, {steps} steps, {steps * batch_tokens} tokens, {len(validation) - 1} held out\n"
          f"  validation loss   tailor {our_validation:.5f}   PyTorch {their_validation:.5f}   apart {gap:.5f}\n"
          f"  training loss of the last {tail} steps   tailor {np.mean(ours[-tail:]):.5f}   "
          f"PyTorch {np.mean(theirs[-tail:]):.5f}\n"
          f"  largest difference of a training loss within the first steps: "
          + ", ".join(f"{k}: {apart[:k].max():.1e}" for k in shown) + f", all: {apart.max():.1e}")
    sys.exit(gap > 0.01)


if __name__ == "__main__":
    main()
