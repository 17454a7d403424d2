// SPDX-License-Identifier: Apache-2.0
// Builds web/dist/report.html: the page (Vite, one file), the core as WebAssembly (gzip, base64), a content security
// policy that names the page's own script and style by hash, and a mark where `trifold report` puts the data.
//   node web/build.mjs BUILD_DIR_OF_PRESET_WASM

import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';

const here = dirname(fileURLToPath(import.meta.url));
const wasmDir = resolve(process.argv[2] ?? join(here, '../build/wasm'));
const outDir = join(here, '../build/web');
process.env.TRIFOLD_PAGE_OUT = outDir;
await build({ root: here, configFile: join(here, 'vite.config.js'), logLevel: 'warn' });

const built = readFileSync(join(outDir, 'index.html'), 'utf8');
const inner = (pattern, what) => {
  const found = [...built.matchAll(pattern)];
  if (found.length !== 1) throw new Error(`expected one ${what} in Vite's output, found ${found.length}`);
  return found[0][1];
};
const script = inner(/<script type="module"[^>]*>([\s\S]*?)<\/script>/g, 'script');
const style = inner(/<style[^>]*>([\s\S]*?)<\/style>/g, 'style');
const hash = (text) => `'sha256-${createHash('sha256').update(text, 'utf8').digest('base64')}'`;
const policy = [
  `default-src 'none'`,
  `script-src ${hash(script)} 'wasm-unsafe-eval'`,
  `style-src ${hash(style)}`,
  `img-src data:`,
  `worker-src blob:`,
  `base-uri 'none'`,
  `form-action 'none'`,
].join('; ');

const loader = readFileSync(join(wasmDir, 'evaluate.js'), 'utf8');
if (/<\/script/i.test(loader)) throw new Error('the loader holds a closing script tag');
const program = gzipSync(readFileSync(join(wasmDir, 'evaluate.wasm')), { level: 9 }).toString('base64');

const page = `<!doctype html>
<!-- SPDX-License-Identifier: Apache-2.0. Built by tools/web build; bundles preact, uPlot (MIT), d3-hierarchy, d3-scale (ISC). -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>trifold</title>
<style>${style}</style>
</head>
<body>
<div id="app"></div>
<!--trifold:data-->
<script type="module">${script}</script>
<script type="text/plain" id="wasm-loader">${loader}</script>
<script type="text/plain" id="wasm">${program}</script>
</body>
</html>
`;
if (page.split('<!--trifold:data-->').length !== 2) throw new Error('the mark for the data is not unique');
writeFileSync(join(here, 'dist/report.html'), page);
console.log(`web/dist/report.html: ${page.length} bytes (script ${script.length}, style ${style.length}, loader ${loader.length}, wasm ${program.length})`);
