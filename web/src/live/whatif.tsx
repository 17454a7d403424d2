// SPDX-License-Identifier: Apache-2.0
// Live what-if: every change is priced by the C++ core in the worker; this file only shows what it answers.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { statusText, type Control, type Estimate, type Page, type Sweep, type SweepPoint } from '../data';
import { count, fixed, gib, missing, percent, seconds } from '../format';
import { DataTable } from '../parts/table';
import { valueText } from '../views/curves';
import { StageBars } from '../views/memory';
import { WallBars, type Bar } from '../views/walls';
import { Evaluator, type Answer, type Point } from './client';

export type Settings = Record<string, string>;

function assignmentsOf(controls: Control[], settings: Settings): string[] {
  const companions = controls.filter((c) => settings[c.key] !== undefined).flatMap((c) => c.with ?? []);
  return [...companions, ...Object.entries(settings).map(([key, value]) => `${key}=${value}`)];
}

function initial(control: Control): string {
  if (Array.isArray(control.value)) return control.value.length ? control.value.join('+') : 'none';
  return control.value == null ? '' : String(control.value);
}

function barOf(label: string, note: string, e: Estimate): Bar {
  const { exposed, ...parts } = e.time_s;
  return { label, note, value: e.step_time_s.value, low: e.step_time_s.low, high: e.step_time_s.high, parts: { ...parts, ...exposed } };
}

interface NumberRow {
  name: string;
  of: (e: Estimate) => number;
  show: (v: number) => string;
}

const share = (v: number) => percent(v);
const numberRows: NumberRow[] = [
  { name: 'Step time', of: (e) => e.step_time_s.value, show: seconds },
  { name: 'Tokens/s/GPU', of: (e) => e.tokens_per_s_per_gpu, show: count },
  { name: 'TFLOP/s/GPU', of: (e) => e.tflops_per_gpu, show: (v) => fixed(v, 1) },
  { name: 'MFU', of: (e) => e.mfu, show: share },
  { name: 'All-to-all, total share', of: (e) => e.communication.ep?.total_share ?? 0, show: share },
  { name: 'All-to-all, exposed share', of: (e) => e.communication.ep?.exposed_share ?? 0, show: share },
  { name: 'Bubble', of: (e) => e.time_s.bubble, show: seconds },
  { name: 'Peak memory, GiB', of: (e) => e.memory.peak_bytes, show: (v) => gib(v, 2) },
  { name: 'Headroom, GiB', of: (e) => e.memory.headroom_bytes, show: (v) => gib(v, 2) },
];

function change(from: number, to: number): string {
  if (from === to || from === 0) return '';
  const relative = to / from - 1;
  return `${relative > 0 ? '+' : ''}${(100 * relative).toFixed(2)} %`;
}

// Rates run over decades and get a logarithmic slider.
function RangeInput({ control, id, value, onChange }: { control: Control; id: string; value: string; onChange: (v: string) => void }) {
  const low = control.low ?? 0;
  const high = control.high ?? 1;
  const log = low > 0 && high / low >= 8;
  const place = (v: number) => (log ? Math.log(v) : v);
  const shown = valueText({ key: control.key, unit: control.unit ?? '' }, Number(value));
  const read = (at: number) => onChange(String(+(log ? Math.exp(at) : at).toPrecision(log ? 3 : 6)));
  return (
    <span class="range">
      <input
        id={id}
        type="range"
        min={place(low)}
        max={place(high)}
        step={(place(high) - place(low)) / 240}
        value={place(Number(value))}
        data-key={control.key}
        aria-valuetext={shown}
        onInput={(e) => read(Number(e.currentTarget.value))}
      />
      <output for={id}>{shown}</output>
    </span>
  );
}

