"""Durable trials a second of Optuna, Vizier and Tailor, in turn in one window on one disk.

A trial of a peer is: ask (4 floats, random search), one report, tell; every answer is stored before the next
step. A trial of Tailor is: assigned, one report acknowledged, its end acknowledged. Rounds are interleaved, so
that all tools see the same machine; the best round of each counts. Called by orchestration.sh.
"""
import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time


def disk(folder):
    """fdatasync of 4 KiB appends a second, and the load average."""
    path = os.path.join(folder, "disk-probe")
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < 0.5:
        os.write(fd, b"x" * 4096)
        os.fdatasync(fd)
        count += 1
    spent = time.monotonic() - begin
    os.close(fd)
    os.unlink(path)
    return {"syncs_per_s": round(count / spent), "load1": round(os.getloadavg()[0], 2)}


# ---- Optuna

def optuna_worker(storage, study, seconds, seed, results):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    loaded = optuna.load_study(study_name=study, storage=open_storage(storage),
                               sampler=optuna.samplers.RandomSampler(seed=seed))
    times, begin, cpu = [], time.monotonic(), time.process_time()
    while time.monotonic() - begin < seconds:
        start = time.monotonic()
        trial = loaded.ask()
        value = sum(trial.suggest_float(name, 0, 1) for name in ("a", "b", "c", "d"))
        trial.report(value, 1)
        loaded.tell(trial, value)
        times.append(time.monotonic() - start)
    results.put((len(times), time.monotonic() - begin, times, time.process_time() - cpu))


def open_storage(storage):
    import optuna

    kind, path = storage
    if kind == "sqlite":
        return optuna.storages.RDBStorage(f"sqlite:///{path}",
                                          engine_kwargs={"connect_args": {"timeout": 120}})
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(path))


def optuna_round(kind, clients, seconds, folder):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = (kind, os.path.join(folder, "optuna." + kind))
    optuna.create_study(study_name="bench", storage=open_storage(storage))
    results = multiprocessing.Queue()
    return gather([multiprocessing.Process(target=optuna_worker,
                                           args=(storage, "bench", seconds, seed, results))
                   for seed in range(clients)], results)


# ---- Vizier

def vizier_worker(address, seconds, index, results):
    from vizier.service import clients

    clients.environment_variables.server_endpoint = address
    study = clients.Study.from_resource_name("owners/bench/studies/bench")
    from vizier.service import pyvizier

    times, begin, cpu = [], time.monotonic(), time.process_time()
    while time.monotonic() - begin < seconds:
        start = time.monotonic()
        (trial,) = study.suggest(count=1, client_id=f"client-{index}")
        value = sum(float(v) for v in trial.parameters.values())
        trial.add_measurement(pyvizier.Measurement({"loss": value}, steps=1))
        trial.complete(pyvizier.Measurement({"loss": value}, steps=2))
        times.append(time.monotonic() - start)
    results.put((len(times), time.monotonic() - begin, times, time.process_time() - cpu))


VIZIER_SERVER = """
import sys, time
from vizier.service import servers
server = servers.DefaultVizierServer(host="localhost", database_url="sqlite:///" + sys.argv[1])
print(server.endpoint, flush=True)
time.sleep(3600)
"""


def vizier_round(clients, seconds, folder):
    log = open(os.path.join(folder, "vizier.log"), "w")
    server = subprocess.Popen([sys.executable, "-c", VIZIER_SERVER, os.path.join(folder, "vizier.db")],
                              stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        address = server.stdout.readline().strip()
        if not address:
            raise RuntimeError("Vizier's server does not start: " + open(log.name).read()[-2000:])
        from vizier.service import clients as vizier_clients
        from vizier.service import pyvizier

        vizier_clients.environment_variables.server_endpoint = address
        config = pyvizier.StudyConfig(algorithm="RANDOM_SEARCH")
        for name in ("a", "b", "c", "d"):
            config.search_space.root.add_float_param(name, 0.0, 1.0)
        config.metric_information.append(
            pyvizier.MetricInformation("loss", goal=pyvizier.ObjectiveMetricGoal.MINIMIZE))
        vizier_clients.Study.from_study_config(config, owner="bench", study_id="bench")
        results = multiprocessing.Queue()
        return gather([multiprocessing.Process(target=vizier_worker,
                                               args=(address, seconds, i, results))
                       for i in range(clients)], results)
    finally:
        server.kill()
        server.wait()


def gather(processes, results):
    """Trials a second over all processes, from the first start to the last end."""
    begin = time.monotonic()
    for process in processes:
        process.start()
    parts = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    times = sorted(t for part in parts for t in part[2])
    trials = sum(part[0] for part in parts)
    return {"trials": trials,
            # Each process counts its own time: imports are not part of it.
            "trials_per_s": round(sum(part[0] / part[1] for part in parts), 1),
            "p50_ms": round(1e3 * times[len(times) // 2], 3),
            "p99_ms": round(1e3 * times[int(len(times) * 0.99)], 3),
            "client_cpu_ms_per_trial": round(1e3 * sum(part[3] for part in parts) / trials, 3),
            "seconds": round(time.monotonic() - begin, 1)}


# ---- Tailor

def tailor_round(bench, clients, seconds, folder):
    output = subprocess.run([bench, "--folder", folder, "--seconds", str(seconds), "trials",
                             "--clients", str(clients)], check=True, capture_output=True, text=True)
    figure = json.loads(output.stdout)["figures"][0]
    return {"trials": figure["trials"], "trials_per_s": figure["trials_per_s"],
            "coordinator_cpu_ms_per_trial": figure["coordinator_cpu_ms_per_trial"],
            "p50_ms": figure["end_ack"]["p50_ms"], "p99_ms": figure["end_ack"]["p99_ms"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--only", default="tailor,optuna-sqlite,optuna-journal,vizier")
    arguments = parser.parse_args()
    tools = {
        "tailor": lambda n, folder: tailor_round(arguments.bench, n, arguments.seconds, folder),
        "optuna-sqlite": lambda n, folder: optuna_round("sqlite", n, arguments.seconds, folder),
        "optuna-journal": lambda n, folder: optuna_round("journal", n, arguments.seconds, folder),
        "vizier": lambda n, folder: vizier_round(n, arguments.seconds, folder),
    }
    best = {}
    for number in range(arguments.rounds):
        for clients in [int(n) for n in arguments.clients.split(",")]:
            for name in arguments.only.split(","):
                folder = tempfile.mkdtemp(dir=arguments.folder)
                try:
                    before = disk(folder)
                    try:
                        figure = tools[name](clients, folder)
                    except Exception as problem:  # a peer that fails is said and costs no other figure
                        print(f"{name} with {clients} clients failed: {problem}", file=sys.stderr)
                        continue
                    figure["before"] = before
                    print(json.dumps({"round": number + 1, "tool": name, "clients": clients, **figure}),
                          flush=True)
                    known = best.get((name, clients))
                    if known is None or figure["trials_per_s"] > known["trials_per_s"]:
                        best[(name, clients)] = figure
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
    print()
    print(f"best of {arguments.rounds} rounds: trials/s (Tailor / peer)")
    for (name, clients), figure in sorted(best.items(), key=lambda item: (item[0][1], item[0][0])):
        ours = best.get(("tailor", clients))
        ratio = "" if name == "tailor" or ours is None else (
            f"  {ours['trials_per_s'] / figure['trials_per_s']:.1f}x")
        print(f"{clients:3} clients  {name:15} {figure['trials_per_s']:10.1f}  "
              f"p99 {figure['p99_ms']:9.2f} ms{ratio}")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
