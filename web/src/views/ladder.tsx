// SPDX-License-Identifier: Apache-2.0
// The order of attack from a naive baseline to the plan, the next steps, and what the answer hangs on.

import { scaleLinear } from 'd3-scale';
import { statusText, type Ladder, type Risk, type SensitivityBar } from '../data';
import { fixed, gib, percent, seconds } from '../format';
import { partColour } from '../palette';
import { Figure, Legend } from '../parts/figure';
import { useWidth } from '../parts/size';
import { DataTable } from '../parts/table';
import { tipHandlers, useTip } from '../parts/tip';

const walls: [string, string][] = [
  ['compute', partColour.compute!],
  ['recompute', partColour.recompute!],
  ['communication', partColour.ep!],
  ['bubble', partColour.bubble!],
  ['host', partColour.host!],
  ['optimizer', partColour.optimizer!],
];
const clip = (text: string, width: number) => (text.length > width / 6 ? `${text.slice(0, Math.floor(width / 6) - 1)}…` : text);
const signed = (share: number) => `${share > 0 ? '+' : ''}${(100 * share).toFixed(1)} %`;
const signedGib = (bytes: number | null | undefined) => `${(bytes ?? 0) > 0 ? '+' : ''}${gib(bytes)} GiB`;
const signedPercent = (share: number) => `${share > 0 ? '+' : ''}${+(100 * share).toFixed(2)} %`;
const mostChange = 0.6; // of the step time; one bar beyond it would flatten all others

export function LadderView({ ladder }: { ladder: Ladder }) {
  const { ref, width } = useWidth();
  const show = useTip();
  const label = Math.min(380, width * 0.42);
  const x = scaleLinear([0, Math.max(...ladder.steps.map((s) => s.step_time_s))], [label, width - 150]);
  return (
    <Figure
      id="ladder"
      title="Order of attack"
      note={`From a naive baseline to the plan, ${ladder.speed_up.toFixed(2)} times as fast: what each step buys, and the wall that binds after it.`}
      rows={ladder.steps}
      columns={[
        { title: 'Step', value: (s) => s.name },
        { title: 'Attack', value: (s) => s.attack },
        { title: 'Step time', value: (s) => s.step_time_s, show: (s) => seconds(s.step_time_s) },
        { title: 'Saved', value: (s) => s.gain_share, show: (s) => percent(s.gain_share) },
        { title: 'Peak GiB', value: (s) => s.peak_bytes, show: (s) => gib(s.peak_bytes) },
        { title: 'Freed GiB', value: (s) => s.freed_bytes, show: (s) => gib(s.freed_bytes) },
        { title: 'Headroom GiB', value: (s) => s.headroom_bytes, show: (s) => gib(s.headroom_bytes) },
        { title: 'Wall before', value: (s) => s.wall_before ?? '' },
        { title: 'Wall after', value: (s) => s.wall ?? '' },
        { title: 'Fits', value: (s) => (s.fits ? 'yes' : 'no') },
      ]}
    >
      <Legend items={walls.map(([name, colour]) => ({ name, colour }))} />
      <div ref={ref}>
        <svg width={width} height={ladder.steps.length * 30 + 4} viewBox={`0 0 ${width} ${ladder.steps.length * 30 + 4}`} role="img" aria-label="Step time after each step of the ladder; the numbers are in the table">
          {ladder.steps.map((s, i) => {
            let from = 0;
            return (
              <g {...tipHandlers(show, s.name, `${seconds(s.step_time_s)}, peak ${gib(s.peak_bytes)} GiB`, `wall: ${s.wall}`)}>
                <text x={label - 6} y={i * 30 + 13} text-anchor="end">{clip(s.name, label)}</text>
                <text x={label - 6} y={i * 30 + 25} text-anchor="end" class="small">{s.attack}</text>
                {walls.map(([name, colour]) => {
                  const value = s.walls_s?.[name] ?? 0;
                  const left = x(from);
                  from += value;
                  return <rect x={left} y={i * 30 + 4} width={Math.max(0, x(from) - left)} height={20} fill={colour} />;
                })}
                <text x={x(s.step_time_s) + 6} y={i * 30 + 18}>
                  {seconds(s.step_time_s)} {i > 0 ? `(${signed(-s.gain_share)})` : ''} {s.fits ? '' : '✕ does not fit'}
                </text>
              </g>
            );
          })}
        </svg>
      </div>
      {ladder.next.length > 0 && (
        <>
          <h4>The next best steps beyond the plan</h4>
          <DataTable
            caption="Next steps"
            rows={ladder.next}
            columns={[
              { title: 'Step', value: (s) => s.name },
              { title: 'Attack', value: (s) => s.attack },
              { title: 'Step time', value: (s) => s.step_time_s, show: (s) => seconds(s.step_time_s) },
              { title: 'Saves', value: (s) => s.gain_share, show: (s) => percent(s.gain_share) },
              { title: 'Headroom GiB', value: (s) => s.headroom_bytes, show: (s) => gib(s.headroom_bytes) },
            ]}
          />
        </>
      )}
    </Figure>
  );
}

