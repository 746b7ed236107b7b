#!/usr/bin/env python3
"""Compares geometry/ with other tools: the same inputs, one thread, processor time, one run.

Called by geometry.sh, which sets up the environment of the peers. Inputs are drawn from fixed seeds and
written as .npy files; every measurement is a process of its own, so that a limit on processor time and
memory can stop it. Rounds go through all tools one after the other, so that a slow minute of the machine
hits everybody; the least time counts. Answers are compared before times are.

Timed is the call alone, not the reading of its input, but for the ripser binary: there it is the whole
process, and so it is for ours in that comparison.
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

import numpy as np  # noqa: E402  (after the threads are set)

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 120           # processor time after which a peer is stopped
MEMORY_MAX = 10 << 30   # bytes of address space of a peer
SINGLE_FROM_S = 5       # what takes longer than this is run once


# ---------------------------------------------------------------- inputs

def sphere(n, d=64, seed=1):
    """Uniform unit vectors."""
    x = np.random.default_rng(seed).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def residual(n, d=256, seed=2, unit=True):
    """Tokens like those of a residual stream: clusters, a decaying spectrum, a few heavy coordinates."""
    rng = np.random.default_rng(seed)
    spectrum = np.arange(1, d + 1) ** -0.75
    centres = 1.2 * rng.standard_normal((24, d)) * spectrum
    weights = rng.dirichlet(np.ones(24))
    x = centres[rng.choice(24, n, p=weights)] + 0.45 * rng.standard_normal((n, d)) * spectrum
    heavy = rng.choice(d, 4, replace=False)
    x[:, heavy] += 1.5 * (1 + 0.2 * rng.standard_normal((n, 4)))
    if unit:
        return x / np.linalg.norm(x, axis=1, keepdims=True)
    return x * np.exp(0.3 * rng.standard_normal((n, 1)))


def layer(x, seed):
    """What a layer adds: x + 0.3 f(x), f a random two-layer network with GELU."""
    rng = np.random.default_rng(seed)
    d = x.shape[1]
    scale = np.linalg.norm(x, axis=1).mean()
    w1 = rng.standard_normal((d, 4 * d)) * np.sqrt(1 / d)
    w2 = rng.standard_normal((4 * d, d)) * np.sqrt(1 / (4 * d))
    h = x / np.linalg.norm(x, axis=1, keepdims=True) * np.sqrt(d) @ w1
    h = 0.5 * h * (1 + np.tanh(0.79788456 * (h + 0.044715 * h ** 3)))
    f = h @ w2
    return x + 0.3 * scale * f / np.linalg.norm(f, axis=1).mean()


def raw(x):
    """Euclidean distances as numpy does them best: one product."""
    squares = (x * x).sum(1)
    d = squares[:, None] + squares[None, :] - 2 * (x @ x.T)
    np.maximum(d, 0, out=d)
    np.sqrt(d, out=d)
    np.fill_diagonal(d, 0)
    return np.maximum(d, d.T)


def angles(x):
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    c = u @ u.T
    d = np.arccos(np.clip(c, -1, 1, out=c))
    np.fill_diagonal(d, 0)
    return np.maximum(d, d.T)


def hyperbolic(theta, rho):
    return 2 * np.arcsinh(2 * rho / (1 - rho * rho) * np.sin(theta / 2))


def band(n, seed):
    """A diagram like those of degree 1: many short bars, births in a band."""
    rng = np.random.default_rng(seed)
    birth = rng.uniform(0.6, 1.4, n)
    return np.stack([birth, birth + rng.exponential(0.03, n)], 1)


def write_dipha(path, d):
    """A full distance matrix in DIPHA's format, which the ripser binary reads."""
    with open(path, "wb") as f:
        np.array([8067171840, 7, d.shape[0]], dtype="<i8").tofile(f)
        d.astype("<f8").tofile(f)


# ---------------------------------------------------------------- peers, each in a process of its own

def peer_giotto(files, options):
    from gph import ripser_parallel
    d = np.load(files[0])
    return lambda: ripser_parallel(d, maxdim=1, metric="precomputed", n_threads=1)["dgms"][1]


