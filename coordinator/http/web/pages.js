// The pages: each fetches what it shows and returns a DOM tree (app.js puts it on the screen).
'use strict';

const STATES = ['completed', 'running', 'stopped', 'failed', 'cancelled', 'queued'];
const PAGE = 50;
const PLOTTED_MAX = 8;

const stateText = (state) => h('span', { class: 'state ' + state }, state);
const facts = (list) =>
  h('dl', { class: 'facts' }, list.filter(([, v]) => v !== null && v !== undefined && v !== '')
    .map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
const num = (text, more) => h('td', { class: 'num', ...more }, text);

// Points of the space tried so far, of all that the search will try.
const points = (s) => (s.search_points ? count(s.search_tried) + ' / ' + count(s.search_points) : '–');

function progress(trials) {
  const label = STATES.filter((s) => trials[s]).map((s) => trials[s] + ' ' + s).join(', ') || 'no trials yet';
  return h('div', { class: 'bar', role: 'img', 'aria-label': label, title: label },
    STATES.filter((s) => trials[s]).map((s) => h('span', { class: s, style: 'width:' + (100 * trials[s]) / trials.total + '%' })));
}

function choose(label, name, value, options) {
  return h('label', null, label + ' ', h('select', { 'data-query': name, 'data-key': name },
    options.map(([key, text]) => h('option', { value: key, selected: key === value }, text))));
}

// ---- all sweeps

pages.sweeps = async () => {
  const { sweeps, total, more } = await api('sweeps', { limit: 200 });
  if (!sweeps.length) {
    return h('div', null, h('h1', null, 'Sweeps'),
      h('p', null, 'There is no sweep yet. Submit one: ', h('code', null, 'tailor submit SWEEP.toml')));
  }
  sweeps.reverse();
  return h('div', null, h('h1', null, 'Sweeps'),
    more ? h('p', { class: 'muted' }, 'The newest ' + count(sweeps.length) + ' of ' + count(total) + '; all: ', h('code', null, 'tailor ls --all')) : null,
    h('div', { class: 'scroll' }, h('table', null,
    h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Sweep'), h('th', { scope: 'col' }, 'State'),
      h('th', { scope: 'col' }, 'Progress'), h('th', { scope: 'col', class: 'num' }, 'Done'), h('th', { scope: 'col', class: 'num' }, 'Running'),
      h('th', { scope: 'col', class: 'num' }, 'Failed'), h('th', { scope: 'col', class: 'num' }, 'Candidates'),
      h('th', { scope: 'col', class: 'num', title: 'Points of the space: tried / in all' }, 'Points'), h('th', { scope: 'col' }, 'Submitted'))),
    h('tbody', null, sweeps.map((s) => h('tr', { 'data-key': 's' + s.id },
      h('td', null, h('a', { href: link(['sweep', s.id]) }, s.name), ' ', h('span', { class: 'muted' }, 's' + s.id)),
      h('td', null, stateText(s.state)), h('td', null, progress(s.trials)),
      num(count(s.trials.completed + s.trials.stopped) + ' / ' + count(s.trials.total)), num(count(s.trials.running)),
      num(count(s.trials.failed), { class: s.trials.failed ? 'num bad' : 'num' }), num(count(s.candidates)), num(points(s)), h('td', null, when(s.created_ms))))))));
};

// ---- one sweep

function intervalPicture(row, scale) {
  if (row.ci_low === null || !(scale > 0)) return null;
  const x = (v) => 90 + (85 * Math.max(-scale, Math.min(scale, v))) / scale;
  return h('svg', { class: 'ci', viewBox: '0 0 180 18', role: 'img', 'aria-label': 'interval from ' + signed(row.ci_low) + ' to ' + signed(row.ci_high) },
    h('line', { class: 'zero', x1: 90, x2: 90, y1: 1, y2: 17 }),
    h('line', { x1: x(row.ci_low), x2: x(row.ci_high), y1: 9, y2: 9 }), h('circle', { cx: x(row.difference), cy: 9, r: 4 }));
}

const COMPARED = 50;
const COMPARE_ORDERS = [['', 'candidate'], ['name', 'name'], ['difference', 'difference'], ['mean', 'mean'], ['p', 'p']];

