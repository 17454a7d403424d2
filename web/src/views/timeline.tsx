// SPDX-License-Identifier: Apache-2.0
// Every operator of one simulated step on every stream of every stage.

import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Timeline } from '../data';
import { count, percent, seconds } from '../format';
import { besideWork, inkOn, partColour, workColour } from '../palette';
import { Figure, Legend } from '../parts/figure';
import { usePrinting, useWidth } from '../parts/size';
import { useTip } from '../parts/tip';
import { abgr, buildRows, clamped, firstAfter, paintRow, sliceAt, zoomed, type Row, type View } from './gantt';

const labelWidth = 108;
const rulerHeight = 20;
const mostHeight = 520;
const rowHeights = [16, 9]; // the first stream of a stage (compute), the others
const gap = 5;

type Colouring = 'work' | 'category';

interface Placed {
  row: Row;
  top: number;
  height: number;
}

function place(rows: Row[]): { placed: Placed[]; height: number } {
  let top = 2;
  let stage = -1;
  const placed = rows.map((row) => {
    if (row.stage !== stage && stage >= 0) top += gap;
    const height = row.stream === 0 ? rowHeights[0]! : rowHeights[1]!;
    stage = row.stage;
    const at = { row, top, height };
    top += height + 1;
    return at;
  });
  return { placed, height: top + 2 };
}

function colourOf(timeline: Timeline, i: number, colouring: Colouring): string {
  const category = timeline.categories[timeline.slices.category[i]!] ?? '';
  const work = timeline.work[timeline.slices.work[i]!] ?? '';
  if (colouring === 'work' && (category === 'compute' || category === 'recompute') && workColour[work]) return workColour[work]!;
  return (colouring === 'work' ? besideWork : partColour)[category] ?? '#777777';
}

function describe(timeline: Timeline, row: Row, at: number): string[] {
  const i = row.index[at]!;
  const s = timeline.slices;
  const unit = [
    timeline.work[s.work[i]!],
    s.microbatch[i]! >= 0 ? `micro-batch ${s.microbatch[i]}` : '',
    s.chunk[i]! >= 0 ? `chunk ${s.chunk[i]}` : '',
  ];
  return [
    timeline.names[s.name[i]!] ?? '',
    unit.filter(Boolean).join(', '),
    `stage ${row.stage}, ${timeline.streams[row.stream]}, ${timeline.categories[s.category[i]!]}`,
    `${seconds(row.end[at]! - row.start[at]!)} from ${seconds(row.start[at]!)}`,
  ];
}

function niceStep(span: number, count: number): number {
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 5, 10].find((f) => f * power >= raw) ?? 10) * power;
}

interface Painter {
  timeline: Timeline;
  placed: Placed[];
  colours: Uint32Array;
  colouring: Colouring;
  chosen: { row: number; at: number } | null;
}