def peer_gudhi_rips(files, options):
    import gudhi
    d = np.load(files[0])

    def call():
        r = d.max(1).min()
        tree = gudhi.RipsComplex(distance_matrix=d, max_edge_length=r).create_simplex_tree(1)
        if options.get("collapse"):
            tree.collapse_edges()
        tree.expansion(2)
        tree.compute_persistence(homology_coeff_field=2)
        return tree.persistence_intervals_in_dimension(1)
    return call


def peer_w2_pot(files, options):
    from gudhi.wasserstein import wasserstein_distance
    a, b = (np.load(f) for f in files)
    return lambda: wasserstein_distance(a, b, order=2, internal_p=options.get("p", np.inf))


def peer_w2_hera(files, options):
    from gudhi.hera import wasserstein_distance
    a, b = (np.load(f) for f in files)
    return lambda: wasserstein_distance(a, b, order=2, internal_p=options.get("p", np.inf),
                                        delta=options["delta"])


def peer_w2_scipy(files, options):
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist
    a, b = (np.load(f) for f in files)

    def call():
        n, m = len(a), len(b)
        c = np.zeros((n + m, n + m))
        c[:n, :m] = cdist(a, b, "chebyshev") ** 2
        c[:n, m:] = ((a[:, 1] - a[:, 0]) ** 2 / 4)[:, None]
        c[n:, :m] = ((b[:, 1] - b[:, 0]) ** 2 / 4)[None, :]
        i, j = linear_sum_assignment(c)
        return np.sqrt(c[i, j].sum())
    return call


def peer_gw_pot(files, options):
    import ot
    a, b = (np.load(f) for f in files)
    n = len(a)
    p = np.full(n, 1 / n)
    start = np.eye(n) / n if options["start"] == "identity" else None

    def call():
        _, log = ot.gromov.gromov_wasserstein(a, b, p, p, "square_loss", symmetric=True, G0=start,
                                              log=True)
        return log["gw_dist"]
    return call


def peer_distances(files, options):
    x = np.load(files[0])
    return {"raw": lambda: raw(x), "spherical": lambda: angles(x),
            "hyperbolic": lambda: hyperbolic(angles(x), options.get("rho"))}[options["geometry"]]


def peer_profile(files, options):
    """The 3x3 profile of one layer by the best peers: numpy, giotto-ph, GUDHI's W2 with POT, POT."""
    import ot
    from gph import ripser_parallel
    from gudhi.wasserstein import wasserstein_distance
    before, after = (np.load(f).astype(np.float32) for f in files)
    samples = np.load(options["positions"])
    n, rho = options["tokens"], options["rho"]

    def moved(x, y):
        u, v = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
        theta = 2 * np.arctan2(np.linalg.norm(u - v, axis=1), np.linalg.norm(u + v, axis=1))
        return [np.linalg.norm(x - y, axis=1).mean(), theta.mean(), hyperbolic(theta, rho).mean()]

    def diagram(d):
        return ripser_parallel(d, maxdim=1, metric="precomputed", n_threads=1)["dgms"][1]

    def gromov(a, b):
        p = np.full(n, 1 / n)
        _, log = ot.gromov.gromov_wasserstein(a, b, p, p, "square_loss", symmetric=True,
                                              G0=np.eye(n) / n, log=True)
        return np.sqrt(max(log["gw_dist"], 0))

    def call():
        runs = []
        # Shift is the mean over all tokens: once for all subsamples, which share none.
        every = np.concatenate(samples)
        shift = moved(*(z[every].astype(np.float64) for z in (before, after)))
        for positions in samples:
            x, y = (z[positions[:n]].astype(np.float64) for z in (before, after))
            values = {"shift": shift, "gromov": [], "topology": []}
            matrices = []
            for z in (x[:n], y[:n]):
                theta = angles(z)
                matrices.append([raw(z), theta, hyperbolic(theta, rho)])
            diagrams = []
            for euclidean, theta, _ in matrices:
                d = diagram(theta)  # the hyperbolic diagram is its image
                diagrams.append([diagram(euclidean), d, hyperbolic(d, rho)])
            for g in range(3):
                values["gromov"].append(gromov(matrices[0][g], matrices[1][g]))
                values["topology"].append(
                    wasserstein_distance(diagrams[0][g], diagrams[1][g], order=2, internal_p=2))
            runs.append([values[s][g] for g in range(3) for s in ("shift", "gromov", "topology")])
        return np.mean(runs, axis=0)
    return call


