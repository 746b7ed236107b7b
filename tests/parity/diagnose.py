"""The activations of a diagnosis through POT, GUDHI and scikit-dimension, for diagnose.sh.

    diagnose.py FOLDER [LAYERS]      FOLDER: of `tailor-trainer diagnose --keep-clouds`; LAYERS: 0,5,... (a third of all)

Every statistic of the first subsample, every distance in float64 from the float32 rows.
"""
import json
import os
import sqlite3
import sys

import gudhi
import numpy as np
import ot
import skdim

RHO = np.tanh(1.0)
KAPPA = 2 * RHO / (1 - RHO ** 2)


def chord(x, y):
    """|u - v| of directions, rows against rows, without cancellation."""
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    v = y / np.linalg.norm(y, axis=1, keepdims=True)
    return np.linalg.norm(u[:, None, :] - v[None, :, :], axis=2)


def distances(x, geometry):
    if geometry == "raw":
        return np.linalg.norm(x[:, None, :] - x[None, :, :], axis=2)
    c = chord(x, x)
    np.fill_diagonal(c, 0)
    return from_chord(c, geometry)


def from_chord(c, geometry):
    c = np.minimum(c, 2)
    return 2 * np.arcsin(c / 2) if geometry == "spherical" else 2 * np.arcsinh(KAPPA * c / 2)


def shift(x, y, geometry):
    if geometry == "raw":
        return np.linalg.norm(x - y, axis=1).mean()
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    v = y / np.linalg.norm(y, axis=1, keepdims=True)
    return from_chord(np.linalg.norm(u - v, axis=1), geometry).mean()


def diagram(d):
    radius = d.max(axis=1).min()
    tree = gudhi.RipsComplex(distance_matrix=d, max_edge_length=radius).create_simplex_tree(max_dimension=1)
    tree.collapse_edges()
    tree.expansion(2)
    tree.compute_persistence(homology_coeff_field=2)
    bars = tree.persistence_intervals_in_dimension(1)
    bars = bars[bars[:, 1] > bars[:, 0]] if len(bars) else np.zeros((0, 2))
    assert np.isfinite(bars).all()
    return bars


def w2(a, b):
    """Order 2, ground norm 2, exactly: POT on the matrix with the diagonal as one more point a side."""
    n, m = len(a), len(b)
    if n + m == 0:
        return 0.0
    cost = np.zeros((n + 1, m + 1))
    scale = max([1e-300] + [(x[:, 1] - x[:, 0]).max() for x in (a, b) if len(x)])
    a, b = a / scale, b / scale
    if n and m:
        cost[:n, :m] = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    if n:
        cost[:n, m] = (a[:, 1] - a[:, 0]) ** 2 / 2
    if m:
        cost[n, :m] = (b[:, 1] - b[:, 0]) ** 2 / 2
    plan = ot.emd(np.append(np.ones(n), m), np.append(np.ones(m), n), cost, numItermax=10_000_000)
    return scale * np.sqrt((plan * cost).sum())


def gromov(a, b):
    """sqrt of POT's value from the identity start: an upper bound of the least."""
    p = ot.unif(len(a))
    start = np.diag(p)
    log = ot.gromov.gromov_wasserstein2(a, b, p, p, loss_fun="square_loss", G0=start, log=True)
    return np.sqrt(max(log[0], 0))


def main():
    folder = sys.argv[1]
    diagnosis = json.load(open(os.path.join(folder, "diagnosis.json")))
    positions = json.load(open(os.path.join(folder, "clouds", "positions.json")))
    rows = positions["subsamples"][0]
    every = np.concatenate(positions["subsamples"]).astype(int)
    depth = len(diagnosis["layers"])
    layers = [int(l) for l in sys.argv[2].split(",")] if len(sys.argv) > 2 else list(range(0, depth, 3))
    database = sqlite3.connect(os.path.join(folder, "diagnosis.db"))
    worst = {}
    bad = 0

    def compare(name, layer, ours, theirs, limit, one_sided=False):
        nonlocal bad
        off = (ours - theirs) / max(abs(theirs), 1e-300)
        off = off if one_sided else abs(off)
        worst[name] = max(worst.get(name, -1e300), off)
        if off > limit:
            bad += 1
            print(f"  layer {layer} {name}: ours {ours!r}, theirs {theirs!r}")

    for layer in layers:
        before = np.load(f"{folder}/clouds/layer_{layer:03}_before.npy").astype(np.float64)
        after = np.load(f"{folder}/clouds/layer_{layer:03}_after.npy").astype(np.float64)
        x, y = before[rows], after[rows]
        by = {(g, s): v for g, s, v in database.execute(
            "select geometry, statistic, value from work_subsamples where layer = ? and subsample = 0", (layer,))}
        for geometry in ("raw", "spherical", "hyperbolic"):
            compare(geometry + " shift", layer, by[geometry, "shift"], shift(x, y, geometry), 1e-9)
            a, b = distances(x, geometry), distances(y, geometry)
            compare(geometry + " gromov above POT", layer, by[geometry, "gromov"], gromov(a, b), 1e-7, one_sided=True)
            compare(geometry + " topology", layer, by[geometry, "topology"], w2(diagram(a), diagram(b)), 1e-6)
        # One point a place: repeated tokens at layer 0 are one, as in ours.
        points = np.unique(before[every].astype(np.float32), axis=0).astype(np.float64)
        dimension = diagnosis["layers"][layer]["dimension"]
        if dimension["points"] == len(points):
            compare("TwoNN fit", layer, dimension["two_nn_fit"]["value"],
                    skdim.id.TwoNN(discard_fraction=0.1).fit(points).dimension_, 1e-6)
            compare("Levina-Bickel", layer, dimension["levina_bickel"]["value"],
                    skdim.id.MLE(neighborhood_based=True, K=20).fit(points, n_neighbors=20).dimension_, 1e-6)
        else:
            print(f"  layer {layer}: {dimension['points']} distinct points here, {len(points)} by exact bits: dimension not compared")
    for name, off in sorted(worst.items()):
        print(f"  {name}: furthest off {off:.1e} over {len(layers)} layers")
    sys.exit(1 if bad else 0)


main()