function seedsText(r, i) {
  const parts = [String(i === 0 ? r.finished : r.pairs)];
  if (i > 0 && r.missing) parts[0] += ' (' + r.missing + ' missing)';
  for (const kind of ['failed', 'stopped', 'lost']) if (r[kind]) parts.push(r[kind] + ' ' + kind);
  if (r.other_data) parts.push(r.other_data + ' on other data');
  return parts.join(', ');
}

function verdictText(r) {
  if (r.verdict === 'not distinguishable' && r.seeds_beyond) return r.verdict + ', over 1,000 seeds needed';
  if (r.verdict === 'not distinguishable' && r.seeds_needed > r.pairs) return r.verdict + ', about ' + count(r.seeds_needed - r.pairs) + ' more seeds needed';
  return r.verdict;
}
function testsText(r) {
  const parts = [];
  if (r.p_t !== null) parts.push('t-test p ' + decimal(r.p_t, 3) + ', adjusted ' + decimal(r.p_t_holm, 3));
  if (r.p_sign !== null) parts.push('sign test p ' + decimal(r.p_sign, 3));
  if (r.p_wilcoxon !== null) parts.push('Wilcoxon p ' + decimal(r.p_wilcoxon, 3) + (r.wilcoxon_exact ? '' : ' (approximation)'));
  parts.push(r.bca_low !== null ? 'BCa [' + signed(r.bca_low) + ', ' + signed(r.bca_high) + ']' : 'no BCa: ' + r.bca_note);
  if (r.detectable !== null) parts.push('found with 80 % power: ' + decimal(r.detectable, 3));
  if (r.difference_evaluation_se_max !== null) parts.push('noise of the evaluation text (SE) at most ' + decimal(r.difference_evaluation_se_max, 2));
  return parts.join('\n');
}

function estimateText(e, digits) {
  return decimal(e.value, digits) + (e.low === null ? '' : ' [' + decimal(e.low, digits) + ', ' + decimal(e.high, digits) + ']');
}
const percentText = (g) => (g >= 0 ? '+' : '') + (100 * g).toFixed(1) + ' %';
function gainText(g) {
  if (!g || !g.gain) return '–';
  return percentText(g.gain.value) + (g.gain.low === null ? '' : ' [' + percentText(g.gain.low) + ', ' + percentText(g.gain.high) + ']') + (g.extrapolated ? ' *' : '');
}
// Laws over sizes: a curve and its band a family, and what the fit rests on.
function scalingSection(table) {
  const drawn = table.families.filter((f) => f.in_compute);
  const traces = drawn.flatMap((f, i) => {
    const band = f.in_compute.band, name = escapeLabel(f.name), color = ['#4878d0', '#ee854a', '#6acc64', '#d65f5f', '#956cb4', '#8c613c'][i % 6];
    const edge = (k, more) => ({ x: band.map((p) => p[0]), y: band.map((p) => p[k]), mode: 'lines', type: 'scatter', line: { width: 0, color }, hoverinfo: 'skip', showlegend: false, ...more });
    const bands = band.some((p) => p[2] === null) ? [] : [edge(2), edge(3, { fill: 'tonexty', opacity: 0.3 })];
    return [...bands, { x: band.map((p) => p[0]), y: band.map((p) => p[1]), mode: 'lines', type: 'scatter', name, line: { color } },
      { x: f.sizes.map((s) => s.flops), y: f.sizes.map((s) => s.mean), mode: 'markers', type: 'scatter', name: name + ', means', marker: { color }, showlegend: false }];
  });
  return h('section', { 'data-key': 'scaling' }, h('h2', null, 'Scaling, against ' + table.baseline),
    table.families.filter((f) => f.text || f.note).map((f) => h('p', { 'data-key': 'scaling ' + f.name }, f.name + ': ' + [f.text, f.note].filter(Boolean).join('; '))),
    traces.length ? chart('scaling', table.objective.replace(/_/g, ' ') + ' against training compute', traces,
      { xaxis: { title: { text: 'training FLOPs' }, type: 'log' }, yaxis: { title: { text: escapeLabel(table.objective) } } }) : null,
    h('div', { class: 'scroll' }, h('table', null,
      h('caption', null, 'L(x) = E + A (x / unit)^−α with 95 % intervals; compute gain: how much more compute ' + table.baseline + ' needs for the same loss (* = beyond its sizes).'),
      h('thead', null, h('tr', null, ...['Family', 'Size'].map((t) => h('th', { scope: 'col' }, t)), ...['Body parameters', 'FLOPs', 'Seeds', 'Mean', 'Difference', 'Interval', 'Compute gain'].map((t) => h('th', { scope: 'col', class: 'num' }, t)))),
      h('tbody', null, table.families.flatMap((f) => f.sizes.map((s) => h('tr', { 'data-key': 'scaling ' + s.candidate }, h('td', null, f.name), h('td', null, s.size),
        num(count(s.parameters_body)), num(s.flops.toExponential(2)), num(s.finished + (s.failed ? ', ' + s.failed + ' failed' : '') + (s.stopped ? ', ' + s.stopped + ' stopped' : '')),
        num(decimal(s.mean)), num(s.difference === null ? '' : signed(s.difference)), num(s.ci_low === null ? '' : '[' + signed(s.ci_low) + ', ' + signed(s.ci_high) + ']'),
        num(gainText(f.gains.find((g) => g.at === s.size))))))))),
    h('div', { class: 'scroll' }, h('table', null,
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Law'), ...['E', 'A', 'α', 'unit', 'Seeds'].map((t) => h('th', { scope: 'col', class: 'num' }, t)), h('th', { scope: 'col' }, 'Note'))),
      h('tbody', null, table.families.flatMap((f) => [['in parameters', f.in_parameters], ['in compute', f.in_compute]].filter(([, law]) => law).map(([kind, law]) =>
        h('tr', { 'data-key': 'law ' + f.name + kind }, h('td', null, f.name + ', ' + kind), num(estimateText(law.irreducible, 4)), num(estimateText(law.coefficient, 3)), num(estimateText(law.exponent, 3)),
          num(law.unit.toExponential(2)), num(f.seeds.length), h('td', null, law.note))))))),
    table.notes.map((note) => h('p', { class: 'muted', 'data-key': note }, note)));
}

