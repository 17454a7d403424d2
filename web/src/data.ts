// SPDX-License-Identifier: Apache-2.0
// The shape of the page's data, as src/report/page_data.h documents it (trifold.page/1). Nothing here computes.

import { unpack } from './packed';

export type Status = 'fits' | 'out_of_memory' | 'not_launchable' | 'illegal';

export const statusText: Record<Status, string> = {
  fits: 'fits',
  out_of_memory: 'out of memory',
  not_launchable: 'not launchable',
  illegal: 'illegal',
};

export type Comm = 'ep' | 'tp' | 'cp' | 'pp' | 'dp';
export const comms: Comm[] = ['ep', 'tp', 'cp', 'pp', 'dp'];
export type Numbers = Record<string, number>;

export interface Interval {
  value: number;
  low: number;
  high: number;
}

export interface StageMemory {
  stage: number;
  weights_bytes: number;
  gradients_bytes: number;
  optimizer_bytes: number;
  activations_bytes: number;
  buffers_bytes: number;
  peak_bytes: number;
  reserved_bytes: number;
}

export interface Estimate {
  step_time_s: Interval;
  tokens_per_s_per_gpu: number;
  tflops_per_gpu: number;
  mfu: number;
  time_s: { compute: number; recompute: number; bubble: number; host: number; optimizer: number; exposed: Numbers };
  communication: Record<string, { total_s: number; exposed_s: number; total_share: number; exposed_share: number }>;
  memory: {
    capacity_bytes: number;
    peak_bytes: number;
    reserved_bytes: number;
    headroom_bytes: number;
    fits: boolean;
    worst_stage: number;
    stages: StageMemory[];
  };
  basis_share: Numbers;
}

export interface Candidate {
  id: string;
  label: string;
  group: string;
  layout: string;
  techniques: string;
  axes: Numbers;
  status: Status;
  reason: string;
  step_time_s: Interval | null;
  tokens_per_s_per_gpu: number | null;
  tflops_per_gpu: number | null;
  mfu: number | null;
  peak_bytes: number | null;
  headroom_bytes: number | null;
  walls_s: Numbers | null;
  exposed_s: Numbers | null;
  total_s: Numbers | null;
  wall: string | null;
  tie: boolean;
}

export interface Slices {
  stage: number[];
  stream: number[];
  category: number[];
  name: number[];
  microbatch: number[];
  chunk: number[];
  work: number[];
  start_ns: number[];
  duration_ns: number[];
}

export interface Timeline {
  method: string;
  step_time_s: number;
  stages: number;
  streams: string[];
  categories: string[];
  names: string[];
  work: string[];
  total_slices: number;
  merged: boolean;
  microbatches?: number;
  microbatches_shown?: number;
  omitted_s?: [number, number][]; // by stage
  slices: Slices;
  hidden_share: number | null;
  critical_path_s: Numbers;
}

export interface Term {
  stage: number;
  part: string;
  name: string;
  formula: string;
  divisor: string;
  bytes: number;
}

export interface Memory {
  capacity_bytes: number;
  stages: StageMemory[];
  curves: { stage: number; time_s: number[]; bytes: number[] }[];
  terms: Term[];
}

export interface SweepPoint {
  value: number | string;
  status: Status;
  reason: string;
  step_time_s: number | null;
  low_s: number | null;
  high_s: number | null;
  ep_total_share: number | null;
  ep_exposed_share: number | null;
  communication_exposed_share: number | null;
  bubble_share: number | null;
  peak_bytes: number | null;
  headroom_bytes: number | null;
  tokens_per_s_per_gpu: number | null;
}

export interface Sweep {
  key: string;
  label: string;
  unit: string;
  points: SweepPoint[];
}

export interface HeatCell {
  x: number;
  y: number;
  step_time_s: number | null;
  headroom_bytes: number | null;
  status: Status;
  reason: string;
}

export interface Heatmap {
  x_key: string;
  y_key: string;
  x: number[];
  y: number[];
  cells: HeatCell[];
}

export interface Node {
  name: string;
  parameters?: number;
  bytes?: number;
  children?: Node[];
}

export interface Ranks {
  gpus: number;
  shown: number;
  gpus_per_node: number;
  domain_gpus: number;
  columns: Record<string, number[]>;
}

export interface LadderStep {
  attack: string;
  name: string;
  wall_before?: string;
  wall?: string;
  step_time_s: number;
  gain_s: number;
  gain_share: number;
  peak_bytes: number;
  freed_bytes: number;
  headroom_bytes: number;
  fits?: boolean;
  walls_s?: Numbers;
}

export interface Ladder {
  steps: LadderStep[];
  next: LadderStep[];
  speed_up: number;
}

export interface SensitivityBar {
  kind: 'rate' | 'technique';
  name: string;
  key?: string;
  elasticity?: number;
  change?: number;
  step_time_low_s?: number;
  step_time_high_s?: number;
  headroom_low_bytes?: number;
  headroom_high_bytes?: number;
  attack?: string;
  status?: Status;
  reason?: string;
  step_time_s?: number | null;
  step_time_change?: number | null;
  headroom_change_bytes?: number | null;
}

export interface Risk {
  draws: number;
  capacity_bytes: number;
  balanced_step_time_s: number;
  rows: {
    lever: string;
    out_of_memory_probability: number;
    peak_p50_bytes: number;
    peak_p99_bytes: number;
    slow_down: number;
    slow_down_p90: number;
    imbalance: number;
    dropped_share: number;
    launchable: boolean;
    note: string;
  }[];
}

export interface Control {
  key: string;
  label: string;
  kind: 'choice' | 'range' | 'set';
  values?: (number | string)[];
  low?: number;
  high?: number;
  value: number | string | string[] | boolean | null;
  unit?: string;
  with?: string[]; // assignments that go with a changed value
}

export interface Page {
  schema: string;
  title: string;
  provenance: Record<string, unknown>;
  inputs: { job: unknown; profile: unknown; fields: string[] };
  estimate: Estimate;
  candidates: Candidate[];
  timeline: Timeline | null;
  memory: Memory;
  sweeps: Sweep[];
  heatmap: Heatmap | null;
  icicle: Node | null;
  ranks: Ranks | null;
  ladder: Ladder | null;
  sensitivity: SensitivityBar[] | null;
  controls: Control[];
  whatif: { points: WhatIfPoint[]; vary: { key: string; values: string[] }[]; risk?: Risk } | null;
  confidence: { sigma: number; interval: [number, number]; basis_share: Numbers; text: string };
}

export interface WhatIfPoint {
  vary: Record<string, string>;
  estimate: Estimate | null;
  verdict: { status: Status; rule: string | null; reason: string; fix: string };
  layout: string;
}

export function readPage(): Page {
  const text = document.getElementById('data')?.textContent ?? '';
  const page = JSON.parse(text) as Page;
  if (page.schema !== 'trifold.page/1') throw new Error(`this page reads trifold.page/1, the data is ${page.schema}`);
  return unpack(page);
}
