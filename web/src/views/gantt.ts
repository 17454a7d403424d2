// SPDX-License-Identifier: Apache-2.0
// The timeline's geometry and its painter, without a DOM: rows of slices sorted by start, found by bisection, painted
// as pixels. A row is painted once a pixel column, so 50,000 slices cost what the screen costs.

import type { Timeline } from '../data';

export interface Row {
  stage: number;
  stream: number;
  start: Float64Array; // seconds
  end: Float64Array;
  index: Int32Array; // into the columns of Timeline.slices
}

export interface View {
  from: number; // seconds
  to: number;
}

export function buildRows(timeline: Timeline): Row[] {
  const s = timeline.slices;
  const lists = new Map<number, number[]>();
  for (let i = 0; i < s.start_ns.length; ++i) {
    const key = s.stage[i]! * 256 + s.stream[i]!;
    const list = lists.get(key);
    if (list) list.push(i);
    else lists.set(key, [i]);
  }
  return [...lists.entries()]
    .sort(([a], [b]) => a - b)
    .map(([key, list]) => {
      list.sort((a, b) => s.start_ns[a]! - s.start_ns[b]!);
      return {
        stage: Math.floor(key / 256),
        stream: key % 256,
        start: Float64Array.from(list, (i) => s.start_ns[i]! * 1e-9),
        end: Float64Array.from(list, (i) => (s.start_ns[i]! + s.duration_ns[i]!) * 1e-9),
        index: Int32Array.from(list),
      };
    });
}

// The first slice of a row that ends after `time`.
export function firstAfter(row: Row, time: number): number {
  let low = 0;
  let high = row.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The slice under `time`, or the nearest within `slack` seconds; -1 where there is none.
export function sliceAt(row: Row, time: number, slack: number): number {
  const after = firstAfter(row, time);
  if (after < row.start.length && row.start[after]! <= time + slack) return after;
  if (after > 0 && row.end[after - 1]! >= time - slack) return after - 1;
  return -1;
}

export interface Canvas {
  pixels: Uint32Array;
  width: number;
  height: number;
}

// Paints one row of slices as a band of pixels. `colours` are ABGR by slice. Where several slices share a pixel the
// longest of them shows. Returns how many slices it looked at.
export function paintRow(canvas: Canvas, row: Row, colours: Uint32Array, view: View, top: number, height: number): number {
  const { pixels, width } = canvas;
  const scale = width / (view.to - view.from);
  const begin = top * width;
  let looked = 0;
  let column = -1; // last pixel column that has a colour
  let longest = 0;
  for (let i = firstAfter(row, view.from); i < row.start.length; ++i) {
    const from = row.start[i]!;
    if (from >= view.to) break;
    ++looked;
    const left = Math.max(0, Math.floor((from - view.from) * scale));
    const right = Math.min(width, Math.ceil((row.end[i]! - view.from) * scale));
    const duration = row.end[i]! - from;
    const colour = colours[row.index[i]!]!;
    if (right - left <= 1) {
      if (left === column && duration <= longest) continue;
      pixels[begin + left] = colour;
      longest = left === column ? Math.max(longest, duration) : duration;
      column = left;
    } else {
      if (right - left > 24) pixels.fill(colour, begin + left, begin + right);
      else for (let x = begin + left; x < begin + right; ++x) pixels[x] = colour; // a call costs more
      if (right - left > 4 && left > 0) pixels[begin + left] = darker(colour);
      column = right - 1;
      longest = duration;
    }
  }
  for (let y = 1; y < height; ++y) pixels.copyWithin(begin + y * width, begin, begin + width);
  return looked;
}

function darker(abgr: number): number {
  const a = abgr & 0xff000000;
  const b = (((abgr >> 16) & 255) * 0.7) | 0;
  const g = (((abgr >> 8) & 255) * 0.7) | 0;
  const r = ((abgr & 255) * 0.7) | 0;
  return (a | (b << 16) | (g << 8) | r) >>> 0;
}

export function abgr(hex: string): number {
  const digits = hex.trim().slice(1);
  const value = parseInt(digits.length === 3 ? digits.replace(/./g, '$&$&') : digits, 16);
  return (0xff000000 | ((value & 255) << 16) | (((value >> 8) & 255) << 8) | (value >> 16)) >>> 0;
}

export function zoomed(view: View, at: number, factor: number, whole: number): View {
  const span = Math.min(whole, Math.max(whole * 1e-6, (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  return clamped({ from: at - share * span, to: at + (1 - share) * span }, whole);
}

export function clamped(view: View, whole: number): View {
  const span = Math.min(view.to - view.from, whole);
  const from = Math.max(0, Math.min(view.from, whole - span));
  return { from, to: from + span };
}
