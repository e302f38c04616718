/** Option parsers for commander: a fault of a value is told in commander's own form. */
import { constants } from 'node:os';
import { InvalidArgumentError } from 'commander';
import { LIMITS } from '../protocol/limits.js';
import { type Parsed, parseDuration, parseEnvPair, parseSignal, parseWhole } from './arguments.js';

/** Signal names and numbers of this machine. */
export const SIGNALS: Readonly<Record<string, number>> = constants.signals;

function accept<T>(parsed: Parsed<T>): T {
  if (parsed.ok) return parsed.value;
  throw new InvalidArgumentError(parsed.fault);
}

export const duration = (text: string): number => accept(parseDuration(text));
export const signal = (text: string): string => accept(parseSignal(text, SIGNALS));
export const wholeFrom =
  (least: number) =>
  (text: string): number =>
    accept(parseWhole(text, least));

/** Collects NAME=value of a repeatable option. */
export function envPair(text: string, before: Readonly<Record<string, string>> = {}): Record<string, string> {
  const [name, value] = accept(parseEnvPair(text));
  return { ...before, [name]: value };
}

export const collect = (text: string, before: readonly string[] = []): string[] => [...before, text];

export function conversation(text: string): string {
  if (LIMITS.conversation.test(text)) return text;
  throw new InvalidArgumentError('a conversation must be 1 to 128 characters of A-Z a-z 0-9 . _ : -');
}