def run_peer(name, files, options):
    """Inside the process of a peer: times the call, saves its result, prints JSON."""
    call = globals()["peer_" + name](files, options)
    times = []
    began = time.process_time()
    for _ in range(options.get("repeat", 1)):
        t = time.process_time()
        result = call()
        times.append(time.process_time() - t)
        if time.process_time() - began > 1:
            break
    if "out" in options:
        np.save(options["out"], np.asarray(result))
    with open("/proc/self/status") as f:
        memory = next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:"))
    print(json.dumps({"processor_s": times, "memory_mib": memory,
                      "result": float(result) if np.ndim(result) == 0 else None}))


# ---------------------------------------------------------------- measuring

class Tool:
    """A command with its inputs; keeps the best of its runs."""

    def __init__(self, name, command, whole_process=False, out=None, repeats=1 << 30):
        self.name, self.command, self.whole_process, self.out = name, command, whole_process, out
        self.best, self.memory, self.runs, self.failure, self.report = None, 0, 0, None, {}
        self.whole = float("inf")  # least processor time of the process for one call
        self.repeats = repeats

    def measure(self, limit_s, memory_max):
        def limits():
            if limit_s:
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
            if memory_max:
                resource.setrlimit(resource.RLIMIT_AS, (memory_max, memory_max))
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            child = subprocess.Popen(self.command, stdout=stdout, stderr=stderr, preexec_fn=limits)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            used = usage.ru_utime + usage.ru_stime
            memory = usage.ru_maxrss / 1024
            self.runs += 1
            stdout.seek(0)
            stderr.seek(0)
            output, complaint = stdout.read().decode(), stderr.read().decode()
        if child.returncode != 0:
            self.failure = (f"stopped at {limit_s} s" if limit_s and used >= 0.98 * limit_s else
                            "out of memory" if "alloc" in complaint or "MemoryError" in complaint else
                            f"failed: {complaint.strip().splitlines()[-1:] or child.returncode}")
            return
        if self.whole_process:
            self.output, self.whole = output, min(used, self.whole)
            self.best = self.whole
        else:
            self.report = json.loads(output)
            times = self.report["processor_s"]
            # What the process would have used had it made one call.
            self.whole = min(used - sum(times) + min(times), self.whole)
            self.best = min(times + ([self.best] if self.best else []))
            memory = self.report["memory_mib"]
        self.memory = max(self.memory, memory)

    @property
    def done(self):
        return (self.failure is not None or self.runs >= self.repeats or
                (self.best is not None and self.best > SINGLE_FROM_S))


class Bench:
    def __init__(self, program, folder, rounds):
        self.program, self.folder, self.rounds = program, folder, rounds
        self.rows, self.requirements, self.disagreements = [], [], []

    def path(self, name):
        return str(self.folder / name)

    def save(self, name, array):
        np.save(self.folder / name, np.ascontiguousarray(array))
        return self.path(name)

    def ours(self, case, files, name="tailor", **options):
        out = self.path(f"out_{len(self.rows)}_{name.replace(' ', '_')}.npy")
        arguments = {"repeat": 3, "out": out, **options}
        return Tool(name, [self.program, case, *files] + [f"{k}={v}" for k, v in arguments.items()],
                    out=out)

    def peer(self, label, function, files, **options):
        out = self.path(f"out_{len(self.rows)}_{label.replace(' ', '_')}.npy")
        arguments = {"repeat": 3, "out": out, **options}
        return Tool(label, [sys.executable, __file__, "--peer", function, json.dumps(files),
                            json.dumps(arguments)], out=out)

    def compare(self, title, tools):
        """Rounds over the tools, then one line each; the first tool is ours."""
        for _ in range(self.rounds):
            for tool in tools:
                if not tool.done:
                    first = tool is tools[0] or tool.name.startswith("tailor")
                    tool.measure(None if first else LIMIT_S, None if first else MEMORY_MAX)
        print(f"\n{title}")
        for tool in tools:
            if tool.failure:
                line = tool.failure
            else:
                line = f"{tool.best:10.4f} s  {tool.memory:7.0f} MiB  best of {tool.runs}"
                if tool is not tools[0] and not tool.name.startswith("tailor"):
                    base = tools[0].whole if tool.whole_process else tools[0].best
                    line += f"  {tool.best / base:8.1f} x"
                if tool is tools[0]:
                    line += f"  (whole process {tool.whole:.4f} s)"
            print(f"  {tool.name:28s} {line}", flush=True)
            self.rows.append((title, tool.name, line))

    def require(self, text, value, least, aim=None):
        """Notes value >= least."""
        self.requirements.append((text, value, least, aim))
        verdict = "met" if value is not None and value >= least else "MISSED"
        print(f"  -> {text}: {value if value is None else round(value, 2)} "
              f"(required {least}{'' if aim is None else f', aim {aim}'}): {verdict}", flush=True)

    def agree(self, what, ok, detail=""):
        print(f"  == {what}: {'agree' if ok else 'DIFFER'} {detail}", flush=True)
        if not ok:
            self.disagreements.append(what)


