// SPDX-License-Identifier: Apache-2.0
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

// The width of an element, as it changes.
export function useWidth(initial = 900) {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(initial);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const read = () => setWidth(Math.max(280, Math.floor(element.clientWidth)));
    read();
    const observer = new ResizeObserver(read);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { ref, width };
}

// True while the page is laid out for paper.
export function usePrinting(): boolean {
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    const begin = () => setPrinting(true);
    const end = () => setPrinting(false);
    addEventListener('beforeprint', begin);
    addEventListener('afterprint', end);
    return () => {
      removeEventListener('beforeprint', begin);
      removeEventListener('afterprint', end);
    };
  }, []);
  return printing;
}

export type Theme = 'auto' | 'light' | 'dark';

// "light" or "dark" as it stands now, for canvases that cannot read CSS.
export function useScheme(theme: Theme): 'light' | 'dark' {
  const query = matchMedia('(prefers-color-scheme: dark)');
  const [system, setSystem] = useState(query.matches);
  useEffect(() => {
    const read = () => setSystem(query.matches);
    query.addEventListener('change', read);
    return () => query.removeEventListener('change', read);
  }, []);
  return theme === 'auto' ? (system ? 'dark' : 'light') : theme;
}
