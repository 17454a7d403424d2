// SPDX-License-Identifier: Apache-2.0
// Where the numbers come from and how sure they are.

import type { Numbers, Page } from '../data';
import { missing, percent, seconds, words } from '../format';
import { DataTable } from '../parts/table';

const basisColour: Record<string, string> = { measured: '#0072b2', interpolated: '#56b4e9', scaled: '#e69f00', assumed: '#9a9a9a' };
const basisText: Record<string, string> = {
  measured: 'measured points',
  interpolated: 'reading between measured points',
  scaled: 'points scaled from another shape or GPU',
  assumed: 'assumptions',
};

export function Basis({ shares }: { shares: Numbers }) {
  return (
    <div>
      <div class="basis" role="img" aria-label={Object.entries(shares).map(([k, v]) => `${k} ${percent(v)}`).join(', ')}>
        {Object.entries(shares).map(([key, share]) =>
          share > 0.002 ? (
            <span style={{ width: `${100 * share}%`, background: basisColour[key] ?? '#777777', color: key === 'measured' ? '#fff' : '#111' }}>
              {share > 0.12 ? `${key} ${percent(share, 0)}` : ''}
            </span>
          ) : null,
        )}
      </div>
      <ul class="plain">
        {Object.entries(shares).map(([key, share]) => (
          <li>
            {percent(share)} of the predicted time rests on {basisText[key] ?? key}
          </li>
        ))}
      </ul>
    </div>
  );
}

function flat(value: unknown, prefix = ''): [string, string][] {
  if (value === null || typeof value !== 'object') return [[prefix, value == null ? missing : String(value)]];
  if (Array.isArray(value)) return [[prefix, value.join(', ')]];
  return Object.entries(value).flatMap(([k, v]) => flat(v, prefix ? `${prefix}: ${words(k)}` : words(k)));
}

export function Provenance({ page }: { page: Page }) {
  const [low, high] = page.confidence.interval;
  return (
    <section id="provenance" aria-labelledby="provenance-title">
      <h2 id="provenance-title">Provenance and confidence</h2>
      <p>{page.confidence.text}</p>
      <p>
        Step time {seconds(page.estimate.step_time_s.value)}; four runs in five should fall between {seconds(low)} and {seconds(high)} (one
        sigma {percent(page.confidence.sigma)}).
      </p>
      <Basis shares={page.confidence.basis_share} />
      <DataTable
        caption="Provenance"
        rows={flat(page.provenance).filter(([, value]) => value !== '')}
        columns={[
          { title: 'What', value: (r) => r[0] },
          { title: 'Value', value: (r) => r[1] },
        ]}
      />
      <details>
        <summary>The Job, as JSON</summary>
        <pre tabIndex={0}>{JSON.stringify(page.inputs.job, null, 2)}</pre>
      </details>
    </section>
  );
}
