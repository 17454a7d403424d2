// SPDX-License-Identifier: Apache-2.0
// Who sits where: every rank in its node, and the group a rank shares along one axis.

import { useMemo, useState } from 'preact/hooks';
import type { Ranks } from '../data';
import { count } from '../format';
import { Figure } from '../parts/figure';
import { useWidth } from '../parts/size';
import { tipAt, useTip } from '../parts/tip';

const grids: Record<string, string[]> = {
  tp: ['tp', 'cp', 'dp', 'pp'],
  cp: ['tp', 'cp', 'dp', 'pp'],
  dp: ['tp', 'cp', 'dp', 'pp'],
  pp: ['tp', 'cp', 'dp', 'pp'],
  ep: ['etp', 'ep', 'edp', 'pp'],
  etp: ['etp', 'ep', 'edp', 'pp'],
  edp: ['etp', 'ep', 'edp', 'pp'],
};
const axes = Object.keys(grids);
const colours = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#8a63a8', '#b5a300'];

function sizes(ranks: Ranks): Record<string, number> {
  return Object.fromEntries(axes.map((a) => [a, new Set(ranks.columns[a]).size]));
}

// Ranks with the same coordinates as `rank` on every other axis of the grid.
export function groupOf(ranks: Ranks, rank: number, axis: string): number[] {
  const others = grids[axis]!.filter((a) => a !== axis);
  const { columns } = ranks;
  return columns.rank!.map((_, i) => i).filter((i) => others.every((a) => columns[a]![i] === columns[a]![rank]));
}

function distinct(ranks: Ranks, members: number[], column: string): number {
  return new Set(members.map((i) => ranks.columns[column]![i])).size;
}

export function RankMap({ ranks }: { ranks: Ranks }) {
  const { ref, width } = useWidth();
  const show = useTip();
  const size = useMemo(() => sizes(ranks), [ranks]);
  const usable = axes.filter((a) => size[a]! > 1);
  const [axis, setAxis] = useState(usable.includes('ep') ? 'ep' : (usable[0] ?? 'dp'));
  const [rank, setRank] = useState(0);
  const members = useMemo(() => new Set(groupOf(ranks, rank, axis)), [ranks, rank, axis]);
  const perNode = Math.max(1, ranks.gpus_per_node);
  const wideNode = perNode <= 8 ? Math.min(4, perNode) : 8;
  const cell = ranks.shown > 1500 ? 9 : 13;
  const nodeWidth = wideNode * cell + 8;
  const nodeHeight = Math.ceil(perNode / wideNode) * cell + 8 + 12;
  const across = Math.max(1, Math.floor(width / (nodeWidth + 6)));
  const nodes = Math.ceil(ranks.shown / perNode);
  const position = (i: number) => {
    const node = Math.floor(i / perNode);
    const inside = i % perNode;
    return {
      x: (node % across) * (nodeWidth + 6) + 4 + (inside % wideNode) * cell,
      y: Math.floor(node / across) * (nodeHeight + 6) + 14 + Math.floor(inside / wideNode) * cell,
    };
  };
  const say = (i: number) =>
    `rank ${ranks.columns.rank![i]}: node ${ranks.columns.node![i]}, domain ${ranks.columns.domain![i]}; ` +
    axes.map((a) => `${a} ${ranks.columns[a]![i]}`).join(', ');
  const list = [...members];
  const summary = `Rank ${rank}’s ${axis.toUpperCase()} group has ${list.length} members on ${distinct(ranks, list, 'node')} nodes in ${distinct(ranks, list, 'domain')} NVLink domains.`;
  const keys = (e: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: perNode, ArrowUp: -perNode }[e.key];
    if (by === undefined) return;
    e.preventDefault();
    setRank(Math.max(0, Math.min(ranks.shown - 1, rank + by)));
  };
  const hit = (e: MouseEvent) => {
    const index = (e.target as Element).getAttribute('data-rank');
    return index === null ? null : Number(index);
  };
  return (
    <Figure
      id="ranks"
      title="Rank map"
      note={`${count(ranks.gpus)} GPUs${ranks.shown < ranks.gpus ? `, the first ${count(ranks.shown)} shown` : ''}; a box is a node, the colour a rank’s place on the axis. Choose a rank to see its group.`}
      rows={ranks.columns.rank!.map((_, i) => i)}
      columns={['rank', 'node', 'domain', ...axes].map((c) => ({ title: c, value: (i: number) => ranks.columns[c]![i] }))}
    >
      <div class="tabs" role="group" aria-label="Axis">
        {usable.map((a) => (
          <button type="button" aria-pressed={a === axis} onClick={() => setAxis(a)}>
            {a.toUpperCase()} {size[a]}
          </button>
        ))}
      </div>
      <p role="status" class="note">{summary}</p>
      <div ref={ref} class="scroll tall">
        <svg
          width={width}
          height={Math.ceil(nodes / across) * (nodeHeight + 6)}
          viewBox={`0 0 ${width} ${Math.ceil(nodes / across) * (nodeHeight + 6)}`}
          tabIndex={0}
          role="application"
          aria-label={`Rank map; arrows move between ranks. ${say(rank)}`}
          onKeyDown={keys}
          onClick={(e) => hit(e) !== null && setRank(hit(e)!)}
          onMouseMove={(e) => show(hit(e) === null ? null : tipAt(e, ...say(hit(e)!).split('; ')))}
          onMouseLeave={() => show(null)}
        >
          {Array.from({ length: nodes }, (_, n) => (
            <g>
              <rect
                class="node"
                x={(n % across) * (nodeWidth + 6)}
                y={Math.floor(n / across) * (nodeHeight + 6) + 10}
                width={nodeWidth}
                height={nodeHeight - 12}
                rx={3}
              />
              <text class="small" x={(n % across) * (nodeWidth + 6)} y={Math.floor(n / across) * (nodeHeight + 6) + 8}>
                {n}
              </text>
            </g>
          ))}
          {Array.from({ length: ranks.shown }, (_, i) => {
            const { x, y } = position(i);
            const inGroup = members.has(i);
            return (
              <rect
                data-rank={i}
                x={x}
                y={y}
                width={cell - 2}
                height={cell - 2}
                fill={colours[ranks.columns[axis]![i]! % colours.length]}
                fill-opacity={inGroup ? 1 : 0.28}
                class={i === rank ? 'here' : inGroup ? 'member' : ''}
              />
            );
          })}
        </svg>
      </div>
    </Figure>
  );
}
