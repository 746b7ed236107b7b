#!/usr/bin/env python3
"""Compares training steps of tailor-trainer with PyTorch: the same shapes, one thread, processor time, one run.

Called by training.sh, which sets up the environment of the peers. Every measurement is a process of its own,
so that its peak memory is its own; rounds go through all programs one after the other, so that a slow minute
of the machine hits everybody; the least time counts. A step is forward, backward, clipping at norm 1 and
AdamW on random tokens. bf16 means bf16 products over fp32 weights: autocast in PyTorch.

Memory is the largest resident size less the resident size at the program's start, when its libraries are
loaded and nothing of the model is there. Weights count, in all programs alike.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = {
    "S": dict(hidden=256, layers=6, heads=4, ffn=688, vocab=4096, sequence=256, batch=8),
    "M": dict(hidden=512, layers=8, heads=8, ffn=1376, vocab=8192, sequence=512, batch=4),
}
PEERS = ("transformers", "own", "chunked")


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


# ---------------------------------------------------------------- the peers, each in a process of its own

def small_llama(shape, chunk_rows, save=None):
    """A LLaMA as one would write it by hand in PyTorch: packed projections, fused norm, SDPA."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    d, heads, f = shape["hidden"], shape["heads"], shape["ffn"]
    e = d // heads

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(d, 3 * d, bias=False)
            self.out = nn.Linear(d, d, bias=False)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            q, k, v = self.qkv(x).view(b, t, 3 * heads, e).transpose(1, 2).chunk(3, dim=1)
            q, k = turn(q, cos, sin), turn(k, cos, sin)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(b, t, d))

    def turn(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(d, f, bias=False)
            self.up = nn.Linear(d, f, bias=False)
            self.down = nn.Linear(f, d, bias=False)

        def forward(self, x):
            return self.down(F.silu(self.gate(x)) * self.up(x))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
            self.attention, self.mlp = Attention(), Mlp()

        def forward(self, x, cos, sin):
            x = x + self.attention(self.n1(x), cos, sin)
            return x + self.mlp(self.n2(x))

    class ChunkedLoss(torch.autograd.Function):
        """Mean cross-entropy of x W^T without the whole logits: gradients are made chunk by chunk."""

        @staticmethod
        def forward(ctx, x, weight, targets):
            low = torch.is_autocast_enabled("cpu")
            kind = torch.bfloat16 if low else torch.float32
            n = x.shape[0]
            x_low, w_low = x.to(kind), weight.to(kind)
            gx = torch.empty_like(x_low)
            gw = torch.zeros_like(weight)
            total = torch.zeros((), dtype=torch.float64)
            with torch.autocast("cpu", enabled=False):
                for begin in range(0, n, chunk_rows):
                    part = slice(begin, min(begin + chunk_rows, n))
                    scores = (x_low[part] @ w_low.t()).float()
                    target = targets[part].unsqueeze(1)
                    log_sum = scores.logsumexp(1, keepdim=True)
                    total += (log_sum - scores.gather(1, target)).sum()
                    scores.sub_(log_sum).exp_()
                    scores.scatter_add_(1, target, torch.full_like(log_sum, -1.0))
                    g = scores.div_(n).to(kind)
                    torch.mm(g, w_low, out=gx[part])
                    if low:
                        gw += g.t() @ x_low[part]
                    else:
                        gw.addmm_(g.t(), x_low[part])
            ctx.save_for_backward(gx, gw)
            return (total / n).float()

        @staticmethod
        def backward(ctx, grad):
            gx, gw = ctx.saved_tensors
            return gx.mul_(grad), gw.mul_(grad), None

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(shape["vocab"], d)
            self.layers = nn.ModuleList(Layer() for _ in range(shape["layers"]))
            self.norm = nn.RMSNorm(d, eps=1e-5)
            self.head = nn.Linear(d, shape["vocab"], bias=False)
            angle = torch.outer(torch.arange(shape["sequence"]).float(),
                                10000.0 ** (-torch.arange(0, e, 2).float() / e))
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def hidden(self, tokens):
            x = self.embed(tokens)
            cos, sin = self.cos, self.sin
            if torch.is_autocast_enabled("cpu"):
                cos, sin = cos.bfloat16(), sin.bfloat16()
            for layer in self.layers:
                x = layer(x, cos, sin)
            return self.norm(x)

        def loss(self, tokens, targets):
            h = self.hidden(tokens)
            if chunk_rows:
                return ChunkedLoss.apply(h.view(-1, d), self.head.weight, targets.reshape(-1))
            return F.cross_entropy(self.head(h).float().view(-1, shape["vocab"]), targets.reshape(-1))

    return Llama()


def run_peer(name, shape, kind, steps):
    import torch
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if name == "transformers":
        from transformers import LlamaConfig, LlamaForCausalLM
    start = resident_bytes()
    torch.manual_seed(1)
    if name == "transformers":
        model = LlamaForCausalLM(LlamaConfig(
            hidden_size=shape["hidden"], num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
            intermediate_size=shape["ffn"], vocab_size=shape["vocab"], max_position_embeddings=shape["sequence"],
            tie_word_embeddings=False, use_cache=False, attn_implementation="sdpa"))

        def loss_of(tokens, targets):
            # The library's own loss shifts by one; shift_labels takes ours as they are.
            return model(input_ids=tokens, labels=targets, shift_labels=targets).loss
    else:
        model = small_llama(shape, 512 if name == "chunked" else 0)
        loss_of = model.loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(shape["vocab"], (shape["batch"], shape["sequence"]))
    targets = torch.randint(shape["vocab"], (shape["batch"], shape["sequence"]))
    best = None
    for i in range(steps + 1):
        marks = [time.process_time()]
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bf16"):
            loss = loss_of(tokens, targets)
        marks.append(time.process_time())
        loss.backward()
        marks.append(time.process_time())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        marks.append(time.process_time())
        phases = [b - a for a, b in zip(marks, marks[1:])]
        if i > 0 and (best is None or sum(phases) < sum(best)):
            best = phases
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(dict(step_s=sum(best), phases_s=dict(zip(("forward", "backward", "update"), best)),
                          memory=peak - start, start=start)))


