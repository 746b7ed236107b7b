"""The peers' side of tests/bench/search.sh, and the table of all sides.

  search.py peers --out FILE [--peers tpe,gp,random] [--problems ...] [--seeds N] [--trials N]
  search.py table --ours FILE --peers FILE...

The problems are those of search_bench.cc, number for number: `search_bench --values` prints what it
computes at fixed points, and `search.py values` the same from here; search.sh compares them.
"""

import argparse
import json
import math
import statistics
import sys
import time

HARTMANN_A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14],
              [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
HARTMANN_P = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
              [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
HARTMANN_C = [1.0, 1.2, 3.0, 3.2]
BODY = 84_934_656  # body parameters of 12 layers of 768 with conventional FFNs of 4 x
KS = [1, 2, 3, 4, 6, 8, 12, 16]
TAPERS = ["uniform", "cosine", "linear", "sigmoid"]


def branin(p):
    x, y = p["x"], p["y"]
    b, c, t = 5.1 / (4 * math.pi ** 2), 5 / math.pi, 1 / (8 * math.pi)
    return (y - b * x * x + c * x - 6) ** 2 + 10 * (1 - t) * math.cos(x) + 10


def hartmann6(p):
    x = [p[f"x{i}"] for i in range(6)]
    return -sum(c * math.exp(-sum(a[j] * (x[j] - q[j] / 1e4) ** 2 for j in range(6)))
                for a, q, c in zip(HARTMANN_A, HARTMANN_P, HARTMANN_C))


def mixed(p):
    """An optimiser, its rate, and what only some of them have."""
    rate = math.log10(p["rate"])
    depth = 0.02 * abs(p["depth"] - 5)
    if p["kind"] == "adam":
        return 0.1 + 0.15 * (rate + 3) ** 2 + depth + 2 * (p["beta"] - 0.9) ** 2
    if p["kind"] == "sgd":
        return 0.15 + 0.25 * (rate + 1) ** 2 + depth + (p["momentum"] - 0.85) ** 2 + 0.03 * abs(
            p["nesterov"] - 1)
    return 0.3 + 0.2 * (rate + 2) ** 2 + depth


def constrained(p):
    """The best lies on the edge of what is allowed: a corner of 5 % of the cube."""
    x, y, z = p["x"], p["y"], p["z"]
    return (x - 0.5) ** 2 + (y - 0.3) ** 2 + (z - 0.2) ** 2 + 0.05 * math.cos(12 * x) * math.cos(9 * y)


def shape_ratio(p):
    d, layers, k = p["d_model"], p["layers"], p["k"]
    return (BODY - 4 * layers * d * d) / (3.0 * d * d * layers * k)


def shape(p):
    """Trends of the papers at one exact budget: the ratio is solved, not chosen."""
    ratio = shape_ratio(p)
    below = max(0.0, math.log(0.45 / ratio))
    aspect = math.log(p["d_model"] / p["layers"] / 170.0)
    loss = 3.43 + 0.05 * below ** 1.5 + 0.010 * math.log(ratio / 0.45) ** 2
    loss += 0.012 * aspect ** 2 - 0.03 * (1 - math.exp(-(p["k"] - 1) / 2.5))
    if p["taper"] != "uniform":
        best = {"cosine": 0.006, "linear": 0.004, "sigmoid": 0.005}[p["taper"]]
        loss -= best * (1 - ((p["high"] - 1.5) / 0.5) ** 2)
    return loss


MASK = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def noise(seed, trial):
    """Of the seed of a run: the sum of 12 uniform numbers, SD 1."""
    total = -6.0
    for i in range(12):
        total += (mix((seed * 1_000_003 + trial * 101 + i + 1) * 0x9E3779B97F4A7C15 & MASK) >> 11) * 2.0 ** -53
    return total


class Problem:
    def __init__(self, name, value, axes, feasible=None, noise_sd=0.0):
        self.name, self.value, self.axes = name, value, axes
        self.feasible, self.noise_sd = feasible, noise_sd


def axes_of(trial, problem):
    """Suggests a point; conditional axes only where they are active."""
    p = {}
    for name, kind, *rest in problem.axes:
        when = rest[-1] if isinstance(rest[-1], dict) else None
        if when and any(p.get(k) not in v for k, v in when.items()):
            continue
        if kind == "float":
            p[name] = trial.suggest_float(name, rest[0], rest[1])
        elif kind == "log":
            p[name] = trial.suggest_float(name, rest[0], rest[1], log=True)
        elif kind == "int":
            p[name] = trial.suggest_int(name, rest[0], rest[1], step=rest[2])
        elif kind == "step":
            p[name] = trial.suggest_float(name, rest[0], rest[1], step=rest[2])
        elif kind == "choice":
            p[name] = trial.suggest_categorical(name, rest[0])
        elif kind == "ordered":
            p[name] = rest[0][trial.suggest_int(name, 0, len(rest[0]) - 1)]
    return p


PROBLEMS = {p.name: p for p in [
    Problem("branin", branin, [("x", "float", -5, 10), ("y", "float", 0, 15)]),
    Problem("hartmann6", hartmann6, [(f"x{i}", "float", 0, 1) for i in range(6)]),
    Problem("mixed", mixed, [
        ("kind", "choice", ["adam", "sgd", "other"]), ("rate", "log", 1e-5, 1), ("depth", "int", 1, 12, 1),
        ("beta", "float", 0.5, 0.999, {"kind": ["adam"]}),
        ("momentum", "float", 0, 1, {"kind": ["sgd"]}), ("nesterov", "int", 0, 1, 1, {"kind": ["sgd"]})]),
    Problem("constrained", constrained, [(n, "float", 0, 1) for n in "xyz"],
            feasible=lambda p: p["x"] + p["y"] + p["z"] - 0.669),
    Problem("shape", shape, [
        ("k", "ordered", KS), ("layers", "int", 4, 32, 1), ("d_model", "int", 256, 1024, 64),
        ("taper", "choice", TAPERS), ("high", "step", 1.1, 1.9, 0.1, {"taper": TAPERS[1:]})],
            feasible=lambda p: max(0.05 - shape_ratio(p), shape_ratio(p) - 8), noise_sd=0.002),
]}


def run_peer(peer, problem, seed, trials):
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    violation = {}
    constraints = (lambda t: (t.user_attrs["violation"],)) if problem.feasible else None
    if peer == "tpe":
        sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=constraints)
    elif peer == "gp":
        sampler = optuna.samplers.GPSampler(seed=seed, constraints_func=constraints)
    else:
        sampler = optuna.samplers.RandomSampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    best, seen, truth, infeasible, spent = math.inf, math.inf, [], 0, 0.0
    for number in range(trials):
        began = time.process_time()
        trial = study.ask()
        p = axes_of(trial, problem)
        spent += time.process_time() - began
        violation = problem.feasible(p) if problem.feasible else -1.0
        trial.set_user_attr("violation", violation)
        if violation > 0:
            infeasible += 1
            value = 1e3 if problem.name == "constrained" else 10.0
            if problem.name != "shape":
                value = problem.value(p)
        else:
            exact = problem.value(p)
            value = exact + problem.noise_sd * noise(seed, number)
            if value < seen:  # what the user would take
                seen, best = value, exact
        began = time.process_time()
        study.tell(trial, value)
        spent += time.process_time() - began
        truth.append(best)
    return {"peer": f"optuna-{peer}", "problem": problem.name, "seed": seed, "best": truth,
            "infeasible": infeasible, "seconds": spent}


def values():
    points = {
        "branin": {"x": 1.25, "y": 7.5}, "hartmann6": {f"x{i}": 0.1 * (i + 1) for i in range(6)},
        "mixed": {"kind": "sgd", "rate": 0.02, "depth": 3, "momentum": 0.4, "nesterov": 0},
        "constrained": {"x": 0.1, "y": 0.2, "z": 0.3},
        "shape": {"k": 4, "layers": 10, "d_model": 640, "taper": "linear", "high": 1.3}}
    for name, point in points.items():
        print(name, f"{PROBLEMS[name].value(point):.12g}")
    print("noise", f"{noise(3, 17):.12g}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def table(runs):
    names = sorted({run["peer"] for run in runs})
    for problem in PROBLEMS:
        print(f"\n{problem}: median best over seeds (runs), infeasible trials, ms of one suggestion")
        for name in names:
            mine = [r for r in runs if r["problem"] == problem and r["peer"] == name]
            if not mine:
                continue
            cells = []
            for at in (50, 100, 200):
                reached = [r["best"][at - 1] for r in mine if len(r["best"]) >= at]
                cells.append(f"{at}: {statistics.median(reached):.6g} ({len(reached)})" if reached else f"{at}: -")
            trials = sum(len(r["best"]) for r in mine)
            bad = sum(r["infeasible"] for r in mine) / trials
            cost = 1e3 * sum(r["seconds"] for r in mine) / trials
            print(f"  {name:26} {'  '.join(f'{c:24}' for c in cells)} {100 * bad:5.1f} %  {cost:7.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["peers", "values", "table"])
    parser.add_argument("--out")
    parser.add_argument("--peers", default="tpe,gp")
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    if options.mode == "values":
        return values()
    if options.mode == "table":
        return table([run for path in options.files for run in read(path)])
    done = set()
    try:
        done = {(r["peer"], r["problem"], r["seed"], len(r["best"])) for r in read(options.out)}
    except FileNotFoundError:
        pass
    with open(options.out, "a", encoding="utf-8") as out:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for name in options.problems.split(","):
                for peer in options.peers.split(","):
                    if (f"optuna-{peer}", name, seed, options.trials) in done:
                        continue
                    out.write(json.dumps(run_peer(peer, PROBLEMS[name], seed, options.trials)) + "\n")
                    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
