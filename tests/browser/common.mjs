// SPDX-License-Identifier: Apache-2.0
// What the browser tests share: where things are, the built page's parts, a tiny harness, skipping with a reason.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
export const builtPage = join(root, 'web/dist/report.html');

export function skip(reason) {
  console.log(`skipped: ${reason}`);
  process.exit(77);
}

export function need(name) {
  const require = createRequire(join(root, 'web/package.json'));
  try {
    return { path: require.resolve(name), module: require(name) };
  } catch {
    return skip(`${name} is not installed (npm --prefix web ci)`);
  }
}

export function chromium() {
  const path = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync);
  return path ?? skip('chromium is not installed (tools/setup web)');
}

function element(html, id) {
  const found = html.match(new RegExp(`<script type="text/plain" id="${id}">([\\s\\S]*?)</script>`));
  if (!found) throw new Error(`no element ${id} in web/dist/report.html`);
  return found[1];
}

// The evaluator out of the checked-in page itself.
export async function wasmEvaluator() {
  const html = readFileSync(builtPage, 'utf8');
  // emscripten 3.1.6 takes Node for CommonJS.
  const load = new Function('__dirname', 'require', `${element(html, 'wasm-loader')}; return createEvaluator;`);
  const createEvaluator = load(root, createRequire(import.meta.url));
  const before = ['uncaughtException', 'unhandledRejection'].map((e) => [e, process.listeners(e)]);
  const program = gunzipSync(Buffer.from(element(html, 'wasm'), 'base64'));
  const module = await createEvaluator({ wasmBinary: program });
  // Its handlers would print the whole loader with every error.
  for (const [event, listeners] of before)
    for (const l of process.listeners(event)) if (!listeners.includes(l)) process.removeListener(event, l);
  return (request) => {
    const text = JSON.stringify(request);
    const size = module.lengthBytesUTF8(text) + 1;
    const at = module._malloc(size);
    module.stringToUTF8(text, at, size);
    const answer = module.UTF8ToString(module._evaluate(at));
    module._free(at);
    return JSON.parse(answer);
  };
}

let failures = 0;
export function check(holds, text) {
  if (!holds) ++failures;
  console.log(`${holds ? 'ok  ' : 'FAIL'} ${text}`);
}

export function finish() {
  console.log(failures ? `${failures} failures` : 'all well');
  process.exit(failures ? 1 : 0);
}

// The largest relative difference between two JSON values, and where; texts and shapes must be equal.
export function difference(a, b, where = '', worst = { value: 0, where: '' }) {
  if (typeof a === 'number' && typeof b === 'number') {
    const value = a === b ? 0 : Math.abs(a - b) / Math.max(Math.abs(a), Math.abs(b));
    if (value > worst.value) Object.assign(worst, { value, where });
  } else if (a !== null && b !== null && typeof a === 'object' && typeof b === 'object') {
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) difference(a[key], b[key], `${where}/${key}`, worst);
  } else if (a !== b) {
    Object.assign(worst, { value: Infinity, where: `${where}: ${JSON.stringify(a)} and ${JSON.stringify(b)}` });
  }
  return worst;
}