# ---------------------------------------------------------------- ours

def architecture_toml(shape, k=1):
    text = (f"d_model = {shape['hidden']}\nlayers = {shape['layers']}\nheads = {shape['heads']}\n"
            f"head_dim = {shape['hidden'] // shape['heads']}\nvocab_size = {shape['vocab']}\n"
            f"tie_embeddings = false\n")
    if k == 1:
        return text + f"ffn.d_h = {shape['ffn']}\n"
    return text + f"ffn.kind = \"hourglass\"\nffn.k = {k}\nffn.d_h = {shape['ffn'] // k}\n"


def run_ours(program, shape, kind, steps, folder, k):
    file = pathlib.Path(folder) / f"k{k}-{shape['hidden']}.toml"
    file.write_text(architecture_toml(shape, k))
    command = [program, "bench", "--arch", str(file), "--batch", str(shape["batch"]), "--seq",
               str(shape["sequence"]), "--dtype", kind, "--threads", "1", "--steps", str(steps), "--json"]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return dict(step_s=out["best_cpu_s_per_step"], phases_s=out.get("phases_s"),
                memory=out["peak_rss"] - out["start_rss"], start=out["start_rss"])


# ---------------------------------------------------------------- the run

def merged(a, b):
    """The better of two measurements: least time, least memory."""
    if a is None:
        return b
    best = a if a["step_s"] <= b["step_s"] else b
    return dict(best, memory=min(a["memory"], b["memory"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="S,M")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process")
    parser.add_argument("--only", default="transformers,own,chunked,tailor,hourglass")
    parser.add_argument("--program", default=str(HERE / "../../build/release/bin/tailor-trainer"))
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        run_peer(options.peer, SHAPES[options.shapes], options.types, options.steps)
        return
    if not os.access(options.program, os.X_OK):
        sys.exit(f"training.py: {options.program} is missing: build tailor-trainer")
    names = options.only.split(",")
    with tempfile.TemporaryDirectory() as folder:
        for shape_name in options.shapes.split(","):
            shape = SHAPES[shape_name]
            tokens = shape["batch"] * shape["sequence"]
            for kind in options.types.split(","):
                found = {}
                for _ in range(options.rounds):
                    for name in names:
                        if name in PEERS:
                            out = subprocess.run(
                                [sys.executable, __file__, "--peer", name, "--shapes", shape_name, "--types", kind,
                                 "--steps", str(options.steps)], check=True, capture_output=True, text=True).stdout
                            one = json.loads(out.splitlines()[-1])
                        else:
                            one = run_ours(options.program, shape, kind, options.steps, folder,
                                           4 if name == "hourglass" else 1)
                        found[name] = merged(found.get(name), one)
                report(shape_name, kind, tokens, found)


def report(shape_name, kind, tokens, found):
    print(f"\n{shape_name} {kind}: {tokens} tokens a step, load average {os.getloadavg()[0]:.1f}")
    for name, one in found.items():
        phases = one["phases_s"]
        detail = " / ".join(f"{v * 1e3:.0f}" for v in phases.values()) if phases else "-"
        print(f"  {name:13} {one['step_s']:7.3f} s  {tokens / one['step_s']:6.0f} tokens/s  "
              f"{detail:>18} ms  {one['memory'] / 2**20:6.0f} MiB over {one['start'] / 2**20:.0f}")
    ours = found.get("tailor")
    peers = {name: found[name] for name in PEERS if name in found}
    if ours and peers:
        best = min(peers, key=lambda name: peers[name]["step_s"])
        print(f"  tokens/s against the best eager peer ({best}): {peers[best]['step_s'] / ours['step_s']:.2f}x")
    if ours and "chunked" in peers:
        print(f"  memory against the peer with the chunked loss: {ours['memory'] / peers['chunked']['memory']:.2f}x")
    if ours and ours["phases_s"]:
        print(f"  clipping and AdamW: {100 * ours['phases_s']['update'] / ours['step_s']:.1f} % of the step")
    if ours and "hourglass" in found:
        print(f"  hourglass K = 4, equal body parameters, against the conventional shape: "
              f"{ours['step_s'] / found['hourglass']['step_s']:.2f}x tokens/s")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
