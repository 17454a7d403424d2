// SPDX-License-Identifier: Apache-2.0
// Screenshots of every view, for web/docs:  node shots.mjs REPORT.html OUT_FOLDER [light|dark]

import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium, need } from './common.mjs';

const [report, out, scheme = 'light'] = process.argv.slice(2);
const { module: playwright } = need('playwright-core');
mkdirSync(out, { recursive: true });
const tall = 1500; // elements that fit are not scrolled under the bar
const browser = await playwright.chromium.launch({ executablePath: chromium(), args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1280, height: tall }, colorScheme: scheme });
page.on('console', (m) => m.type() === 'error' && console.log('console:', m.text()));
page.on('pageerror', (e) => console.log('page error:', e.message));
await page.goto(pathToFileURL(resolve(report)).href);
await page.waitForFunction(() => document.documentElement.dataset.drawn, null, { timeout: 120000 });
await page.waitForSelector('[data-number="Step time"]', { timeout: 60000 }).catch(() => console.log('no live evaluator'));
await page.screenshot({ path: `${out}/top-${scheme}.png`, clip: { x: 0, y: 0, width: 1280, height: 900 } });
for (const id of ['what-if', 'walls', 'candidates', 'scatter', 'heatmap', 'given', 'ladder', 'tornado', 'timeline', 'memory-stages', 'memory-time', 'memory-terms', 'curves', 'icicle-0', 'icicle-1', 'ranks', 'risk', 'provenance']) {
  const element = page.locator(`#${id}`);
  if (!(await element.count())) continue;
  await element.scrollIntoViewIfNeeded();
  await page.waitForTimeout(120);
  await element.screenshot({ path: `${out}/${id}-${scheme}.png` });
}
if (scheme === 'light') {
  await page.emulateMedia({ media: 'print' });
  await page.setViewportSize({ width: 794, height: 1123 }); // A4 at 96 dots an inch
  await page.waitForTimeout(300);
  await page.screenshot({ path: `${out}/print.png`, fullPage: true });
}
await browser.close();
