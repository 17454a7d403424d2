// SPDX-License-Identifier: Apache-2.0
// A picture with its heading, a sentence, and the same numbers as a table.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { DataTable, type Column } from './table';

interface Props<Row> {
  id: string;
  title: string;
  note?: ComponentChildren;
  children: ComponentChildren;
  columns: Column<Row>[];
  rows: Row[] | (() => Row[]); // a function where they cost something and the table is mostly shut
}

export function Figure<Row>({ id, title, note, children, columns, rows }: Props<Row>) {
  const [open, setOpen] = useState(false);
  return (
    <figure id={id} aria-labelledby={`${id}-title`}>
      <figcaption>
        <h3 id={`${id}-title`}>{title}</h3>
        {note && <p class="note">{note}</p>}
      </figcaption>
      {children}
      <details onToggle={(e) => setOpen(e.currentTarget.open)}>
        <summary>{title} as a table</summary>
        {open && <DataTable caption={title} columns={columns} rows={typeof rows === 'function' ? rows() : rows} />}
      </details>
    </figure>
  );
}

export function Legend({ items }: { items: { name: string; colour: string; hatched?: boolean }[] }) {
  return (
    <ul class="legend">
      {items.map((item) => (
        <li>
          <svg width="14" height="14" aria-hidden="true">
            <rect width="14" height="14" rx="2" fill={item.colour} />
            {item.hatched && <rect width="14" height="14" fill="url(#hatch)" />}
          </svg>
          {item.name}
        </li>
      ))}
    </ul>
  );
}

// Patterns that SVG fills refer to; drawn once.
export function Patterns() {
  return (
    <svg width="0" height="0" class="patterns" aria-hidden="true">
      <defs>
        <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="1.4" height="5" fill="rgba(255,255,255,.75)" />
        </pattern>
      </defs>
    </svg>
  );
}