def ratio(peers, ours, whole=False):
    """The best peer over ours; the limit where every peer was stopped."""
    times = [p.best for p in peers if p.best is not None]
    return (min(times) if times else LIMIT_S) / (ours.whole if whole else ours.best)


def same_bars(a, b, tolerance):
    """Largest difference of two diagrams but for their shortest bars, or None when the counts differ.

    What counts as short is set where the lengths have a gap that rounding cannot cross.
    """
    floor = 0
    if tolerance > 0:
        lengths = np.sort(np.append(a[:, 1] - a[:, 0], 0))
        wide = np.nonzero(np.diff(lengths) > 6 * tolerance)[0]
        floor = (lengths[wide[0]] + lengths[wide[0] + 1]) / 2 if len(wide) else np.inf
    a, b = (x[x[:, 1] - x[:, 0] > floor] for x in (a, b))
    if len(a) != len(b):
        return None
    # Rounding may change the order of near-equal births: compare births and deaths as multisets.
    return max(np.abs(np.sort(a[:, k]) - np.sort(b[:, k])).max(initial=0) for k in (0, 1))


def ripser_bars(output):
    bars, seen = [], False
    for text in output.splitlines():
        if "persistence intervals in dim" in text:
            seen = text.strip().endswith("1:")
        elif seen and text.strip().startswith("["):
            birth, death = text.strip(" [)").split(",")
            bars.append((float(birth), float(death) if death.strip() else np.inf))
    return np.array(bars).reshape(-1, 2)


def bench_h1(b, name, points, peers, dimension):
    x = sphere(points) if name == "sphere" else residual(points)
    d = angles(x)
    file = b.save(f"{name}{points}.npy", d)
    dipha = b.path(f"{name}{points}.dipha")
    write_dipha(dipha, d)
    ours = b.ours("h1", [file])
    tools = {
        "ripser": lambda: Tool("ripser (process)", ["ripser", "--format", "dipha", "--dim", "1", dipha],
                               whole_process=True),
        "giotto": lambda: b.peer("giotto-ph", "giotto", [file]),
        "gudhi": lambda: b.peer("gudhi", "gudhi_rips", [file]),
        "gudhi collapse": lambda: b.peer("gudhi collapse", "gudhi_rips", [file], collapse=1),
    }
    chosen = [tools[p]() for p in peers]
    b.compare(f"H1, {name}, N = {points}, d = {dimension}", [ours, *chosen])
    if ours.failure:
        return ours, chosen
    bars = np.load(ours.out)
    print(f"     {len(bars)} bars")
    for tool in chosen:
        if tool.failure:
            continue
        exact = tool.name.startswith("gudhi")
        theirs = ripser_bars(tool.output) if tool.whole_process else np.load(tool.out)
        # gudhi is in float64; the others round the distances to float32, and ripser prints 6 digits.
        tolerance = 0 if exact else 1e-5 if tool.whole_process else 1e-6
        theirs = theirs[theirs[:, 1] > theirs[:, 0]]
        difference = same_bars(bars, theirs, tolerance)
        b.agree(f"bars with {tool.name}", difference is not None and difference <= tolerance,
                f"largest difference {difference}")
    return ours, chosen