function Choices({ control, id, value, onChange }: { control: Control; id: string; value: string; onChange: (v: string) => void }) {
  const values = (control.values ?? []).map(String);
  if (control.kind === 'choice')
    return (
      <select id={id} value={value} data-key={control.key} onChange={(e) => onChange(e.currentTarget.value)}>
        {!values.includes(value) && <option value={value}>{value || missing}</option>}
        {values.map((v) => (
          <option value={v}>{v}</option>
        ))}
      </select>
    );
  const on = value === 'none' ? [] : value.split('+').filter(Boolean);
  const toggle = (word: string) => {
    const next = on.includes(word) ? on.filter((w) => w !== word) : [...on, word];
    onChange(next.length ? next.join('+') : 'none');
  };
  return (
    <span class="set" role="group" aria-labelledby={`${id}-label`}>
      {values.map((word) => (
        <label>
          <input type="checkbox" checked={on.includes(word)} onChange={() => toggle(word)} data-key={control.key} data-word={word} /> {word}
        </label>
      ))}
    </span>
  );
}

function Controls({ controls, settings, onSet }: { controls: Control[]; settings: Settings; onSet: (key: string, value: string) => void }) {
  return (
    <div class="controls">
      {controls.map((control) => {
        const id = `control-${control.key.replaceAll('.', '-')}`;
        const value = settings[control.key] ?? initial(control);
        const props = { control, id, value, onChange: (v: string) => onSet(control.key, v) };
        return (
          <div class={`control ${control.kind} ${settings[control.key] === undefined ? '' : 'changed'}`}>
            {control.kind === 'set' ? (
              <span class="label" id={`${id}-label`}>{control.label}</span>
            ) : (
              <label class="label" for={id}>{control.label}</label>
            )}
            {control.kind === 'range' ? <RangeInput {...props} /> : <Choices {...props} />}
          </div>
        );
      })}
    </div>
  );
}

