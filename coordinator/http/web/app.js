// The small machinery of the dashboard: elements, refresh without flicker, routes, fetches, charts.
// All text from users goes in through textContent or setAttribute, never as markup.
'use strict';

const REFRESH_MS = 3000;
const pages = {};  // name -> async (params, query) => DOM node; filled in by pages.js

// h('td', {class: 'num'}, 'text', node, [nodes]) makes an element.
function h(tag, attributes, ...children) {
  const svg = ['svg', 'line', 'circle', 'title'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag)
                      : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

// Changes `from` into `to` in place, so that focus, scroll position and selections stay.
function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName ||
      (from.getAttribute && from.getAttribute('data-key') !== to.getAttribute('data-key'))) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.hasAttribute('data-keep')) return;  // owned by a chart
  for (const { name } of [...from.attributes]) {
    const users = from.nodeName === 'DETAILS' && name === 'open';  // opened by the user
    if (!users && !to.hasAttribute(name)) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (from.nodeName === 'INPUT') from.checked = to.hasAttribute('checked');
  const old = [...from.childNodes], fresh = [...to.childNodes];
  fresh.forEach((node, i) => { if (i < old.length) morph(old[i], node); else from.append(node); });
  old.slice(fresh.length).forEach((node) => node.remove());
  if (from.nodeName === 'SELECT' && document.activeElement !== from) {
    const chosen = [...from.options].findIndex((option) => option.hasAttribute('selected'));
    if (chosen >= 0) from.selectedIndex = chosen;
  }
}

class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function api(path, query) {
  const text = new URLSearchParams(
      Object.entries(query || {}).filter(([, v]) => v !== undefined && v !== null && v !== '')).toString();
  const answer = await fetch('api/v1/' + path + (text ? '?' + text : ''), { headers: { Accept: 'application/json' } });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new ApiError(answer.status, body && body.error ? body.error.message : 'HTTP ' + answer.status);
  return body;
}

// ---- numbers and times for people

const whole = new Intl.NumberFormat('en-US');
const count = (value) => (value === null || value === undefined ? '–' : whole.format(value));
const decimal = (value, digits = 4) =>
  value === null || value === undefined ? '–'
    : (Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4)) ? value.toExponential(2) : value.toFixed(digits);
const signed = (value, digits = 4) =>
  value === null || value === undefined ? '–' : (value > 0 ? '+' : value < 0 ? '−' : '') + decimal(Math.abs(value), digits);
const when = (ms) => (ms ? new Date(ms).toLocaleString() : '–');
function lasted(ms) {
  if (!(ms >= 0)) return '–';
  const s = Math.round(ms / 1000);
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + (s % 60) + ' s';
  return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
}
function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (value >= 1024 && i < units.length - 1) { value /= 1024; i += 1; }
  return value.toFixed(i ? 1 : 0) + ' ' + units[i];
}

// ---- addresses: #/sweep/3?state=failed

function currentRoute() {
  const text = location.hash.startsWith('#/') ? location.hash.slice(2) : '';
  const [path, query] = text.split('?');
  const parts = path.split('/').filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch (e) { return part; }
  });
  return { name: parts[0] || 'sweeps', params: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query || '')) };
}
function link(parts, query) {
  const text = new URLSearchParams(
      Object.entries(query || {}).filter(([, v]) => v !== undefined && v !== null && v !== '')).toString();
  return '#/' + parts.map(encodeURIComponent).join('/') + (text ? '?' + text : '');
}
// The same page with some parameters changed.
function here(changes) {
  const route = currentRoute();
  return link([route.name, ...route.params], { ...route.query, ...changes });
}

// ---- charts (Plotly is loaded when the first one is drawn)