def bench_w2(b, n, peers):
    files = [b.save(f"a{n}.npy", band(n, 10)), b.save(f"b{n}.npy", band(n, 11))]
    ours = b.ours("w2", files, ground="inf")
    tools = {
        "POT": lambda: b.peer("POT (through gudhi)", "w2_pot", files),
        "Hera 1%": lambda: b.peer("Hera, delta 0.01", "w2_hera", files, delta=0.01),
        "Hera": lambda: b.peer("Hera, delta 1e-4", "w2_hera", files, delta=1e-4),
        "scipy": lambda: b.peer("scipy assignment", "w2_scipy", files),
    }
    chosen = [tools[p]() for p in peers]
    b.compare(f"W2, {n} and {n} points", [ours, *chosen])
    value = ours.report["distance"]
    for tool in chosen:
        if tool.failure:
            continue
        theirs = tool.report["result"]
        allowed = 0.01 if "0.01" in tool.name else 1e-4 if "1e-4" in tool.name else 1e-9
        b.agree(f"W2 with {tool.name}", abs(theirs - value) <= allowed * value,
                f"relative difference {abs(theirs - value) / value:.2g}")
    return ours, chosen


def integer_bars(n, seed, births=6, lengths=4):
    """Few different bars: nearly all are there more than once, and costs tie."""
    rng = np.random.default_rng(seed)
    birth = rng.integers(1, births + 1, n)
    return np.stack([birth, birth + rng.integers(1, lengths + 1, n)], 1).astype(float)


def tied_pair(rng):
    """Two diagrams with ties: equal, integer, nudged by a last place, half of each, or near each other."""
    n, m = rng.integers(1, 120, 2)
    kind = rng.integers(6)
    if kind == 0:
        return np.tile([0, 1.0], (n, 1)), np.tile([0, 1.2], (m, 1))
    births, lengths = ((6, 4), (2, 2), (30, 30))[rng.integers(3)]
    a, b = (integer_bars(k, rng.integers(1 << 30), births, lengths) for k in (n, m))
    if kind == 1:
        return a, b
    if kind == 2:  # by a last place
        for x in (a, b):
            some = rng.random(len(x)) < 0.4
            x[some, 1] = np.nextafter(x[some, 1], 1000)
        return a, b
    if kind == 3:
        return np.concatenate([a / 10, band(n, rng.integers(1 << 30))]), np.concatenate([b / 10, band(m, 1)])
    if kind == 4:  # clusters
        return a + 1e-6 * rng.random(a.shape) * [0, 1], b + 1e-6 * rng.random(b.shape) * [0, 1]
    return a, np.concatenate([a, a, b])


def w2_scipy(a, b, order, p):
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist
    n, m = len(a), len(b)
    c = np.zeros((n + m, n + m))
    unit = 0.5 if np.isinf(p) else np.sqrt(0.5)
    c[:n, :m] = cdist(a, b, "chebyshev" if np.isinf(p) else "euclidean") ** order
    c[:n, m:] = (((a[:, 1] - a[:, 0]) * unit) ** order)[:, None]
    c[n:, :m] = (((b[:, 1] - b[:, 0]) * unit) ** order)[None, :]
    i, j = linear_sum_assignment(c)
    return c[i, j].sum() ** (1 / order)


def bench_ties(b, some):
    """Bars with ties: random pairs against the dense assignment, then times."""
    rng = np.random.default_rng(7)
    pairs, largest = 200, 0.0
    for _ in range(pairs):
        x, y = tied_pair(rng)
        files = [b.save("tied_a.npy", x), b.save("tied_b.npy", y)]
        order, p = int(rng.integers(1, 4)), (2, np.inf)[rng.integers(2)]
        ours = b.ours("w2", files, ground="inf" if np.isinf(p) else "2", order=order, repeat=1)
        ours.measure(None, None)
        theirs = w2_scipy(x, y, order, p)
        largest = max(largest, abs(ours.report["distance"] - theirs) / max(theirs, 1e-300))
    b.agree(f"W1 to W3 of {pairs} pairs of diagrams with ties, with scipy's assignment", largest <= 1e-9,
            f"largest relative difference {largest:.2g}")
    cases = [("1000 equal bars (0, 1) and 1000 (0, 1.2)", np.tile([0, 1.0], (1000, 1)),
              np.tile([0, 1.2], (1000, 1)), some("POT")),
             ("4000 and 4000 integer bars", integer_bars(4000, 1), integer_bars(4000, 2), some("POT")),
             ("40000 and 40000 integer bars", integer_bars(40000, 1), integer_bars(40000, 2), [])]
    for number, (title, x, y, peers) in enumerate(cases):
        files = [b.save(f"ties{number}a.npy", x), b.save(f"ties{number}b.npy", y)]
        ours = b.ours("w2", files, ground="inf")
        chosen = [b.peer("POT (through gudhi)", "w2_pot", files) for _ in peers]
        b.compare(f"W2, {title}", [ours, *chosen])
        for tool in chosen:
            if not tool.failure:
                value, theirs = ours.report["distance"], tool.report["result"]
                b.agree(f"W2 with {tool.name}", abs(theirs - value) <= 1e-9 * value,
                        f"relative difference {abs(theirs - value) / value:.2g}")
        b.require(f"W2, {title}: 0.5 s over ours", 0.5 / ours.best, 1)