function Outcome({ page, point, milliseconds }: { page: Page; point: Point; milliseconds: number }) {
  const base = page.estimate;
  const now = point.estimate;
  const bars = [barOf('as planned', '', base), ...(now ? [barOf('with changes', point.layout.replace(/ \(.*$/, ''), now)] : [])];
  return (
    <div>
      <p role="status" class={`verdict ${point.status}`} data-status={point.status}>
        <b>{statusText[point.status]}</b>
        {point.reason && <span>: {point.reason}</span>}
        {now && (
          <span>
            {' '}
            · step {seconds(now.step_time_s.value)} ({seconds(now.step_time_s.low)} to {seconds(now.step_time_s.high)}) · headroom{' '}
            {gib(now.memory.headroom_bytes)} GiB · wall: {point.wall}
          </span>
        )}
      </p>
      <p class="note">
        {point.layout}; {point.techniques}. Priced by the C++ core in {milliseconds.toFixed(1)} ms.
      </p>
      <WallBars bars={bars} />
      {now && (
        <div class="columns">
          <DataTable
            caption="As planned and with changes"
            rows={numberRows}
            columns={[
              { title: 'Number', value: (r) => r.name },
              { title: 'As planned', value: (r) => r.of(base), show: (r) => r.show(r.of(base)) },
              {
                title: 'With changes',
                value: (r) => r.of(now),
                show: (r) => <span data-number={r.name} data-value={r.of(now)}>{r.show(r.of(now))}</span>,
              },
              { title: 'Change', value: (r) => r.of(now) / r.of(base) - 1, show: (r) => change(r.of(base), r.of(now)) },
            ]}
          />
          <div>
            <h4>Memory by stage with changes</h4>
            <StageBars stages={now.memory.stages} capacity={now.memory.capacity_bytes} />
          </div>
        </div>
      )}
    </div>
  );
}

export function toSweepPoint(value: number | string, p: Point): SweepPoint {
  const e = p.estimate;
  const exposed = e && Object.values(e.communication).reduce((sum, c) => sum + c.exposed_share, 0);
  return {
    value,
    status: p.error ? 'illegal' : p.status,
    reason: p.error ? p.error.message : p.reason,
    step_time_s: e?.step_time_s.value ?? null,
    low_s: e?.step_time_s.low ?? null,
    high_s: e?.step_time_s.high ?? null,
    ep_total_share: e?.communication.ep?.total_share ?? null,
    ep_exposed_share: e?.communication.ep?.exposed_share ?? null,
    communication_exposed_share: exposed ?? null,
    bubble_share: e ? e.time_s.bubble / e.step_time_s.value : null,
    peak_bytes: e?.memory.peak_bytes ?? null,
    headroom_bytes: e?.memory.headroom_bytes ?? null,
    tokens_per_s_per_gpu: e?.tokens_per_s_per_gpu ?? null,
  };
}

// The page's sweeps again, around the settings that stand above.
async function sweepsAround(evaluator: Evaluator, page: Page, settings: Settings): Promise<Sweep[]> {
  const { sweeps } = page;
  const others = (key: string) =>
    assignmentsOf(page.controls, Object.fromEntries(Object.entries(settings).filter(([k]) => k !== key)));
  const points = sweeps.flatMap((s) => s.points.map((p) => ({ set: [...others(s.key), `${s.key}=${p.value}`] })));
  const answer = await evaluator.ask({ points });
  let at = 0;
  return sweeps.map((s) => ({ ...s, points: s.points.map((p) => toSweepPoint(p.value, answer.points![at++]!)) }));
}

interface Props {
  page: Page;
  onSweeps: (sweeps: Sweep[] | null) => void;
}

export function WhatIf({ page, onSweeps }: Props) {
  const [state, setState] = useState<'waiting' | 'ready' | string>('waiting');
  const [settings, setSettings] = useState<Settings>({});
  const [answer, setAnswer] = useState<Answer | null>(null);
  const evaluator = useRef<Evaluator | null>(null);
  const wanted = useRef<Settings | null>(null);
  const busy = useRef(false);

  useEffect(() => {
    const begin = () =>
      Evaluator.start(page).then(
        (started) => {
          evaluator.current = started;
          setState(started ? 'ready' : 'this report was built without the live evaluator; its sweeps below still stand');
        },
        (error: unknown) => setState(`the live evaluator did not start: ${String(error)}`),
      );
    const timer = setTimeout(begin, 50);
    return () => clearTimeout(timer);
  }, [page]);

  // One request at a time; while it runs only the newest settings wait.
  const pump = async () => {
    if (busy.current || !evaluator.current) return;
    busy.current = true;
    while (wanted.current) {
      const now = wanted.current;
      wanted.current = null;
      setAnswer(await evaluator.current.ask({ points: [{ set: assignmentsOf(page.controls, now) }] }));
      onSweeps(Object.keys(now).length ? await sweepsAround(evaluator.current, page, now) : null);
    }
    busy.current = false;
  };
  const apply = (next: Settings) => {
    setSettings(next);
    wanted.current = next;
    void pump();
  };
  useEffect(() => {
    if (state === 'ready') apply({});
  }, [state]);

  const initials = useMemo(() => Object.fromEntries(page.controls.map((c) => [c.key, initial(c)])), [page]);
  const set = (key: string, value: string) => {
    const { [key]: _, ...rest } = settings;
    apply(value === initials[key] ? rest : { ...rest, [key]: value });
  };
  const changed = assignmentsOf(page.controls, settings);
  const point = answer?.points?.[0];
  const error = answer?.error ?? point?.error;
  return (
    <section id="what-if" aria-labelledby="what-if-title">
      <h2 id="what-if-title">What if</h2>
      <p class="note">
        The estimator that made this report runs in it. Nothing leaves this page. {state !== 'ready' && state !== 'waiting' ? state : ''}
      </p>
      <Controls controls={page.controls} settings={settings} onSet={set} />
      <p class="tabs">
        <button type="button" onClick={() => apply({})} disabled={changed.length === 0}>Reset</button>
        <code class="command">
          {changed.length ? `trifold whatif plan.json ${changed.map((a) => `--vary ${a}`).join(' ')}` : 'trifold estimate plan.json'}
        </code>
      </p>
      {state === 'waiting' && <p role="status">Starting the evaluator…</p>}
      {error && (
        <p role="alert" class="verdict illegal">
          {error.message} {error.hint}
        </p>
      )}
      {point && !point.error && <Outcome page={page} point={point} milliseconds={answer!.milliseconds} />}
    </section>
  );
}
