/** The few signs of the page: drawn with the text's colour, never the only carrier of a meaning. */
import type { ComponentChildren } from 'preact';

const Icon = ({ children }: { children: ComponentChildren }) => (
  <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
    {children}
  </svg>
);

const line = {
  fill: 'none',
  stroke: 'currentColor',
  'stroke-width': 1.6,
  'stroke-linecap': 'round',
  'stroke-linejoin': 'round',
} as const;

export const Mark = () => (
  <svg class="mark" viewBox="0 0 32 32" width="20" height="20" aria-hidden="true" focusable="false">
    <path d="M9 27V14l7-7 7 7v5a5 5 0 0 1-10 0v-1" {...line} stroke-width={3} />
  </svg>
);
export const Queued = () => (
  <Icon>
    <circle cx="8" cy="8" r="5" {...line} stroke-dasharray="2 2.6" />
  </Icon>
);
export const Running = () => (
  <Icon>
    <circle class="turning" cx="8" cy="8" r="5" {...line} stroke-dasharray="22 10" />
  </Icon>
);
export const Done = () => (
  <Icon>
    <path d="M3.5 8.5l3 3 6-7" {...line} />
  </Icon>
);
export const Failed = () => (
  <Icon>
    <path d="M4.5 4.5l7 7m0-7l-7 7" {...line} />
  </Icon>
);
export const Stopped = () => (
  <Icon>
    <rect x="4.5" y="4.5" width="7" height="7" rx="1" {...line} />
  </Icon>
);
export const Unknown = () => (
  <Icon>
    <path d="M6 6.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.7-.8 1.4M8 11.8v.1" {...line} />
  </Icon>
);
export const Moved = () => (
  <Icon>
    <path d="M2.5 8h8m-3-3.2L10.7 8l-3.2 3.2M13.5 3.5v9" {...line} />
  </Icon>
);
export const Bell = () => (
  <Icon>
    <path d="M4 11V7.5a4 4 0 0 1 8 0V11l1 1H3zM7 14h2" {...line} />
  </Icon>
);
export const Plus = () => (
  <Icon>
    <path d="M8 3.5v9M3.5 8h9" {...line} />
  </Icon>
);
export const Search = () => (
  <Icon>
    <circle cx="7" cy="7" r="4" {...line} />
    <path d="M10 10l3.5 3.5" {...line} />
  </Icon>
);
export const Pause = () => (
  <Icon>
    <path d="M5.5 4v8M10.5 4v8" {...line} />
  </Icon>
);
export const Play = () => (
  <Icon>
    <path d="M5.5 3.8v8.4L12 8z" {...line} />
  </Icon>
);
export const Copy = () => (
  <Icon>
    <rect x="5.5" y="5.5" width="7.5" height="7.5" rx="1" {...line} />
    <path d="M3 10V3.5h6.5" {...line} />
  </Icon>
);
export const Download = () => (
  <Icon>
    <path d="M8 3v7m-3-3l3 3 3-3M3 13h10" {...line} />
  </Icon>
);
export const Up = () => (
  <Icon>
    <path d="M4 10l4-4 4 4" {...line} />
  </Icon>
);
export const Down = () => (
  <Icon>
    <path d="M4 6l4 4 4-4" {...line} />
  </Icon>
);
export const Close = () => (
  <Icon>
    <path d="M4.5 4.5l7 7m0-7l-7 7" {...line} />
  </Icon>
);
export const Again = () => (
  <Icon>
    <path d="M12.5 8A4.5 4.5 0 1 1 11 4.7M11.5 2v3h-3" {...line} />
  </Icon>
);
export const History = () => (
  <Icon>
    <circle cx="8" cy="8" r="5.2" {...line} />
    <path d="M8 5v3.2l2 1.3" {...line} />
  </Icon>
);
