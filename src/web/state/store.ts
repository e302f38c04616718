/** A value that changes only through a reducer. Listeners hear of a burst of changes once, before the next frame. */

export interface Store<State, Event> {
  get(): State;
  dispatch(event: Event): void;
  /** @returns stops listening */
  subscribe(listener: () => void): () => void;
}

/** @param defer runs a function soon, once for each time it is asked */
export function createStore<State, Event>(
  initial: State,
  reduce: (state: State, event: Event) => State,
  defer: (run: () => void) => void = queueMicrotask,
): Store<State, Event> {
  const listeners = new Set<() => void>();
  let state = initial;
  let told = true;

  function tell(): void {
    told = true;
    for (const listener of [...listeners]) listener();
  }

  return {
    get: () => state,
    dispatch(event) {
      const next = reduce(state, event);
      if (next === state) return;
      state = next;
      if (!told) return;
      told = false;
      defer(tell);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}
