/** Colours of the terminal; every pair of the sixteen with its background is at least 4.5:1. */
import type { ITheme } from '@xterm/xterm';

export const DARK: ITheme = {
  background: '#101418',
  foreground: '#d8dee6',
  cursor: '#d8dee6',
  cursorAccent: '#101418',
  selectionBackground: '#31506f',
  black: '#6b7683',
  red: '#ff7b72',
  green: '#5fc98a',
  yellow: '#e3b341',
  blue: '#79b8ff',
  magenta: '#d2a8ff',
  cyan: '#56c9c0',
  white: '#d8dee6',
  brightBlack: '#8b96a3',
  brightRed: '#ffa198',
  brightGreen: '#85dba5',
  brightYellow: '#f0cd72',
  brightBlue: '#a5d0ff',
  brightMagenta: '#e2c5ff',
  brightCyan: '#84ddd5',
  brightWhite: '#ffffff',
};

export const LIGHT: ITheme = {
  background: '#fdfdfc',
  foreground: '#22272e',
  cursor: '#22272e',
  cursorAccent: '#fdfdfc',
  selectionBackground: '#bcd7f5',
  black: '#22272e',
  red: '#b3261e',
  green: '#1a6e3c',
  yellow: '#805600',
  blue: '#1257b8',
  magenta: '#7b3fb3',
  cyan: '#0b6a70',
  white: '#6a737d',
  brightBlack: '#57606a',
  brightRed: '#c4352c',
  brightGreen: '#22774a',
  brightYellow: '#8a5f00',
  brightBlue: '#1d63c6',
  brightMagenta: '#8a4fc0',
  brightCyan: '#13747a',
  brightWhite: '#57606a',
};

/** Marks of matches; the text keeps its own colour on them. */
const findColours = (match: string, active: string) => ({
  matchBackground: match,
  matchOverviewRuler: match,
  activeMatchBackground: active,
  activeMatchColorOverviewRuler: active,
});

export const DARK_FIND = findColours('#4f4012', '#8a4b0f');
export const LIGHT_FIND = findColours('#f6e3a6', '#f3b877');