function comparison(table, seeds, query) {
  const widest = Math.max(...table.rows.flatMap((r) => [r.ci_low, r.ci_high]).filter((v) => v !== null).map(Math.abs), 0);
  const offset = Math.max(0, parseInt(query.coffset || '0', 10) || 0);
  const isBaseline = (r) => r.name === table.baseline;
  return h('section', null, h('h2', null, 'Against ' + table.baseline + ', paired by seed'),
    h('div', { class: 'tools' }, choose('Order', 'corder', query.corder || '', COMPARE_ORDERS),
      h('span', { class: 'muted' }, (offset + 1) + '–' + (offset + table.rows.length) + ' of ' + count(table.total)),
      offset > 0 ? h('a', { href: here({ coffset: offset > COMPARED ? offset - COMPARED : undefined }), rel: 'prev' }, 'Previous') : null,
      table.next_offset ? h('a', { href: here({ coffset: table.next_offset }), rel: 'next' }, 'Next') : null),
    table.notes.map((note) => h('p', { class: 'muted', 'data-key': note }, note)),
    h('div', { class: 'scroll' }, h('table', null,
      h('caption', null, table.objective.replace(/_/g, ' ') + ': mean difference candidate − baseline with its 95 % t-interval; ' +
        'p is the two-sided sign-flip test, which with the pairs of these ' + seeds + ' seed' + (seeds === 1 ? '' : 's') + ' cannot go below ' + decimal(table.smallest_p, 3) + '.'),
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Candidate'), h('th', { scope: 'col', class: 'num' }, 'Body parameters'),
        h('th', { scope: 'col', class: 'num' }, 'Mean'), h('th', { scope: 'col', class: 'num' }, 'Difference'), h('th', { scope: 'col' }, 'Interval'),
        h('th', { scope: 'col' }, h('span', { class: 'muted' }, 'better ← 0 → worse')), h('th', { scope: 'col', class: 'num' }, 'Seeds'),
        h('th', { scope: 'col', class: 'num' }, 'p'), h('th', { scope: 'col', class: 'num' }, 'p (Holm)'),
        h('th', { scope: 'col', class: 'num', title: 'Westfall and Young: joint sign flips over the family' }, 'p (W–Y)'), h('th', { scope: 'col' }, 'Verdict'), h('th', { scope: 'col', class: 'num' }, 'Tokens/s'))),
      h('tbody', null, table.rows.map((r) => {
        const base = isBaseline(r);
        return h('tr', { class: base ? 'baseline' : null, 'data-key': 'c' + r.candidate },
          h('td', { title: r.note || null }, r.name, base ? h('span', { class: 'muted' }, ' (baseline)') : null,
            r.primary ? h('span', { class: 'muted', title: 'Marked in the sweep file: its p is not adjusted' }, ' (primary)') : null,
            r.candidate === table.best ? h('span', { class: 'muted' }, ' (best)') : null,
            r.status === 'incomplete' ? h('span', { class: 'bad', title: r.note }, ' incomplete') : null), num(count(r.parameters_body)), num(decimal(r.mean)),
          num(base ? '' : signed(r.difference), { title: r.differences.map((d, k) => 'seed ' + r.seeds[k] + ': ' + signed(d)).join('\n') }),
          h('td', null, r.ci_low === null ? (base ? '' : h('span', { class: 'muted' }, r.pairs === 1 ? 'one seed' : '–'))
            : '[' + signed(r.ci_low) + ', ' + signed(r.ci_high) + ']'),
          h('td', null, intervalPicture(r, widest)),
          num(seedsText(r, base ? 0 : 1), { title: r.note || null }),
          num(base ? '' : decimal(r.p_sign_flip, 3) + (r.p_draws ? ' ±' + decimal(r.p_standard_error) : '')), num(base ? '' : decimal(r.p_holm, 3)), num(base ? '' : decimal(r.p_westfall_young, 3)),
          h('td', { title: base ? null : r.verdict_text + '\n' + testsText(r) }, verdictText(r)), num(r.tokens_per_s === null ? '–' : count(Math.round(r.tokens_per_s))));
      })))));
}

