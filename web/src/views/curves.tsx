// SPDX-License-Identifier: Apache-2.0
// What moves when one field does: step time with its interval, the all-to-all's share, headroom.

import { scaleLinear, scalePoint } from 'd3-scale';
import { useState } from 'preact/hooks';
import { statusText, type Sweep, type SweepPoint } from '../data';
import { bytes, fixed, gib, missing, percent, seconds } from '../format';
import { Figure, Legend } from '../parts/figure';
import { useWidth } from '../parts/size';
import { tipHandlers, useTip } from '../parts/tip';

interface Line {
  name: string;
  colour: string;
  dash?: string;
  value: (p: SweepPoint) => number | null;
}

interface Panel {
  title: string;
  lines: Line[];
  tick: (v: number) => string;
  band?: boolean;
  zero?: boolean;
}

const toGib = (v: number | null) => (v == null ? null : v / 2 ** 30);
const panels: Panel[] = [
  {
    title: 'Step time, s',
    tick: (v) => `${v}`,
    band: true,
    lines: [{ name: 'step time', colour: '#0072b2', value: (p) => p.step_time_s }],
  },
  {
    title: 'Share of the step',
    tick: (v) => percent(v, 0),
    zero: true,
    lines: [
      { name: 'all-to-all, total', colour: '#e69f00', dash: '5 3', value: (p) => p.ep_total_share },
      { name: 'all-to-all, exposed', colour: '#d55e00', value: (p) => p.ep_exposed_share },
      { name: 'all communication, exposed', colour: '#009e73', dash: '2 2', value: (p) => p.communication_exposed_share },
      { name: 'bubble', colour: '#9a9a9a', dash: '8 3', value: (p) => p.bubble_share },
    ],
  },
  {
    title: 'Headroom, GiB',
    tick: (v) => `${v}`,
    zero: true,
    lines: [{ name: 'headroom', colour: '#cc79a7', value: (p) => toGib(p.headroom_bytes) }],
  },
];

export function valueText(sweep: { key: string; unit: string }, value: number | string): string {
  if (sweep.key.endsWith('_per_s') && typeof value === 'number' && value >= 1e6) return `${+(value / 1e9).toPrecision(4)} GB/s`;
  if (sweep.key.endsWith('_bytes') && typeof value === 'number') return bytes(value);
  return `${value}${sweep.unit ? ` ${sweep.unit}` : ''}`;
}

function path(points: [number, number | null][]): string {
  let pen = 'M';
  let out = '';
  for (const [x, y] of points) {
    if (y == null) pen = 'M';
    else {
      out += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = 'L';
    }
  }
  return out;
}

// A dense model has no all-to-all.
const alive = (sweep: Sweep, line: Line) => sweep.points.some((p) => line.value(p));

function PanelChart({ sweep, panel, width }: { sweep: Sweep; panel: Panel; width: number }) {
  const show = useTip();
  const height = 220;
  const lines = panel.lines.filter((l) => alive(sweep, l));
  const text = (p: SweepPoint) => valueText(sweep, p.value);
  const x = scalePoint(sweep.points.map(text), [52, width - 24]).padding(0.3);
  const at = (p: SweepPoint) => x(text(p)) ?? 0;
  const values = panel.lines.flatMap((l) => sweep.points.map(l.value)).filter((v): v is number => v != null);
  const ends = panel.band ? sweep.points.flatMap((p) => [p.low_s, p.high_s]).filter((v): v is number => v != null) : [];
  const all = [...values, ...ends, ...(panel.zero ? [0] : [])];
  const y = scaleLinear([Math.min(...all), Math.max(...all, 1e-9)], [height - 30, 10]).nice();
  const banded = sweep.points.filter((p) => p.low_s != null && p.high_s != null);
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label={`${panel.title} by ${sweep.label}; the numbers are in the table`}>
      {y.ticks(5).map((t) => (
        <g class="axis">
          <line x1={52} x2={width - 12} y1={y(t)} y2={y(t)} />
          <text x={46} y={y(t) + 4} text-anchor="end">{panel.tick(t)}</text>
        </g>
      ))}
      {panel.zero && <line class="limit" x1={52} x2={width - 12} y1={y(0)} y2={y(0)} />}
      {panel.band && banded.length > 1 && (
        <path
          class="band"
          d={`${path(banded.map((p) => [at(p), y(p.high_s!)]))}${path([...banded].reverse().map((p) => [at(p), y(p.low_s!)])).replace('M', 'L')}Z`}
        />
      )}
      {lines.map((line) => (
        <path
          class="line"
          stroke={line.colour}
          stroke-dasharray={line.dash}
          d={path(sweep.points.map((p) => [at(p), line.value(p) == null ? null : y(line.value(p)!)]))}
        />
      ))}
      {sweep.points.map((p) => (
        <g
          tabIndex={0}
          role="img"
          aria-label={`${sweep.label} ${text(p)}: ${statusText[p.status]} ${panel.lines.map((l) => `${l.name} ${l.value(p)?.toPrecision(4) ?? 'none'}`).join(', ')}`}
          {...tipHandlers(
            show,
            `${sweep.label} ${text(p)}: ${statusText[p.status]}`,
            ...panel.lines.map((l) => `${l.name}: ${l.value(p) == null ? missing : panel.tick(+l.value(p)!.toPrecision(4))}`),
            ...(p.reason ? [p.reason] : []),
          )}
        >
          <rect x={at(p) - 12} y={8} width={24} height={height - 38} fill="transparent" />
          {lines.map((l) =>
            l.value(p) == null ? null : (
              <circle cx={at(p)} cy={y(l.value(p)!)} r={3.5} fill={p.status === 'fits' ? l.colour : 'var(--paper)'} stroke={l.colour} stroke-width={2} />
            ),
          )}
          <text x={at(p)} y={height - 10} text-anchor="middle" class={p.status === 'fits' ? '' : 'refused'}>
            {text(p)}
            {p.status === 'fits' ? '' : p.status === 'illegal' ? ' –' : ' ✕'}
          </text>
        </g>
      ))}
    </svg>
  );
}

