// SPDX-License-Identifier: Apache-2.0
// Memory: every stage's peak against what a process may allocate, and its course over a simulated step.

import { scaleLinear } from 'd3-scale';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { Memory, StageMemory, Term } from '../data';
import { bytes, gib, seconds } from '../format';
import { inkOn, memoryColour, memoryNames, memoryParts } from '../palette';
import { Figure, Legend } from '../parts/figure';
import { useWidth } from '../parts/size';
import type { Column } from '../parts/table';
import { tipHandlers, useTip } from '../parts/tip';

const part = (s: StageMemory, name: string) => s[`${name}_bytes` as keyof StageMemory];

export function StageBars({ stages, capacity }: { stages: StageMemory[]; capacity: number }) {
  const { ref, width } = useWidth();
  const show = useTip();
  const row = stages.length > 40 ? 12 : 22;
  const most = Math.max(capacity, ...stages.map((s) => Math.max(s.peak_bytes, s.reserved_bytes)));
  const x = scaleLinear([0, most / 2 ** 30], [64, width - 20]);
  const at = (b: number) => x(b / 2 ** 30);
  const head = 16; // of the capacity's label
  const height = head + stages.length * row + 26;
  return (
    <div ref={ref}>
      <Legend items={memoryParts.map((p) => ({ name: memoryNames[p]!, colour: memoryColour[p]! }))} />
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label="Peak memory by stage against capacity; the numbers are in the table">
        {x.ticks(8).map((t) => (
          <g class="axis">
            <line x1={x(t)} x2={x(t)} y1={0} y2={height - 22} />
            <text x={x(t)} y={height - 8} text-anchor="middle">{t} GiB</text>
          </g>
        ))}
        {stages.map((s, i) => {
          let from = 0;
          return (
            <g>
              <text x={58} y={head + i * row + row / 2 + 4} text-anchor="end">stage {s.stage}</text>
              {memoryParts.map((name) => {
                const value = Math.max(0, part(s, name));
                const left = at(from);
                from += value;
                const w = at(from) - left;
                if (w < 0.2) return null;
                return (
                  <g {...tipHandlers(show, `stage ${s.stage}, ${name}`, bytes(value), `peak ${bytes(s.peak_bytes)}, held ${bytes(s.reserved_bytes)}`)}>
                    <rect x={left} y={head + i * row + 2} width={w} height={row - 4} fill={memoryColour[name]} />
                    {w > 40 && row > 16 && (
                      <text x={left + 4} y={head + i * row + row / 2 + 4} class="in-bar" fill={inkOn(memoryColour[name]!)}>
                        {gib(value)}
                      </text>
                    )}
                  </g>
                );
              })}
              <path class="whisker" d={`M${at(s.reserved_bytes)} ${head + i * row + 2}v${row - 4}`} />
            </g>
          );
        })}
        <line class="limit" x1={at(capacity)} x2={at(capacity)} y1={0} y2={height - 22} />
        <text x={at(capacity) - 4} y={11} text-anchor="end" class="strong">
          capacity {gib(capacity)} GiB
        </text>
      </svg>
    </div>
  );
}

export const stageColumns: Column<StageMemory>[] = [
  { title: 'Stage', value: (s) => s.stage },
  ...memoryParts.map((name) => ({
    title: `${memoryNames[name]} GiB`,
    value: (s: StageMemory) => part(s, name),
    show: (s: StageMemory) => gib(part(s, name), 2),
  })),
  { title: 'Peak GiB', value: (s) => s.peak_bytes, show: (s) => gib(s.peak_bytes, 2) },
  { title: 'Held GiB', value: (s) => s.reserved_bytes, show: (s) => gib(s.reserved_bytes, 2) },
];

const lineColours = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9'];
const dashes = [[], [8, 4], [3, 3], [10, 3, 2, 3], [1, 3], [6, 2]];
const mostLines = 6;

// uPlot wants one time axis: the union of the stages' steps, each stage holding its last value.
function align(curves: Memory['curves'], capacity: number): uPlot.AlignedData {
  const times = [...new Set(curves.flatMap((c) => c.time_s))].sort((a, b) => a - b);
  const columns = curves.map((c) => {
    let at = 0;
    let last = c.bytes[0] ?? 0;
    return times.map((t) => {
      while (at < c.time_s.length && c.time_s[at]! <= t) last = c.bytes[at++]!;
      return last / 2 ** 30;
    });
  });
  return [times, ...columns, times.map(() => capacity / 2 ** 30)];
}

function options(curves: Memory['curves'], width: number, ink: string, grid: string): uPlot.Options {
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
  return {
    width,
    height: 300,
    cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false } },
    axes: [
      { ...axis, label: 'seconds into the step', values: (_, v) => v.map((s) => `${+s.toPrecision(5)}`) },
      { ...axis, label: 'GiB', size: 60 },
    ],
    series: [
      { label: 'time', value: (_, v) => (v == null ? '' : seconds(v)) },
      ...curves.map((c, i) => ({
        label: `stage ${c.stage}`,
        stroke: lineColours[i % lineColours.length]!,
        dash: dashes[i % dashes.length]!,
        width: 1.6,
        paths: uPlot.paths.stepped!({ align: 1 }),
        points: { show: false },
        value: (_: uPlot, v: number) => (v == null ? '' : `${v.toFixed(2)} GiB`),
      })),
      { label: 'capacity', stroke: ink, dash: [2, 2], width: 1.2, points: { show: false } },
    ],
  };
}