function sortLink(text, order, query) {
  const active = (query.order || 'id') === order;
  const descending = active && query.descending !== '1';
  return h('th', { scope: 'col', class: order === 'objective' ? 'num' : null, 'aria-sort': active ? (query.descending === '1' ? 'descending' : 'ascending') : 'none' },
    h('a', { href: here({ order, descending: descending ? '1' : undefined, offset: undefined }) },
      text + (active ? (query.descending === '1' ? ' ↓' : ' ↑') : '')));
}

async function curves(trials, query) {
  // The address says which trials are drawn; without it, one of each candidate on this page that has begun.
  const candidates = new Set();
  const begun = trials.filter((t) => t.state !== 'queued' && !candidates.has(t.candidate) && candidates.add(t.candidate))
    .map((t) => String(t.id));
  const chosen = query.plot === 'none' ? [] : query.plot ? query.plot.split(',').slice(0, PLOTTED_MAX) : begun.slice(0, 6);
  const details = await Promise.all(chosen.map((id) => api('trials/' + encodeURIComponent(id)).catch(() => null)));
  const known = details.filter(Boolean);
  const metrics = [...new Set(known.flatMap((d) => d.metrics))].sort();
  const metric = metrics.includes(query.metric) ? query.metric : metrics.includes('validation_loss') && !metrics.includes('train_loss') ? 'validation_loss'
    : metrics.includes('train_loss') ? 'train_loss' : metrics[0];
  const axis = query.x === 'step' || query.x === 'time' ? query.x : 'tokens';
  const series = metric ? await Promise.all(known.map((d) => api('series', { trial: d.trial.id, metric, points: 400 }).catch(() => null))) : [];
  const traces = known.map((d, i) => series[i] && {
    x: axis === 'step' ? series[i].steps : axis === 'time' ? series[i].wall_ms.map((ms) => (ms - series[i].wall_ms[0]) / 1000) : series[i].tokens,
    y: series[i].values, mode: series[i].values.length < 3 ? 'lines+markers' : 'lines', type: 'scatter', connectgaps: false,
    name: escapeLabel('t' + d.trial.id + ' ' + d.trial.candidate_name + ', seed ' + d.trial.seed),
  }).filter(Boolean);
  return { chosen, metrics, metric, axis, traces };
}
// Plotly reads a little markup in labels; users' text must not be any.
const escapeLabel = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');

