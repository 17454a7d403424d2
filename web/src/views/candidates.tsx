// SPDX-License-Identifier: Apache-2.0
// Every candidate in a table, in Megatron-Bridge's column order, and step time against headroom.

import { scaleLinear, scaleLog } from 'd3-scale';
import { statusText, type Candidate, type Status } from '../data';
import { count, fixed, gib, missing, percent, seconds } from '../format';
import { Figure } from '../parts/figure';
import { useWidth } from '../parts/size';
import { DataTable, type Column } from '../parts/table';
import { tipHandlers, useTip } from '../parts/tip';

const statusColour: Record<Status, string> = {
  fits: '#0072b2',
  not_launchable: '#e69f00',
  out_of_memory: '#d55e00',
  illegal: '#9a9a9a',
};

function axis(title: string, key: string): Column<Candidate> {
  return { title, value: (c) => c.axes[key] ?? null };
}

const columns: Column<Candidate>[] = [
  { title: 'Candidate', value: (c) => c.label, show: (c) => `${c.label}${c.tie ? ' =' : ''}` },
  { title: 'Group', value: (c) => c.group },
  axis('MBS', 'micro_batch_size'),
  axis('TP', 'tp'),
  axis('PP', 'pp'),
  axis('CP', 'cp'),
  axis('VP', 'vpp'),
  axis('EP', 'ep'),
  axis('ETP', 'etp'),
  axis('DP', 'dp'),
  { title: 'Step s', value: (c) => c.step_time_s?.value, show: (c) => fixed(c.step_time_s?.value, 3) },
  {
    title: '80 % interval',
    value: (c) => c.step_time_s?.low,
    show: (c) => (c.step_time_s ? `${c.step_time_s.low.toFixed(2)}–${c.step_time_s.high.toFixed(2)}` : missing),
  },
  { title: 'Tokens/s/GPU', value: (c) => c.tokens_per_s_per_gpu, show: (c) => count(c.tokens_per_s_per_gpu) },
  { title: 'TFLOP/s/GPU', value: (c) => c.tflops_per_gpu, show: (c) => fixed(c.tflops_per_gpu, 0) },
  { title: 'MFU', value: (c) => c.mfu, show: (c) => percent(c.mfu) },
  {
    title: 'Exposed comm',
    value: (c) => (c.walls_s && c.step_time_s ? (c.walls_s.communication ?? 0) / c.step_time_s.value : null),
    show: (c) => percent(c.walls_s && c.step_time_s ? (c.walls_s.communication ?? 0) / c.step_time_s.value : null),
  },
  {
    title: 'Bubble',
    value: (c) => (c.walls_s && c.step_time_s ? (c.walls_s.bubble ?? 0) / c.step_time_s.value : null),
    show: (c) => percent(c.walls_s && c.step_time_s ? (c.walls_s.bubble ?? 0) / c.step_time_s.value : null),
  },
  { title: 'Peak GiB', value: (c) => c.peak_bytes, show: (c) => gib(c.peak_bytes) },
  { title: 'Headroom GiB', value: (c) => c.headroom_bytes, show: (c) => gib(c.headroom_bytes) },
  { title: 'Wall', value: (c) => c.wall ?? '' },
  { title: 'Status', value: (c) => statusText[c.status] },
  { title: 'Techniques', value: (c) => c.techniques },
  { title: 'Reason', value: (c) => c.reason },
];

interface Props {
  candidates: Candidate[];
  chosen: Candidate | null;
  onChoose: (c: Candidate) => void;
}

export function Candidates({ candidates, chosen, onChoose }: Props) {
  return (
    <section aria-labelledby="candidates-title" id="candidates">
      <h3 id="candidates-title">Candidates</h3>
      <p class="note">
        Sort by a column’s heading, filter by any word. “=” marks a tie with the first: the intervals overlap. Choosing a
        row marks it in the scatter.
      </p>
      <DataTable caption="Candidates" columns={columns} rows={candidates} filter chosen={chosen} onChoose={onChoose} />
    </section>
  );
}