// One frame. Pixels first, then words on what is wide enough to hold them.
function paint(canvas: HTMLCanvasElement, p: Painter, view: View, scroll: number, ratio: number): void {
  const context = canvas.getContext('2d', { alpha: false, willReadFrequently: true });
  if (!context) return;
  const style = getComputedStyle(canvas);
  const [paper, ink, line, panel] = ['--paper', '--ink', '--line', '--panel'].map((name) => style.getPropertyValue(name)) as [string, string, string, string];
  const width = canvas.width - Math.round(labelWidth * ratio);
  const left = canvas.width - width;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const image = context.createImageData(width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(abgr(paper));
  const ruler = Math.round(rulerHeight * ratio);
  const seen: Placed[] = [];
  for (const place of p.placed) {
    const top = Math.round((place.top - scroll + rulerHeight) * ratio);
    const height = Math.round(place.height * ratio);
    if (top < ruler || top + height > canvas.height) continue;
    seen.push(place);
    const left = p.timeline.omitted_s?.[place.row.stage];
    if (left && place.row.stream === 0) fillBand(pixels, width, view, left, top, height, abgr(panel));
    paintRow({ pixels, width, height: canvas.height }, place.row, p.colours, view, top, height);
  }
  context.putImageData(image, left, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  words(context, p, seen, view, scroll, width / ratio, ink, line);
}

function fillBand(pixels: Uint32Array, width: number, view: View, span: [number, number], top: number, height: number, colour: number): void {
  const column = (t: number) => Math.max(0, Math.min(width, Math.round(((t - view.from) / (view.to - view.from)) * width)));
  for (let y = top; y < top + height; ++y) pixels.fill(colour, y * width + column(span[0]), y * width + column(span[1]));
}

// Where the middle micro-batches ran, once they are not in the file.
function omission(timeline: Timeline): string {
  const left = (timeline.microbatches ?? 0) - (timeline.microbatches_shown ?? 0);
  return `${count(left)} micro-batches between, not drawn`;
}

function words(
  context: CanvasRenderingContext2D,
  p: Painter,
  seen: Placed[],
  view: View,
  scroll: number,
  width: number,
  ink: string,
  line: string,
): void {
  const scale = width / (view.to - view.from);
  context.font = '10px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.fillStyle = ink;
  context.strokeStyle = line;
  const step = niceStep(view.to - view.from, width / 110);
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = labelWidth + (t - view.from) * scale;
    context.fillRect(x, 13, 1, 6);
    context.fillText(seconds(t), x + 3, 8);
  }
  for (const { row, top, height } of seen) {
    const y = top - scroll + rulerHeight + height / 2;
    context.fillStyle = ink;
    context.fillText(row.stream === 0 ? `stage ${row.stage}` : (p.timeline.streams[row.stream] ?? ''), row.stream === 0 ? 6 : 22, y);
    if (row.stream !== 0) continue;
    const left = p.timeline.omitted_s?.[row.stage];
    if (left) {
      const [from, to] = left.map((t) => Math.max(0, Math.min(width, (t - view.from) * scale))) as [number, number];
      const middle = (from + to) / 2;
      const next = row.start[firstAfter(row, view.from + (middle - 90) / scale)] ?? Infinity;
      const free = to - from > 260 && (next - view.from) * scale > middle + 90;
      if (free) context.fillText(omission(p.timeline), labelWidth + middle - 80, y);
    }
    for (let i = firstAfter(row, view.from); i < row.start.length && row.start[i]! < view.to; ++i) {
      const from = Math.max(labelWidth, labelWidth + (row.start[i]! - view.from) * scale);
      const wide = Math.min(labelWidth + width, labelWidth + (row.end[i]! - view.from) * scale) - from;
      if (wide < 22) continue;
      const slice = row.index[i]!;
      const name = p.timeline.names[p.timeline.slices.name[slice]!] ?? '';
      const batch = p.timeline.slices.microbatch[slice]!;
      const text = wide > 60 ? `${name}${batch >= 0 ? ` ${batch}` : ''}` : `${batch >= 0 ? batch : ''}`;
      context.save();
      context.beginPath();
      context.rect(from, y - height / 2, wide - 2, height);
      context.clip();
      context.fillStyle = inkOn(colourOf(p.timeline, slice, p.colouring));
      context.fillText(text, from + 3, y);
      context.restore();
    }
  }
  if (p.chosen) outline(context, p, view, scroll, width, ink);
}

function outline(context: CanvasRenderingContext2D, p: Painter, view: View, scroll: number, width: number, ink: string): void {
  const place = p.chosen && p.placed[p.chosen.row];
  if (!place || !p.chosen) return;
  const scale = width / (view.to - view.from);
  const x = labelWidth + (place.row.start[p.chosen.at]! - view.from) * scale;
  const wide = (place.row.end[p.chosen.at]! - place.row.start[p.chosen.at]!) * scale;
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.strokeRect(Math.max(labelWidth, x), place.top - scroll + rulerHeight - 1, Math.max(3, wide), place.height + 2);
}

function legendOf(timeline: Timeline, colouring: Colouring): { name: string; colour: string }[] {
  const used = new Set(timeline.slices.category);
  const usedWork = new Set(timeline.slices.work);
  return [
    ...(colouring === 'work'
      ? timeline.work.filter((_, i) => usedWork.has(i)).map((w) => ({ name: w, colour: workColour[w] ?? '#777777' }))
      : []),
    ...timeline.categories
      .filter((c, i) => used.has(i) && (colouring === 'category' || (c !== 'compute' && c !== 'recompute')))
      .map((c) => ({ name: c, colour: (colouring === 'work' ? besideWork : partColour)[c] ?? '#777777' })),
  ];
}

interface Slice {
  row: Row;
  at: number;
}

function visibleSlices(placed: Placed[], view: View, most: number): Slice[] {
  const out: Slice[] = [];
  for (const { row } of placed)
    for (let at = firstAfter(row, view.from); at < row.start.length && row.start[at]! < view.to; ++at) {
      if (out.length === most) return out;
      out.push({ row, at });
    }
  return out;
}

export function TimelineView({ timeline, scheme }: { timeline: Timeline; scheme: string }) {
  const { ref: box, width } = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const show = useTip();
  const whole = timeline.step_time_s;
  const [colouring, setColouring] = useState<Colouring>('work');
  const [view, setView] = useState<View>({ from: 0, to: whole });
  const [chosen, setChosen] = useState<{ row: number; at: number } | null>(null);
  const rows = useMemo(() => buildRows(timeline), [timeline]);
  const { placed, height: full } = useMemo(() => place(rows), [rows]);
  const colours = useMemo(
    () => Uint32Array.from(timeline.slices.start_ns, (_, i) => abgr(colourOf(timeline, i, colouring))),
    [timeline, colouring],
  );
  const printing = usePrinting();
  const height = printing ? full + rulerHeight : Math.min(mostHeight, full + rulerHeight);
  const live = useRef({ view, frames: 0 });
  live.current.view = view;

  const draw = useCallback(() => {
    if (!canvas.current || !scroller.current) return;
    paint(canvas.current, { timeline, placed, colours, colouring, chosen }, live.current.view, scroller.current.scrollTop, devicePixelRatio || 1);
    canvas.current.dataset.frames = String(++live.current.frames);
  }, [timeline, placed, colours, colouring, chosen, scheme]);

  useLayoutEffect(() => {
    if (!canvas.current) return;
    const ratio = devicePixelRatio || 1;
    canvas.current.width = Math.round(width * ratio);
    canvas.current.height = Math.round(height * ratio);
  }, [width, height]);
  // A frame that is under way draws the newest state; cancelling it would starve a picture that changes every frame.
  const pending = useRef(0);
  const newest = useRef(draw);
  newest.current = draw;
  useLayoutEffect(() => {
    if (printing) newest.current(); // no frame comes before the paper
    pending.current ||= requestAnimationFrame(() => {
      pending.current = 0;
      newest.current();
    });
  }, [draw, view, width, height]);
  useEffect(() => () => cancelAnimationFrame(pending.current), []);

  const timeAt = (x: number) => view.from + ((x - labelWidth) / (width - labelWidth)) * (view.to - view.from);
  const find = (e: MouseEvent) => {
    const area = canvas.current!.getBoundingClientRect();
    const y = e.clientY - area.top - rulerHeight + scroller.current!.scrollTop;
    const row = placed.findIndex((p) => y >= p.top && y < p.top + p.height + 1);
    if (row < 0 || e.clientX - area.left < labelWidth) return null;
    const slack = (2 * (view.to - view.from)) / (width - labelWidth);
    const at = sliceAt(placed[row]!.row, timeAt(e.clientX - area.left), slack);
    return at < 0 ? null : { row, at };
  };

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const wheel = (e: WheelEvent) => {
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== element) return;
      e.preventDefault();
      const area = element.getBoundingClientRect();
      const now = live.current.view;
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
        const by = ((e.deltaX || e.deltaY) / (width - labelWidth)) * (now.to - now.from);
        setView(clamped({ from: now.from + by, to: now.to + by }, whole));
      } else {
        const share = (e.clientX - area.left - labelWidth) / (width - labelWidth);
        setView(zoomed(now, now.from + share * (now.to - now.from), Math.exp(e.deltaY * 0.0015), whole));
      }
    };
    element.addEventListener('wheel', wheel, { passive: false });
    return () => element.removeEventListener('wheel', wheel);
  }, [width, whole]);

  const drag = (e: PointerEvent) => {
    const element = canvas.current!;
    element.focus({ preventScroll: true });
    const start = live.current.view;
    const from = e.clientX;
    let moved = false;
    element.setPointerCapture(e.pointerId);
    const move = (m: PointerEvent) => {
      moved ||= Math.abs(m.clientX - from) > 3;
      const by = ((from - m.clientX) / (width - labelWidth)) * (start.to - start.from);
      setView(clamped({ from: start.from + by, to: start.to + by }, whole));
    };
    const up = (m: PointerEvent) => {
      element.removeEventListener('pointermove', move);
      element.removeEventListener('pointerup', up);
      if (!moved) setChosen(find(m));
    };
    element.addEventListener('pointermove', move);
    element.addEventListener('pointerup', up);
  };

  const choose = (row: number, at: number) => {
    const place = placed[row];
    if (!place) return;
    const target = Math.max(0, Math.min(at, place.row.start.length - 1));
    setChosen({ row, at: target });
    const [from, to] = [place.row.start[target]!, place.row.end[target]!];
    if (from < view.from || to > view.to) {
      const span = Math.max(view.to - view.from, to - from);
      setView(clamped({ from: (from + to - span) / 2, to: (from + to + span) / 2 }, whole));
    }
    scroller.current!.scrollTop = Math.max(0, place.top - height / 2);
  };

  const keys = (e: KeyboardEvent) => {
    const span = view.to - view.from;
    const middle = (view.from + view.to) / 2;
    const acts: Record<string, () => void> = {
      ArrowLeft: () => setView(clamped({ from: view.from - span / 8, to: view.to - span / 8 }, whole)),
      ArrowRight: () => setView(clamped({ from: view.from + span / 8, to: view.to + span / 8 }, whole)),
      '+': () => setView(zoomed(view, middle, 0.7, whole)),
      '=': () => setView(zoomed(view, middle, 0.7, whole)),
      '-': () => setView(zoomed(view, middle, 1.4, whole)),
      '0': () => setView({ from: 0, to: whole }),
      '.': () => choose(chosen?.row ?? 0, (chosen?.at ?? firstAfter(placed[0]!.row, view.from) - 1) + 1),
      ',': () => choose(chosen?.row ?? 0, (chosen?.at ?? 1) - 1),
      ArrowDown: () => moveRow(1),
      ArrowUp: () => moveRow(-1),
      Escape: () => setChosen(null),
    };
    const moveRow = (by: number) => {
      const row = Math.max(0, Math.min(placed.length - 1, (chosen?.row ?? -by) + by));
      const time = chosen ? placed[chosen.row]!.row.start[chosen.at]! : view.from;
      choose(row, firstAfter(placed[row]!.row, time));
    };
    const act = acts[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  };

  const legend = useMemo(() => legendOf(timeline, colouring), [timeline, colouring]);
  return (
    <Figure
      id="timeline"
      title="Pipeline timeline"
      note={
        <>
          Simulated, {count(timeline.slices.start_ns.length)} slices
          {timeline.merged ? ` of ${count(timeline.total_slices)} operators, neighbours joined` : ''}
          {timeline.microbatches_shown != null && timeline.microbatches_shown < (timeline.microbatches ?? 0)
            ? `, the first and last ${count(timeline.microbatches_shown)} of ${count(timeline.microbatches)} micro-batches (trifold simulate --trace writes them all)`
            : ''}
          ; {percent(timeline.hidden_share)} of
          communication is hidden. Drag to pan; scroll to zoom once it has the focus (or with Ctrl); keys: arrows, + −, 0, and
          , . to step through slices.
        </>
      }
      rows={() => visibleSlices(placed, view, 2000)}
      columns={[
        { title: 'Operator', value: (r) => timeline.names[timeline.slices.name[r.row.index[r.at]!]!] },
        { title: 'Stage', value: (r) => r.row.stage },
        { title: 'Stream', value: (r) => timeline.streams[r.row.stream] },
        { title: 'Work', value: (r) => timeline.work[timeline.slices.work[r.row.index[r.at]!]!] },
        { title: 'Kind', value: (r) => timeline.categories[timeline.slices.category[r.row.index[r.at]!]!] },
        { title: 'Micro-batch', value: (r) => timeline.slices.microbatch[r.row.index[r.at]!] },
        { title: 'Start', value: (r) => r.row.start[r.at], show: (r) => seconds(r.row.start[r.at]) },
        { title: 'Duration', value: (r) => r.row.end[r.at]! - r.row.start[r.at]!, show: (r) => seconds(r.row.end[r.at]! - r.row.start[r.at]!) },
      ]}
    >
      <div class="tabs">
        <label>
          Colour by{' '}
          <select value={colouring} onChange={(e) => setColouring(e.currentTarget.value as Colouring)}>
            <option value="work">forward and backward</option>
            <option value="category">kind of time</option>
          </select>
        </label>
        <button type="button" onClick={() => setView(zoomed(view, (view.from + view.to) / 2, 0.5, whole))}>Zoom in</button>
        <button type="button" onClick={() => setView(zoomed(view, (view.from + view.to) / 2, 2, whole))}>Zoom out</button>
        <button type="button" onClick={() => setView({ from: 0, to: whole })}>Whole step</button>
        <span class="note" data-view={`${view.from} ${view.to}`}>
          {seconds(view.from)} to {seconds(view.to)}
        </span>
      </div>
      <Legend items={legend} />
      <div ref={box}>
        <div ref={scroller} class="gantt" style={{ height: `${height}px` }} onScroll={draw}>
          <div style={{ height: `${full + rulerHeight}px` }}>
            <canvas
              ref={canvas}
              style={{ width: `${width}px`, height: `${height}px` }}
              tabIndex={0}
              role="application"
              aria-label="Pipeline timeline. Arrows pan, plus and minus zoom, comma and full stop step through slices, up and down change the stream."
              aria-describedby="timeline-slice"
              onPointerDown={drag}
              onMouseMove={(e) => {
                const hit = e.buttons ? null : find(e);
                show(hit && { x: e.clientX, y: e.clientY, text: describe(timeline, placed[hit.row]!.row, hit.at) });
              }}
              onMouseLeave={() => show(null)}
              onDblClick={() => setView({ from: 0, to: whole })}
              onKeyDown={keys}
            />
          </div>
        </div>
      </div>
      <p id="timeline-slice" role="status" class="note">
        {chosen && placed[chosen.row] ? describe(timeline, placed[chosen.row]!.row, chosen.at).join('; ') : 'No slice chosen.'}
      </p>
    </Figure>
  );
}