pages.sweep = async ([reference], query) => {
  const { sweep, file, file_bytes: fileBytes } = await api('sweeps/' + encodeURIComponent(reference), { limit: 1 });
  const offset = Math.max(0, parseInt(query.offset || '0', 10) || 0);
  const [list, table, scaling] = await Promise.all([
    api('trials', { sweep: sweep.id, state: query.state, order: query.order, descending: query.descending, offset, limit: PAGE }),
    sweep.baseline ? api('compare', { sweep: sweep.id, order: query.corder, offset: query.coffset, limit: COMPARED }).catch(() => null) : null,
    sweep.scaling ? api('scaling', { sweep: sweep.id }).catch(() => null) : null,
  ]);
  const drawn = await curves(list.trials, query);
  const t = sweep.trials;
  const left = t.queued + t.running;
  return h('div', null,
    h('h1', null, sweep.name), sweep.message ? h('p', { class: 'bad' }, sweep.message) : null, sweep.description ? h('p', { class: 'muted' }, sweep.description) : null,
    facts([['State', stateText(sweep.state)], ['Trials', count(t.total)], ['Left', count(left)], ['Completed', count(t.completed)], ['Running', count(t.running)],
      ['Failed', t.failed ? h('a', { class: 'bad', href: here({ state: 'failed', offset: undefined }) }, count(t.failed)) : '0'],
      ['Candidates', count(sweep.candidates)], ['Points tried', sweep.search_points ? points(sweep) : null],
      ['Trials at most', sweep.trials_at_most > t.total ? count(sweep.trials_at_most) : null],
      ['Infeasible', sweep.infeasible ? h('span', { title: Object.entries(sweep.infeasible_reasons).map(([r, n]) => n + ': ' + r).join('\n') }, count(sweep.infeasible)) : null], ['Seeds', count(sweep.seeds)],
      ['Priority', sweep.priority], ['Submitted', when(sweep.created_ms)], ['Ended', sweep.ended_ms ? when(sweep.ended_ms) : null]]),
    progress(t),
    table ? comparison(table, sweep.seeds, query) : null,
    scaling ? scalingSection(scaling) : null,
    h('h2', null, 'Curves'),
    h('div', { class: 'tools' },
      drawn.metrics.length ? choose('Metric', 'metric', drawn.metric, drawn.metrics.map((m) => [m, m])) : null,
      choose('Against', 'x', drawn.axis, [['tokens', 'tokens'], ['step', 'steps'], ['time', 'seconds']]),
      h('span', { class: 'muted' }, 'Tick up to ' + PLOTTED_MAX + ' trials below.')),
    drawn.traces.length ? chart('curves', drawn.metric + ' of the chosen trials', drawn.traces,
      { xaxis: { title: { text: drawn.axis === 'time' ? 'seconds' : drawn.axis } }, yaxis: { title: { text: escapeLabel(drawn.metric) } } })
      : h('p', { class: 'muted', 'data-key': 'nocurves' }, 'No points yet.'),
    h('h2', null, 'Trials'),
    h('div', { class: 'tools' },
      choose('State', 'state', query.state || '', [['', 'all'], ...STATES.map((s) => [s, s])]),
      h('span', { class: 'muted' }, list.total ? (offset + 1) + '–' + Math.min(offset + PAGE, list.total) + ' of ' + count(list.total) : 'none'),
      offset > 0 ? h('a', { href: here({ offset: offset > PAGE ? offset - PAGE : undefined }), rel: 'prev' }, 'Previous') : null,
      offset + PAGE < list.total ? h('a', { href: here({ offset: offset + PAGE }), rel: 'next' }, 'Next') : null),
    h('div', { class: 'scroll' }, h('table', null,
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Draw'), sortLink('Trial', 'id', query), sortLink('Candidate', 'candidate', query),
        h('th', { scope: 'col', class: 'num' }, 'Seed'), sortLink('State', 'state', query), sortLink('Objective', 'objective', query),
        h('th', { scope: 'col', class: 'num' }, 'Attempts'), h('th', { scope: 'col', class: 'num' }, 'Took'), h('th', { scope: 'col' }, 'Message'))),
      h('tbody', null, list.trials.map((trial) => h('tr', { 'data-key': 't' + trial.id },
        h('td', null, h('input', { type: 'checkbox', 'data-toggle': 'plot', 'data-chosen': drawn.chosen.join(','), value: trial.id,
          checked: drawn.chosen.includes(String(trial.id)), 'aria-label': 'Draw trial t' + trial.id })),
        h('td', null, h('a', { href: link(['trial', trial.id]) }, 't' + trial.id)), h('td', null, trial.candidate_name), num(trial.seed),
        h('td', null, stateText(trial.state)), num(decimal(trial.objective)), num(trial.attempts),
        num(trial.started_ms && trial.ended_ms ? lasted(trial.ended_ms - trial.started_ms) : '–'), h('td', null, trial.message)))))),
    h('details', { 'data-key': 'file' }, h('summary', null, 'Sweep file'), h('pre', { tabindex: '0' }, file),
      fileBytes > new Blob([file]).size ? h('p', { class: 'muted' }, 'The first ' + bytes(new Blob([file]).size) + ' of ' + bytes(fileBytes) + '. Whole: ',
        h('a', { href: 'api/v1/sweeps/' + sweep.id + '/file' }, 'JSON')) : null));
};