interface TornadoBar {
  name: string;
  low: number; // relative change of the step time
  high: number;
  bar: SensitivityBar;
}

function tornadoBars(bars: SensitivityBar[], base: number): TornadoBar[] {
  return bars
    .filter((b) => b.status !== 'illegal')
    .map((bar) =>
      bar.kind === 'rate'
        ? { name: bar.name, low: (bar.step_time_low_s ?? base) / base - 1, high: (bar.step_time_high_s ?? base) / base - 1, bar }
        : { name: bar.name, low: 0, high: bar.step_time_change ?? 0, bar },
    )
    .filter((b) => Math.abs(b.low) > 5e-5 || Math.abs(b.high) > 5e-5 || Math.abs(b.bar.headroom_change_bytes ?? 0) > 1e8);
}

export function Tornado({ bars, base }: { bars: SensitivityBar[]; base: number }) {
  const { ref, width } = useWidth();
  const show = useTip();
  const all = tornadoBars(bars, base);
  const rates = all.filter((b) => b.bar.kind === 'rate').slice(0, 10);
  const techniques = all.filter((b) => b.bar.kind === 'technique').slice(0, 18);
  const label = Math.min(260, width * 0.36);
  const draw = (list: TornadoBar[], title: string) => {
    const most = Math.min(mostChange, Math.max(...list.flatMap((b) => [Math.abs(b.low), Math.abs(b.high)]), 1e-6));
    const x = scaleLinear([-most, most], [label + 10, width - 160]).clamp(true);
    const foot = list.length * 22;
    return (
      <svg width={width} height={foot + 22} viewBox={`0 0 ${width} ${foot + 22}`} role="img" aria-label={`${title}; the numbers are in the table`}>
        {x.ticks(8).map((t) => (
          <g class="axis">
            <line x1={x(t)} x2={x(t)} y1={0} y2={foot} />
            <text x={x(t)} y={foot + 15} text-anchor="middle">{signedPercent(t)}</text>
          </g>
        ))}
        <line class="limit" x1={x(0)} x2={x(0)} y1={0} y2={list.length * 22} />
        {list.map((b, i) => {
          const say =
            b.bar.kind === 'rate'
              ? [`10 % less: step ${signed(b.low)}`, `10 % more: step ${signed(b.high)}`]
              : [`step ${signed(b.high)}`, `headroom ${signedGib(b.bar.headroom_change_bytes)}`, ...(b.bar.reason ? [b.bar.reason] : [])];
          return (
            <g {...tipHandlers(show, b.name, ...say)}>
              <text x={label} y={i * 22 + 15} text-anchor="end">{clip(b.name, label)}</text>
              {[b.low, b.high].map((v, side) => (
                <rect
                  x={Math.min(x(0), x(v))}
                  y={i * 22 + 4}
                  width={Math.abs(x(v) - x(0))}
                  height={15}
                  fill={v > 0 ? '#d55e00' : '#0072b2'}
                  fill-opacity={b.bar.kind === 'rate' && side === 1 ? 0.65 : 1}
                />
              ))}
              {Math.max(b.low, b.high) > most && <path class="cut" d={`M${x(most) - 14} ${i * 22 + 2}l6 19m4 -19l6 19`} />}
              <text x={width - 152} y={i * 22 + 15}>
                {b.bar.kind === 'rate' ? `elasticity ${fixed(b.bar.elasticity, 3)}` : `${signed(b.high)}, ${signedGib(b.bar.headroom_change_bytes)}`}
              </text>
            </g>
          );
        })}
      </svg>
    );
  };
  return (
    <Figure
      id="tornado"
      title="What the answer hangs on"
      note="Hardware rates 10 % down and up, and one technique switched at a time (with what that does to the headroom): change of the step time. Orange slows the step, blue speeds it up; a cut bar runs beyond the scale."
      rows={bars}
      columns={[
        { title: 'Change', value: (b) => b.name },
        { title: 'Kind', value: (b) => b.attack ?? b.kind },
        { title: 'Elasticity', value: (b) => b.elasticity, show: (b) => fixed(b.elasticity, 4) },
        { title: 'Step at −10 %', value: (b) => b.step_time_low_s, show: (b) => seconds(b.step_time_low_s) },
        { title: 'Step at +10 %', value: (b) => b.step_time_high_s, show: (b) => seconds(b.step_time_high_s) },
        { title: 'Step time', value: (b) => b.step_time_s, show: (b) => seconds(b.step_time_s) },
        { title: 'Change', value: (b) => b.step_time_change, show: (b) => percent(b.step_time_change) },
        { title: 'Headroom change GiB', value: (b) => b.headroom_change_bytes, show: (b) => gib(b.headroom_change_bytes) },
        { title: 'Status', value: (b) => (b.status ? statusText[b.status] : '') },
        { title: 'Reason', value: (b) => b.reason ?? '' },
      ]}
    >
      <div ref={ref}>
        {rates.length > 0 && <h4>Rates</h4>}
        {draw(rates, 'Effect of hardware rates')}
        {techniques.length > 0 && <h4>Techniques and layout</h4>}
        {draw(techniques, 'Effect of techniques')}
      </div>
    </Figure>
  );
}

