// SPDX-License-Identifier: Apache-2.0
// The three walls: where a step's time goes, one bar a candidate, on one scale.

import { scaleLinear } from 'd3-scale';
import { statusText, type Candidate, type Numbers } from '../data';
import { percent, seconds } from '../format';
import { inkOn, partColour, partNames, parts } from '../palette';
import { Figure, Legend } from '../parts/figure';
import { useWidth } from '../parts/size';
import { tipHandlers, useTip } from '../parts/tip';

export interface Bar {
  label: string;
  note: string;
  value: number;
  low?: number;
  high?: number;
  parts: Numbers;
  refused?: string; // why it cannot be run as it stands
}

const hatched = new Set(['ep', 'tp', 'cp', 'pp', 'dp']);

export function barOf(c: Candidate): Bar | null {
  if (!c.step_time_s || !c.walls_s || !c.exposed_s) return null;
  const { communication: _, ...walls } = c.walls_s;
  return {
    label: c.label,
    note: c.layout.replace(/ \(.*$/, ''),
    value: c.step_time_s.value,
    low: c.step_time_s.low,
    high: c.step_time_s.high,
    parts: { ...walls, ...c.exposed_s },
    refused: c.status === 'fits' ? undefined : statusText[c.status],
  };
}

function Segments({ bar, x, y, height }: { bar: Bar; x: (v: number) => number; y: number; height: number }) {
  const show = useTip();
  let from = 0;
  return (
    <g>
      {parts.map((part) => {
        const value = bar.parts[part] ?? 0;
        const left = x(from);
        from += value;
        const width = x(from) - left;
        if (width < 0.2) return null;
        const colour = partColour[part]!;
        const tip = tipHandlers(show, bar.label, `${partNames[part]}: ${seconds(value)}`, percent(value / bar.value) + ' of the step');
        return (
          <g {...tip} data-part={part}>
            <rect x={left} y={y} width={width} height={height} fill={colour} />
            {hatched.has(part) && <rect x={left} y={y} width={width} height={height} fill="url(#hatch)" />}
            {width > 46 && left + 34 < x(bar.low ?? bar.value) && (
              <text x={left + 4} y={y + height / 2 + 4} fill={inkOn(colour)} stroke={colour} class="in-bar over">
                {percent(value / bar.value, 0)}
              </text>
            )}
          </g>
        );
      })}
    </g>
  );
}

const whisker = (from: number, to: number, y: number) => `M${from} ${y}H${to}m0 -5v10M${from} ${y - 5}v10`;

export function WallBars({ bars }: { bars: Bar[] }) {
  const { ref, width } = useWidth();
  const label = Math.min(260, width * 0.3);
  const row = 34;
  const most = Math.max(...bars.map((b) => b.high ?? b.value), 1e-9);
  const x = scaleLinear([0, most], [label, width - (bars.some((b) => b.refused) ? 160 : 70)]);
  const height = bars.length * row + 24;
  const used = parts.filter((p) => bars.some((b) => (b.parts[p] ?? 0) > 0));
  return (
    <div ref={ref}>
      <Legend items={used.map((p) => ({ name: partNames[p]!, colour: partColour[p]!, hatched: hatched.has(p) }))} />
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label="Step time by kind, one bar a row; the numbers are in the table">
        {x.ticks(6).map((t) => (
          <g class="axis">
            <line x1={x(t)} x2={x(t)} y1={0} y2={height - 20} />
            <text x={x(t)} y={height - 6} text-anchor="middle">
              {t} s
            </text>
          </g>
        ))}
        {bars.map((bar, i) => (
          <g>
            <text x={label - 8} y={i * row + 15} text-anchor="end" class="strong">
              {bar.label}
            </text>
            <text x={label - 8} y={i * row + 27} text-anchor="end" class="small">
              {bar.note.length > label / 5.4 ? `${bar.note.slice(0, label / 5.4)}…` : bar.note}
            </text>
            <Segments bar={bar} x={x} y={i * row + 4} height={22} />
            {bar.low != null && bar.high != null && (
              <>
                <path class="halo" d={whisker(x(bar.low), x(bar.high), i * row + 15)} />
                <path class="whisker" d={whisker(x(bar.low), x(bar.high), i * row + 15)} />
              </>
            )}
            <text x={x(bar.high ?? bar.value) + 6} y={i * row + 19}>
              {seconds(bar.value)}
              {bar.refused && <tspan class="refused"> ✕ {bar.refused}</tspan>}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

// What one change would reach stays in the table; here stand plans and what was asked.
const asked = (c: Candidate) => c.group !== 'neighbour' && c.group !== 'rejected';

export function Walls({ candidates }: { candidates: Candidate[] }) {
  const bars = candidates.filter(asked).map(barOf).filter((b): b is Bar => b !== null).slice(0, 16);
  return (
    <Figure
      id="walls"
      title="The three walls"
      note="Where a step’s time goes: useful compute, communication that nothing hides (hatched), bubble, host. Whiskers: 80 % interval."
      rows={bars}
      columns={[
        { title: 'Candidate', value: (b) => b.label },
        { title: 'Step s', value: (b) => b.value, show: (b) => b.value.toFixed(4) },
        { title: 'Status', value: (b) => b.refused ?? 'fits' },
        ...parts.map((p) => ({
          title: `${partNames[p]} s`,
          value: (b: Bar) => b.parts[p] ?? 0,
          show: (b: Bar) => (b.parts[p] ?? 0).toFixed(4),
        })),
      ]}
    >
      <WallBars bars={bars} />
    </Figure>
  );
}