// ---- one trial

function timeline(detail) {
  const begin = Math.min(...detail.attempts.map((a) => a.assigned_ms));
  const now = Date.now();
  const end = Math.max(...detail.attempts.map((a) => a.ended_ms || now), begin + 1);
  const at = (ms) => (100 * (Math.max(begin, Math.min(end, ms)) - begin)) / (end - begin);
  const kind = (a) => (a.state !== 'ended' ? 'running' : ['completed', 'stopped', 'preempted'].includes(a.end_class) ? (a.end_class === 'completed' ? 'completed' : 'stopped') : 'failed');
  return h('div', { class: 'timeline' }, detail.attempts.map((a) => {
    const label = '#' + a.number + ' ' + a.worker_name;
    const title = label + ': ' + (a.end_class || a.state) + ', ' + lasted((a.ended_ms || now) - a.assigned_ms);
    return h('div', { class: 'row' }, h('span', { class: 'label', title: label }, label),
      h('div', { class: 'track', role: 'img', 'aria-label': title, title },
        h('span', { class: 'span ' + kind(a), style: 'left:' + at(a.assigned_ms) + '%;width:' + (at(a.ended_ms || now) - at(a.assigned_ms)) + '%' }),
        detail.checkpoints.filter((c) => c.attempt === a.number).map((c) =>
          h('span', { class: 'mark', style: 'left:' + at(c.wall_ms) + '%', title: 'checkpoint at step ' + c.step }))),
      h('span', { class: 'muted' }, (a.end_class || a.state) + (a.resumed_step ? ', from step ' + count(a.resumed_step) : '')));
  }));
}

function sampling(p) {
  if (!p.positions) return p.no_error || 'none';
  return p.subsamples + ' of ' + p.subsamples_asked + ' subsamples of ' + p.tokens + ' tokens, from ' + p.positions + ' tokens of '
    + (p.sequences_given ? p.sequences + ' sequences' : 'unknown sequences, each taken as one');
}

function profileSection(profile) {
  if (!profile.length) return null;
  const kinds = [...new Set(profile.map((p) => p.geometry + ' ' + p.statistic))];
  const layers = [...new Set(profile.map((p) => p.layer))].sort((a, b) => a - b);
  const of = (kind, layer) => profile.find((p) => p.layer === layer && p.sub_block === -1 && p.geometry + ' ' + p.statistic === kind);
  return h('section', null, h('h2', null, 'Work profile'),
    chart('profile', 'Geometric work by layer', kinds.map((kind) => ({
      x: layers, y: layers.map((l) => (of(kind, l) ? of(kind, l).value : null)), name: escapeLabel(kind), mode: 'lines+markers', type: 'scatter',
      error_y: { type: 'data', array: layers.map((l) => (of(kind, l) ? of(kind, l).standard_error : null)), thickness: 1 },
    })), { xaxis: { title: { text: 'layer' }, dtick: 1 }, yaxis: { title: { text: 'work' }, rangemode: 'tozero' } }),
    h('div', { class: 'scroll' }, h('table', null, h('caption', null, 'Value ± standard error: ' + sampling(profile[0])),
      h('thead', null, h('tr', null, h('th', { scope: 'col', class: 'num' }, 'Layer'), kinds.map((k) => h('th', { scope: 'col', class: 'num' }, k)))),
      h('tbody', null, layers.map((l) => h('tr', null, num(l), kinds.map((k) => {
        const p = of(k, l);
        if (!p) return num('–');
        return p.standard_error === null ? h('td', { class: 'num', title: p.no_error }, decimal(p.value) + ' (no error)')
          : num(decimal(p.value) + ' ± ' + decimal(p.standard_error));
      })))))));
}

