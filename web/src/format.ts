// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. A missing number is an en dash.

export const missing = '–';

const group = new Intl.NumberFormat('en-US');

export function count(value: number | null | undefined): string {
  return value == null ? missing : group.format(Math.round(value));
}

export function fixed(value: number | null | undefined, digits: number): string {
  return value == null ? missing : value.toFixed(digits);
}

export function seconds(value: number | null | undefined): string {
  if (value == null) return missing;
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size >= 1) return `${value.toFixed(3)} s`;
  if (size >= 1e-3) return `${(value * 1e3).toFixed(2)} ms`;
  return size >= 1e-6 ? `${(value * 1e6).toFixed(2)} µs` : `${(value * 1e9).toFixed(0)} ns`;
}

export function gib(value: number | null | undefined, digits = 1): string {
  return value == null ? missing : (value / 2 ** 30).toFixed(digits);
}

export function bytes(value: number | null | undefined): string {
  if (value == null) return missing;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    ++unit;
  }
  return `${value < 0 ? '−' : ''}${unit === 0 ? size : size.toFixed(size >= 100 ? 0 : 1)} ${units[unit]}`;
}

export function percent(share: number | null | undefined, digits = 1): string {
  return share == null ? missing : `${(100 * share).toFixed(digits)} %`;
}

export function short(value: number): string {
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']] as const)
    if (Math.abs(value) >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  return `${value}`;
}

export function words(key: string): string {
  return key.replace(/_(s|bytes)$/, '').replaceAll('_', ' ');
}
