// SPDX-License-Identifier: Apache-2.0
// Native and WebAssembly agree to 1e-9 on every golden Job, every published run, and changes of them; and one
// evaluation of DeepSeek-V3 takes under 5 ms.
//   node parity.mjs NATIVE_EVALUATE

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { check, difference, finish, root, wasmEvaluator } from './common.mjs';

const native = resolve(process.argv[2]);
function run(args, options = {}) {
  const done = spawnSync(native, args, { encoding: 'utf8', maxBuffer: 1 << 30, ...options });
  if (done.status !== 0) throw new Error(`native_evaluate: ${done.stderr}`);
  return { lines: done.stdout.split('\n').filter(Boolean), skipped: done.stderr.split('\n').filter(Boolean) };
}

function jsonFiles(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) return jsonFiles(path);
    if (!name.endsWith('.json')) return [];
    const schema = JSON.parse(readFileSync(path, 'utf8')).schema;
    return schema === 'trifold.job/1' || schema === 'trifold.plan/1' ? [path] : [];
  });
}

const published = ['training_runs', 'single_node_runs'].map((n) => join(root, `../shared/data/observations/${n}.json`));
const golden = [...jsonFiles(join(root, 'tests/browser/jobs')), ...jsonFiles(join(root, 'tests/golden'))];

const changes = [
  [],
  ['training.micro_batch_size=2'],
  ['layout.ep=4'],
  ['layout.pp=2'],
  ['scaleout_bandwidth=25GB/s'],
  ['scaleup_bandwidth=100GB/s'],
  ['techniques.recompute=moe_act+layernorm'],
  ['techniques.routing.distribution=zipf', 'techniques.routing.parameters=0.8'],
  ['training.precision=bf16'],
  ['no_such_field=1'],
];

const wasm = await wasmEvaluator();
let jobs = 0;
let points = 0;
let fits = 0;
const worst = { value: 0, where: '' };
const skipped = new Map();
// Ours get every change; of the published runs each gets two, so that together they get all.
const setsOf = (file, i) => (golden.includes(file) ? changes : [[], changes[1 + (i % 9)], changes[1 + ((i + 4) % 9)]]);
for (const file of [...golden, ...published.filter(existsSync)]) {
  const inline = run(['--inline', root, file], { cwd: dirname(file) });
  for (const text of inline.skipped) skipped.set(text, (skipped.get(text) ?? 0) + 1);
  if (golden.includes(file)) check(inline.skipped.length === 0 && inline.lines.length > 0, `${file.slice(root.length + 1)} is read`);
  const requests = inline.lines.map((line, i) => {
    const { id, job, profile } = JSON.parse(line);
    return { id, body: { job, profile, points: setsOf(file, i).map((set) => ({ set, terms: set.length === 0 })) } };
  });
  const answers = run([], { input: requests.map((r) => `${JSON.stringify(r.body)}\n`).join('') }).lines;
  check(answers.length === requests.length, `${requests.length} Jobs of ${file.split('/').at(-1)} answered natively`);
  requests.forEach(({ id, body }, i) => {
    const expected = JSON.parse(answers[i]);
    const found = difference(expected, wasm(body), id);
    if (found.value > worst.value) Object.assign(worst, found);
    ++jobs;
    points += expected.points?.length ?? 0;
    fits += (expected.points ?? []).filter((p) => p.estimate).length;
  });
}
for (const [text, times] of skipped) console.log(`${times} x ${text}`);
console.log(`${jobs} Jobs, ${points} points, ${fits} of them priced; worst relative difference ${worst.value} at ${worst.where}`);
check(jobs >= 4 && fits >= jobs, 'the Jobs were read and priced');
check(worst.value <= 1e-9, 'native and WebAssembly agree to 1e-9');

const { job, profile } = JSON.parse(run(['--inline', root, join(root, 'tests/browser/jobs/deepseek-v3.json')]).lines[0]);
wasm({ job, profile });
const once = (i) => {
  const begin = performance.now();
  const answer = wasm({ points: [{ set: [`scaleout_bandwidth=${20 + i}GB/s`] }] });
  const time = performance.now() - begin;
  if (!answer.points[0].estimate) throw new Error(answer.points[0].reason);
  return time;
};
const times = Array.from({ length: 40 }, (_, i) => once(i)).sort((a, b) => a - b);
console.log(`one evaluation of DeepSeek-V3 on a cluster never seen: median ${times[20].toFixed(2)} ms, fastest ${times[0].toFixed(2)} ms`);
// The machine that tests may be busy: the fastest stands for what one evaluation costs.
check(times[0] < 5, 'one evaluation under 5 ms');
finish();