pages.trial = async ([id], query) => {
  const [detail, why, log, history] = await Promise.all([
    api('trials/' + encodeURIComponent(id)), api('trials/' + encodeURIComponent(id) + '/why').catch(() => null),
    api('trials/' + encodeURIComponent(id) + '/log', { bytes: 20000 }).catch(() => null), api('events', { trial: id, limit: 200 }).catch(() => null)]);
  const t = detail.trial;
  const metric = detail.metrics.includes(query.metric) ? query.metric : detail.metrics.includes('train_loss') ? 'train_loss' : detail.metrics[0];
  const series = metric ? await api('series', { trial: t.id, metric, points: 800 }) : null;
  return h('div', null,
    h('p', null, h('a', { href: link(['sweep', t.sweep]) }, '← sweep s' + t.sweep)),
    h('h1', null, 'Trial t' + t.id + ': ' + t.candidate_name + ', seed ' + t.seed),
    why ? h('p', { class: t.state === 'failed' ? 'notice' : 'muted' }, why.text) : null,
    facts([['State', stateText(t.state)], ['Objective', decimal(t.objective)], ['Body parameters', count(detail.candidate.parameters_body)],
      ['All parameters', count(detail.candidate.parameters_total)], ['Attempts', t.attempts], ['Ended by', t.end_class], ['Queued', when(t.created_ms)],
      ['Started', when(t.started_ms)], ['Ended', t.ended_ms ? when(t.ended_ms) : null],
      ...Object.entries(t.values).filter(([name]) => name !== 'validation_loss').map(([name, value]) => [name.replace(/_/g, ' '), decimal(value)])]),
    t.message ? h('p', null, t.message) : null,
    detail.attempts.length ? h('section', null, h('h2', null, 'Attempts'), timeline(detail)) : null,
    metric ? h('section', null, h('h2', null, 'Metrics'), h('div', { class: 'tools' }, choose('Metric', 'metric', metric, detail.metrics.map((m) => [m, m]))),
      chart('metric', metric, [{ x: series.steps, y: series.values, mode: 'lines', type: 'scatter', name: escapeLabel(metric) }],
        { showlegend: false, xaxis: { title: { text: 'step' } }, yaxis: { title: { text: escapeLabel(metric) } } })) : null,
    detail.points_pruned_ms ? h('p', { class: 'muted' }, 'Its curves were pruned at ' + when(detail.points_pruned_ms) + '.') : null,
    detail.logs_pruned_ms ? h('p', { class: 'muted' }, 'Its logs were pruned at ' + when(detail.logs_pruned_ms) + '.') : null,
    profileSection(detail.profile),
    detail.checkpoints.length ? h('section', null, h('h2', null, 'Checkpoints'), h('div', { class: 'scroll' }, h('table', null,
      h('thead', null, h('tr', null, h('th', { scope: 'col', class: 'num' }, 'Step'), h('th', { scope: 'col', class: 'num' }, 'Attempt'), h('th', { scope: 'col', class: 'num' }, 'Size'),
        h('th', { scope: 'col' }, 'Saved'), h('th', { scope: 'col' }, 'Folder on the worker'))),
      h('tbody', null, detail.checkpoints.slice(-20).reverse().map((c) => h('tr', null, num(count(c.step)), num(c.attempt), num(bytes(c.bytes)),
        h('td', null, when(c.wall_ms)), h('td', { title: 'SHA-256 ' + c.sha256 }, c.path))))))) : null,
    log && log.text ? h('section', null, h('h2', null, 'End of the log, attempt ' + log.attempt + (log.offset ? ', without the first ' + bytes(log.offset) : '')), h('pre', { tabindex: '0' }, log.text)) : null,
    history && history.events.length ? h('section', null, h('h2', null, 'Events'), eventTable(history.events.reverse())) : null,
    h('details', { 'data-key': 'architecture' }, h('summary', null, 'Architecture'), h('pre', { tabindex: '0' }, JSON.stringify(detail.candidate.architecture, null, 1))));
};

