// SPDX-License-Identifier: Apache-2.0
// The long columns as src/report/html.h packs them: base64 of varints.

import type { Memory, Page, Slices, Timeline } from './data';

interface PackedSlices {
  unit_ns: number;
  rows: [number, number, number][]; // stage, stream, slices
  kinds: [number, number, number, number][]; // category, name, chunk, work
  data: string;
}

interface PackedCurve {
  stage: number;
  unit_s: number;
  unit_bytes: number;
  data: string;
}

class Reader {
  private at = 0;
  private bytes: string;
  constructor(data: string) {
    this.bytes = atob(data);
  }
  get more(): boolean {
    return this.at < this.bytes.length;
  }
  // Values above 2^31 occur, so no shifts.
  varint(): number {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes.charCodeAt(this.at++);
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  }
  zigzag(): number {
    const value = this.varint();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
}

function slicesOf(packed: PackedSlices): Slices {
  const out: Slices = { stage: [], stream: [], category: [], name: [], microbatch: [], chunk: [], work: [], start_ns: [], duration_ns: [] };
  const reader = new Reader(packed.data);
  for (const [stage, stream, count] of packed.rows) {
    let microbatch = 0;
    let end = 0;
    for (let i = 0; i < count; ++i) {
      const [category, name, chunk, work] = packed.kinds[reader.varint()]!;
      microbatch += reader.zigzag();
      const start = end + reader.zigzag();
      const duration = reader.varint();
      end = start + duration;
      out.stage.push(stage);
      out.stream.push(stream);
      out.category.push(category);
      out.name.push(name);
      out.chunk.push(chunk);
      out.work.push(work);
      out.microbatch.push(microbatch);
      out.start_ns.push(start * packed.unit_ns);
      out.duration_ns.push(duration * packed.unit_ns);
    }
  }
  return out;
}

function curveOf(packed: PackedCurve): Memory['curves'][number] {
  const reader = new Reader(packed.data);
  const curve: Memory['curves'][number] = { stage: packed.stage, time_s: [], bytes: [] };
  let time = 0;
  let level = 0;
  while (reader.more) {
    time += reader.zigzag();
    level += reader.zigzag();
    curve.time_s.push(time * packed.unit_s);
    curve.bytes.push(level * packed.unit_bytes);
  }
  return curve;
}

// Unpacked when a view first asks: the page's head is on the screen before that.
function later<T extends object, K extends keyof T>(target: T, key: K, make: () => T[K]): void {
  Object.defineProperty(target, key, {
    configurable: true,
    get: () => {
      const value = make();
      Object.defineProperty(target, key, { value });
      return value;
    },
  });
}

export function unpack(page: Page): Page {
  const timeline = page.timeline as (Timeline & { packed?: PackedSlices }) | null;
  const packed = timeline?.packed;
  if (timeline && packed) later(timeline, 'slices', () => slicesOf(packed));
  const curves = page.memory.curves as unknown as PackedCurve[];
  later(page.memory, 'curves', () => curves.map(curveOf));
  return page;
}