let plotly = null;
function loadPlotly() {
  if (!plotly) {
    plotly = new Promise((resolve) => {
      const script = document.createElement('script');
      script.src = 'plotly.min.js';
      script.onload = () => resolve(window.Plotly || null);
      script.onerror = () => resolve(null);
      document.head.append(script);
    });
  }
  return plotly;
}
const pendingCharts = new Map();  // id -> {traces, layout}
const drawnCharts = new Map();    // id -> what was drawn, as text
// A place for a chart; drawn once the page is in the document, redrawn when its data has changed.
function chart(id, label, traces, layout) {
  pendingCharts.set(id, { traces, layout });
  return h('div', { id, class: 'chart', 'data-keep': true, 'data-key': id, role: 'img', 'aria-label': label });
}
async function drawCharts() {
  if (!pendingCharts.size) return;
  const charts = [...pendingCharts];
  pendingCharts.clear();
  const Plotly = await loadPlotly();
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  for (const [id, { traces, layout }] of charts) {
    const place = document.getElementById(id);
    if (!place) continue;
    if (!Plotly) {
      place.className = 'chart none';
      place.textContent = 'Curves need Plotly, which was not there when this program was built (deploy/setup.sh unpacks it). ' +
        'The tables and the JSON have the same numbers.';
      continue;
    }
    const text = JSON.stringify([traces, layout, color('--text')]);
    if (drawnCharts.get(id) === text && place.hasChildNodes()) continue;
    drawnCharts.set(id, text);
    const axis = { gridcolor: color('--line'), zerolinecolor: color('--line'), linecolor: color('--line') };
    await Plotly.react(place, traces, {
      margin: { l: 60, r: 16, t: 34, b: 46 }, showlegend: true, uirevision: id,
      legend: { orientation: 'h', x: 0, y: 1.02, yanchor: 'bottom' },
      modebar: { bgcolor: 'rgba(0,0,0,0)', color: color('--muted'), activecolor: color('--accent') },
      paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
      font: { color: color('--text'), size: 12 }, ...layout,
      xaxis: { ...axis, ...(layout.xaxis || {}) }, yaxis: { ...axis, ...(layout.yaxis || {}) },
    }, { responsive: true, displaylogo: false });
  }
}

// ---- the loop

let generation = 0;  // of the route: a late answer for an earlier page is dropped
let timer = null;
let shown = '';

async function refresh() {
  clearTimeout(timer);
  const mine = generation;
  const route = currentRoute();
  const key = [route.name, ...route.params].join('/');
  const status = document.getElementById('status');
  try {
    const page = pages[route.name];
    const content = page ? await page(route.params, route.query)
                         : h('div', null, h('h1', null, 'No such page'), h('p', null, h('a', { href: '#/' }, 'All sweeps')));
    if (mine !== generation) return;
    const main = document.getElementById('main');
    const fresh = h('main', { id: 'main', tabindex: '-1' }, content);
    if (shown === key) {
      morph(main, fresh);
    } else {
      drawnCharts.clear();
      main.replaceWith(fresh);
      shown = key;
    }
    drawCharts();
    status.className = '';
    status.textContent = '';
    status.title = 'Updated ' + new Date().toLocaleTimeString();
  } catch (failure) {
    if (mine !== generation) return;
    pendingCharts.clear();
    status.className = 'bad';
    if (failure instanceof ApiError) {
      status.textContent = failure.status === 503 ? 'The coordinator cannot answer at the moment' : '';
      if (failure.status !== 503 || shown !== key) {
        const main = document.getElementById('main');
        shown = '';
        main.replaceWith(h('main', { id: 'main', tabindex: '-1' }, h('h1', null, failure.status === 404 ? 'Not found' : 'Error'),
          h('p', { class: 'bad' }, failure.message), h('p', null, h('a', { href: '#/' }, 'All sweeps'))));
      }
    } else {
      status.textContent = 'No connection to the coordinator; showing what was last seen';
      console.error(failure);
    }
  }
  timer = setTimeout(refresh, document.hidden ? REFRESH_MS * 10 : REFRESH_MS);
}

function navigate() {
  generation += 1;
  const route = currentRoute();
  const section = { sweep: 'sweeps', trial: 'sweeps' }[route.name] || route.name;
  for (const a of document.querySelectorAll('nav a')) {
    if (a.dataset.page === section) a.setAttribute('aria-current', 'page'); else a.removeAttribute('aria-current');
  }
  refresh();
}

// One listener for all controls: <select data-query="state"> puts its value into the address, and
// <input type=checkbox data-toggle="plot" value="41"> adds or removes its value in a list there.
document.addEventListener('change', (event) => {
  const target = event.target;
  const query = target.dataset.query;
  if (query) location.hash = here({ [query]: target.value, [query === 'corder' ? 'coffset' : 'offset']: undefined });
  if (target.dataset.toggle) {
    const name = target.dataset.toggle;
    const chosen = new Set((target.dataset.chosen || '').split(',').filter(Boolean));
    if (target.checked) chosen.add(target.value); else chosen.delete(target.value);
    location.hash = here({ [name]: [...chosen].join(',') || 'none' });
  }
});
document.addEventListener('click', (event) => {
  const skip = event.target.closest && event.target.closest('a.skip');
  if (skip) { event.preventDefault(); document.getElementById('main').focus(); }
});
document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', refresh);
window.addEventListener('hashchange', navigate);
window.addEventListener('DOMContentLoaded', navigate);
