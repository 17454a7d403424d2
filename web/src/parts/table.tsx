// SPDX-License-Identifier: Apache-2.0
// One table for everything: sorts by a column's value, filters by its text, pages when long. Headers are buttons, so
// the keyboard works; aria-sort says the order.

import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { missing } from '../format';

export interface Column<Row> {
  title: string;
  value: (row: Row) => number | string | null | undefined;
  show?: (row: Row) => ComponentChildren;
  hint?: string;
}

interface Props<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  filter?: boolean;
  pageSize?: number;
  rowHeader?: number;
  chosen?: Row | null;
  onChoose?: (row: Row) => void;
}

type Order = { column: number; down: boolean } | null;

function compare(a: number | string | null | undefined, b: number | string | null | undefined): number {
  if (a == null || b == null) return a == null ? (b == null ? 0 : 1) : -1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}

function sorted<Row>(rows: Row[], columns: Column<Row>[], order: Order): Row[] {
  const column = order && columns[order.column];
  if (!column) return rows;
  return [...rows].sort((a, b) => {
    const x = column.value(a);
    const y = column.value(b);
    if (x == null || y == null) return compare(x, y); // missing numbers stay last either way
    return order.down ? -compare(x, y) : compare(x, y);
  });
}

export function DataTable<Row>(props: Props<Row>) {
  const { columns, rows, pageSize = 100, rowHeader = 0 } = props;
  const [order, setOrder] = useState<Order>(null);
  const [filter, setFilter] = useState('');
  const [limit, setLimit] = useState(pageSize);
  const found = useMemo(() => {
    const needle = filter.trim().toLowerCase();
    const hits = needle
      ? rows.filter((row) => columns.some((c) => String(c.value(row) ?? '').toLowerCase().includes(needle)))
      : rows;
    return sorted(hits, columns, order);
  }, [rows, columns, filter, order]);
  const turn = (column: number) =>
    setOrder((now) => (now?.column !== column ? { column, down: false } : now.down ? null : { column, down: true }));
  return (
    <div class="table">
      {props.filter && (
        <label class="filter">
          Filter{' '}
          <input type="search" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
          <span role="status"> {found.length} of {rows.length} rows</span>
        </label>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label={props.caption}>
        <table>
          <caption class="hidden">{props.caption}</caption>
          <thead>
            <tr>
              {columns.map((column, i) => (
                <th
                  scope="col"
                  title={column.hint}
                  aria-sort={order?.column !== i ? 'none' : order.down ? 'descending' : 'ascending'}
                >
                  <button type="button" onClick={() => turn(i)}>
                    {column.title}
                    <span aria-hidden="true">{order?.column !== i ? '' : order.down ? ' ▾' : ' ▴'}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {found.slice(0, limit).map((row) => (
              <tr
                class={props.chosen === row ? 'chosen' : ''}
                onClick={props.onChoose && (() => props.onChoose!(row))}
              >
                {columns.map((column, i) => {
                  const value = column.value(row);
                  const shown = column.show ? column.show(row) : (value ?? missing);
                  const numeric = typeof value !== 'string' ? 'number' : value.length > 60 ? 'long' : '';
                  if (i !== rowHeader) return <td class={numeric}>{shown}</td>;
                  return (
                    <th scope="row">
                      {props.onChoose ? (
                        <button type="button" aria-pressed={props.chosen === row}>
                          {shown}
                        </button>
                      ) : (
                        shown
                      )}
                    </th>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.length > limit && (
        <button type="button" class="more" onClick={() => setLimit(limit + 5 * pageSize)}>
          {found.length - limit} more rows
        </button>
      )}
    </div>
  );
}
