// SPDX-License-Identifier: Apache-2.0
// Native and WebAssembly agree to 1e-9 on every golden Job, every published run, and changes of them; and one
// evaluation of DeepSeek-V3 takes under 5 ms.
//   node parity.mjs NATIVE_EVALUATE

import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { check, difference, finish, root, wasmEvaluator } from './common.mjs';

const native = process.argv[2];
const run = (args, input) => execFileSync(native, args, { input, encoding: 'utf8', maxBuffer: 1 << 30 });

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
const files = [...jsonFiles(join(root, 'tests/browser/jobs')), ...jsonFiles(join(root, 'tests/golden')), ...published.filter(existsSync)];

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
for (const file of files) {
  for (const line of run(['--inline', root, file]).split('\n').filter(Boolean)) {
    const { id, job, profile } = JSON.parse(line);
    const request = { job, profile, points: changes.map((set) => ({ set, terms: set.length === 0 })) };
    const answer = run([], `${JSON.stringify(request)}\n`);
    const expected = JSON.parse(answer);
    const got = wasm(request);
    const found = difference(expected, got, id);
    if (found.value > worst.value) Object.assign(worst, found);
    ++jobs;
    points += expected.points?.length ?? 0;
    fits += (expected.points ?? []).filter((p) => p.estimate).length;
  }
}
console.log(`${jobs} Jobs, ${points} points, ${fits} of them priced; worst relative difference ${worst.value} at ${worst.where}`);
check(jobs >= 4 && fits >= jobs, 'the Jobs were read and priced');
check(worst.value <= 1e-9, 'native and WebAssembly agree to 1e-9');

const [deepseek] = run(['--inline', root, join(root, 'tests/browser/jobs/deepseek-v3.json')]).split('\n');
wasm(JSON.parse(deepseek.replace(/^\{"id":"[^"]*",/, '{')));
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
