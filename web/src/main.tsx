// SPDX-License-Identifier: Apache-2.0

import { render } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import 'uplot/dist/uPlot.min.css';
import './style.css';
import { readPage, statusText, type Candidate, type Page, type Sweep, type WhatIfPoint } from './data';
import { count, fixed, gib, percent, seconds } from './format';
import { toSweepPoint, WhatIf } from './live/whatif';
import { Patterns } from './parts/figure';
import { useScheme, type Theme } from './parts/size';
import { Staged } from './parts/staged';
import { DataTable } from './parts/table';
import { TipLayer } from './parts/tip';
import { Candidates, Scatter } from './views/candidates';
import { Curves } from './views/curves';
import { Heatmap } from './views/heatmap';
import { Icicle, treesOf } from './views/icicle';
import { LadderView, RiskTable, Tornado } from './views/ladder';
import { MemoryView } from './views/memory';
import { Provenance } from './views/provenance';
import { RankMap } from './views/ranks';
import { TimelineView } from './views/timeline';
import { Walls } from './views/walls';

const interval = (value: number) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

function Header({ page, theme, onTheme }: { page: Page; theme: Theme; onTheme: (t: Theme) => void }) {
  const e = page.estimate;
  const numbers: [string, string][] = [
    ['step time', seconds(e.step_time_s.value)],
    ['80 % interval, s', `${interval(e.step_time_s.low)}–${interval(e.step_time_s.high)}`],
    ['tokens/s/GPU', count(e.tokens_per_s_per_gpu)],
    ['TFLOP/s/GPU', fixed(e.tflops_per_gpu, 0)],
    ['MFU', percent(e.mfu)],
    ['peak memory', `${gib(e.memory.peak_bytes)} GiB`],
    ['headroom', `${gib(e.memory.headroom_bytes)} GiB`],
    ['wall', page.candidates[0]?.wall ?? '–'],
  ];
  return (
    <header>
      <div class="title">
        <h1>{page.title}</h1>
        <fieldset class="theme">
          <legend class="hidden">Colours</legend>
          {(['auto', 'light', 'dark'] as const).map((t) => (
            <label>
              <input type="radio" name="theme" checked={theme === t} onChange={() => onTheme(t)} /> {t}
            </label>
          ))}
        </fieldset>
      </div>
      <p class="note">{page.candidates[0] && `${page.candidates[0].layout}; ${page.candidates[0].techniques}`}</p>
      <dl class="headline">
        {numbers.map(([name, value]) => (
          <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </header>
  );
}

const sections: [string, string][] = [
  ['what-if', 'What if'],
  ['plans', 'Candidates'],
  ['why', 'Why'],
  ['timeline-section', 'Timeline'],
  ['memory-section', 'Memory'],
  ['sweeps-section', 'Curves'],
  ['shape-section', 'Model and ranks'],
  ['provenance', 'Provenance'],
];

function GivenPoints({ page }: { page: Page }) {
  const given = page.whatif;
  if (!given || given.points.length === 0) return null;
  return (
    <section aria-labelledby="given-title" id="given">
      <h3 id="given-title">The what-if as it was asked</h3>
      <DataTable
        caption="What-if points"
        filter
        rows={given.points}
        columns={[
          ...given.vary.map((axis) => ({
            title: axis.key.replace(/^.*\./, ''),
            value: (p: WhatIfPoint) => (Number.isNaN(Number(p.vary[axis.key])) ? p.vary[axis.key] : Number(p.vary[axis.key])),
          })),
          { title: 'Step', value: (p) => p.estimate?.step_time_s.value, show: (p) => seconds(p.estimate?.step_time_s.value) },
          { title: 'Tokens/s/GPU', value: (p) => p.estimate?.tokens_per_s_per_gpu, show: (p) => count(p.estimate?.tokens_per_s_per_gpu) },
          { title: 'A2A total', value: (p) => p.estimate?.communication.ep?.total_share, show: (p) => percent(p.estimate?.communication.ep?.total_share) },
          { title: 'A2A exposed', value: (p) => p.estimate?.communication.ep?.exposed_share, show: (p) => percent(p.estimate?.communication.ep?.exposed_share) },
          { title: 'Peak GiB', value: (p) => p.estimate?.memory.peak_bytes, show: (p) => gib(p.estimate?.memory.peak_bytes) },
          { title: 'Headroom GiB', value: (p) => p.estimate?.memory.headroom_bytes, show: (p) => gib(p.estimate?.memory.headroom_bytes) },
          { title: 'Status', value: (p) => statusText[p.verdict.status] },
          { title: 'Reason', value: (p) => [p.verdict.reason, p.verdict.fix].filter(Boolean).join('; ') },
        ]}
      />
    </section>
  );
}

// A what-if over one field is a sweep like the page's own.
function givenSweep(page: Page): Sweep[] {
  const axis = page.whatif?.vary[0];
  if (!page.whatif || !axis || page.whatif.vary.length !== 1) return [];
  const points = page.whatif.points.map((p) =>
    toSweepPoint(p.vary[axis.key] ?? '', { ...p.verdict, estimate: p.estimate, layout: p.layout, techniques: '', wall: null }),
  );
  return [{ key: axis.key, label: `${axis.key.replace(/^.*\./, '')} (as asked)`, unit: '', points }];
}

function Body({ page, scheme }: { page: Page; scheme: string }) {
  const [chosen, setChosen] = useState<Candidate | null>(page.candidates[0] ?? null);
  const [live, setLive] = useState<Sweep[] | null>(null);
  const asked = useMemo(() => givenSweep(page), [page]);
  const icicles = useMemo(() => (page.icicle ? treesOf(page.icicle) : []), [page]);
  return (
    <main id="main">
      <Staged onDone={() => (document.documentElement.dataset.drawn = String(Math.round(performance.now())))}>
      <WhatIf page={page} onSweeps={setLive} />
      <section id="plans" aria-labelledby="plans-title">
        <h2 id="plans-title">Candidates</h2>
        <Walls candidates={page.candidates} />
        <Candidates candidates={page.candidates} chosen={chosen} onChoose={setChosen} />
        <Scatter candidates={page.candidates} chosen={chosen} onChoose={setChosen} />
        {page.heatmap && <Heatmap data={page.heatmap} />}
        <GivenPoints page={page} />
      </section>
      <section id="why" aria-labelledby="why-title">
        <h2 id="why-title">Why</h2>
        {page.ladder && page.ladder.steps.length > 0 && <LadderView ladder={page.ladder} />}
        {page.sensitivity && page.sensitivity.length > 0 && <Tornado bars={page.sensitivity} base={page.estimate.step_time_s.value} />}
        {page.whatif?.risk && <RiskTable risk={page.whatif.risk} />}
      </section>
      <section id="timeline-section" aria-labelledby="timeline-heading">
        <h2 id="timeline-heading">Timeline</h2>
        {page.timeline ? <TimelineView timeline={page.timeline} scheme={scheme} /> : <p>This report has no simulated timeline.</p>}
      </section>
      <section id="memory-section" aria-labelledby="memory-heading">
        <h2 id="memory-heading">Memory</h2>
        <MemoryView memory={page.memory} terms={page.memory.terms} scheme={scheme} />
      </section>
      <section id="sweeps-section" aria-labelledby="sweeps-heading">
        <h2 id="sweeps-heading">Curves</h2>
        <Curves
          sweeps={[...asked, ...(live ?? page.sweeps)]}
          note={live ? 'Around the settings of “What if” above, priced in this page.' : undefined}
        />
      </section>
      <section id="shape-section" aria-labelledby="shape-heading">
        <h2 id="shape-heading">Model and ranks</h2>
        {icicles.map(({ tree, measure }, i) => (
          <Icicle id={`icicle-${i}`} tree={tree} measure={measure} />
        ))}
        {page.ranks && page.ranks.shown > 0 && <RankMap ranks={page.ranks} />}
      </section>
      <Provenance page={page} />
      </Staged>
    </main>
  );
}

function App({ page }: { page: Page }) {
  const [theme, setTheme] = useState<Theme>('auto');
  const scheme = useScheme(theme);
  useEffect(() => {
    document.documentElement.dataset.theme = scheme;
  }, [scheme]);
  return (
    <TipLayer>
      <a class="skip" href="#main">Skip to the content</a>
      <Patterns />
      <Header page={page} theme={theme} onTheme={setTheme} />
      <nav aria-label="Sections">
        {sections.map(([id, name]) => (
          <a href={`#${id}`}>{name}</a>
        ))}
      </nav>
      <Body page={page} scheme={scheme} />
    </TipLayer>
  );
}

function start(): void {
  const root = document.getElementById('app')!;
  try {
    const page = readPage();
    document.title = `${page.title} – trifold`;
    render(<App page={page} />, root);
  } catch (error) {
    root.textContent = `This report cannot be shown: ${String(error)}`;
  }
}

start();