function MemoryPlot({ curves, capacity, scheme }: { curves: Memory['curves']; capacity: number; scheme: string }) {
  const { ref, width } = useWidth();
  const box = useRef<HTMLDivElement>(null);
  const data = useMemo(() => align(curves, capacity), [curves, capacity]);
  useEffect(() => {
    if (!box.current) return;
    const style = getComputedStyle(document.documentElement);
    const plot = new uPlot(
      options(curves, width, style.getPropertyValue('--ink'), style.getPropertyValue('--line')),
      data,
      box.current,
    );
    return () => plot.destroy();
  }, [data, width, scheme]);
  return (
    <div ref={ref}>
      <div ref={box} role="img" aria-label="Allocated memory over the step by stage; the numbers are in the table" />
    </div>
  );
}

interface Step {
  stage: number;
  time: number;
  bytes: number;
}

export function MemoryView({ memory, scheme, terms }: { memory: Memory; scheme: string; terms: Term[] }) {
  const worst = memory.stages.reduce((a, s, i, all) => (s.peak_bytes > all[a]!.peak_bytes ? i : a), 0);
  const [shown, setShown] = useState<number[]>(() => [...new Set([worst, 0, memory.curves.length - 1])].slice(0, mostLines));
  const curves = useMemo(() => memory.curves.filter((c) => shown.includes(c.stage)), [memory, shown]);
  const steps = useMemo<Step[]>(
    () => curves.flatMap((c) => c.time_s.map((time, i) => ({ stage: c.stage, time, bytes: c.bytes[i]! }))),
    [curves],
  );
  const toggle = (stage: number) =>
    setShown((now) => (now.includes(stage) ? now.filter((s) => s !== stage) : [...now, stage].slice(-mostLines)));
  return (
    <>
      <Figure
        id="memory-stages"
        title="Peak memory by stage"
        note="The allocated peak of every pipeline stage by what holds it; the thin mark is what the allocator holds. In closed form."
        rows={memory.stages}
        columns={stageColumns}
      >
        <StageBars stages={memory.stages} capacity={memory.capacity_bytes} />
      </Figure>
      {memory.curves.length > 0 && (
        <Figure
          id="memory-time"
          title="Memory over the step"
          note="Simulated: activations come and go with the schedule. Drag to zoom, double-click to see all."
          rows={steps}
          columns={[
            { title: 'Stage', value: (s) => s.stage },
            { title: 'Time', value: (s) => s.time, show: (s) => seconds(s.time) },
            { title: 'Allocated GiB', value: (s) => s.bytes, show: (s) => gib(s.bytes, 3) },
          ]}
        >
          <div class="tabs" role="group" aria-label={`Stages to show, at most ${mostLines}`}>
            {memory.curves.map((c) => (
              <button type="button" aria-pressed={shown.includes(c.stage)} onClick={() => toggle(c.stage)}>
                {c.stage}
              </button>
            ))}
          </div>
          <MemoryPlot curves={curves} capacity={memory.capacity_bytes} scheme={scheme} />
        </Figure>
      )}
      {terms.length > 0 && <Terms terms={terms} />}
    </>
  );
}

const clip = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function Terms({ terms }: { terms: Term[] }) {
  const most = Math.max(...terms.map((t) => Math.abs(t.bytes)));
  const { ref, width } = useWidth();
  const shown = [...terms].sort((a, b) => Math.abs(b.bytes) - Math.abs(a.bytes)).slice(0, 14);
  const label = Math.min(320, width * 0.4);
  const show = useTip();
  return (
    <Figure
      id="memory-terms"
      title={`What stage ${terms[0]!.stage} holds`}
      note="The largest terms of the worst stage; the table has all, each with its formula and its divisor."
      rows={terms}
      columns={[
        { title: 'Term', value: (t) => t.name },
        { title: 'Part', value: (t) => t.part },
        { title: 'GiB', value: (t) => t.bytes, show: (t) => gib(t.bytes, 3) },
        { title: 'Formula', value: (t) => t.formula },
        { title: 'Divisor', value: (t) => t.divisor },
      ]}
    >
      <div ref={ref}>
        <svg width={width} height={shown.length * 20} viewBox={`0 0 ${width} ${shown.length * 20}`} role="img" aria-label="Largest memory terms; the numbers are in the table">
          {shown.map((t, i) => (
            <g {...tipHandlers(show, `${t.part}: ${t.name}`, bytes(t.bytes), t.formula, t.divisor)}>
              <text x={label - 6} y={i * 20 + 14} text-anchor="end">{clip(`${t.part}: ${t.name}`, label / 6.3)}</text>
              <rect
                x={label}
                y={i * 20 + 3}
                width={Math.max(1, ((width - label - 80) * Math.abs(t.bytes)) / most)}
                height={14}
                fill={t.bytes < 0 ? 'none' : memoryColour[t.part]}
                stroke={memoryColour[t.part]}
              />
              <text x={label + ((width - label - 80) * Math.abs(t.bytes)) / most + 6} y={i * 20 + 14}>{bytes(t.bytes)}</text>
            </g>
          ))}
        </svg>
      </div>
    </Figure>
  );
}
