// SPDX-License-Identifier: Apache-2.0
// A timeline of a given size in the page's packed form: 16 stages of compute and dispatch, no two slices alike.

function varint(out, value) {
  while (value >= 128) {
    out.push((value % 128) | 128);
    value = Math.floor(value / 128);
  }
  out.push(value);
}

const zigzag = (out, value) => varint(out, value < 0 ? -2 * value - 1 : 2 * value);

export function synthetic(slices) {
  const stages = 16;
  const each = slices / (2 * stages);
  const bytes = [];
  const rows = [];
  let longest = 0;
  for (let stage = 0; stage < stages; ++stage)
    for (const stream of [0, 1]) {
      rows.push([stage, stream, each]);
      let end = 0;
      for (let i = 0, batch = 0; i < each; ++i) {
        varint(bytes, stream === 0 ? i % 2 : 2);
        zigzag(bytes, (i % 200) - batch);
        batch = i % 200;
        const gap = (i * 7919) % 977;
        const duration = 4000 + ((i * 104729 + stage) % 3001);
        zigzag(bytes, gap);
        varint(bytes, duration);
        end += gap + duration;
      }
      longest = Math.max(longest, end);
    }
  return {
    method: 'synthetic',
    step_time_s: longest * 1e-9,
    stages,
    streams: ['compute', 'dispatch'],
    categories: ['compute', 'ep'],
    names: ['fc1', 'dispatch'],
    work: ['forward', 'backward', 'wgrad', 'merged'],
    total_slices: slices,
    merged: false,
    hidden_share: 0.5,
    critical_path_s: {},
    packed: {
      unit_ns: 1,
      rows,
      kinds: [[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 0, 0]],
      data: Buffer.from(bytes).toString('base64'),
    },
  };
}