def bench_gw(b, n):
    x = residual(n)
    files = [b.save(f"gwa{n}.npy", raw(x)), b.save(f"gwb{n}.npy", raw(layer(x, 3)))]
    ours = b.ours("gw", files, start="identity")
    full = b.ours("gw", files, name="tailor, all starts", start="all")
    pot = b.peer("POT, identity start", "gw_pot", files, start="identity")
    product = b.peer("POT, its own start", "gw_pot", files, start="product")
    b.compare(f"GW, residual before and after, N = {n}", [ours, full, pot, product])
    energy, best = ours.report["energy"], full.report["energy"]
    b.agree("GW value not above POT's from identity", energy <= pot.report["result"] * (1 + 1e-9),
            f"{energy:.10g}, POT {pot.report['result']:.10g}")
    b.agree("GW value of all starts not above POT's",
            best <= min(pot.report["result"], product.report["result"]) * (1 + 1e-9),
            f"{best:.10g}, POT's own start {product.report['result']:.10g}")
    return ours, pot


def bench_profile(b):
    x = residual(2048, seed=5, unit=False).astype(np.float32)
    y = layer(x.astype(np.float64), 6).astype(np.float32)
    files = [b.save("profile_before.npy", x), b.save("profile_after.npy", y)]
    ours = b.ours("profile", files, tokens=256, subsamples=8)
    ours.measure(None, None)  # for the positions it draws
    positions = b.save("positions.npy", np.array(ours.report["positions"], dtype=np.int64))
    pipeline = b.peer("numpy, giotto-ph, POT", "profile", files, positions=positions, tokens=256,
                      rho=ours.report["rho"])
    b.compare("3x3 profile of one layer, n = 256, R = 8, 2048 tokens of dimension 256", [ours, pipeline])
    values = np.array([entry["value"] for entry in ours.report["entries"]])
    theirs = np.load(pipeline.out)
    names = [f"{e['geometry']} {e['statistic']}" for e in ours.report["entries"]]
    for name, mine, other in zip(names, values, theirs):
        lower = name.endswith("gromov")  # several starts can only go lower
        ok = mine <= other * (1 + 1e-9) if lower else abs(mine - other) <= 1e-4 * other
        b.agree(f"profile, {name}", ok, f"{mine:.8g}, pipeline {other:.8g}")
    return ours, pipeline