export function RiskTable({ risk }: { risk: Risk }) {
  return (
    <section aria-labelledby="risk-title" id="risk">
      <h3 id="risk-title">Routing as a gamble</h3>
      <p class="note">
        {risk.draws} draws of the routing distribution; capacity {gib(risk.capacity_bytes)} GiB, step {seconds(risk.balanced_step_time_s)} when
        balanced.
      </p>
      <DataTable
        caption="Routing risk by lever"
        rows={risk.rows}
        columns={[
          { title: 'Lever', value: (r) => r.lever },
          { title: 'P(out of memory)', value: (r) => r.out_of_memory_probability, show: (r) => percent(r.out_of_memory_probability) },
          { title: 'Peak p50 GiB', value: (r) => r.peak_p50_bytes, show: (r) => gib(r.peak_p50_bytes) },
          { title: 'Peak p99 GiB', value: (r) => r.peak_p99_bytes, show: (r) => gib(r.peak_p99_bytes) },
          { title: 'Slow-down', value: (r) => r.slow_down, show: (r) => percent(r.slow_down) },
          { title: 'p90', value: (r) => r.slow_down_p90, show: (r) => percent(r.slow_down_p90) },
          { title: 'Imbalance', value: (r) => r.imbalance, show: (r) => fixed(r.imbalance, 2) },
          { title: 'Dropped', value: (r) => r.dropped_share, show: (r) => percent(r.dropped_share) },
          { title: 'Launchable', value: (r) => (r.launchable ? 'yes' : 'no') },
          { title: 'Note', value: (r) => r.note },
        ]}
      />
    </section>
  );
}