// ---- workers and events

pages.workers = async () => {
  const { workers, total } = await api('workers', { limit: 500 });
  if (!workers.length) {
    return h('div', null, h('h1', null, 'Workers'), h('p', null, 'No worker has called in yet. Start one: ',
      h('code', null, 'tailor-worker --coordinator ' + location.hostname + ':7070')));
  }
  return h('div', null, h('h1', null, 'Workers'),
    total > workers.length ? h('p', { class: 'muted' }, 'The first ' + count(workers.length) + ' of ' + count(total) + '; all: ', h('code', null, 'tailor workers')) : null,
    workers.some((w) => Math.abs(w.clock_skew_ms || 0) >= 60000) ? h('p', { class: 'notice' }, 'Clocks more than a minute from the coordinator’s: ' +
      workers.filter((w) => Math.abs(w.clock_skew_ms || 0) >= 60000).slice(0, 10).map((w) => w.name + ' (' + Math.round(w.clock_skew_ms / 1000) + ' s)').join(', ') +
      '. Nothing is lost by it, but times in their curves and logs are off.') : null,
    h('div', { class: 'scroll' }, h('table', null,
    h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Worker'), h('th', { scope: 'col' }, 'State'), h('th', { scope: 'col' }, 'Host'), h('th', { scope: 'col' }, 'Devices'),
      h('th', { scope: 'col', class: 'num' }, 'Busy slots'), h('th', { scope: 'col' }, 'Running'), h('th', { scope: 'col' }, 'Connected since'), h('th', { scope: 'col' }, 'Version'))),
    h('tbody', null, workers.map((w) => h('tr', { 'data-key': 'w' + w.id },
      h('td', null, w.name, ' ', h('span', { class: 'muted' }, 'w' + w.id)),
      h('td', null, h('span', { class: 'state ' + (!w.connected ? 'cancelled' : w.draining ? 'stopped' : w.busy_slots ? 'running' : 'completed') },
        !w.connected ? 'gone' : w.draining ? 'draining' : w.busy_slots ? 'busy' : 'idle')),
      h('td', null, w.host), h('td', null, w.devices), num(w.busy_slots + ' / ' + w.slots),
      h('td', null, w.running.map((r, i) => [i ? ', ' : '', h('a', { href: link(['trial', r.trial]) }, 't' + r.trial + '.' + r.attempt)])),
      h('td', null, when(w.last_seen_ms)), h('td', null, w.version)))))));
};

function eventTable(events) {
  return h('div', { class: 'scroll' }, h('table', null,
    h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Time'), h('th', { scope: 'col' }, 'What'), h('th', { scope: 'col' }, 'About'), h('th', { scope: 'col' }, 'Message'))),
    h('tbody', null, events.map((e) => h('tr', { 'data-key': 'e' + e.id }, h('td', null, when(e.wall_ms)), h('td', null, e.kind.replace(/_/g, ' ')),
      h('td', null, e.sweep ? [h('a', { href: link(['sweep', e.sweep]) }, 's' + e.sweep), ' '] : null,
        e.trial ? [h('a', { href: link(['trial', e.trial]) }, 't' + e.trial + (e.attempt ? '.' + e.attempt : '')), ' '] : null,
        e.worker ? h('a', { href: '#/workers' }, 'w' + e.worker) : null),
      h('td', null, e.message))))));
}

pages.events = async () => {
  const { events } = await api('events', { tail: 200 });
  return h('div', null, h('h1', null, 'Events'), h('p', { class: 'muted' }, 'The newest first. Older ones: ', h('code', null, 'tailor query "SELECT * FROM event"')),
    events.length ? eventTable(events.reverse()) : h('p', null, 'Nothing has happened yet.'));
};
