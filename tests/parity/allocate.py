#!/usr/bin/env python3
"""Compares `tailor geometry allocate` with an exact dynamic program on random problems.

The program below knows nothing of convexity, greed or multipliers: for every total of cost times width it
keeps the best objective over all widths of all layers so far. A problem passes when both find it
infeasible (exit code 2), or when the widths are multiples between floor and cap, meet the budget within the
tolerance, and their objective is the least, to rounding.
"""
import argparse
import json
import math
import operator
import pathlib
import random
import subprocess
import sys
import tempfile

ROUNDING = 1e-11
EXPONENT_MIN = 0.02


def listed(value, count):
    return value if isinstance(value, list) else [value] * count


def best_objective(problem):
    """The least objective of the discrete problem of geometry/allocation.h, or None."""
    count = len(problem["work"])
    quantum, budget = problem["quantum"], problem["budget"]
    tolerance = problem.get("tolerance", 1e-5)
    costs, floors = listed(problem.get("cost", 1), count), listed(problem.get("floor", 0), count)
    caps = [math.inf if c is None else c for c in listed(problem.get("cap"), count)]
    exponents = [max(a, EXPONENT_MIN) for a in listed(problem.get("exponent", 1), count)]
    sensitivity = listed(problem.get("sensitivity", 1), count)
    # The real problem comes first: the tolerance is for rounding to multiples alone.
    if (sum(map(operator.mul, costs, floors)) > budget * (1 + 1e-12) or
            sum(map(operator.mul, costs, caps)) < budget * (1 - 1e-12)):
        return None
    reference = budget / sum(costs) if problem.get("width_unit") == "relative" else 1
    best = {0: 0.0}  # objective by total; costs and quanta are whole numbers, so totals are, too
    for l in range(count):
        beta = problem["work"][l] * sensitivity[l]
        choices = []
        width = 0
        while width <= caps[l] and costs[l] * width <= budget * (1 + tolerance):
            # At width 0 work would cost infinitely much; a cap above 0 asks for a width.
            if width >= floors[l] and (width > 0 or (beta == 0 and not 0 < caps[l] < quantum)):
                term = beta * (width / reference) ** -exponents[l] if beta > 0 else 0.0
                choices.append((costs[l] * width, term))
            width += quantum
        following = {}
        for total, objective in best.items():
            for used, term in choices:
                if total + used > budget * (1 + tolerance):
                    break
                candidate = objective + term
                if candidate < following.get(total + used, math.inf):
                    following[total + used] = candidate
        best = following
    within = [o for t, o in best.items() if budget * (1 - tolerance) <= t <= budget]
    above = [o for t, o in best.items() if budget < t <= budget * (1 + tolerance)]
    return min(within) if within else min(above) if above else None


