// SPDX-License-Identifier: Apache-2.0
// The box beside the pointer. Pictures that use it also say the same in a live region or an aria-label.

import { createContext, type ComponentChildren } from 'preact';
import { useContext, useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Tip {
  x: number;
  y: number;
  text: string[];
}

const Context = createContext<(tip: Tip | null) => void>(() => {});
export const useTip = () => useContext(Context);

export function tipAt(event: MouseEvent | FocusEvent, ...text: string[]): Tip {
  if (event instanceof MouseEvent) return { x: event.clientX, y: event.clientY, text };
  const box = (event.target as Element).getBoundingClientRect();
  return { x: box.right, y: box.bottom, text };
}

// Pointer and keyboard handlers that show `text` while an element is hovered or focused.
export function tipHandlers(show: (tip: Tip | null) => void, ...text: string[]) {
  return {
    onMouseMove: (e: MouseEvent) => show(tipAt(e, ...text)),
    onMouseLeave: () => show(null),
    onFocus: (e: FocusEvent) => show(tipAt(e, ...text)),
    onBlur: () => show(null),
  };
}

export function TipLayer({ children }: { children: ComponentChildren }) {
  const [tip, setTip] = useState<Tip | null>(null);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!tip || !box.current) return;
    const size = box.current.getBoundingClientRect();
    box.current.style.left = `${Math.max(4, Math.min(tip.x + 14, innerWidth - size.width - 4))}px`;
    box.current.style.top = `${tip.y + 18 + size.height > innerHeight ? tip.y - size.height - 10 : tip.y + 18}px`;
  }, [tip]);
  return (
    <Context.Provider value={setTip}>
      {children}
      {tip && (
        <div class="tip" ref={box} aria-hidden="true">
          {tip.text.map((line) => (
            <div>{line}</div>
          ))}
        </div>
      )}
    </Context.Provider>
  );
}