export function Curves({ sweeps, note }: { sweeps: Sweep[]; note?: string }) {
  const [at, setAt] = useState(0);
  const { ref, width } = useWidth();
  const sweep = sweeps[Math.min(at, sweeps.length - 1)];
  if (!sweep) return null;
  const columns = width > 1000 ? 3 : width > 640 ? 2 : 1;
  return (
    <Figure
      id="curves"
      title="All-to-all share, headroom and step time"
      note={note ?? 'One field varied, everything else as shown. Hollow marks do not fit or cannot be launched.'}
      rows={sweep.points}
      columns={[
        { title: sweep.label, value: (p) => p.value, show: (p) => valueText(sweep, p.value) },
        { title: 'Status', value: (p) => statusText[p.status] },
        { title: 'Step', value: (p) => p.step_time_s, show: (p) => seconds(p.step_time_s) },
        { title: 'Interval', value: (p) => p.low_s, show: (p) => `${fixed(p.low_s, 3)}–${fixed(p.high_s, 3)}` },
        { title: 'A2A total', value: (p) => p.ep_total_share, show: (p) => percent(p.ep_total_share) },
        { title: 'A2A exposed', value: (p) => p.ep_exposed_share, show: (p) => percent(p.ep_exposed_share) },
        { title: 'Comm exposed', value: (p) => p.communication_exposed_share, show: (p) => percent(p.communication_exposed_share) },
        { title: 'Bubble', value: (p) => p.bubble_share, show: (p) => percent(p.bubble_share) },
        { title: 'Peak GiB', value: (p) => p.peak_bytes, show: (p) => gib(p.peak_bytes) },
        { title: 'Headroom GiB', value: (p) => p.headroom_bytes, show: (p) => gib(p.headroom_bytes) },
        { title: 'Tokens/s/GPU', value: (p) => p.tokens_per_s_per_gpu, show: (p) => fixed(p.tokens_per_s_per_gpu, 0) },
        { title: 'Reason', value: (p) => p.reason },
      ]}
    >
      <div class="tabs" role="group" aria-label="Field to vary">
        {sweeps.map((s, i) => (
          <button type="button" aria-pressed={i === at} onClick={() => setAt(i)}>
            {s.label}
          </button>
        ))}
      </div>
      <Legend items={panels[1]!.lines.filter((l) => alive(sweep, l)).map((l) => ({ name: l.name, colour: l.colour }))} />
      <div ref={ref} class="panels" style={{ gridTemplateColumns: `repeat(${columns}, 1fr)` }}>
        {panels.map((panel) => (
          <div>
            <h4>{panel.title}</h4>
            <PanelChart sweep={sweep} panel={panel} width={Math.floor(width / columns) - 12} />
          </div>
        ))}
      </div>
    </Figure>
  );
}
