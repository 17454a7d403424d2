// SPDX-License-Identifier: Apache-2.0
// Screenshots of a report's views, as WebP:  node shots.mjs REPORT.html OUT_FOLDER [light|dark] [VIEW ...]

import { mkdirSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium, need } from './common.mjs';

const all = ['top', 'what-if', 'walls', 'candidates', 'scatter', 'heatmap', 'given', 'ladder', 'tornado', 'risk', 'timeline', 'zoomed',
  'memory-stages', 'memory-time', 'memory-terms', 'curves', 'icicle-0', 'icicle-1', 'ranks', 'provenance', 'print'];
const [report, out, scheme = 'light', ...chosen] = process.argv.slice(2);
const views = chosen.length ? chosen : all;
const { module: playwright } = need('playwright-core');
mkdirSync(out, { recursive: true });
const browser = await playwright.chromium.launch({ executablePath: chromium(), args: ['--no-sandbox'] });
const tall = 1500; // elements that fit are not scrolled under the bar
const page = await browser.newPage({ viewport: { width: 1280, height: tall }, colorScheme: scheme });
const encoder = await browser.newPage();
page.on('console', (m) => m.type() === 'error' && console.log('console:', m.text()));
page.on('pageerror', (e) => console.log('page error:', e.message));

async function save(name, png) {
  const webp = await encoder.evaluate(async (base64) => {
    const image = new Image();
    image.src = `data:image/png;base64,${base64}`;
    await image.decode();
    const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/webp', 0.8).split(',')[1];
  }, png.toString('base64'));
  writeFileSync(`${out}/${name}-${scheme}.webp`, Buffer.from(webp, 'base64'));
  if (process.env.TRIFOLD_SHOTS_PNG) writeFileSync(`${out}/${name}-${scheme}.png`, png);
}

// What stands out of the usual: a change to look at, a part of the timeline, paper.
async function prepare(view) {
  if (view === 'what-if') {
    await page.selectOption('select[data-key="layout.ep"]', '32').catch(() => {});
    await page.waitForTimeout(800);
  } else if (view === 'zoomed') {
    await page.locator('#timeline canvas').focus();
    for (const key of ['0', ...'++++++', ...Array(40).fill('ArrowLeft'), ...'++++++', '.', '.']) await page.keyboard.press(key);
  } else if (view === 'print') {
    await page.emulateMedia({ media: 'print' });
    await page.setViewportSize({ width: 1047, height: 718 });
    await page.evaluate(() => scrollTo(0, 0));
  }
  await page.waitForTimeout(150);
}

await page.goto(pathToFileURL(resolve(report)).href);
await page.waitForFunction(() => document.documentElement.dataset.drawn, null, { timeout: 120000 });
await page.waitForSelector('[data-number="Step time"]', { timeout: 60000 }).catch(() => console.log('no live evaluator'));
for (const view of views) {
  const id = view === 'zoomed' ? 'timeline' : view;
  if (!['top', 'print'].includes(view) && !(await page.locator(`#${id}`).count())) continue;
  await prepare(view);
  if (view === 'top' || view === 'print') await save(view, await page.screenshot({ clip: { x: 0, y: 0, width: view === 'top' ? 1280 : 1047, height: 900 } }));
  else await save(view, await page.locator(`#${id}`).screenshot());
  if (view === 'what-if') await page.click('text=Reset');
}
await browser.close();