def bench_threads(b, layers=8):
    x = [residual(1024, d=128, seed=7, unit=False)]
    for l in range(layers):
        x.append(layer(x[-1], 20 + l))
    before = b.save("layers_before.npy", np.stack(x[:-1]).astype(np.float32))
    after = b.save("layers_after.npy", np.stack(x[1:]).astype(np.float32))
    runs = {t: b.ours("profile", [before, after], name=f"tailor, {t} threads", threads=t, repeat=1,
                      tokens=256, subsamples=4) for t in (1, 2)}
    walls, busiest = {1: [], 2: []}, {1: [], 2: []}
    for _ in range(max(b.rounds, 12)):  # for a moment when both processors are free
        for t, tool in runs.items():
            tool.measure(None, None)
            walls[t] += tool.report["wall_s"]
            busiest[t] += tool.report["thread_max_s"]
    same = runs[1].report["entries"] == runs[2].report["entries"]
    b.agree("profile with one and two threads", same)
    print(f"\nProfile of {layers} layers, n = 256, R = 4: wall time, one thread {min(walls[1]):.3f} s, "
          f"two {min(walls[2]):.3f} s; busiest thread {min(busiest[1]):.3f} s and "
          f"{min(busiest[2]):.3f} s of processor time; load average {os.getloadavg()[0]:.1f}")
    return min(walls[1]) / min(walls[2]), min(busiest[1]) / min(busiest[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=str(HERE.parents[1] / "build/release/bin/geometry_bench"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="parts, with commas: h1, residual, large, w2, gw, "
                                                   "profile, threads")
    parser.add_argument("--ours-only", action="store_true", help="leave the peers out")
    arguments = parser.parse_args()
    parts = arguments.only.split(",") if arguments.only else \
        ["h1", "residual", "w2", "ties", "gw", "profile", "threads", "large"]
    import importlib.metadata as metadata
    versions = {p: metadata.version(p) for p in ("numpy", "scipy", "giotto-ph", "gudhi", "POT")}
    ripser = subprocess.run(["dpkg-query", "-W", "-f=${Version}", "ripser"], capture_output=True, text=True)
    print("peers:", ", ".join(f"{k} {v}" for k, v in versions.items()), "ripser", ripser.stdout)
    with open("/proc/cpuinfo") as f:
        model = next((l.split(":")[1].strip() for l in f if l.startswith("model name")), "?")
    print(f"machine: {model}, {os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}")

    with tempfile.TemporaryDirectory(prefix="geometry_bench.") as folder:
        b = Bench(arguments.program, pathlib.Path(folder), arguments.rounds)
        some = (lambda *peers: [] if arguments.ours_only else list(peers))
        if "h1" in parts:
            ours, peers = bench_h1(b, "sphere", 512, some("ripser", "giotto", "gudhi"), 64)
            if peers:
                b.require("H1, 512 unit vectors in R^64, over ripser", ratio(peers[:1], ours, True), 300)
        if "residual" in parts:
            for n, peers in ((512, some("ripser", "giotto", "gudhi collapse")),
                             (1024, some("ripser", "giotto"))):
                ours, peers = bench_h1(b, "residual", n, peers, 256)
                if peers:
                    r = min(ratio([p], ours, p.whole_process) for p in peers if not p.failure)
                    b.require(f"H1, residual-like data, N = {n}, over the best peer", r, 4, 7)
        if "w2" in parts:
            for n, peers in ((1000, some("POT", "Hera 1%", "Hera", "scipy")),
                             (4000, some("POT", "Hera 1%", "Hera"))):
                ours, peers = bench_w2(b, n, peers)
                if peers and n == 1000:
                    b.require("W2, n = 1000, over POT", ratio(peers[:1], ours), 5)
                elif peers:
                    b.require("W2, n = 4000, over the better of POT and Hera", ratio(peers, ours), 5, 10)
        if "ties" in parts:
            bench_ties(b, some)
        if "gw" in parts:
            ours, pot = bench_gw(b, 512)
            b.require("GW, N = 512 from identity, over POT", ratio([pot], ours), 2, 3)
        if "profile" in parts:
            ours, pipeline = bench_profile(b)
            b.require("3x3 profile, over a pipeline of peers", ratio([pipeline], ours), 5, 15)
        if "threads" in parts:
            wall, busiest = bench_threads(b)
            b.require("two threads on the profile of many layers, wall time", wall, 1.7)
            print(f"     by the processor time of the busiest thread (idle cores): {busiest:.2f}")
        if "large" in parts:
            ours, peers = bench_h1(b, "sphere", 1024, some("ripser", "giotto"), 64)
            ours, peers = bench_h1(b, "sphere", 2048, some("ripser", "giotto"), 64)
            b.require("H1, 2048 unit vectors in R^64, the limit of 120 s over ours", LIMIT_S / ours.whole, 10, 30)
            b.require("the same, 200 MiB over its memory", 200 / ours.memory, 1)
        missed = [r for r in b.requirements if not (r[1] is not None and r[1] >= r[2])]
        print(f"\n{len(b.requirements) - len(missed)} of {len(b.requirements)} requirements met, "
              f"{len(b.disagreements)} disagreements {b.disagreements or ''}")
        return 1 if missed or b.disagreements else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--peer":
        run_peer(sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    else:
        sys.exit(main())