function mark(status: Status, x: number, y: number, r: number): string {
  if (status === 'fits') return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
  if (status === 'not_launchable') return `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`;
  return `M${x - r} ${y - r}L${x + r} ${y + r}M${x + r} ${y - r}L${x - r} ${y + r}`;
}

function extent(values: number[]): [number, number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - pad, high + pad];
}

export function Scatter({ candidates, chosen, onChoose }: Props) {
  const { ref, width } = useWidth();
  const show = useTip();
  const height = 380;
  const placed = candidates.filter((c) => c.step_time_s && c.headroom_bytes != null);
  const head = (c: Candidate) => c.headroom_bytes! / 2 ** 30;
  const x = scaleLinear(extent(placed.map(head).concat(0)), [56, width - 16]).nice();
  const times = placed.map((c) => c.step_time_s!.value);
  const wide = Math.max(...times) > 3 * Math.min(...times); // one that is far off would flatten the others
  const y = wide
    ? scaleLog([Math.min(...times) * 0.95, Math.max(...times) * 1.05], [height - 40, 12])
    : scaleLinear(extent(times), [height - 40, 12]).nice();
  const unplaced = candidates.filter((c) => !c.step_time_s);
  return (
    <Figure
      id="scatter"
      title="Step time against headroom"
      note={`Right of the line fits in memory${wide ? '; time on a logarithmic scale' : ''}. ● fits, ◆ Megatron refuses it, ✕ out of memory. Lower right is better.`}
      rows={candidates}
      columns={columns.filter((c) => ['Candidate', 'Group', 'Step s', 'Headroom GiB', 'Status', 'Reason'].includes(c.title))}
    >
      <div ref={ref}>
        <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Scatter of candidates">
          {x.ticks(8).map((t) => (
            <g class="axis">
              <line x1={x(t)} x2={x(t)} y1={12} y2={height - 40} />
              <text x={x(t)} y={height - 24} text-anchor="middle">{t}</text>
            </g>
          ))}
          {y.ticks(6).filter((t, i, all) => !wide || y(all[i - 1] ?? Infinity) - y(t) > 14 || i === 0).map((t) => (
            <g class="axis">
              <line x1={56} x2={width - 16} y1={y(t)} y2={y(t)} />
              <text x={50} y={y(t) + 4} text-anchor="end">{t} s</text>
            </g>
          ))}
          <text x={width / 2} y={height - 6} text-anchor="middle">headroom on the worst stage, GiB</text>
          <line class="limit" x1={x(0)} x2={x(0)} y1={12} y2={height - 40} />
          {placed.map((c) => (
            <path
              d={mark(c.status, x(head(c)), y(c.step_time_s!.value), c === chosen ? 9 : 5.5)}
              fill={c.status === 'out_of_memory' ? 'none' : statusColour[c.status]}
              stroke={c.status === 'out_of_memory' ? statusColour[c.status] : 'var(--paper)'}
              stroke-width={c.status === 'out_of_memory' ? 2.5 : 1}
              class={c === chosen ? 'chosen' : ''}
              tabIndex={0}
              role="button"
              aria-pressed={c === chosen}
              aria-label={`${c.label}: ${seconds(c.step_time_s!.value)}, headroom ${gib(c.headroom_bytes)} GiB, ${statusText[c.status]} ${c.reason}`}
              onClick={() => onChoose(c)}
              onKeyDown={(e) => (e.key === 'Enter' || e.key === ' ') && (e.preventDefault(), onChoose(c))}
              {...tipHandlers(
                show,
                `${c.label}: ${statusText[c.status]}`,
                c.layout,
                `${seconds(c.step_time_s!.value)}, headroom ${gib(c.headroom_bytes)} GiB`,
                ...(c.reason ? [c.reason] : []),
              )}
            />
          ))}
        </svg>
      </div>
      {unplaced.length > 0 && (
        <details>
          <summary>{unplaced.length} candidates cannot run at all, and why</summary>
          <ul>
            {unplaced.map((c) => (
              <li>
                <b>{c.label}</b> {c.layout}: {c.reason}
              </li>
            ))}
          </ul>
        </details>
      )}
    </Figure>
  );
}
