// SPDX-License-Identifier: Apache-2.0
// Parameters of the model, and bytes of the worst stage, as icicles: width is size, depth is detail.

import { hierarchy, partition, type HierarchyRectangularNode } from 'd3-hierarchy';
import { useMemo, useState } from 'preact/hooks';
import type { Node } from '../data';
import { bytes, count, percent, short } from '../format';
import { inkOn } from '../palette';
import { Figure } from '../parts/figure';
import { useWidth } from '../parts/size';
import { tipHandlers, useTip } from '../parts/tip';

type Rect = HierarchyRectangularNode<Node>;
export type Measure = 'parameters' | 'bytes';

const colours = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#8a63a8', '#9a9a9a'];
const rowHeight = 34;

// Trees of one measure: the page's root may hold one of parameters beside one of bytes.
export function treesOf(root: Node): { tree: Node; measure: Measure }[] {
  const holds = (node: Node, key: Measure): boolean => node[key] != null || (node.children ?? []).some((c) => holds(c, key));
  const out: { tree: Node; measure: Measure }[] = [];
  for (const node of root.children && root.parameters == null && root.bytes == null ? root.children : [root])
    for (const measure of ['parameters', 'bytes'] as const) if (holds(node, measure)) out.push({ tree: node, measure });
  return out;
}

function ancestry(node: Rect): string {
  return node.ancestors().reverse().map((a) => a.data.name).join(' › ');
}

function colourOf(node: Rect): string {
  let top = node;
  while (top.depth > 1) top = top.parent!;
  const siblings = top.parent?.children ?? [top];
  return colours[siblings.indexOf(top) % colours.length]!;
}

// Leaves carry the size; what a node states beyond its children is its own.
function sized(tree: Node, measure: Measure) {
  return hierarchy(tree).sum((n) => {
    const inner = (n.children ?? []).reduce((sum, c) => sum + Math.max(0, c[measure] ?? 0), 0);
    return Math.max(0, (n[measure] ?? 0) - inner);
  });
}

export function Icicle({ id, tree, measure }: { id: string; tree: Node; measure: Measure }) {
  const { ref, width } = useWidth();
  const show = useTip();
  const [focus, setFocus] = useState<string | null>(null);
  const root = useMemo(() => {
    const sorted = sized(tree, measure).sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
    return partition<Node>()(sorted);
  }, [tree, measure]);
  const nodes = root.descendants();
  const key = (n: Rect) => ancestry(n);
  const at = nodes.find((n) => key(n) === focus) ?? root;
  const text = (v: number) => (measure === 'bytes' ? bytes(v) : `${short(v)}`);
  const scale = width / (at.x1 - at.x0);
  const inside = nodes.filter((n) => n.x1 > at.x0 + 1e-12 && n.x0 < at.x1 - 1e-12 && (n.x1 - n.x0) * scale > 1.5);
  return (
    <Figure
      id={id}
      title={measure === 'bytes' ? `${tree.name[0]?.toUpperCase()}${tree.name.slice(1)}, by part` : 'Parameters, by part'}
      note="Width is size. Choose a part to zoom into it, a part above to zoom out."
      rows={nodes}
      columns={[
        { title: 'Part', value: (n) => ancestry(n) },
        measure === 'bytes'
          ? { title: 'Bytes', value: (n) => n.value, show: (n) => bytes(n.value) }
          : { title: 'Parameters', value: (n) => n.value, show: (n) => count(n.value) },
        { title: 'Share', value: (n) => (n.value ?? 0) / (root.value || 1), show: (n) => percent((n.value ?? 0) / (root.value || 1)) },
      ]}
    >
      <div ref={ref}>
        <svg width={width} height={(root.height + 1) * rowHeight} viewBox={`0 0 ${width} ${(root.height + 1) * rowHeight}`} role="group" aria-label={`Icicle of ${tree.name}`}>
          {inside.map((n) => {
            const left = Math.max(0, (n.x0 - at.x0) * scale);
            const wide = Math.min(width, (n.x1 - at.x0) * scale) - left;
            const colour = n.depth === 0 ? '#9a9a9a' : colourOf(n);
            const label = `${n.data.name} ${text(n.value ?? 0)}`;
            const choose = () => setFocus(n === at && n.parent ? key(n.parent) : key(n));
            return (
              <g
                tabIndex={wide > 8 ? 0 : -1}
                role="button"
                aria-label={`${ancestry(n)}: ${text(n.value ?? 0)}, ${percent((n.value ?? 0) / (root.value || 1))}`}
                onClick={choose}
                onKeyDown={(e) => (e.key === 'Enter' || e.key === ' ') && (e.preventDefault(), choose())}
                {...tipHandlers(show, ancestry(n), text(n.value ?? 0), percent((n.value ?? 0) / (root.value || 1)))}
              >
                <rect
                  x={left}
                  y={n.depth * rowHeight}
                  width={wide}
                  height={rowHeight - 1}
                  fill={colour}
                  fill-opacity={n.depth > 1 ? 0.85 - 0.15 * (n.depth - 2) : 1}
                  class="cell"
                />
                {wide > 36 && (
                  <text x={left + 5} y={n.depth * rowHeight + 21} fill={n.depth > 1 ? 'var(--ink)' : inkOn(colour)} class="in-bar">
                    {label.length * 6.2 < wide ? label : label.slice(0, Math.floor(wide / 6.2) - 1) + '…'}
                  </text>
                )}
              </g>
            );
          })}
        </svg>
      </div>
    </Figure>
  );
}
