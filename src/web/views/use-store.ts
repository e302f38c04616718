/** A component that shows what a selector makes of a store, and is drawn again when that changes. */
import { useEffect, useRef, useState } from 'preact/hooks';

interface Readable<State> {
  get(): State;
  subscribe(listener: () => void): () => void;
}

export function useStore<State, Part>(store: Readable<State>, select: (state: State) => Part): Part {
  const part = select(store.get());
  const shown = useRef(part);
  shown.current = part;
  const selecting = useRef(select);
  selecting.current = select;
  const [, draw] = useState(0);
  useEffect(() => {
    const check = () => {
      if (selecting.current(store.get()) !== shown.current) draw((count) => count + 1);
    };
    check();
    return store.subscribe(check);
  }, [store]);
  return part;
}

/** The time, anew each interval while the component is there. */
export function useNow(everyMs: number, active = true): number {
  const [nowMs, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!active) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, active]);
  return nowMs;
}