def random_problem(rng):
    count = rng.randint(1, 12)
    quantum = rng.choice([1, 2, 3, 8, 16, 64, 100])
    mode = rng.choice(["one", "equal", "few", "many"])
    costs = {"one": [1] * count, "equal": [rng.randint(1, 3072)] * count,
             "few": [rng.choice([2304, 3072]) for _ in range(count)],
             "many": [rng.randint(1, 6) for _ in range(count)]}[mode]
    work, floors, caps, exponents = [], [], [], []
    reached = 0
    for l in range(count):
        work.append(0 if rng.random() < 0.1 else math.exp(rng.gauss(0, 2)))
        if l > 0 and rng.random() < 0.2:
            work[l] = work[l - 1]  # ties
        exponents.append(rng.choice([1, 0.5, 2, rng.uniform(0.01, 3)]))
        floor = rng.choice([0, 0, rng.randint(0, 4) * quantum, rng.uniform(0, 4 * quantum)])
        cap = rng.choice([None, None, floor + rng.randint(1, 5) * quantum,
                          floor + rng.uniform(quantum, 5 * quantum)])
        if rng.random() < 0.04:
            cap = floor + rng.choice([0, rng.uniform(0, quantum)])  # maybe no multiple between
        floors.append(floor)
        caps.append(cap)
        units = math.ceil(floor / quantum) + rng.randint(0, 5)
        if cap is not None and rng.random() < 0.8:
            units = min(units, math.floor(cap / quantum))
        reached += costs[l] * quantum * max(units, 1 if work[l] > 0 else 0)
    problem = {"work": work, "exponent": exponents, "cost": costs, "floor": floors, "cap": caps,
               "quantum": quantum, "budget": max(reached, 1)}
    if rng.random() < 0.15:
        problem["budget"] += rng.choice([0.5, 1, quantum / 2, -1])
        problem["budget"] = max(problem["budget"], 0.5)
    if rng.random() < 0.2:
        problem["tolerance"] = rng.choice([0, 1e-3, 0.05])
    if rng.random() < 0.2:
        problem["sensitivity"] = [math.exp(rng.gauss(0, 1)) for _ in range(count)]
    if rng.random() < 0.2:
        problem["width_unit"] = "relative"
    for key in ("exponent", "cost", "floor", "cap"):
        if len(set(problem[key])) == 1 and rng.random() < 0.7:
            problem[key] = problem[key][0]
            if key == "cap" and problem[key] is None:
                del problem[key]
    return problem


def difference(problem, ran):
    """What is wrong, or None; and whether the problem was solved."""
    expected = best_objective(problem)
    if expected is None:
        if ran.returncode != 2 or ran.stdout:
            return f"infeasible, but exit code {ran.returncode}", False
        return None, False
    if ran.returncode != 0:
        return f"exit code {ran.returncode}, {ran.stderr.strip()}; the best is {expected!r}", False
    printed = json.loads(ran.stdout)
    widths, report = printed["integer_widths"], printed["report"]["integer"]
    count = len(problem["work"])
    total = 0
    for l, width in enumerate(widths):
        floor = listed(problem.get("floor", 0), count)[l]
        cap = listed(problem.get("cap"), count)[l]
        if width % problem["quantum"] or width < floor or (cap is not None and width > cap):
            return f"layer {l}: width {width}, floor {floor}, cap {cap}", True
        if width == 0 and l not in printed["report"]["without_width"]:
            return f"layer {l}: width 0 without a word", True
        total += listed(problem.get("cost", 1), count)[l] * width
    off = abs(total / problem["budget"] - 1)
    if off > problem.get("tolerance", 1e-5) + ROUNDING:
        return f"total {total}", True
    if not math.isclose(report["objective"], expected, rel_tol=ROUNDING, abs_tol=1e-300):
        return f"objective {report['objective']!r} with {widths}, the best is {expected!r}", True
    if not report["optimal"]:
        return "the best, but not called so", True
    if report["exact"] != (total == problem["budget"]):
        return f"exact is {report['exact']}, total {total}", True
    return None, True


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/tailor")
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.program).exists():
        sys.exit(f"allocate.py: {arguments.program} is missing: cmake --preset release, then build tailor")
    rng = random.Random(arguments.seed)
    solved = differences = 0
    with tempfile.TemporaryDirectory(prefix="allocate.") as folder:
        file = pathlib.Path(folder) / "problem.json"
        for number in range(arguments.problems):
            problem = random_problem(rng)
            file.write_text(json.dumps(problem))
            ran = subprocess.run([arguments.program, "geometry", "allocate", str(file), "--json"],
                                 capture_output=True, text=True)
            wrong, was_solved = difference(problem, ran)
            solved += was_solved
            if wrong:
                differences += 1
                print(f"problem {number}: {wrong}\n  {json.dumps(problem)}")
    print(f"{arguments.problems} problems, {solved} solved, {arguments.problems - solved} refused, "
          f"{differences or 'no'} difference{'s' if differences > 1 else ''}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
