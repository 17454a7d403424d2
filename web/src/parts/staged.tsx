// SPDX-License-Identifier: Apache-2.0
// Draws its children one a frame, so that the first of them are on the screen while the rest are being made.

import { toChildArray, type ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';

export function Staged({ children, onDone }: { children: ComponentChildren; onDone: () => void }) {
  const list = toChildArray(children);
  const [shown, setShown] = useState(1);
  useEffect(() => {
    if (shown >= list.length) {
      onDone();
      return;
    }
    // After the frame, not in it: the browser paints what stands first.
    const frame = requestAnimationFrame(() => setTimeout(() => setShown(shown + 1)));
    return () => cancelAnimationFrame(frame);
  }, [shown, list.length]);
  return <>{list.slice(0, shown)}</>;
}
