#!/usr/bin/env python3
"""Compares the logits of exported networks in tailor-trainer and in transformers.

Called by transformers_export.sh. Each network is trained for some steps by `tailor-trainer run`, so that no weight
is at its start and no gain is one; then `tailor-trainer logits` and transformers (attention "eager", float32)
score the same tokens from the same folder. Fails when a logit differs by more than 5e-5 of the largest, or when
transformers warns of weights that it misses or does not use.
"""
import argparse
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

TOLERANCE = 5e-5
ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 257
TEXT = "Some text,  na\u00efve \U0001d11e in 12 words.\n\tx \x00\x7f\xa0\xad</s"
SEQUENCE = 64

LLAMA = dict(family="FAMILY_LLAMA", d_model=96, heads=4, kv_heads=4, head_dim=24, tie_embeddings=True,
             ffn_norm="FFN_NORM_PER_SUB", widths=[200] * 3, rope_theta=1e4, norm_eps=1e-5)
OLMO2 = dict(LLAMA, family="FAMILY_OLMO2", ffn_norm="FFN_NORM_PER_SUB_POST", rope_theta=5e5, norm_eps=1e-6)
NETWORKS = {
    "llama, tied": LLAMA,
    "llama, untied, 4 query heads to a key head": dict(LLAMA, tie_embeddings=False, kv_heads=1),
    "llama, attention wider than the stream": dict(LLAMA, head_dim=40, kv_heads=2),
    "olmo2, tied": OLMO2,
    "olmo2, untied, 2 query heads to a key head": dict(OLMO2, tie_embeddings=False, kv_heads=2),
    "olmo2, attention narrower than the stream": dict(OLMO2, head_dim=16, kv_heads=2),
}


def write_shard(path, ids):
    """A token shard, version 1 (model/data/README.md)."""
    body = numpy.asarray(ids, dtype="<u2").tobytes()
    tokenizer = hashlib.sha256(b"tailor bytes 257").digest()
    head = struct.pack("<8sIIQIIIIQQ32s", b"TAILORTK", 1, 2, len(ids), VOCABULARY, 256, max(ids), 0, len(ids), 0,
                       tokenizer)
    head += hashlib.sha256(head).digest()[:8]
    path.write_bytes(head + hashlib.sha256(body + head).digest() + body)


def spec_of(network, folder):
    architecture = dict(network, vocab_size=VOCABULARY, ffn_kind="FFN_KIND_SWIGLU", ffn_outer_residual=False)
    architecture["widths"] = [{"d_h": [width]} for width in network["widths"]]
    return {
        "trial": 1, "attempt": 1, "token": 1, "seed": 5, "device": "cpu", "threads": 1,
        "architecture": architecture,
        "data": {"train": str(folder / "train.tokens"), "validation": str(folder / "validation.tokens"),
                 "sequence_length": SEQUENCE},
        "train": {"tokens": SEQUENCE * 4 * 40, "batch_tokens": SEQUENCE * 4, "precision": "PRECISION_F32",
                  "optimizer": {"lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1},
                  "schedule": {"kind": "LR_SCHEDULE_KIND_COSINE", "warmup_fraction": 0.01, "warmup_steps": -1,
                               "final_fraction": 0.1},
                  "log_every_steps": 10, "checkpoint_every_ms": 600000, "init_std": 0.05},
        "geometry": {"enabled": False, "tokens": 256, "subsamples": 8, "rho": 0.7},
    }


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"transformers_export.py: {command[1]} failed ({done.returncode}):\n{done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    trainer = parser.parse_args().programs.resolve() / "tailor-trainer"
    if not trainer.exists():
        sys.exit(f"transformers_export.py: {trainer} is missing: build tailor-trainer")
    torch.set_num_threads(1)
    random = numpy.random.default_rng(1)
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # Each token is near the one before it: something to learn.
        for shard, count in (("train", 20000), ("validation", 2000)):
            steps = random.integers(-3, 4, count).cumsum()
            write_shard(folder / f"{shard}.tokens", (steps % 256).tolist())
        ids = random.integers(0, VOCABULARY, (3, SEQUENCE))
        numpy.save(folder / "ids.npy", ids)
        for number, (what, network) in enumerate(NETWORKS.items()):
            trial = folder / f"trial{number}"
            trial.mkdir()
            (trial / "spec.json").write_text(json.dumps(spec_of(network, folder)))
            run(trainer, "run", trial)
            exported = trial / "artifacts"
            # The shards name the byte tokenizer: one id a byte.
            tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
            if tokenizer.encode(TEXT, add_special_tokens=False) != list(TEXT.encode()):
                sys.exit(f"transformers_export.py: {what}: the exported tokenizer gives other ids")
            if tokenizer.eos_token_id != 256:
                sys.exit(f"transformers_export.py: {what}: the tokenizer's EOS is {tokenizer.eos_token_id}")
            run(trainer, "logits", "--model", exported, "--tokens", folder / "ids.npy", "--out", folder / "logits.npy")
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                exported, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
            unfit = {key: list(report[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")
                     if report.get(key)}
            if unfit:
                sys.exit(f"transformers_export.py: {what}: {unfit}")
            with torch.no_grad():
                wanted = model(torch.from_numpy(ids)).logits.numpy()
            ours = numpy.load(folder / "logits.npy")
            difference = float(numpy.abs(ours - wanted).max() / numpy.abs(wanted).max())
            worst = max(worst, difference)
            print(f"{type(model).__name__:20} {what:45} largest logit {numpy.abs(wanted).max():8.3f}   "
                  f"difference {difference:.1e} of it")
    if not worst < TOLERANCE:
        sys.exit(f"transformers_export.py: logits differ by {worst:.1e} of the largest; allowed: {TOLERANCE:.0e}")
    print(f"all logits within {worst:.1e} of the largest")


if __name__ == "__main__":
    main()
