// SPDX-License-Identifier: Apache-2.0
// Okabe and Ito's palette (safe for the common kinds of colour blindness). Colour never stands alone: bars carry
// labels or hatching, marks differ in shape, every picture has its table.

export const partNames: Record<string, string> = {
  compute: 'compute',
  recompute: 'recompute',
  ep: 'exposed EP',
  tp: 'exposed TP',
  cp: 'exposed CP',
  pp: 'exposed PP',
  dp: 'exposed DP',
  bubble: 'bubble',
  host: 'host',
  optimizer: 'optimizer',
};
export const parts = Object.keys(partNames);

export const partColour: Record<string, string> = {
  compute: '#0072b2',
  recompute: '#56b4e9',
  ep: '#d55e00',
  tp: '#e69f00',
  cp: '#f0e442',
  pp: '#cc79a7',
  dp: '#009e73',
  bubble: '#9a9a9a',
  host: '#8a6a4f',
  optimizer: '#7b68c8',
  copy: '#7a8b00',
};

export const memoryNames: Record<string, string> = {
  weights: 'weights',
  gradients: 'gradients',
  optimizer: 'optimizer',
  activations: 'activations',
  buffers: 'buffers',
};
export const memoryParts = Object.keys(memoryNames);
export const memoryColour: Record<string, string> = {
  weights: '#0072b2',
  gradients: '#009e73',
  optimizer: '#cc79a7',
  activations: '#e69f00',
  buffers: '#9a9a9a',
};

// Backward is told from forward by lightness as well as hue.
export const workColour: Record<string, string> = {
  forward: '#0072b2',
  backward: '#e69f00',
  wgrad: '#009e73',
  merged: '#8a63a8',
};

// Where slices are coloured by pass, communication keeps clear of the passes' colours.
export const besideWork: Record<string, string> = { ...partColour, tp: '#7a8b00', cp: '#f0e442', dp: '#56b4e9' };

const dark = new Set(['#0072b2', '#d55e00', '#8a6a4f', '#7b68c8', '#009e73', '#8a63a8', '#7a8b00']);
export function inkOn(colour: string): string {
  return dark.has(colour) ? '#ffffff' : '#111111';
}

// Viridis at nine stops: perceptually even, reads in grey.
const viridis = ['#440154', '#472d7b', '#3b528b', '#2c728e', '#21918c', '#28ae80', '#5ec962', '#addc30', '#fde725'];
export function scaleColour(share: number): string {
  const at = Math.max(0, Math.min(1, share)) * (viridis.length - 1);
  const low = Math.floor(at);
  const a = viridis[low]!;
  const b = viridis[Math.min(low + 1, viridis.length - 1)]!;
  const mix = (from: number) => {
    const x = parseInt(a.slice(from, from + 2), 16);
    const y = parseInt(b.slice(from, from + 2), 16);
    return Math.round(x + (y - x) * (at - low));
  };
  return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
}
export function scaleInk(share: number): string {
  return share > 0.55 ? '#111111' : '#ffffff';
}
