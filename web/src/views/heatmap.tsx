// SPDX-License-Identifier: Apache-2.0
// EP against PP: a real table whose cells are coloured, so that it is its own text alternative.

import { statusText, type HeatCell, type Heatmap as Data } from '../data';
import { gib, seconds, words } from '../format';
import { scaleColour, scaleInk } from '../palette';
import { tipHandlers, useTip } from '../parts/tip';

const symbol = { fits: '', not_launchable: '◆', out_of_memory: '✕', illegal: '–' };
const nameOf = (key: string) => words(key.replace(/^.*\./, '')).toUpperCase();

function Cell({ cell, low, high }: { cell: HeatCell | undefined; low: number; high: number }) {
  const show = useTip();
  if (!cell) return <td />;
  const time = cell.step_time_s;
  const usable = time != null && (cell.status === 'fits' || cell.status === 'not_launchable');
  const share = usable && high > low ? 1 - Math.log(time / low) / Math.log(high / low) : 1;
  const style = usable ? { background: scaleColour(share), color: scaleInk(share) } : undefined;
  const tip = [`${statusText[cell.status]}`, ...(time != null ? [`step ${seconds(time)}, headroom ${gib(cell.headroom_bytes)} GiB`] : [])];
  return (
    <td
      class={usable ? 'cell' : 'cell refused'}
      style={style}
      tabIndex={0}
      aria-label={`${tip.join(', ')} ${cell.reason}`}
      {...tipHandlers(show, ...tip, ...(cell.reason ? [cell.reason] : []))}
    >
      {time != null ? time.toPrecision(3) : ''} {symbol[cell.status]}
    </td>
  );
}

export function Heatmap({ data }: { data: Data }) {
  const good = data.cells.filter((c) => c.step_time_s != null && c.status !== 'out_of_memory' && c.status !== 'illegal');
  const times = good.map((c) => c.step_time_s!);
  const low = Math.min(...times);
  const high = Math.max(1.5 * low, ...times); // near ties look alike
  const refused = data.cells.filter((c) => c.reason);
  return (
    <figure id="heatmap" aria-labelledby="heatmap-title">
      <figcaption>
        <h3 id="heatmap-title">
          {nameOf(data.x_key)} × {nameOf(data.y_key)}
        </h3>
        <p class="note">Step time in seconds; brighter is faster. ✕ out of memory, – illegal, ◆ Megatron refuses it; hover or focus for why.</p>
      </figcaption>
      <div class="scroll" tabIndex={0} role="region" aria-label="Heatmap">
        <table class="heat">
          <caption class="hidden">Step time by expert and pipeline parallel size</caption>
          <thead>
            <tr>
              <th scope="col">{nameOf(data.y_key)} \ {nameOf(data.x_key)}</th>
              {data.x.map((x) => (
                <th scope="col">{x}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {data.y.map((y) => (
              <tr>
                <th scope="row">{y}</th>
                {data.x.map((x) => (
                  <Cell cell={data.cells.find((c) => c.x === x && c.y === y)} low={low} high={high} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {refused.length > 0 && (
        <details>
          <summary>Why {refused.length} cells fall</summary>
          <ul>
            {refused.map((c) => (
              <li>
                {nameOf(data.x_key)} {c.x}, {nameOf(data.y_key)} {c.y}: {statusText[c.status]}. {c.reason}
              </li>
            ))}
          </ul>
        </details>
      )}
    </figure>
  );
}
